"""Serving engines: one package each, behind the protocol in engine.py, and their registry.

Only this module is imported from outside (an import-linter contract in pyproject.toml). It names no engine's
type: whoever has a pool asks the pool, and whoever has an engine's name asks `ENGINES[name]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specops.serving import command, embedded, endpoint, llamacpp, sglang, trtllm, vllm
from specops.serving.acceptance import Drafts, RequestDrafts
from specops.serving.argv import (
    Command,
    CommandLine,
    Files,
    Finding,
    LintResult,
    Unknown,
    is_unknown,
    joined,
    runs_containers,
    setting_words,
    unreadable,
)
from specops.serving.drafts import DraftSupport, FileFormat, ServedPair
from specops.serving.endpoint import pool_at
from specops.serving.engine import (
    Condition,
    Container,
    Endpoint,
    Engine,
    Grid,
    MultiHost,
    OwnModels,
    Pool,
    Setting,
    Startable,
    Survey,
)
from specops.serving.identity import relocated, without_places
from specops.serving.known_issues import (
    KnownIssue,
    ReferenceAcceptance,
    issues,
    matching,
    of_check,
    published,
    reference_acceptances,
)
from specops.serving.metrics import Series
from specops.serving.place_drafts import PlaceDrafts, Steps

__all__ = [
    "ENGINES",
    "OWN",
    "USUAL",
    "Command",
    "CommandLine",
    "Condition",
    "Container",
    "DraftSupport",
    "Drafts",
    "Endpoint",
    "Engine",
    "FileFormat",
    "Files",
    "Finding",
    "Grid",
    "KnownIssue",
    "LintResult",
    "MultiHost",
    "OwnModels",
    "PlaceDrafts",
    "Pool",
    "ReferenceAcceptance",
    "RequestDrafts",
    "Series",
    "ServedPair",
    "Setting",
    "Startable",
    "Steps",
    "Survey",
    "Unknown",
    "fields_for_drafts",
    "is_unknown",
    "issues",
    "joined",
    "matching",
    "namings",
    "of_check",
    "parameter",
    "pool_at",
    "pool_of",
    "published",
    "reference_acceptances",
    "relocated",
    "request_drafts",
    "runs_containers",
    "setting_words",
    "tables",
    "unreadable",
    "without_places",
]

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        embedded.ENGINE,
        vllm.ENGINE,
        sglang.ENGINE,
        llamacpp.ENGINE,
        trtllm.ENGINE,
        command.ENGINE,
        endpoint.ENGINE,
    )
}
"""The registry: one line an engine."""

OWN: Engine = embedded.ENGINE
"""The engine that is part of specops."""

USUAL: Series = vllm.ENGINE.namings["vllm"]
"""The metric names assumed of a server of which nothing is known."""


def pool_of(stored: Mapping[str, Any]) -> Pool:
    """A pool as a result stores it. Raises ValueError where it is of no known engine, or not as its settings
    are."""
    engine = ENGINES.get(stored.get("engine", "")) if isinstance(stored, Mapping) else None
    if engine is None:
        raise ValueError(f"unknown engine in {stored!r}")
    return engine.settings.model_validate(stored)


def namings() -> dict[str, Series]:
    """Metric names by the words of `monitor.names`."""
    return {name: series for engine in ENGINES.values() for name, series in engine.namings.items()}


def parameter(name: str, series: Series) -> str:
    """Return what a server with these metric names calls a request parameter; `name` is vLLM's."""
    engine = next((engine for engine in ENGINES.values() if series in engine.namings.values()), OWN)
    return engine.parameters.get(name, name)


def tables() -> list[Series]:
    """Each table of metric names once, the usual one first."""
    return list(dict.fromkeys([USUAL, *namings().values()]))


def request_drafts(body: Mapping[str, Any]) -> RequestDrafts | None:
    """Return what an answer, or one event of its stream, reports of the request's drafts; None where it
    reports nothing. No two engines report them in one place, so it need not be known which engine answers."""
    readers = dict.fromkeys(engine.answer_drafts for engine in ENGINES.values() if engine.answer_drafts)
    return next((drafts for read in readers if (drafts := read(body)) is not None), None)


def fields_for_drafts(owned_by: str) -> Mapping[str, Any]:
    """Return the fields that a request needs for its drafts to be reported, by what the list of models says
    of who serves them."""
    return next((engine.ask_for_drafts for engine in ENGINES.values() if engine.owned_by == owned_by), {})
