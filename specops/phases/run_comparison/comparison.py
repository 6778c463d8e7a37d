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
from specops.errors import FileError, UsageError
from specops.experiment.findings import Basis, StoredInterval
from specops.hints import listing
from specops.load.arrivals import Level
from specops.phases import PHASES, PhaseName, phase_named
from specops.phases.ab.report import Report, Speedups
from specops.phases.measurement import checked
from specops.phases.run_comparison import latencies
from specops.phases.run_comparison.latencies import Figure as Latency
from specops.phases.run_comparison.latencies import ratio
from specops.phases.run_page.conclusion import challenger_of
from specops.phases.run_page.folder import RunFolder, read
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


def compared(a: Path, b: Path) -> Result:
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
    if not path.is_dir():
        raise FileError(
            f"there is no run folder {path}: expected the folders of two runs, such as runs/NAME",
            hint=listing(path.parent),
        )
    found = read(path)
    if not found.results and not found.unreadable:
        raise FileError(
            f"{path} is not a run folder: it has no result of a phase; a run folder is runs/NAME",
            hint=listing(path),
        )
    return found


def compare(a: RunFolder, b: RunFolder) -> Result:
    """Return the comparison of two run folders that were read. Pure."""
    data = _comparison(a, b)
    found: list[Change | Gate] = [*data.changes, *data.gates]
    worse = [one for one in found if one.outcome == "worse"]
    better = [one for one in found if one.outcome == "better"]
    runs = (("a", a), ("b", b))
    verdict: Verdict = "no" if worse else "yes" if data.changes or data.same else "undecided"
    return Result(
        phase=PHASE,
        inputs={f"{name} {phase}": _hash(one) for name, run in runs for phase, one in run.results.items()},
        settings={"a": data.a, "b": data.b},
        environment=results.environment(),
        verdict=verdict,
        reason=_reason(data, len(worse), len(better)),
        summary={
            "worse": len(worse),
            "better": len(better),
            "compared": len(data.changes),
            "settings_changed": len(data.settings),
            "latencies_higher": sum(one.outcome == "higher" for one in data.latencies),
            "latencies_lower": sum(one.outcome == "lower" for one in data.latencies),
            "acceptances_changed": sum(one.outcome in ("higher", "lower") for one in data.acceptances),
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
        return "no result can be compared: " + "; ".join(dict.fromkeys(one.why for one in data.unknown))
    found = f"{better} surely better" if better else "no sure change"
    return f"nothing is surely worse in {data.b}; {found}, of {len(data.changes) + len(data.gates)} results"


def _comparison(a: RunFolder, b: RunFolder) -> Comparison:
    one, other = a.comparison, b.comparison
    same = one is not None and other is not None and _hash(a.results["ab"]) == _hash(b.results["ab"])
    unknown = [
        Incomparable(what=f"{run.path}/{each.name}", why=each.why)
        for run in (a, b)
        for each in run.unreadable
    ]
    changes: list[Change] = []
    if one is None or other is None:
        missing = [run.path for run, found in ((a, one), (b, other)) if found is None]
        why = " and ".join(f"{path} has no finished comparison (ab.json)" for path in missing)
        unknown.append(Incomparable(what="speed-ups", why=why))
    elif unlike := _unlike(a, b):
        unknown.append(Incomparable(what="speed-ups", why=unlike))
    elif not same:
        changes = list(_changes(one, other))
        unknown += _left(one, other)
    ours, theirs = (latencies.cells_of(a), latencies.cells_of(b)) if _alike(a, b) and not same else ({}, {})
    return Comparison(
        a=str(a.path),
        b=str(b.path),
        same=same,
        settings=list(_settings(a, b)),
        changes=changes,
        latencies=latencies.latencies(ours, theirs),
        acceptances=latencies.acceptances(ours, theirs),
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
    one, other = a.results.get("baseline"), b.results.get("baseline")
    if one is None or other is None:
        return False
    same = all(one.settings.get(name) == other.settings.get(name) for name in (*CONDITIONS, "model"))
    return same and _prompts(one) is not None and _prompts(one) == _prompts(other)


def _unmatched(a: RunFolder, b: RunFolder) -> Iterator[UnmatchedPhase]:
    """A file that is there and unreadable is named as unknown."""
    unreadable = {one.name for run in (a, b) for one in run.unreadable}
    for phase in PHASES:
        if (phase in a.results) != (phase in b.results) and f"{phase}.json" not in unreadable:
            yield UnmatchedPhase(phase=phase, run="A" if phase in a.results else "B")


def _unlike(a: RunFolder, b: RunFolder) -> str | None:
    """Return why the speed-ups of the two runs are not of the same thing."""
    one, other = a.results["ab"], b.results["ab"]
    ours, theirs = _prompts(one), _prompts(other)
    if ours != theirs or ours is None:
        return f"the prompts differ: {_short(ours)} and {_short(theirs)}"
    for name in CONDITIONS:
        if one.settings.get(name) != other.settings.get(name):
            return f"{name} differs: {one.settings.get(name)} and {other.settings.get(name)}"
    return _other_model(a, b)


def _other_model(a: RunFolder, b: RunFolder) -> str | None:
    """Return which models the two runs served, if not the same; None without comparisons."""
    one, other = a.results.get("ab"), b.results.get("ab")
    if one is None or other is None:
        return None
    target = "standard target"
    if target in one.inputs and target in other.inputs and one.inputs[target] != other.inputs[target]:
        return f"the target models differ: {_short(one.inputs[target])} and {_short(other.inputs[target])}"
    models = [_model(run) for run in (one, other)]
    if models[0] != models[1]:
        return f"the models differ: {models[0]} and {models[1]}"
    return None


def _prompts(result: Result) -> str | None:
    found = result.data.get("prompts")
    return str(found["sha256"]) if isinstance(found, dict) and "sha256" in found else None


def _model(result: Result) -> str | None:
    """Return what the standard serves: its model or target, else the name under which it serves."""
    arm = result.environment.get("arms", {}).get("standard", {})
    pool = arm.get("pool") or {}
    name = pool.get("model") or pool.get("target") or arm.get("model")
    return None if name is None else _shown(name)


def _changes(one: Report, other: Report) -> Iterator[Change]:
    """End-to-end speed-ups count only if both runs decided on them: otherwise answers differ in length."""
    ours, theirs = _cells(one), _cells(other)
    for key in (key for key in ours if key in theirs):
        before, after = ours[key], theirs[key]
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
    found: dict[Key, _Cell] = {}
    for number, level in enumerate(challenger.levels):
        if len(challenger.classes) != 1:
            found[ALL, level.speedups.level] = _Cell(level.speedups, level.decision.basis)
        for name, of in challenger.classes.items():
            one = of.levels[number]
            found[name, level.speedups.level] = _Cell(one, one.decision.basis)
    return found


def _left(one: Report, other: Report) -> Iterator[Incomparable]:
    """Yield what was measured in one run only, and what has no interval or answers of other lengths."""
    ours, theirs = _cells(one), _cells(other)
    alone: dict[tuple[str, Level], list[str]] = {}
    for key in dict.fromkeys([*ours, *theirs]):
        name, level = key
        if key not in ours or key not in theirs:
            alone.setdefault(("A" if key in ours else "B", level), []).append(name)
        elif ours[key].speedups.e2e is None or theirs[key].speedups.e2e is None:
            yield Incomparable(what=f"{name} at {level}", why="too few prompts for an interval")
        elif not (ours[key].end_to_end and theirs[key].end_to_end):
            why = "answers differ in length from the standard's, so the end-to-end time says nothing"
            yield Incomparable(what=f"{name} at {level}", why=why)
    for (run, level), names in alone.items():
        yield Incomparable(what=f"{', '.join(names)} at {level}", why=f"measured in {run} only")


def _gates(a: RunFolder, b: RunFolder) -> Iterator[Gate]:
    for phase in (name for name in PHASES if phase_named(name).noiseless):
        one, other = a.results.get(phase), b.results.get(phase)
        if one is not None and other is not None:
            pair = (one.verdict, other.verdict)
            outcome: Outcome = (
                "worse" if pair == ("yes", "no") else "better" if pair == ("no", "yes") else "no sure change"
            )
            yield Gate(phase=phase, a=one.verdict, b=other.verdict, outcome=outcome)  # fmt: skip


def _settings(a: RunFolder, b: RunFolder) -> Iterator[Setting]:
    """What differs in the first phase that both runs have, the comparison before others; and the results that
    one of them lacks."""
    for phase in PHASES:
        if (phase in a.results) != (phase in b.results):
            has = ["written" if phase in run.results else None for run in (a, b)]
            yield Setting(name=f"{phase}.json", a=has[0], b=has[1])
    both = [phase for phase in ("ab", *PHASES) if phase in a.results and phase in b.results]
    one, other = (_known(run.results[both[0]]) if both else {} for run in (a, b))
    for name in dict.fromkeys([*one, *other]):
        if one.get(name) != other.get(name):
            yield Setting(name=name, a=one.get(name), b=other.get(name))


def _known(first: Result) -> dict[str, str]:
    """Settings, versions, environment and inputs by name; addresses and times are left out."""
    found: dict[str, str] = {}
    found["specops"] = first.specops
    _flat("", first.environment, found)
    _flat("settings", {name: value for name, value in first.settings.items() if name != "arms"}, found)
    found |= {f"input {name}": _short(sha) for name, sha in first.inputs.items() if name != "settings"}
    prompts = first.data.get("prompts")
    if isinstance(prompts, dict):
        found["prompts"] = f"{prompts.get('count')} ({_shown(prompts.get('path'))})"
    return found


def _flat(prefix: str, value: Mapping[str, Any], found: dict[str, str]) -> None:
    for name, inner in value.items():
        if name in ("base_url", "identity"):
            continue
        full = f"{prefix} {name}".strip()
        if isinstance(inner, dict):
            _flat(full, inner, found)
        elif inner not in (None, [], ()):
            found[full] = _shown(inner)


def _shown(value: object) -> str:
    """Return a setting without the folders of a path: they are of one machine."""
    text = str(value)
    return Path(text).name if text.startswith("/") else text


def _short(sha: str | None) -> str:
    return "none" if sha is None else sha[:12]
