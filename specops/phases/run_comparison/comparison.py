"""Two runs side by side: what changed in settings, what surely changed in results, what is not compared.

The verdict rests on speed-ups and gates. Both arms of a run are measured in turn on one machine, so its load
cancels in the ratio. Between two runs it does not, and no interval of a latency covers that. So latencies and
acceptance are compared beside the verdict (latencies.py). The interval of the ratio
of two speed-ups is MOVER's (Zou and Donner 2008, on logarithms), from the two stored intervals. Those hold
together over all classes, loads and looks of their run. A change is sure if its interval excludes 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specops import results
from specops.errors import UsageError
from specops.experiment.findings import Basis, StoredInterval
from specops.load.arrivals import Level
from specops.phases import PHASES, PhaseName, phase_named, phases_of
from specops.phases.ab.report import Report, Speedups
from specops.phases.measurement import checked
from specops.phases.run_comparison import latencies
from specops.phases.run_comparison.latencies import Figure as Latency
from specops.phases.run_comparison.latencies import ratio
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.conclusion import challenger_of
from specops.results import Result, Verdict, sha256
from specops.section import Frozen
from specops.stats import Interval

PHASE = "compare"
ALL = "all classes"
CONDITIONS = ("endpoint", "temperature", "top_p", "ignore_eos", "max_tokens", "arrivals")
"""Settings of ab.json that must be equal: they change what a request costs."""
Outcome = Literal["better", "worse", "no sure change"]
Figure = Literal["end to end", "per output token"]
Key = tuple[str, Level]
"""A traffic class and a load."""


class Setting(Frozen):
    """A setting, a version, a part of the environment or the hash of an input that differs; null: not set."""

    name: str
    a: str | None
    b: str | None


class Change(Frozen):
    """A speed-up over the standard, by class and load, in both runs."""

    figure: Figure
    traffic_class: str
    load: str
    a: StoredInterval
    b: StoredInterval
    change: StoredInterval
    """The speed-up of B over that of A."""

    outcome: Outcome


class UnmatchedPhase(Frozen):
    """A phase whose result only one run has."""

    phase: PhaseName
    run: Literal["A", "B"]


class Gate(Frozen):
    phase: str
    a: Verdict
    b: Verdict
    outcome: Outcome


class Incomparable(Frozen):
    """A part of the runs that cannot be compared, and why."""

    what: str
    why: str


class Comparison(Frozen):
    """`data` of the result."""

    a: str
    b: str
    same: bool
    """Both folders hold the same measurement."""

    settings: list[Setting]
    changes: list[Change]
    latencies: list[Latency]
    acceptances: list[Latency]
    gates: list[Gate]
    unmatched: list[UnmatchedPhase]
    unknown: list[Incomparable]


def compare_folders(a: Path, b: Path) -> Result:
    """The comparison of two run folders, from A to B. Reads both.

    The verdict is no if something is surely worse, undecided if nothing could be compared, else yes.
    Raises UsageError for a path that is not a run folder.
    """
    return compare(_folder(a), _folder(b))


def _folder(path: Path) -> RunFolder:
    if path.parts[:1] in (("http:",), ("https:",)):
        raise UsageError(
            f"{path} is an address: `compare` reads the folders of two runs; `ab` compares two servers",
            hint="specops ab --help",
        )
    return RunFolder.opened(path)


def compare(a: RunFolder, b: RunFolder) -> Result:
    """Return the comparison of two run folders that were read. Pure."""
    data = _comparison(a, b)
    judged: list[Change | Gate] = [*data.changes, *data.gates]
    worse = [row for row in judged if row.outcome == "worse"]
    better = [row for row in judged if row.outcome == "better"]
    runs = (("a", a), ("b", b))
    verdict: Verdict = "no" if worse else "yes" if data.changes or data.same else "undecided"
    return Result(
        phase=PHASE,
        inputs={
            f"{name} {phase}": _hash(result) for name, run in runs for phase, result in run.results.items()
        },
        settings={"a": data.a, "b": data.b},
        environment=results.environment(),
        verdict=verdict,
        reason=_reason(data, len(worse), len(better)),
        summary={
            "worse": len(worse),
            "better": len(better),
            "compared": len(data.changes),
            "settings_changed": len(data.settings),
            "latencies_higher": sum(latency.outcome == "higher" for latency in data.latencies),
            "latencies_lower": sum(latency.outcome == "lower" for latency in data.latencies),
            "acceptances_changed": sum(row.outcome in ("higher", "lower") for row in data.acceptances),
            "phases_of_one_run": len(data.unmatched),
            "unknown": len(data.unknown),
        },
        data=data.model_dump(mode="json"),
    )  # fmt: skip


def read_comparison(result: Result) -> Comparison:
    return checked(Comparison, result.data, "the comparison is damaged: data")


def _hash(result: Result) -> str:
    return sha256(result.model_dump(mode="json", by_alias=True))


def _reason(data: Comparison, worse: int, better: int) -> str:
    if data.same:
        return "both folders hold the same measurement"
    if worse:
        return f"{worse} of {len(data.changes) + len(data.gates)} results are surely worse in {data.b}"
    if not data.changes:
        return "no result can be compared: " + "; ".join(dict.fromkeys(part.why for part in data.unknown))
    gains = f"{better} surely better" if better else "no sure change"
    return f"nothing is surely worse in {data.b}; {gains}, of {len(data.changes) + len(data.gates)} results"


def _comparison(a: RunFolder, b: RunFolder) -> Comparison:
    report_a, report_b = a.comparison, b.comparison
    same = report_a is not None and report_b is not None and _hash(a.results["ab"]) == _hash(b.results["ab"])
    unknown = [
        Incomparable(what=f"{run.path}/{file.name}", why=file.why)
        for run in (a, b)
        for file in run.unreadable
    ]
    changes: list[Change] = []
    if report_a is None or report_b is None:
        missing = [run.path for run, report in ((a, report_a), (b, report_b)) if report is None]
        why = " and ".join(f"{path} has no finished comparison (ab.json)" for path in missing)
        unknown.append(Incomparable(what="speed-ups", why=why))
    elif unlike := _unlike(a, b):
        unknown.append(Incomparable(what="speed-ups", why=unlike))
    elif not same:
        changes = list(_changes(report_a, report_b))
        unknown += _left(report_a, report_b)
    cells_a, cells_b = (
        (latencies.cells_of(a), latencies.cells_of(b)) if _alike(a, b) and not same else ({}, {})
    )
    return Comparison(
        a=str(a.path),
        b=str(b.path),
        same=same,
        settings=list(_settings(a, b)),
        changes=changes,
        latencies=latencies.latencies(cells_a, cells_b),
        acceptances=latencies.acceptances(cells_a, cells_b),
        gates=[] if same or _other_model(a, b) else list(_gates(a, b)),
        unmatched=list(_unmatched(a, b)),
        unknown=unknown,
    )


def _alike(a: RunFolder, b: RunFolder) -> bool:
    """Return whether both runs sent the same requests to the same model: of comparisons, else of
    baselines."""
    if a.comparison is not None and b.comparison is not None:
        return _unlike(a, b) is None
    if a.comparison is not None or b.comparison is not None:
        return False
    baseline_a, baseline_b = a.results.get("baseline"), b.results.get("baseline")
    if baseline_a is None or baseline_b is None:
        return False
    same = all(
        baseline_a.settings.get(name) == baseline_b.settings.get(name) for name in (*CONDITIONS, "model")
    )
    return same and _prompts(baseline_a) is not None and _prompts(baseline_a) == _prompts(baseline_b)


def _unmatched(a: RunFolder, b: RunFolder) -> Iterator[UnmatchedPhase]:
    """A file that is there and unreadable is named as unknown."""
    unreadable = {file.name for run in (a, b) for file in run.unreadable}
    for phase in phases_of(None):
        if (phase in a.results) != (phase in b.results) and f"{phase}.json" not in unreadable:
            yield UnmatchedPhase(phase=phase, run="A" if phase in a.results else "B")


def _unlike(a: RunFolder, b: RunFolder) -> str | None:
    """Return why the speed-ups of the two runs are not of the same thing."""
    result_a, result_b = a.results["ab"], b.results["ab"]
    prompts_a, prompts_b = _prompts(result_a), _prompts(result_b)
    if prompts_a != prompts_b or prompts_a is None:
        return f"the prompts differ: {_short(prompts_a)} and {_short(prompts_b)}"
    for name in CONDITIONS:
        if result_a.settings.get(name) != result_b.settings.get(name):
            return f"{name} differs: {result_a.settings.get(name)} and {result_b.settings.get(name)}"
    return _other_model(a, b)


def _other_model(a: RunFolder, b: RunFolder) -> str | None:
    """Return which models the two runs served, if not the same; None without comparisons."""
    result_a, result_b = a.results.get("ab"), b.results.get("ab")
    if result_a is None or result_b is None:
        return None
    target = "standard target"
    if (
        target in result_a.inputs
        and target in result_b.inputs
        and result_a.inputs[target] != result_b.inputs[target]
    ):
        target_a, target_b = _short(result_a.inputs[target]), _short(result_b.inputs[target])
        return f"the target models differ: {target_a} and {target_b}"
    models = [_model(run) for run in (result_a, result_b)]
    if models[0] != models[1]:
        return f"the models differ: {models[0]} and {models[1]}"
    return None


def _prompts(result: Result) -> str | None:
    prompts = result.data.get("prompts")
    return str(prompts["sha256"]) if isinstance(prompts, dict) and "sha256" in prompts else None


def _model(result: Result) -> str | None:
    """Return what the standard serves: its model or target, else the name under which it serves."""
    arm = result.environment.get("arms", {}).get("standard", {})
    pool = arm.get("pool") or {}
    name = pool.get("model") or pool.get("target") or arm.get("model")
    return None if name is None else _without_folders(name)


def _changes(report_a: Report, report_b: Report) -> Iterator[Change]:
    """End-to-end speed-ups count only if both runs decided on them: otherwise answers differ in length."""
    cells_a, cells_b = _cells(report_a), _cells(report_b)
    for key in (key for key in cells_a if key in cells_b):
        before, after = cells_a[key], cells_b[key]
        if before.end_to_end and after.end_to_end:
            yield from _change("end to end", key, before.speedups.e2e, after.speedups.e2e)
        if {before.basis, after.basis} <= {"e2e", "tpot"}:
            yield from _change("per output token", key, before.speedups.tpot, after.speedups.tpot)


def _change(figure: Figure, key: Key, a: Interval | None, b: Interval | None) -> Iterator[Change]:
    if a is not None and b is not None:
        change = ratio(b, a)
        outcome: Outcome = "worse" if change.high < 1 else "better" if change.low > 1 else "no sure change"
        name, level = key
        yield Change(
            figure=figure, traffic_class=name, load=str(level), a=a, b=b, change=change, outcome=outcome
        )


@dataclass(frozen=True)
class _Cell:
    speedups: Speedups
    basis: Basis

    @property
    def end_to_end(self) -> bool:
        """Return whether the end-to-end time says something: answers are as long as the standard's."""
        return self.basis == "e2e"


def _cells(report: Report) -> dict[Key, _Cell]:
    """Return the cells by class and load, from the lightest load; all classes together first."""
    challenger = report.challengers[challenger_of(report)]
    cells: dict[Key, _Cell] = {}
    for number, level in enumerate(challenger.levels):
        if len(challenger.classes) != 1:
            cells[ALL, level.speedups.level] = _Cell(level.speedups, level.decision.basis)
        for name, traffic_class in challenger.classes.items():
            speedups = traffic_class.levels[number]
            cells[name, level.speedups.level] = _Cell(speedups, speedups.decision.basis)
    return cells


def _left(report_a: Report, report_b: Report) -> Iterator[Incomparable]:
    """Yield what was measured in one run only, and what has no interval or answers of other lengths."""
    cells_a, cells_b = _cells(report_a), _cells(report_b)
    alone: dict[tuple[str, Level], list[str]] = {}
    for key in dict.fromkeys([*cells_a, *cells_b]):
        name, level = key
        if key not in cells_a or key not in cells_b:
            alone.setdefault(("A" if key in cells_a else "B", level), []).append(name)
        elif cells_a[key].speedups.e2e is None or cells_b[key].speedups.e2e is None:
            yield Incomparable(what=f"{name} at {level}", why="too few prompts for an interval")
        elif not (cells_a[key].end_to_end and cells_b[key].end_to_end):
            why = "answers differ in length from the standard's, so the end-to-end time says nothing"
            yield Incomparable(what=f"{name} at {level}", why=why)
    for (run, level), names in alone.items():
        yield Incomparable(what=f"{', '.join(names)} at {level}", why=f"measured in {run} only")


def _gates(a: RunFolder, b: RunFolder) -> Iterator[Gate]:
    for phase in (name for name in PHASES if phase_named(name).noiseless):
        result_a, result_b = a.results.get(phase), b.results.get(phase)
        if result_a is not None and result_b is not None:
            pair = (result_a.verdict, result_b.verdict)
            outcome: Outcome = (
                "worse" if pair == ("yes", "no") else "better" if pair == ("no", "yes") else "no sure change"
            )
            yield Gate(phase=phase, a=result_a.verdict, b=result_b.verdict, outcome=outcome)  # fmt: skip


def _settings(a: RunFolder, b: RunFolder) -> Iterator[Setting]:
    """What differs in the first phase that both runs have, the comparison before others; and the results that
    one of them lacks."""
    for phase in phases_of(None):
        if (phase in a.results) != (phase in b.results):
            has = ["written" if phase in run.results else None for run in (a, b)]
            yield Setting(name=f"{phase}.json", a=has[0], b=has[1])
    shared = [phase for phase in ("ab", *PHASES) if phase in a.results and phase in b.results]
    settings_a, settings_b = (_settings_of(run.results[shared[0]]) if shared else {} for run in (a, b))
    for name in dict.fromkeys([*settings_a, *settings_b]):
        if settings_a.get(name) != settings_b.get(name):
            yield Setting(name=name, a=settings_a.get(name), b=settings_b.get(name))


def _settings_of(first: Result) -> dict[str, str]:
    """Settings, versions, environment and inputs by name; addresses and times are left out."""
    settings: dict[str, str] = {}
    settings["specops"] = first.specops
    _flat("", first.environment, settings)
    _flat("settings", {name: value for name, value in first.settings.items() if name != "arms"}, settings)
    settings |= {f"input {name}": _short(sha) for name, sha in first.inputs.items() if name != "settings"}
    prompts = first.data.get("prompts")
    if isinstance(prompts, dict):
        settings["prompts"] = f"{prompts.get('count')} ({_without_folders(prompts.get('path'))})"
    return settings


def _flat(prefix: str, value: Mapping[str, Any], settings: dict[str, str]) -> None:
    for name, inner in value.items():
        if name in ("base_url", "identity"):
            continue
        full = f"{prefix} {name}".strip()
        if isinstance(inner, dict):
            _flat(full, inner, settings)
        elif inner not in (None, [], ()):
            settings[full] = _without_folders(inner)


def _without_folders(value: object) -> str:
    """Return a setting without the folders of a path: they are of one machine."""
    text = str(value)
    return Path(text).name if text.startswith("/") else text


def _short(sha: str | None) -> str:
    return "none" if sha is None else sha[:12]
