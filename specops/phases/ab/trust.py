"""How far a comparison can be trusted: what would spoil its figures, and what of it was observed. Pure.

The page of `ab`, the last page of a run and its HTML page show the same list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specops.experiment.findings import Finding
from specops.experiment.sentences import divided, has_divided
from specops.load.validity import LatencyChange
from specops.phases.ab.report import ArmFigures, Challenger, Report
from specops.render.figures import count, times
from specops.stats import Interval

WIDE = 2.0
"""From here on the ends of an interval are so many times apart that the estimate says little."""


@dataclass(frozen=True)
class Doubt:
    """A reason to doubt the figures that was looked for."""

    name: str
    observed: tuple[str, ...] = ()
    """What was observed, a sentence each without a full stop; empty where nothing was."""

    brief: str = ""
    """`observed` in a few words; empty where it is."""

    unknown: str = ""
    """Why some of it could not be looked for; empty where all of it was."""

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self.observed, *([self.unknown] if self.unknown else [])) or ("none observed",)


def doubts(report: Report, name: str, steadiness: Sequence[LatencyChange] = ()) -> list[Doubt]:
    """Every kind of doubt about the challenger `name`, observed or not; `steadiness` is the baseline's."""
    challenger = report.challengers[name]
    arms = {arm: report.arms.get(arm, []) for arm in (report.standard, name)}
    return [_drift(arms, challenger, steadiness), _noise(report, challenger), _width(challenger), _bad(arms)]


def caution(doubts: Sequence[Doubt]) -> str:
    """One sentence on what was observed; empty where nothing was."""
    briefs = [doubt.brief for doubt in doubts if doubt.brief]
    return f"Limits of this measurement: {'; '.join(briefs)}." if briefs else ""


def _drift(
    arms: dict[str, list[ArmFigures]], challenger: Challenger, baseline: Sequence[LatencyChange]
) -> Doubt:
    looked = [(arm, level_figures.steadiness) for arm, figures in arms.items() for level_figures in figures]
    changes = [("baseline", change) for change in baseline]
    changes += [(arm, change) for arm, change in looked if change is not None]
    changed = [f"{where}: {change.sentence}" for where, change in changes if change.drift]
    in_time = [
        _describe_division(finding) for finding in _waits(challenger) if finding.cause in ("time", "drift")
    ]
    servers = dict.fromkeys(where for where, change in changes if change.drift)
    briefs = [f"the speed was not steady ({', '.join(servers)})"] if servers else []
    briefs += ["the speed-up changed during the run"] if in_time else []
    unseen = [where for where, change in changes if change.ratio is None]
    unseen += [arm for arm, change in looked if change is None]
    unknown = f"too few requests to see a drift of {', '.join(dict.fromkeys(unseen))}" if unseen else ""
    return Doubt(
        "drift", (*changed, *in_time), "; ".join(briefs), unknown if looked else "no load was compared"
    )


def _noise(report: Report, challenger: Challenger) -> Doubt:
    waits = _waits(challenger)
    observed = [
        _describe_division(finding)
        for finding in waits
        if has_divided(finding) and finding.cause not in ("time", "drift")
    ]
    observed += [
        f"one server against itself: differences below {100 * noise.below:.1f}% at {noise.level} are noise"
        for noise in report.same_server or []
        if noise.below is not None
    ]
    # What divides the samples is not looked for where they are surely slower, or too few.
    unseen = [
        str(finding.load)
        for finding in waits
        if (finding.verdict == "against" or finding.ratio is None) and not has_divided(finding)
    ]
    return Doubt(
        "noise",
        tuple(observed),
        "the speed-up depends on how it was measured" if observed else "",
        "no load was compared"
        if not waits
        else f"not looked for at {', '.join(unseen)}, since no gain is shown there"
        if unseen
        else "",
    )


def _width(challenger: Challenger) -> Doubt:
    cells = dict(_intervals(challenger))
    wide = {where: ratio for where, ratio in cells.items() if ratio is not None and is_wide(ratio)}
    none = [where for where, ratio in cells.items() if ratio is None]
    return Doubt(
        "wide intervals",
        tuple(f"{where}: {times(ratio)}" for where, ratio in wide.items()),
        f"{len(wide)} of {count(len(cells), 'interval')} {'is' if len(wide) == 1 else 'are'} wide"
        if wide
        else "",
        "no load was compared"
        if not cells
        else f"too few requests for an interval: {', '.join(none)}"
        if none
        else "",
    )


def is_wide(ratio: Interval) -> bool:
    """Whether the ends of the interval are `WIDE` times apart or more."""
    return ratio.high >= WIDE * ratio.low


def _intervals(challenger: Challenger) -> Iterator[tuple[str, Interval | None]]:
    for name, figures in challenger.classes.items():
        for level in figures.levels:
            yield f"{name}, {level.level}", level.e2e
    for comparison in challenger.levels if len(challenger.classes) != 1 else ():
        yield f"all classes, {comparison.speedups.level}", comparison.speedups.e2e


def _bad(arms: dict[str, list[ArmFigures]]) -> Doubt:
    lines, bad = [], 0
    for arm, figures in arms.items():
        for level_figures in figures:
            counts = {
                "failed": level_figures.failed,
                "late": level_figures.late,
                "refused at first": level_figures.retried,
            }
            listed = [f"{number} {word}" for word, number in counts.items() if number]
            if listed:
                lines.append(
                    f"{arm} at {level_figures.level}: of {level_figures.requests} requests"
                    f" {', '.join(listed)}"
                )
            bad += level_figures.failed + level_figures.late
    requests = sum(level_figures.requests for figures in arms.values() for level_figures in figures)
    return Doubt(
        "bad requests",
        tuple(lines),
        f"{bad} of {requests} requests failed or were late" if bad else "",
        "" if requests else "no request was measured",
    )


def _waits(challenger: Challenger) -> list[Finding]:
    """The findings on the wait of all classes together, one a load: those that factors divide."""
    return [
        finding
        for finding in challenger.findings
        if finding.claim == "wait" and finding.traffic_class is None
    ]


def _describe_division(finding: Finding) -> str:
    return f"at {finding.load}, {divided(finding)}"
