"""The guard's records: an evaluation, the state between two evaluations, and a decision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from specops.effect.watch import Standing
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
    "fell_back",
    "fell_further",
    "gave_up",
    "canary",
    "probe",
    "step",
    "returned",
    "settled",
    "override",
    "released",
]
FULL = 100
"""Per cent of the traffic that may be speculative."""

Verdict = Literal["healthy", "bad", "degraded", "no_data", "no_traffic", "unknown"]
"""`healthy`: each signal that decides is known and good, and so is each part. `degraded`: the pool as a whole
is not bad, but a replica, a class or the slowest requests are. `no_data`: series are missing, or not a
number, or not every replica is scraped. `no_traffic`: too few requests. `unknown`: Prometheus did not
answer, or the load was not measured, or both pools are slow. Only `bad` falls back, and only `healthy` goes
up."""

Signal = Literal["acceptance", "tpot", "e2e", "errors", "drafting"]
"""`drafting`: whether tokens are drafted at all while answers are made. It is judged replica by replica."""


class Threshold(Record):
    value: float
    source: str
    """The rollout file, a result's file with its hash, or a default."""


class SignalFinding(Record):
    """The verdict on one signal, of all traffic or of a part of it."""

    signal: Signal
    traffic_class: str | None = None
    """None: all classes together."""

    replica: str | None = None
    """The `instance` label of one server; None: all of them together."""

    tail: bool = False
    """Of the slowest requests: `value` is their share."""

    verdict: Verdict
    value: float | None = None
    """Acceptance and errors: a share. Latencies: the ratio to the baseline."""

    threshold: Threshold | None = None
    """None where nothing was measured that the signal could be compared with."""

    n: float | None = None
    """Requests behind `value`; of acceptance, drafted tokens."""

    why: str
    """The reason in words, with the figures."""

    @property
    def part(self) -> str | None:
        """What the finding is of: a replica, a class or the slowest requests; None for the whole pool."""
        if self.replica is not None:
            return f"replica {self.replica}"
        if self.traffic_class is not None:
            return f"class {self.traffic_class}"
        return "the slowest requests" if self.tail else None


class Probe(Record):
    """How much traffic a verdict takes: what a probe's share is chosen by."""

    eligible_per_s: float
    """Requests a second that the router's rules allow on the speculative pool, whatever the switch has."""

    requests: float
    """Requests of one server group that a verdict on every signal takes."""

    least_share: float = 0.0
    """Share of the eligible requests, 0 to 1, below which the load of a server is lighter than any that the
    baseline measured."""

    def percent(self, within_s: float) -> int:
        """The percentage of the eligible requests that gives a verdict within so many seconds; above 100
        where not even all of them do."""
        rate = max(self.eligible_per_s, 1e-9) * within_s
        return math.ceil(100 * max(min(self.requests / rate, 1e6), self.least_share))


class Evaluation(Record):
    OLDER: ClassVar = {"seen_at": "observed_at"}

    ts: float
    """Seconds since the epoch, by this machine's clock."""

    verdict: Verdict
    """Verdict on all traffic together (signals/verdicts.py). Findings of single classes do not change it."""

    reason: str
    findings: tuple[SignalFinding, ...] = ()
    observed_at: float | None = None
    """Time by Prometheus' clock; None where it did not answer."""

    repeated: bool | None = None
    """Whether, in a row of bad evaluations, the samples since its first are bad by themselves. None outside a
    row."""

    both_slow: bool = False
    """The standard pool is slower than it was measured as well: speculation is not the cause."""

    effect: tuple[Standing, ...] = ()
    """How each latency stands in the live effect, where both groups have enough requests."""

    not_covered: tuple[str, ...] = ()
    """Replicas whose samples are missing, each with what is missing. The verdict is of the others."""

    probe: Probe | None = None
    """None where nobody counts the eligible requests."""

    took_ms: float = 0.0
    """Including `prometheus_ms`, the wait for Prometheus."""

    prometheus_ms: float = 0.0

    @property
    def whole(self) -> tuple[SignalFinding, ...]:
        """Findings of the whole pool."""
        return tuple(finding for finding in self.findings if finding.part is None)

    @property
    def bad_parts(self) -> tuple[SignalFinding, ...]:
        """Findings of parts that are bad."""
        return tuple(finding for finding in self.findings if finding.part and finding.verdict == "bad")


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

    row_signals: tuple[Signal, ...] = ()
    """Signals that were bad in the row."""

    fell_for: tuple[Signal, ...] = ()
    """Signals that it fell back for, until it has returned: a step needs each of them known and good."""

    blind_since: float | None = None
    """Time of the first of the evaluations in a row that had no data, or were unknown; None after another."""

    healthy_in_a_row: int = 0
    attempts: int = 0
    """Attempts to return since it was last on for good."""

    wait_s: float = 0.0
    """The rest of the cool-down; at a step, of the time after which too little traffic changes the share."""

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


class GuardDecision(Record):
    state: State
    why: str
    events: tuple[Event, ...] = ()
