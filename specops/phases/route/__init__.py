"""The router: rules from the rollout file and the measurements, and their test on a real NGINX.

thresholds.py  the rules, each with its source, and the pools' servers
explain.py     `route explain`: decide.lua, the file that NGINX runs, in Python
cases.py       requests whose pool is known, and seeded fuzz
check.py       `route check`: NGINX on loopback, and a table of requests

`render` writes the folder that NGINX runs from, and makes route.json.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from specops import results
from specops.assets import asset
from specops.config import Rollout
from specops.errors import FileError
from specops.hints import folder_state
from specops.phases.launch import RENDERED
from specops.phases.route.thresholds import Rules, classes_block, named_by_header, rules, servers
from specops.render import write_files
from specops.render.nginx import LUA, NATIVE_LIMITS, Router, native_conf, native_switch, nginx_conf, rules_lua
from specops.results import Result, Verdict
from specops.section import Frozen

NGINX = f"{RENDERED}/nginx"
CONF = "nginx.conf"
SWITCH = "switch.conf"
"""The switch without Lua. With Lua it is switch.json, which NGINX writes."""


class RouteData(Frozen):
    """`data` of route.json."""

    folder: str
    """The run folder, as it was given."""

    files: list[str]
    """Paths relative to the folder."""

    native: bool
    rules: dict[str, object]
    """What decide.lua reads: each threshold as {value, source}."""

    standard: list[str]
    speculative: list[str]
    limits: list[str]
    """What this variant cannot do."""

    notes: list[str]
    unmatched: dict[str, str] = Field(default_factory=dict)
    """Classes that must stay off speculation and that the router cannot recognise, with the result that says
    so."""

    paste: str = ""
    """`route.classes` for the rollout file, with the classes that are missing; empty where none is."""


UNMATCHED_NOTE = (
    "clients must send the header; or match the requests by `contains`, `content` or `path` instead"
)


def render(rollout: Rollout, folder: Path, *, without_lua: bool = False) -> Result:
    """Write the router's configuration into `folder`/rendered/nginx. Raises ConfigError, FileError."""
    found = rules(rollout, folder)
    router = of(rollout, found)
    files = text(router, without_lua=without_lua)
    prefix = folder / NGINX
    if without_lua and (prefix / SWITCH).exists():
        del files[SWITCH]  # where someone has set it
    write(prefix, files)
    data = RouteData(
        folder=str(folder),
        files=[f"{NGINX}/{name}" for name in files],
        native=without_lua,
        rules=found.table,
        standard=list(router.standard),
        speculative=list(router.speculative),
        limits=list(NATIVE_LIMITS) if without_lua else [],
        notes=found.notes,
        unmatched=found.unmatched,
        paste=_paste(rollout, found),
    )
    verdict: Verdict = "undecided" if found.unmatched else "yes"
    reason = f"rendered {len(files)} files for {rollout.route.listen}"
    settings = {
        "route": rollout.route.model_dump(mode="json"),
        "addresses": rollout.addresses.model_dump(mode="json"),
    }
    return Result(
        phase="route",
        inputs={"settings": results.sha256(settings), **found.inputs},
        settings=settings,
        environment=results.environment(),
        verdict=verdict,
        reason=f"{unmatched_sentence(found.unmatched)}; {reason}" if found.unmatched else reason,
        summary={"files": len(files), "classes": len(rollout.route.classes), "native": without_lua},
        data=data.model_dump(mode="json"),
    )


def unmatched_sentence(unmatched: Iterable[str]) -> str:
    names = ", ".join(unmatched)
    return f"the router cannot recognise {names}, which must stay off speculation: add each to route.classes"


def _paste(rollout: Rollout, found: Rules) -> str:
    if not found.unmatched:
        return ""
    written = [one.model_dump(mode="json", exclude_defaults=True) for one in rollout.route.classes]
    return classes_block([*written, *map(named_by_header, found.unmatched)])


def of(rollout: Rollout, found: Rules) -> Router:
    return Router(
        rollout=rollout.rollout,
        route=rollout.route,
        standard=servers(rollout, "standard"),
        speculative=servers(rollout, "speculative"),
        rules=found.table,
    )


def text(router: Router, *, without_lua: bool = False) -> dict[str, str]:
    """Return each file's text by its name in the folder that NGINX runs from."""
    if without_lua:
        switch = native_switch(router.route.speculative_percent)
        return {CONF: native_conf(router), SWITCH: switch}
    lua = {f"lua/specops/{name}.lua": asset("nginx", "lua", "specops", f"{name}.lua") for name in LUA}
    return {
        CONF: nginx_conf(router),
        "lua/specops/rules.lua": rules_lua(router),
        **{name: path.read_text(encoding="utf-8") for name, path in lua.items()},
    }


def write(prefix: Path, files: dict[str, str]) -> None:
    """Write `files` into `prefix`. The switch and the logs, which NGINX writes, stay. Modules of an
    earlier version are removed after the new ones are written."""
    try:
        (prefix / "temp").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"could not make {prefix}: {os.strerror(error.errno or 0)}",
            hint=folder_state(prefix.parent),
        ) from error
    earlier = {path.relative_to(prefix).as_posix() for path in prefix.glob("lua/specops/*.lua")}
    write_files(prefix, files | dict.fromkeys(sorted(earlier - set(files))))
