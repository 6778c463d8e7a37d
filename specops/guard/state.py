"""What the guard knows from one evaluation to the next, as its journal keeps it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Mode = Literal["on", "fallen", "canary", "held"]
Event = Literal[
    "fell_back", "fell_further", "gave_up", "canary", "step", "returned", "settled", "override", "released"
]
FULL = 100
"""Per cent of what may be speculative."""

Verdict = Literal["healthy", "bad", "no_data", "no_traffic", "unknown"]
"""`no_data`: the series are not there, or not a number. `no_traffic`: they are, with too little in them.
`unknown`: it could not be asked, or what is there cannot be compared with what was measured. None of the
three is bad."""

Signal = Literal["acceptance", "tpot", "e2e", "errors"]


class Threshold(Record):
    value: float
    source: str
    """Where it comes from: the rollout file, a result's file with its hash, or the playbook."""


class Finding(Record):
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


class Evaluation(Record):
    ts: float
    """Seconds since the epoch, by this machine."""

    verdict: Verdict
    """Of all traffic together (seeing/verdicts.py): bad where one signal is; healthy where acceptance and
    latencies are, as far as there is a yardstick. What was found of one class has no part in it."""

    reason: str
    findings: tuple[Finding, ...] = ()
    observed_at: float | None = None
    """When it was asked, by Prometheus' clock; None where it did not answer."""

    repeated: bool | None = None
    """In a row of bad evaluations: whether what came since its first one, by itself, is bad as well. None
    where there was no row, or this one is not bad."""

    both_slow: bool = False
    """The standard pool is slower than it was measured, too: speculation is not the reason."""

    took_ms: float = 0.0
    """Of which `prometheus_ms` was waiting for Prometheus."""

    prometheus_ms: float = 0.0


class Override(Record):
    """What a person decided."""

    pool: Literal["standard", "speculative"]
    by: str
    why: str
    left_s: float | None
    """None: until somebody ends it."""


class State(Record):
    mode: Mode = "on"
    percent: int = FULL
    """Of what may be speculative, what the guard lets be; an override comes before it."""

    bad_in_a_row: int = 0
    row_began: float | None = None
    """Of the first of them, by Prometheus' clock; None without a row, or where it was not told."""

    row_last: float | None = None
    """Of the last of them that counted."""

    healthy_in_a_row: int = 0
    attempts: int = 0
    """To come back, since it was last on for good."""

    wait_s: float = 0.0
    """What is left of the cool-down."""

    override: Override | None = None
    at: float | None = None
    """Of the last decision; seconds since the epoch, as all instants."""

    counted_at: float | None = None
    """Of the last evaluation that counted for a row."""

    @property
    def wanted(self) -> int:
        """The percentage that routers should have."""
        if self.override is None:
            return self.percent
        return FULL if self.override.pool == "speculative" else 0


class Decision(Record):
    state: State
    why: str
    events: tuple[Event, ...] = ()
