"""The pages of `specops route`: what was rendered, what was tried, and why a request goes where it goes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specops.phases.measurement import checked as read
from specops.phases.route.check import Tried
from specops.phases.route.explain import Explanation
from specops.phases.route.render import CONF, NGINX, Routed
from specops.render.figures import aligned, count, sentence
from specops.results import Result

SHOWN = {
    "speculate": "speculation",
    "min_tokens": "shortest",
    "min_tokens_unstreamed": "shortest unstreamed",
    "long_tokens": "long",
    "otherwise": "otherwise",
    "max_temperature": "warmest",
    "max_in_flight": "in flight",
}


def rendered(result: Result, rollout: Path) -> list[str]:
    """Names of files are relative to the run folder, which the first line names."""
    data = read(Routed, result.data, "route.json is damaged: data")
    rules: Mapping[str, Any] = data.rules
    lines = [
        f"route · {data.folder}/{NGINX}",
        *aligned(
            [
                ["  standard", ", ".join(data.standard), ""],
                ["  speculative", ", ".join(data.speculative), ""],
                *(
                    ["  " + label, _value(rules[name]), rules[name]["source"]]
                    for name, label in SHOWN.items()
                ),
                *_classes(rules),
                *(["  unsupported", one["name"], one["source"]] for one in rules["unsupported"]),
            ]
        ),
        *(f"  note: {note}" for note in data.notes),
        *(f"  not without Lua: {limit}" for limit in data.limits),
        sentence(result.reason),
    ]
    prefix = Path(data.folder) / NGINX
    start = f"nginx -p {shlex.quote(str(prefix))} -c {CONF}"
    check = f"specops route check {shlex.quote(str(rollout))} --run {shlex.quote(data.folder)}"
    return [*lines, f"next: {start}" if data.native else f"next: {check} && {start}"]


def _value(rule: Mapping[str, Any]) -> str:
    value = rule["value"]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _classes(rules: Mapping[str, Any]) -> Iterator[list[str]]:
    for one in rules["classes"]:
        allowed = "as its size says" if one["speculate"]["value"] else "standard"
        yield [f"  class {one['name']}", allowed, one["speculate"]["source"]]
        if one.get("max_in_flight"):
            limit = one["max_in_flight"]
            yield [f"  in flight for {one['name']}", _value(limit), limit["source"]]


def checked(result: Result) -> list[str]:
    tried = [read(Tried, one, "the check is damaged") for one in result.data["tried"]]
    if not tried:
        lines = [sentence(result.reason), f"NGINX says: {result.data['refused']}"]
        return [*lines, f"change: {result.data['hint']}"]
    rows = [["  " + one.name, one.pool, one.reason] for one in tried]
    wrong = [f"wrong: {one.name}: {one.wrong}" for one in tried if one.wrong]
    return [f"route check · {count(len(tried), 'request')}", *aligned(rows), *wrong, sentence(result.reason)]


def explained(found: Explanation) -> list[str]:
    rows = [
        ["pool", found.pool if found.pool != "none" else "none: the router answers 404"],
        ["class", found.traffic_class],
        ["reason", f"{found.reason}: {found.message}"],
    ]
    if found.source is not None:
        rows.append(["by", found.source])
    if found.weight != 1:
        rows.append(["counts as", f"{found.weight:g} in flight"])
    return aligned(rows)
