"""The page of a run, written after each result: the answer and its figures, the phases, the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from specops.errors import FileError, SpecopsError
from specops.hints import beginning
from specops.phases import PHASES
from specops.phases.playbook.walk import RECORD, Walk, following_walk
from specops.phases.route import unmatched_sentence
from specops.phases.run_page import INDEX, conditions, sections
from specops.phases.run_page.conclusion import (
    SKIPPED,
    STATES,
    Conclusion,
    challenger_of,
    conclusion,
    phase_reason,
    shown_state,
    unrouted,
)
from specops.phases.run_page.folder import RunFolder, read
from specops.render import write_files
from specops.render.figures import NONE, count, sentence
from specops.render.report.document import Badge, Cell, Document, Section, State, Step, Table, Tile
from specops.render.report.formats import GENERATOR, html
from specops.results import Result

NEXT, CHANGE = "next: ", "change: "
SAMPLES = "The prompts are samples that ship with specops: measure your own traffic before you decide."


def document(run: RunFolder) -> Document:
    walk = run.walk()
    found = _answer(run, walk)
    # The reason of a phase may have many parts; a decision has its support, and is one sentence.
    headline, *parts = [found.headline] if found.support else found.headline.split("; ")
    return Document(
        title=f"Rollout {run.name}: does speculative decoding pay?",
        subtitle=_subtitle(run),
        status=found.state,
        verdict=found.verdict,
        headline=capital(sentence(headline)),
        summary=(*map(capital, (*map(sentence, parts), *found.support)), *_cautions(run, walk, found)),
        tiles=tuple(tiles(run)),
        steps=tuple(_next(run, walk)),
        sections=tuple(_sections(run, walk)),
        badges=tuple(_badges(run, walk)),
        badges_title="Phases",
        foot=tuple(_foot(run)),
        steps_title="Next",
    )


def _answer(run: RunFolder, walk: Walk) -> Conclusion:
    """The conclusion, unless the file that it would rest on is unreadable."""
    for one in run.unreadable:
        if one.name == "ab.json":
            return Conclusion("bad", "Result unreadable", sentence(one.why))
    return conclusion(walk)


def _cautions(run: RunFolder, walk: Walk, found: Conclusion) -> Iterator[Cell]:
    """Yield what limits the answer."""
    if found.caution:
        yield Cell(found.caution, "open")
    stopped = walk.step(walk.stopped) if walk.stopped else None
    if stopped is not None:
        yield Cell(f"Stopped at {stopped.phase}; later phases did not run.", "bad")
    else:
        ended = {one.phase for one in walk.steps} | {one.phase for one in walk.skipped}
        unreadable = {one.name for one in run.unreadable}
        missing = [phase for phase in PHASES if phase not in ended and f"{phase}.json" not in unreadable]
        if ended and missing:
            yield Cell(
                f"Not complete: {count(len(missing), 'phase')} of {len(PHASES)} did not run yet.", "open"
            )
    gap = unrouted(walk)
    if gap is not None:
        yield Cell(capital(sentence(unmatched_sentence(gap.unmatched))), "bad")
    checked = run.results.get("checklist")
    if checked is not None and checked.verdict in ("no", "undecided"):
        yield Cell(f"Not ready to go live: {_counted(checked.summary)}.", STATES[checked.verdict][0])
    prompts = conditions.prompts_of(run)
    if prompts is not None and conditions.are_samples(prompts):
        yield Cell(SAMPLES, "open")
    for one in run.unreadable:
        hint = f" Fix: {sentence(one.hint)}" if one.hint else ""
        yield Cell(f"Unreadable: {sentence(one.why)}{hint}", "bad")


def _counted(summary: Mapping[str, Any]) -> str:
    parts = [(summary.get(status) or 0, status) for status in ("failed", "open")]
    return " and ".join(f"{count(int(number), 'item')} {status}" for number, status in parts if number)


def _subtitle(run: RunFolder) -> str:
    parts = []
    dates = sorted(one.created for one in run.results.values())
    if dates:
        first, last = f"{dates[0]:%Y-%m-%d %H:%M}", f"{dates[-1]:%Y-%m-%d %H:%M}"
        same_day = dates[0].date() == dates[-1].date()
        until = "" if last == first else f" to {last[11:] if same_day else last}"
        parts.append(f"{first}{until} UTC")
    for one in reversed(list(run.results.values())):
        processor, cores = one.environment.get("processor"), one.environment.get("cores")
        if cores:
            parts.append(f"{processor}, {count(int(cores), 'core')}")
            break
    arms = run.results["ab"].environment.get("arms", {}) if "ab" in run.results else {}
    engines = {str(arm.get("pool", {}).get("engine")): arm.get("server") for arm in arms.values()}
    parts += [f"{engine} {version}" if version else engine for engine, version in engines.items()]
    parts += sorted({f"model {arm['model']}" for arm in arms.values() if arm.get("model")})
    prompts = conditions.prompts_of(run)
    if prompts is not None:
        classes = prompts.get("classes") or {}
        parts.append(f"{count(int(prompts['count']), 'prompt')} in {count(len(classes), 'class', 'classes')}")
    return " · ".join(parts)


def tiles(run: RunFolder) -> Iterator[Tile]:
    report = run.comparison
    if report is not None:
        name = challenger_of(report)
        found = report.challengers[name]
        ends = [found.levels[0], *([found.levels[-1]] if len(found.levels) > 1 else [])]
        for level in ends:
            speedups, shown = level.speedups, level.speedups.e2e
            state = shown_state(level.decision.verdict, shown)
            yield Tile(
                f"Speed-up at {speedups.level}",
                f"{shown.estimate:.2f}×" if shown else NONE,
                f"[{shown.low:.2f}, {shown.high:.2f}], {count(speedups.prompts, 'prompt')}"
                if shown
                else f"too few of {count(speedups.prompts, 'prompt')}",
                state,
            )
        counts = [one.acceptance for one in report.arms.get(name, []) if one.acceptance is not None]
        if counts and counts[0].rate is not None and counts[0].length is not None:
            yield Tile(
                "Acceptance",
                f"{counts[0].rate:.0%}",
                f"of drafted tokens; {counts[0].length:.1f} tokens a step",
            )
        yield from _equality(run)
    checked = run.checklist
    if checked is not None:
        counted = {
            status: sum(one.status == status for one in checked.items) for status in ("failed", "open")
        }
        done = len(checked.items) - sum(counted.values())
        overall: State = "bad" if counted["failed"] else "open" if counted["open"] else "good"
        note = ", ".join(f"{number} {status}" for status, number in counted.items() if number)
        yield Tile(
            "Go-live checklist", f"{done} of {len(checked.items)}", note or "all items decided", overall
        )


def _equality(run: RunFolder) -> Iterator[Tile]:
    report = run.comparison
    assert report is not None
    parity = [one for one in report.challengers[challenger_of(report)].parity if not one.mixed]
    if parity:
        worst = min(parity, key=lambda one: one.equal / max(one.compared, 1))
        state: State = "good" if worst.equal == worst.compared else "open"
        yield Tile("Equal answers", f"{worst.equal} of {worst.compared}", "greedy, at each load", state)


def _sections(run: RunFolder, walk: Walk) -> Iterator[Section]:
    """The phases stand after what they found, before the files and conditions."""
    made = list(sections.sections(run))
    columns = ("phase", "state", "result", "when (UTC)", "data")
    rest = ("Rendered files", "Conditions")
    yield from (one for one in made if one.title not in rest)
    yield Section("Phases", (), (), (Table("", columns, tuple(_phases(run, walk)), prose=(2,)),))
    yield from (one for one in made if one.title in rest)


def _badges(run: RunFolder, walk: Walk) -> Iterator[Badge]:
    for phase, state, *_ in _phases(run, walk):
        assert isinstance(phase, Cell)
        assert isinstance(state, Cell)
        yield Badge(phase.text, state.state or "none", state.text, f"#{phase.anchor}")


def _phases(run: RunFolder, walk: Walk) -> Iterator[tuple[str | Cell, ...]]:
    unreadable = {one.name: one for one in run.unreadable}
    skipped = {one.phase: one for one in walk.skipped}
    for phase in PHASES:
        name = f"{phase}.json"
        head = Cell(phase, anchor=f"phase-{phase}")
        step = walk.step(phase)
        if name in unreadable:
            one = unreadable[name]
            yield head, Cell("unreadable", "bad"), one.why, "", Cell(name, link=name)
        elif step is not None:
            state, word = STATES[step.result.verdict]
            when = f"{step.result.created:%Y-%m-%d %H:%M}"
            yield head, Cell(word, state), phase_reason(step), when, Cell(name, link=name)
        elif phase in skipped:
            left = skipped[phase]
            hint = f"; next: {left.hint}" if left.hint else ""
            yield head, Cell(SKIPPED[1], SKIPPED[0]), f"{left.reason}{hint}", "", ""
        else:
            yield head, Cell("not run", "none"), "", "", ""


def _next(run: RunFolder, walk: Walk) -> Iterator[Step]:
    """Yield the next command as the terminal says it; nothing if the rollout file is not known."""
    known = run.rollout()
    if known is None or not (walk.steps or walk.skipped):
        return
    lines = following_walk(walk, *known)
    changes = [line.removeprefix(CHANGE) for line in lines if line.startswith(CHANGE)]
    for line in lines:
        if line.startswith(NEXT):
            yield Step(" ".join(sentence(one) for one in changes), "", line.removeprefix(NEXT))


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _foot(run: RunFolder) -> Iterator[str]:
    versions = sorted({one.specops for one in run.results.values()})
    written = f"Written by specops {', '.join(versions)}" if versions else "Written by specops"
    yield f"{written} from the JSON files beside this page. Times are UTC."


RUNS = "runs"


def write_page(folder: Path) -> Path:
    """Write the page of `folder` and return its path. Raises FileError, also for a page that is not ours."""
    path = folder / INDEX
    if path.exists() and not _is_ours(path):
        raise FileError(
            f"could not write {path}: the file there was not written by specops",
            hint=f"{beginning(path)}  # what it is; the page is written once {INDEX} is free",
        )
    write_files(folder, {INDEX: html(document(read(folder)))})
    return path


class PageUpdates:
    """Call it with each result that was written, and `flush` when the command ends.

    A partial result is written after every visit of a measurement, so its page waits for `flush`. A page that
    cannot be written never stops a measurement: `warn` gets the sentence.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._waiting: set[Path] = set()

    def __call__(self, path: Path, result: Result) -> None:
        names = [*(f"{phase}.json" for phase in PHASES), RECORD]
        if path.name in names and is_run_folder(path.parent):
            self._waiting.add(path.parent)
            if result.verdict != "partial":
                self.flush()

    def flush(self) -> None:
        for folder in self._waiting:
            try:
                write_page(folder)
            except SpecopsError as error:
                self._warn(error.message)
            except Exception as error:
                self._warn(f"could not write {folder / INDEX}: {type(error).__name__}: {error}")
        self._waiting.clear()


def is_run_folder(folder: Path) -> bool:
    """A folder that `run` has written into, or one of `runs/`. A phase's command may write elsewhere too."""
    return (folder / RECORD).exists() or folder.resolve().parent.name == RUNS


def _is_ours(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as page:
            return GENERATOR in page.read(4096)
    except OSError:
        return False
