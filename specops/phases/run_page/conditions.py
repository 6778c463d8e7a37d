"""The section of a run's page on where, when and on what its figures were measured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from specops.assets import asset
from specops.errors import FileError
from specops.load.workload import conversations_sentence
from specops.phases import PHASES
from specops.phases.run_folder import RunFolder
from specops.render.figures import count
from specops.render.report.document import Cell, Section, Table

DIGITS = 12
"""Number of digits of a hash that is shown."""
SHARED_INPUTS = ("prompts", "machine", "models")
"""Inputs that should be the same for all phases that have them. Names of the others mean something in each
phase."""


def conditions(run: RunFolder) -> Section | None:
    """Return where, when and on what the figures were measured."""
    if not run.results:
        return None
    prompts = Table("Prompts", ("prompts", "value"), tuple(_prompts(run)), prose=(1,))
    servers = Table(
        "Servers", ("arm", "engine", "model", "version", "settings"), tuple(_servers(run)), prose=(4,)
    )
    settings = Table("Load", ("setting", "value"), tuple(_settings(run)), prose=(1,))
    machine = Table("Machine", ("part", "value", "phases"), tuple(_machine(run)), prose=(1, 2))
    hashes = tuple(_inputs(run))
    differ = any(isinstance(sha, Cell) and sha.state for _, sha, _ in hashes)
    inputs = Table(
        "Hashes of inputs", ("input", "SHA-256", "phases"), hashes,
        "One input with two hashes: the phases did not measure the same thing.", prose=(2,),
        folded="" if differ else f"{count(len(hashes), 'hash', 'hashes')}; no input has two",
    )  # fmt: skip
    tables = tuple(table for table in (prompts, servers, settings, machine, inputs) if table.rows)
    return Section("Conditions", (), (), tables, guide="docs/results.md")


def prompts_of(run: RunFolder) -> Mapping[str, Any] | None:
    """The prompt set of the comparison, else of the first phase that used one."""
    for phase in ("ab", *PHASES):
        prompts = run.results[phase].data.get("prompts") if phase in run.results else None
        if isinstance(prompts, dict) and "sha256" in prompts:
            return prompts
    return None


def are_samples(prompts: Mapping[str, Any]) -> bool:
    """Return whether these prompts are a set that ships with specops."""
    return prompts.get("sha256") in _shipped()


@lru_cache(maxsize=1)
def _shipped() -> frozenset[str]:
    try:
        files = list(asset("playbooks").rglob("prompts*.json*"))
    except FileError:
        return frozenset()
    return frozenset(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)


def _prompts(run: RunFolder) -> Iterator[tuple[str | Cell, ...]]:
    prompts = prompts_of(run)
    if prompts is None:
        return
    classes = prompts.get("classes") or {}
    yield "file", Path(str(prompts.get("path"))).name
    samples = "samples that ship with specops, not your traffic" if are_samples(prompts) else "your own file"
    yield "origin", Cell(samples, "open" if are_samples(prompts) else None)
    yield (
        "number",
        f"{prompts.get('count')}: " + ", ".join(f"{name} {number}" for name, number in classes.items()),
    )
    if prompts.get("repeated"):
        yield "left out", count(int(prompts["repeated"]), "repeated prompt")
    if conversations := conversations_sentence(prompts):
        yield "conversations", conversations
    yield "format", str(prompts.get("format"))
    yield "SHA-256", Cell(str(prompts.get("sha256")), code=True)


def _servers(run: RunFolder) -> Iterator[tuple[str | Cell, ...]]:
    result = run.results.get("ab")
    arms = result.environment.get("arms", {}) if result is not None else {}
    for name, arm in arms.items():
        pool = arm.get("pool") or {}
        skip = ("engine", "base_url")
        settings = (
            f"{key} {_value(value)}" for key, value in pool.items() if value is not None and key not in skip
        )
        yield (
            name,
            str(pool.get("engine")),
            str(arm.get("model")),
            str(arm.get("server") or "unknown"),
            ", ".join(settings),
        )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(inner)}" for key, inner in value.items() if inner is not None)
    text = str(value)
    return Path(text).name if text.startswith("/") else text


SETTINGS = (
    "endpoint", "arrivals", "concurrency", "rate", "repeats", "warmup", "temperature", "top_p", "max_tokens",
    "seed", "timeout_s", "design", "looks", "confidence",
)  # fmt: skip
"""Settings of ab.json, else of baseline.json: those that a reader needs to repeat the measurement."""


def _settings(run: RunFolder) -> Iterator[tuple[str, ...]]:
    result = run.results.get("ab") or run.results.get("baseline")
    settings = result.settings if result is not None else {}
    for name in SETTINGS:
        value = settings.get(name)
        if value not in (None, []):
            yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _machine(run: RunFolder) -> Iterator[tuple[str | Cell, ...]]:
    """A row for each value, with the phases that had it: a second value shows."""
    phases_by_value: dict[tuple[str, str], list[str]] = {}
    for phase, result in run.results.items():
        environment = {"specops": result.specops} | result.environment
        for name, value in environment.items():
            if value is not None and not isinstance(value, dict | list):
                phases_by_value.setdefault((name, str(value)), []).append(phase)
    yield from _by_phase(phases_by_value, len(run.results))


def _inputs(run: RunFolder) -> Iterator[tuple[str | Cell, ...]]:
    phases_by_input: dict[tuple[str, str], list[str]] = {}
    for phase, result in run.results.items():
        for name, sha in result.inputs.items() if phase != "checklist" else ():
            label = name if name in SHARED_INPUTS else f"{phase}: {name}"
            phases_by_input.setdefault((label, sha), []).append(phase)
    names = [name for name, _ in phases_by_input]
    for (name, sha), phases in sorted(phases_by_input.items()):
        twice = names.count(name) > 1
        yield name, Cell(sha[:DIGITS], "open" if twice else None, code=True), ", ".join(phases)


def _by_phase(
    phases_by_value: Mapping[tuple[str, str], Sequence[str]], whole: int
) -> Iterator[tuple[str | Cell, ...]]:
    names = [name for name, _ in phases_by_value]
    for (name, value), phases in phases_by_value.items():
        yield name, value, "all" if names.count(name) == 1 and len(phases) == whole else ", ".join(phases)
