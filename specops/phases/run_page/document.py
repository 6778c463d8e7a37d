"""The page of a run, written after each result: the answer and its figures, the phases, the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from specops.config import Rollout
from specops.errors import FileError, SpecopsError
from specops.hints import beginning
from specops.phases import ON_REQUEST, PHASES, phase_named
from specops.phases.ab.document import tiles as ab_tiles
from specops.phases.ab.sentences import Conclusion
from specops.phases.commands import Commands
from specops.phases.playbook.walk import RECORD, Walk, following_walk, order_of
from specops.phases.route import unmatched_sentence
from specops.phases.run_folder import RunFolder
from specops.phases.run_page import INDEX, conditions, sections
from specops.phases.run_page.conclusion import (
    SKIPPED,
    challenger_of,
    conclusion,
    phase_reason,
    unrouted,
)
from specops.render import write_files
from specops.render.figures import capital, count, sentence
from specops.render.report.document import (
    STATES,
    Badge,
    Cell,
    Document,
    Section,
    State,
    Step,
    Table,
    Tile,
)
from specops.render.report.formats import GENERATOR, html
from specops.results import Result

ON_TERMINAL = ("Where it pays", "Can this measurement be trusted?", "Latency", "Routing", "Phases")
"""Sections that the terminal shows of a run."""
NEXT, CHANGE = "next: ", "change: "
SAMPLES = "The prompts are samples that ship with specops: measure your own traffic before you decide."


def document(run: RunFolder) -> Document:
    return _document(run, run.walk(), run.rollout())


def walk_document(walk: Walk, rollout: Rollout, path: Path) -> Document:
    """The document of a walk that has just ended, for the terminal; `path` is that of the rollout file. Each
    phase's own command shows the sections that are left out, and so does the page."""
    document = _document(RunFolder(walk.folder), walk, (rollout, path))
    return replace(
        document,
        summary=(*_reused(walk, rollout), *document.summary, f"open {walk.folder / INDEX}"),
        sections=tuple(section for section in document.sections if section.title in ON_TERMINAL),
    )


def _reused(walk: Walk, rollout: Rollout) -> Iterator[str]:
    """Yield when a running server was measured: a new configuration under its address shows in no hash."""
    for step in walk.steps:
        when = f"{step.result.created:%Y-%m-%d %H:%M} UTC"
        for name in phase_named(step.phase).pools if step.reused else ():
            endpoint = getattr(rollout.pools, name).endpoint
            if endpoint is not None:
                base_url = endpoint.base_url
                yield f"reused: {base_url} as it was on {when} ({step.phase}); --fresh measures it again"


def _document(run: RunFolder, walk: Walk, rollout_file: tuple[Rollout, Path] | None) -> Document:
    answer = _answer(run, walk)
    # The reason of a phase may have many parts; a decision has its support, and is one sentence.
    headline, *parts = [answer.headline] if answer.support else answer.headline.split("; ")
    again = (
        Commands(*rollout_file, run.path).of("run {rollout} --continue") if rollout_file is not None else ""
    )
    return Document(
        title=f"Rollout {run.name}: does speculative decoding pay?",
        subtitle=_subtitle(run),
        status=answer.state,
        verdict=answer.verdict,
        headline=capital(sentence(headline)),
        summary=(
            *map(capital, (*map(sentence, parts), *answer.support)),
            *_cautions(run, walk, answer, again, _expected(run, walk, rollout_file)),
        ),
        tiles=tuple(tiles(run)),
        steps=tuple(_next(walk, rollout_file)),
        sections=tuple(_sections(run, walk, rollout_file)),
        badges=tuple(_badges(run, walk, rollout_file)),
        badges_title="Phases",
        foot=tuple(_foot(run)),
        steps_title="Next",
    )


def _answer(run: RunFolder, walk: Walk) -> Conclusion:
    """The conclusion, unless the file that it would rest on is unreadable."""
    for file in run.unreadable:
        if file.name == "ab.json":
            return Conclusion("bad", "Result unreadable", sentence(file.why))
    return conclusion(walk)


def _expected(run: RunFolder, walk: Walk, rollout_file: tuple[Rollout, Path] | None) -> list[str]:
    """The phases of the rollout, and those on request that have ended."""
    requested = order_of(rollout_file[0]) if rollout_file is not None else ()
    ended = {step.phase for step in walk.steps} | {skip.phase for skip in walk.skipped}
    return [phase for phase in PHASES if phase in ended or phase in requested or phase not in ON_REQUEST]


def _cautions(
    run: RunFolder, walk: Walk, answer: Conclusion, again: str, expected: list[str]
) -> Iterator[str | Cell]:
    """Yield what limits the answer."""
    if answer.caution:
        yield Cell(answer.caution, "open")
    stopped = walk.step(walk.stopped) if walk.stopped else None
    if stopped is not None:
        yield Cell(f"Stopped at {stopped.phase}; later phases did not run.", "bad")
        if again:
            yield f"To continue past this gate: {again}"
    else:
        ended = {step.phase for step in walk.steps} | {skip.phase for skip in walk.skipped}
        unreadable = {file.name for file in run.unreadable}
        missing = [phase for phase in expected if phase not in ended and f"{phase}.json" not in unreadable]
        if ended and missing:
            yield Cell(
                f"Not complete: {count(len(missing), 'phase')} of {len(expected)} did not run yet.", "open"
            )
    gap = unrouted(walk)
    if gap is not None:
        yield Cell(capital(sentence(unmatched_sentence(gap.unmatched))), "bad")
    checked = run.results.get("checklist")
    if checked is not None and checked.verdict in ("no", "undecided"):
        numbers = [(checked.summary.get(status) or 0, status) for status in ("failed", "open")]
        items = " and ".join(f"{count(int(number), 'item')} {status}" for number, status in numbers if number)
        yield Cell(f"Not ready to go live: {items}.", STATES[checked.verdict][0])
    prompts = conditions.prompts_of(run)
    if prompts is not None and conditions.are_samples(prompts):
        yield Cell(SAMPLES, "open")
    for file in run.unreadable:
        hint = f" Fix: {sentence(file.hint)}" if file.hint else ""
        yield Cell(f"Unreadable: {sentence(file.why)}{hint}", "bad")


def _subtitle(run: RunFolder) -> str:
    parts = []
    dates = sorted(result.created for result in run.results.values())
    if dates:
        first, last = f"{dates[0]:%Y-%m-%d %H:%M}", f"{dates[-1]:%Y-%m-%d %H:%M}"
        same_day = dates[0].date() == dates[-1].date()
        until = "" if last == first else f" to {last[11:] if same_day else last}"
        parts.append(f"{first}{until} UTC")
    for result in reversed(list(run.results.values())):
        processor, cores = result.environment.get("processor"), result.environment.get("cores")
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
        yield from ab_tiles(report, challenger_of(report))
    checked = run.checklist
    if checked is not None:
        counted = {
            status: sum(item.status == status for item in checked.items) for status in ("failed", "open")
        }
        done = len(checked.items) - sum(counted.values())
        overall: State = "bad" if counted["failed"] else "open" if counted["open"] else "good"
        note = ", ".join(f"{number} {status}" for status, number in counted.items() if number)
        yield Tile(
            "Go-live checklist", f"{done} of {len(checked.items)}", note or "all items decided", overall
        )


def _sections(run: RunFolder, walk: Walk, rollout_file: tuple[Rollout, Path] | None) -> Iterator[Section]:
    """The phases stand after what they found, before the files and conditions."""
    run_sections = list(sections.sections(run))
    columns = ("phase", "state", "result", "when (UTC)")
    rest = ("Rendered files", "Conditions")
    yield from (section for section in run_sections if section.title not in rest)
    yield Section(
        "Phases", (), (), (Table("", columns, tuple(_phases(run, walk, rollout_file)), prose=(2,)),)
    )
    yield from (section for section in run_sections if section.title in rest)


def _badges(run: RunFolder, walk: Walk, rollout_file: tuple[Rollout, Path] | None) -> Iterator[Badge]:
    for phase, state, *_ in _phases(run, walk, rollout_file):
        assert isinstance(phase, Cell)
        assert isinstance(state, Cell)
        yield Badge(phase.text, state.state or "none", state.text, f"#{phase.anchor}")


def _phases(
    run: RunFolder, walk: Walk, rollout_file: tuple[Rollout, Path] | None
) -> Iterator[tuple[str | Cell, ...]]:
    expected = _expected(run, walk, rollout_file)
    unreadable = {file.name: file for file in run.unreadable}
    skipped = {skip.phase: skip for skip in walk.skipped}
    for phase in PHASES:
        name = f"{phase}.json"
        step = walk.step(phase)
        head = Cell(phase, anchor=f"phase-{phase}", link=name if step or name in unreadable else None)
        if name in unreadable:
            file = unreadable[name]
            yield head, Cell("unreadable", "bad"), file.why, ""
        elif step is not None:
            state, word = STATES[step.result.verdict]
            when = f"{step.result.created:%Y-%m-%d %H:%M}"
            yield head, Cell(word, state), phase_reason(step), when
        elif phase in skipped:
            left = skipped[phase]
            hint = f"; next: {left.hint}" if left.hint else ""
            yield head, Cell(SKIPPED[1], SKIPPED[0]), f"{left.reason}{hint}", ""
        elif phase in expected:
            yield head, Cell("not run", "none"), "", ""


def _next(walk: Walk, rollout_file: tuple[Rollout, Path] | None) -> Iterator[Step]:
    """Yield what to change and the next command; nothing if the rollout file is not known."""
    if rollout_file is None or not (walk.steps or walk.skipped):
        return
    lines = following_walk(walk, *rollout_file)
    changes = [line.removeprefix(CHANGE) for line in lines if line.startswith(CHANGE)]
    for line in lines:
        if line.startswith(NEXT):
            yield Step("; ".join(changes), "", line.removeprefix(NEXT))


def _foot(run: RunFolder) -> Iterator[str]:
    versions = sorted({result.specops for result in run.results.values()})
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
    write_files(folder, {INDEX: html(document(RunFolder(folder)))})
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
