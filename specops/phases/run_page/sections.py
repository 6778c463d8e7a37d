"""The sections of a run's page: one function each, from the run folder to what the section shows.

Every figure is in the JSON file that the section names. A section that has nothing to show is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from specops.phases import PHASES, PhaseName, phase_named
from specops.phases.ab.document import sections as ab_sections
from specops.phases.baseline_document import sections as baseline_sections
from specops.phases.canary.document import sections as canary_sections
from specops.phases.capacity.document import sections as capacity_sections
from specops.phases.checklist.document import sections as checklist_sections
from specops.phases.checklist.document import steps as checklist_steps
from specops.phases.measurement import BaselineSteadiness
from specops.phases.playbook.rendered import RenderedFiles
from specops.phases.referee.document import sections as referee_sections
from specops.phases.route import UNMATCHED_NOTE, unmatched_sentence
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.conclusion import unrouted
from specops.phases.run_page.conditions import conditions
from specops.phases.sweep.document import sections as sweep_sections
from specops.render.figures import capital, count, sentence
from specops.render.report.document import Cell, Section, Step, Table

FILES = "Rendered files"
"""The section that needs the run folder."""


def sections(run: RunFolder) -> Iterator[Section]:
    about_speed = (_comparison, _referee, _sweep, _capacity)
    for make in (*about_speed, _conformance, _routing, _checklist, _files, conditions):
        part = make(run)
        yield from [part] if isinstance(part, Section) else part or ()


def _comparison(run: RunFolder) -> Iterator[Section]:
    """Yield what the comparison measured, with what other phases say of it; without one, the latencies of
    the baseline."""
    report = run.comparison
    if report is None:
        if "baseline" in run.results:
            yield from baseline_sections(run.results["baseline"])
        return
    stored = run.results["baseline"].data if "baseline" in run.results else {}
    steadiness = BaselineSteadiness.model_validate(stored).steadiness
    further = {"Where it pays": tuple(_stops(run)), "Acceptance": tuple(_break_even(run))}
    for section in ab_sections(run.results["ab"], report, steadiness):
        yield replace(section, text=(*section.text, *further.get(section.title, ())))


def _stops(run: RunFolder) -> Iterator[str]:
    """Yield up to which load it pays by the sweep, and where the router switches it off."""
    sweep = run.sweep
    if sweep is not None and sweep.crossover is not None:
        yield f"Sweep: {sweep.crossover.message}."
    rule = run.results["route"].data.get("rules", {}).get("max_in_flight") if "route" in run.results else None
    if isinstance(rule, dict) and rule.get("value") is not None:
        yield (
            f"The router uses speculation up to {count(int(rule['value']), 'request')} in flight"
            f" ({rule.get('source')})."
        )


def _break_even(run: RunFolder) -> Iterator[str]:
    recommended = run.results["sweep"].recommendation if run.sweep is not None else None
    if recommended is not None and (even := recommended.get("break_even_acceptance")):
        yield f"Break-even acceptance is {even:.2f} of drafted tokens (sweep.json)."


def _referee(run: RunFolder) -> Iterator[Section]:
    result = run.results.get("referee")
    return referee_sections(result) if result is not None else iter(())


def _sweep(run: RunFolder) -> Iterator[Section]:
    result = run.results.get("sweep")
    for section in sweep_sections(result) if result is not None else ():
        reason = sentence(result.reason) if result is not None else ""
        yield replace(section, text=tuple(dict.fromkeys((reason, *section.text))))


def _capacity(run: RunFolder) -> Iterator[Section]:
    if run.parts.get("capacity") is not None:
        result = run.results["capacity"]
        for section in capacity_sections(result):
            yield replace(section, text=(capital(sentence(result.reason)), *section.text))


def _conformance(run: RunFolder) -> Iterator[Section]:
    data, rollout = run.conformance, run.rollout()
    if data is not None:
        yield from canary_sections(data, rollout[0].pools.speculative if rollout is not None else None)


def _checklist(run: RunFolder) -> Iterator[Section]:
    data, result = run.checklist, run.results.get("checklist")
    if data is not None and result is not None:
        for section in checklist_sections(data):
            yield replace(section, text=(sentence(result.reason),), steps=tuple(checklist_steps(data)))


def _routing(run: RunFolder) -> Section | None:
    """Return what is missing in the router's rules."""
    gap = unrouted(run.walk())
    if gap is None:
        return None
    rows = tuple((name, source) for name, source in gap.unmatched.items())
    table = Table("", ("class that must stay off speculation", "by"), rows)
    step = Step(
        "Write this as route.classes in the rollout file.", sentence(UNMATCHED_NOTE), f"{gap.paste}\n"
    )
    return Section(
        "Routing",
        (sentence(unmatched_sentence(gap.unmatched)),),
        (),
        (table,),
        (step,),
        sources=("route.json",),
        guide="docs/route.md",
    )


def _files_of(run: RunFolder, phase: PhaseName) -> list[str]:
    rendered = run.part(phase, RenderedFiles)
    return rendered.files if rendered is not None else []


def _files(run: RunFolder) -> Section | None:
    uses = {phase.name: phase.files_use for phase in map(phase_named, PHASES) if phase.files_use}
    rows = tuple(
        (Cell(name, link=name), uses[phase], "" if (run.path / name).exists() else "missing")
        for phase in uses
        for name in _files_of(run, phase)
    )
    if not rows:
        return None
    missing = any(row[2] for row in rows)
    columns = ("file", "use", "state") if missing else ("file", "use")
    table = Table("", columns, tuple(row if missing else row[:2] for row in rows))
    sources = tuple(f"{phase}.json" for phase in uses if _files_of(run, phase))
    return Section(FILES, (), (), (table,), sources=sources)
