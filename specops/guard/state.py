"""The guard's records: an evaluation, the state between two evaluations, and a decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from specops.section import Frozen


class Record(Frozen):
    """A part of the journal or of an answer. Unknown keys are refused."""

    OLDER: ClassVar[Mapping[str, str]] = {}
    """Keys that earlier guards wrote, and what they are called now."""

    @model_validator(mode="before")
    @classmethod
    def _current_keys(cls, data: Any) -> Any:
        if isinstance(data, dict) and any(key in cls.OLDER for key in data):
            return {cls.OLDER.get(key, key): value for key, value in data.items()}
        return data


Mode = Literal["on", "fallen", "canary", "held"]
Event = Literal[
    "fell_back", "fell_further", "gave_up", "canary", "step", "returned", "settled", "override", "released"
]
FULL = 100
"""Per cent of the traffic that may be speculative."""

Verdict = Literal["healthy", "bad", "no_data", "no_traffic", "unknown"]
"""`no_data`: the series are missing, or not a number. `no_traffic`: too few requests. `unknown`: Prometheus
did not answer, or the load was not measured, or both pools are slow. None of the three is bad."""

Signal = Literal["acceptance", "tpot", "e2e", "errors"]


class Threshold(Record):
    value: float
    source: str
    """The rollout file, a result's file with its hash, or the playbook."""


class Finding(Record):
    """The verdict on one signal, of all traffic or of one class."""

    signal: Signal
    traffic_class: str | None = None
    """None: all classes together."""

    verdict: Verdict
    value: float | None = None
    """Acceptance and errors: a share. Latencies: the ratio to the baseline."""

    threshold: Threshold | None = None
    n: float | None = None
    """Requests behind `value`; of acceptance, drafted tokens."""

    why: str
    """The reason in words, with the figures."""


class Evaluation(Record):
    OLDER: ClassVar = {"seen_at": "observed_at"}

    ts: float
    """Seconds since the epoch, by this machine's clock."""

    verdict: Verdict
    """Verdict on all traffic together (signals/verdicts.py). Findings of single classes do not change it."""

    reason: str
    findings: tuple[Finding, ...] = ()
    observed_at: float | None = None
    """Time by Prometheus' clock; None where it did not answer."""

    repeated: bool | None = None
    """Whether, in a row of bad evaluations, the samples since its first are bad by themselves. None outside a
    row."""

    both_slow: bool = False
    """The standard pool is slower than it was measured as well: speculation is not the cause."""

    took_ms: float = 0.0
    """Including `prometheus_ms`, the wait for Prometheus."""

    prometheus_ms: float = 0.0


class Override(Record):
    """A person's decision."""

    pool: Literal["standard", "speculative"]
    by: str
    why: str
    left_s: float | None
    """None: until somebody ends it."""


class State(Record):
    mode: Mode = "on"
    percent: int = FULL
    """What the guard allows, without an override."""

    bad_in_a_row: int = 0
    row_began: float | None = None
    """Time of the first bad evaluation of the row, by Prometheus' clock; None without a row."""

    row_last: float | None = None
    """Time of the last bad evaluation that counted."""

    row_at: float | None = None
    """Time of the first bad evaluation of the row, by this machine's clock."""

    healthy_in_a_row: int = 0
    attempts: int = 0
    """Attempts to return since it was last on for good."""

    wait_s: float = 0.0
    """The rest of the cool-down."""

    override: Override | None = None
    at: float | None = None
    """Time of the last decision; seconds since the epoch, like all times."""

    counted_at: float | None = None
    """Time of the last evaluation that counted for a row."""

    @property
    def target_percent(self) -> int:
        """The percentage that the targets should have: the override's, else the guard's."""
        if self.override is None:
            return self.percent
        return FULL if self.override.pool == "speculative" else 0


class Decision(Record):
    state: State
    why: str
    events: tuple[Event, ...] = ()
