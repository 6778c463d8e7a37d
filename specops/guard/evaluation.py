"""What one look at the deployment found. Nothing is decided here."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Verdict = Literal["healthy", "bad", "no_data", "no_traffic", "unknown"]
"""`no_data`: the series are not there, or not a number. `no_traffic`: they are, with too little in them.
`unknown`: it could not be asked, or what is there cannot be compared with what was measured. None of the
three is bad."""

Signal = Literal["acceptance", "tpot", "e2e", "errors"]


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Threshold(_Kept):
    value: float
    source: str
    """Where it comes from: the rollout file, a result's file with its hash, or the playbook."""


class Finding(_Kept):
    """One signal, of all traffic or of one class."""

    signal: Signal
    traffic_class: str | None = None
    """None: of all classes together."""

    verdict: Verdict
    value: float | None = None
    """Acceptance and errors: a share. Latencies: how many times the baseline's."""

    threshold: Threshold | None = None
    n: float | None = None
    """Requests that `value` is of; of acceptance, drafted tokens."""

    why: str
    """In words, with its figures."""


class Evaluation(_Kept):
    ts: float
    """Seconds since the epoch, by this machine."""

    verdict: Verdict
    """Of all traffic together (seeing/verdicts.py): bad where one signal is; healthy where acceptance and
    latencies are, as far as there is a yardstick. What was found of one class has no part in it."""

    reason: str
    findings: tuple[Finding, ...] = ()
    seen_at: float | None = None
    """When it was asked, by Prometheus' clock; None where it did not answer."""

    repeated: bool | None = None
    """In a row of bad evaluations: whether what came since its first one, by itself, is bad as well. None
    where there was no row, or this one is not bad."""

    both_slow: bool = False
    """The standard pool is slower than it was measured, too: speculation is not the reason."""

    took_ms: float = 0.0
    """Of which `prometheus_ms` was waiting for Prometheus."""

    prometheus_ms: float = 0.0
