"""The pages of `monitor`: what was rendered and by which thresholds; which names a Prometheus has."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from specops.phases.measurement import checked as checked_model
from specops.phases.monitor.check import GOOD, Found
from specops.phases.monitor.render import FOLDER, Rendered, Threshold
from specops.render.figures import NONE, aligned, count, sentence
from specops.results import Result


def rendered(result: Result, rollout: Path) -> list[str]:
    """The page's lines. Every figure on it is in monitor.json."""
    data = checked_model(Rendered, result.data, "monitor.json is damaged: data")
    lines = [f"monitor · {Path(data.folder) / FOLDER}"]
    lines += aligned([["  scraped", job, "  ".join(where)] for job, where in data.targets.items()])
    lines += aligned([["  alert", name, *_limit(each)] for name, each in data.alerts.items()])
    lines += aligned([["  left out", name, why] for name, why in data.left_out.items()])
    lines += [f"  not read  {why}" for why in data.not_read.values()]
    lines.append(sentence(result.reason))
    load = f"let a Prometheus load {Path(data.folder) / FOLDER}"
    lines.append(f"change: {load}, and name its root as addresses.prometheus in {rollout}")
    lines.append(f"next: specops monitor check {shlex.quote(str(rollout))}")
    return lines


def _limit(each: Threshold) -> tuple[str, str, str]:
    minutes = f"{each.for_s // 60} min" if each.for_s % 60 == 0 else f"{each.for_s} s"
    return (
        NONE if each.value is None else f"{each.value:g}",
        minutes if each.for_s else "at once",
        each.source,
    )


def checked(result: Result) -> list[str]:
    """The page's lines: every name that is not there, with its fix, and how many are."""
    found = [Found.model_validate(each) for each in result.data["names"]]
    lines = [f"monitor check · {result.settings['prometheus']}"]
    lines += aligned(
        [list(_row(where, [each for each in found if each.where == where])) for where in _places(found)]
    )
    for each in found:
        if each.status not in GOOD:
            lines += list(_lacking(each))
    lines.append(sentence(result.reason))
    return lines


def _places(found: list[Found]) -> list[str]:
    return list(dict.fromkeys(each.where for each in found))


def _row(where: str, ours: list[Found]) -> Iterator[str]:
    there = [each for each in ours if each.status == "there"]
    waiting = sum(each.status == "no traffic" for each in ours)
    yield f"  {where}"
    yield f"{len(there)} of {count(len(ours), 'name')}"
    ages = [each.age_s for each in there if each.age_s is not None]
    yield f"last value {max(ages):.0f} s ago" if ages else "no value"
    yield f"{waiting} wait for traffic" if waiting else ""


def _lacking(each: Found) -> Iterator[str]:
    called = f": here it is {each.now_called}" if each.now_called else ""
    seen = f", last sample {each.age_s / 60:.0f} min ago" if each.age_s is not None else ""
    yield f"{each.status:8}  {each.where}: {each.name}{called}{seen} (for {each.needs})"
    if each.fix:
        yield f"{'':8}  fix: {each.fix}"
