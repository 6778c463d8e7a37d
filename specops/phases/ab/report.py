"""The report in ab.json, beside the windows: verdicts and their figures; how it is read, and what is
drawn of it.

The shape of `data` (format 3), for all that read it:

- `challengers[NAME].classes[CLASS].levels[i]`: one traffic class at one load. The speed-ups, and beside them
`decision` (verdict, reason, speedup, basis, more_prompts, findings). `basis` is the figure that decided: end
to end, or time per token where the answers are not shown to be equally long.
- `challengers[NAME].levels[i]`: all classes together at that load: `decision`, `speedups`, `throughput` and
`lengths`.
- `challengers[NAME].classes[CLASS].decision`: over all loads; its reason says at which.
- `challengers[NAME].deploy`: the pairs {"traffic_class", "level"} to deploy, by class, then from the
lightest load. Empty unless the challenger's own decision is yes.
- `challengers[NAME].decision`: over all classes and loads; its reason names the loads.
- `challengers[NAME].findings`: the table on which it rests: claim, observed, bound, margin, n, verdict.
- `challengers[NAME].pays_up_to`: streams, all classes together.
- `standard_note`: what of the standard may be speculation. A standard that surely speculates leaves every
decision undecided. So does an A/A, whose noise is in `same_server`.
- `challengers[NAME].parity`: equal greedy answers, by load, and among sampled requests.

Levels are in order, the lightest first. A decision of yes at a load says that this class pays there and
at every lighter load that was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from specops import results
from specops.errors import FileError
from specops.experiment.answers import Difference as Witness
from specops.experiment.cache_claims import Source
from specops.experiment.findings import Decision, Finding, Ratio, StoredInterval
from specops.experiment.records import Measurements
from specops.hints import with_options
from specops.load.arrivals import Level
from specops.load.record import Acceptance, Spread
from specops.load.replay import ReplayFacts
from specops.load.validity import LatencyChange
from specops.load.workload import StoredProvenance
from specops.phases.ab.earlier import Difference, measurements_of
from specops.phases.measurement import checked
from specops.prometheus.exposition import CacheCounts
from specops.render.ab_plot import Curve, Mark, Panel, Picture, Row
from specops.results import Result
from specops.section import Frozen
from specops.stats import Interval

EXPECTED: Mapping[str, tuple[float, float]] = {
    "e2e": (1.5, 2.5),
    "tpot": (2.0, 3.0),
    "throughput": (1.5, 2.5),
    "acceptance": (0.6, 0.85),
}
"""The default targets, shown beside what is measured. No verdict depends on them."""


CHALLENGER = "speculative"
"""The name of the rollout's own challenger."""

FORMAT = 3
"""Format of `data`; what has another is refused."""


class LookCounts(BaseModel):
    """The number of looks at the evidence, done and planned."""

    done: int
    planned: int


class AbData(Measurements):
    """`data` of ab.json beside the report."""

    prompts: StoredProvenance
    failed: dict[str, str]
    """Arms that failed, and why."""

    looks: LookCounts
    replay: ReplayFacts | None = None
    """What was replayed; None for other arrivals."""

    duration_s: float
    """How long the arms were observed, in seconds, all arms together."""


class Speedups(Frozen):
    """Speed-ups at one load: the standard's time over the challenger's. A figure without an interval had
    too few pairs of windows for one."""

    level: Level
    prompts: int
    """Pairs of requests that both arms were sent."""

    e2e: Ratio
    tpot: Ratio
    ttft: Ratio
    ttft_change_ms: float | None
    stream_throughput: Ratio
    """Speed-up of tokens a second of a request: that end to end, times the challenger's tokens over the
    standard's. The interval is of the times."""


class Throughput(Frozen):
    """The throughput of all classes at one load, in tokens of whole answers a second, all streams full."""

    standard: float
    challenger: float
    windows: int
    """Pairs of windows."""

    ratio: StoredInterval | None
    """None with too few windows for an interval."""

    @property
    def estimate(self) -> float:
        return self.challenger / self.standard


class ArmFigures(Frozen):
    """One arm at one level, all classes together. Latencies are those of whole answers."""

    level: Level
    requests: int
    failed: int
    failures: dict[str, int]
    """Number of failures by kind."""

    late: int
    """Answered requests over the objective, or over a multiple of the standard's 95th percentile."""

    retried: int = 0
    """Requests that the server refused at first and that were sent again, failed ones too."""

    slowest_ms: list[float]
    """The three that took longest, failed ones too; the slowest first."""

    ttft_ms: Spread
    tpot_ms: Spread
    e2e_ms: Spread
    tokens_per_sec: float | None
    acceptance: Acceptance | None
    acceptance_missing: str | None
    cached_share: float | None = None
    """Share of the prompt tokens in its cache, by its answers; None where they do not say."""

    cache_counts: CacheCounts | None = None
    """The same by the server's counters, over all its requests; None where it shows none."""

    steadiness: LatencyChange | None = None
    """How the arm's own latency changed during the comparison; None where this was not looked at."""


class DeployTarget(Frozen):
    """A traffic class and a load at which a challenger is to be deployed for it."""

    traffic_class: str
    level: Level


class ClassLevel(Speedups):
    """One traffic class at one load."""

    decision: Decision


class CacheState(Speedups):
    """The requests of which a cache may know as much of the prompt, all classes together."""

    state: str
    """cold, shared prefix, or earlier turns."""


class CacheComparison(Frozen):
    """Shares of the prompt tokens that were in the cache, at one load; as each arm reports it."""

    level: Level
    source: Source
    standard: float
    challenger: float
    difference: StoredInterval | None
    """The challenger's share less the standard's; None with too few windows for an interval."""

    equal: bool
    """Whether the challenger surely has no more, and not surely less: then first tokens are compared."""


class ClassFigures(Frozen):
    decision: Decision
    """Decision over all loads."""

    levels: list[ClassLevel] = Field(min_length=1)


class LevelComparison(Frozen):
    """All classes together at one load."""

    decision: Decision
    speedups: Speedups
    throughput: Throughput | None
    lengths: Finding
    """The length of answers compared with the standard's."""


class EqualCounts(Frozen):
    equal: int
    compared: int

    def __str__(self) -> str:
        return f"{self.equal}/{self.compared}"


class ParityCounts(EqualCounts):
    mixed: bool
    """Whether sampled requests shared the batches."""

    level: Level
    control: EqualCounts | None
    """The standard's answers to requests that came again, compared with its own first ones."""

    near_ties: int
    witnesses: list[Witness]


class Dot(Frozen):
    """A prompt at the lightest load: its speed-up end to end, and by token where it has one."""

    prompt: str
    traffic_class: str
    e2e: float | None
    tpot: float | None


class Challenger(Frozen):
    decision: Decision
    deploy: list[DeployTarget]
    """Empty unless the decision is yes."""

    failed: str | None
    pays_up_to: int | None
    """Streams; None where it does not surely pay at the lightest load."""

    load: str
    """One sentence on the heavier loads."""

    classes: dict[str, ClassFigures]
    levels: list[LevelComparison]
    parity: list[ParityCounts]
    prompts: list[Dot]
    findings: list[Finding]
    """The table on which the decision rests."""

    caches: list[CacheComparison] = Field(default_factory=list)
    """By load; without those at which neither arm reports any."""

    cache_states: list[CacheState] = Field(default_factory=list)
    """By load and state; empty where all requests have one state."""

    @property
    def deployed_up_to(self) -> int | None:
        """The most streams at which it is to be deployed, for any class; 0 where it is not; None where the
        loads were rates of arrivals."""
        if all(level.speedups.level.concurrency is None for level in self.levels):
            return None
        return max((self.deployed_streams(name) or 0 for name in self.classes), default=0)

    def deployed_streams(self, traffic_class: str) -> int | None:
        """The most streams at which it is to be deployed for a class; None where it is at no such load."""
        streams = [
            target.level.concurrency
            for target in self.deploy
            if target.traffic_class == traffic_class and target.level.concurrency is not None
        ]
        return max(streams, default=None)


@dataclass(frozen=True)
class TotalAcceptance:
    """Acceptance of an arm over all its loads."""

    rate: float
    """Accepted over drafted tokens."""

    draft_tokens: float
    drafts: float


class Noise(Frozen):
    """Differences of one server from itself in an A/A, all classes together."""

    arm: str
    level: Level
    e2e: StoredInterval | None
    below: float | None
    """Differences below this share are within the noise; None with too few prompts for an interval."""


class Report(Frozen):
    format: Literal[3] = 3
    standard: str
    best: str | None
    """The fastest challenger that deploys."""

    expected: dict[str, tuple[float, float]]
    arms: dict[str, list[ArmFigures]]
    challengers: dict[str, Challenger]
    differences: list[Difference]
    standard_note: str | None = None
    """What was observed of the standard that may be speculation, or was configured to be."""

    same_server: list[Noise] | None = None
    """Report of an A/A; None for a comparison of servers."""

    same_prompts: bool = False
    """Whether prompts were sent as they are, so that a cache may know them."""

    @property
    def main_challenger(self) -> str:
        """The rollout's own challenger, else the best, else the first."""
        if CHALLENGER in self.challengers:
            return CHALLENGER
        return self.best or next(iter(self.challengers))

    def acceptance(self, arm: str) -> TotalAcceptance | None:
        """The acceptance of `arm` over all loads; None where nothing was drafted, or it is not known."""
        counts = [level.acceptance for level in self.arms.get(arm, []) if level.acceptance is not None]
        draft_tokens = sum(count.draft_tokens for count in counts)
        if not draft_tokens:
            return None
        accepted = sum(count.accepted_tokens for count in counts)
        drafts = sum(count.drafts or 0.0 for count in counts)
        return TotalAcceptance(accepted / draft_tokens, draft_tokens, drafts)


def read(result: Result, name: str) -> Report:
    """The report in a finished comparison that is called `name` in the message of the FileError."""
    if "challengers" in result.data and result.data.get("format") != FORMAT:
        raise FileError(
            f"{name} was written by an earlier version of specops: expected format {FORMAT} of its data",
            hint=with_options({"--fresh": True}),
        )
    fields = {key: value for key, value in result.data.items() if key in Report.model_fields}
    return checked(Report, fields, f"{name} is damaged: data")


def read_comparison(path: Path) -> Result:
    """The comparison at `path`, finished or not. Raises FileError for another result, or a damaged one."""
    result = results.read(path)
    measurements_of(result, str(path))
    if result.verdict != "partial":
        read(result, str(path))
    return result


ALL = "all"


def picture(report: Report) -> Picture:
    """The plot of a comparison (specops.render.ab_plot): every challenger by class and with all together."""
    return Picture(
        panels=tuple(
            Panel(
                f"{name} against {report.standard}",
                tuple(_rows(challenger)),
                _curves(report.arms[name]),
                next(
                    (
                        figures.acceptance_missing
                        for figures in report.arms[name]
                        if figures.acceptance_missing
                    ),
                    "no position",
                ),
            )
            for name, challenger in report.challengers.items()
        ),
        expected=report.expected["e2e"],
        confidence="Each interval over pairs of windows, widened by the autocorrelation that was measured.",
    )


def _rows(challenger: Challenger) -> list[Row]:
    rows = [
        Row(
            name,
            tuple(dot.e2e for dot in challenger.prompts if dot.traffic_class == name and dot.e2e),
            *_marks([(figures.level, figures.e2e, figures.decision) for figures in of_class.levels]),
        )
        for name, of_class in challenger.classes.items()
    ]
    loads = [(level.speedups.level, level.speedups.e2e, level.decision) for level in challenger.levels]
    return [*rows, Row(ALL, (), *_marks(loads))]


def _marks(
    loads: Sequence[tuple[Level, Interval | None, Decision]],
) -> tuple[tuple[Mark, ...], tuple[str, ...]]:
    """The marks of the loads with an interval, and the others with their decision in words."""
    marks = tuple(
        Mark(str(level), interval.estimate, interval.low, interval.high, decision.verdict)
        for level, interval, decision in loads
        if interval
    )
    words = {"yes": "deploy", "no": "do not deploy"}
    unmarked = tuple(
        f"{level} ({words.get(decision.verdict, 'undecided')})"
        for level, interval, decision in loads
        if not interval
    )
    return marks, unmarked


def _curves(measured: list[ArmFigures]) -> tuple[Curve, ...]:
    return tuple(
        Curve(
            str(figures.level),
            figures.acceptance.rate,
            tuple(share for share in figures.acceptance.per_position if share is not None),
        )
        for figures in measured
        if figures.acceptance is not None and figures.acceptance.per_position
    )
