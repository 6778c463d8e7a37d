"""The router: rules from the rollout file and the measurements, and their test on a real router.

thresholds.py  the rules, each with its source, and the pools' servers
explain.py     `route explain`: the router's decision on a request, without the router
cases.py       requests whose pool is known, and seeded fuzz
check.py       `route check`: the router on loopback, and a table of requests

`render` writes the folder that the router runs from, and makes route.json. What only one router knows is in
its package in specops/router.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field

from specops import results
from specops.config import Rollout
from specops.errors import FileError
from specops.hints import folder_state
from specops.phases.launch import RENDERED
from specops.phases.route.thresholds import Rules, classes_block, named_by_header, rules, servers
from specops.render import write_files
from specops.results import Result, Verdict
from specops.router import Deployment, Router
from specops.section import Frozen


class RouteData(Frozen):
    """`data` of route.json."""

    folder: str
    """The run folder, as it was given."""

    files: list[str]
    """Paths relative to the folder."""

    router: str
    """Name of the router: the key of its section in `route:`."""

    rules: dict[str, object]
    """Each threshold as {value, source}."""

    standard: list[str]
    speculative: list[str]
    limits: list[str]
    """What this router cannot do with its settings."""

    notes: list[str]
    unmatched: dict[str, str] = Field(default_factory=dict)
    """Classes that must stay off speculation and that the router cannot recognise, with the result that says
    so."""

    paste: str = ""
    """`route.classes` for the rollout file, with the classes that are missing; empty where none is."""


UNMATCHED_NOTE = (
    "clients must send the header; or match the requests by `contains`, `content` or `path` instead"
)


def folder_of(router: Router) -> str:
    """The folder that it runs from, below the run folder."""
    return f"{RENDERED}/{router.name}"


def render(rollout: Rollout, folder: Path) -> Result:
    """Write the router's configuration into `folder`. Raises ConfigError, FileError."""
    routing_rules = rules(rollout, folder)
    router = rollout.route.router
    deployment = deployment_of(rollout, routing_rules)
    files = router.render(deployment)
    write(router, folder / folder_of(router), files)
    data = RouteData(
        folder=str(folder),
        files=[f"{folder_of(router)}/{name}" for name in files],
        router=router.name,
        rules=routing_rules.table,
        standard=list(deployment.standard),
        speculative=list(deployment.speculative),
        limits=list(router.limits),
        notes=routing_rules.notes,
        unmatched=routing_rules.unmatched,
        paste=_paste(rollout, routing_rules),
    )
    verdict: Verdict = "undecided" if routing_rules.unmatched else "yes"
    reason = f"rendered {len(files)} files for {rollout.route.listen}"
    settings = {
        "route": rollout.route.model_dump(mode="json"),
        "addresses": rollout.addresses.model_dump(mode="json"),
    }
    return Result(
        phase="route",
        inputs={"settings": results.sha256(settings), **routing_rules.inputs},
        settings=settings,
        environment=results.environment(),
        verdict=verdict,
        reason=f"{unmatched_sentence(routing_rules.unmatched)}; {reason}"
        if routing_rules.unmatched
        else reason,
        summary={"files": len(files), "classes": len(rollout.route.classes), "router": router.name},
        data=data.model_dump(mode="json"),
    )


def unmatched_sentence(unmatched: Iterable[str]) -> str:
    names = ", ".join(unmatched)
    return f"the router cannot recognise {names}, which must stay off speculation: add each to route.classes"


def _paste(rollout: Rollout, routing_rules: Rules) -> str:
    if not routing_rules.unmatched:
        return ""
    written = [
        traffic_class.model_dump(mode="json", exclude_defaults=True)
        for traffic_class in rollout.route.classes
    ]
    return classes_block([*written, *map(named_by_header, routing_rules.unmatched)])


def deployment_of(rollout: Rollout, routing_rules: Rules) -> Deployment:
    """The input of the router's configuration. Raises ConfigError where servers are not known."""
    return Deployment(
        rollout=rollout.rollout,
        route=rollout.route,
        standard=servers(rollout, "standard"),
        speculative=servers(rollout, "speculative"),
        rules=routing_rules.table,
    )


def files_of(rollout: Rollout, folder: Path) -> dict[str, str]:
    """Return each file's text by its name in the folder that the router runs from, by the results in the run
    folder. Raises ConfigError, FileError."""
    return rollout.route.router.render(deployment_of(rollout, rules(rollout, folder)))


def write(router: Router, folder: Path, files: Mapping[str, str]) -> None:
    """Write `files` into `folder`. What the router writes there, and what people edit, stays. Files that an
    earlier version rendered are removed after the new ones are written."""
    try:
        for name in (".", *router.folders):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"could not make {folder}: {os.strerror(error.errno or 0)}",
            hint=folder_state(folder.parent),
        ) from error
    fresh = {
        name: text
        for name, text in files.items()
        if name not in router.edited or not (folder / name).exists()
    }
    earlier = {path.relative_to(folder).as_posix() for path in folder.glob(router.generated or "\0")}
    write_files(folder, fresh | dict.fromkeys(sorted(earlier - set(files))))
