"""What the variant without Lua is made from, and what it cannot do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

LIMITS = (
    "sizes, temperature, streaming and parameters that the engine refuses do not count: what a pool refuses"
    " is answered with its error",
    "classes go by headers and path alone; a class with content or contains is left out",
    "the spill is by connections to each server (max_conns), so n does not count, and a reload starts anew",
    "the switch is switch.conf and a reload; it has no listener, and guard needs the action `command` for it",
    "a trusted caller that is on the standard side of the switch stays there, whatever it chooses",
    "callers are split by another hash than with Lua: they may change sides when the variant is changed",
    "no metrics by class; the answer's X-Specops-Route names the pool decided on, not the one that answered",
    "a server that takes no connection in time costs that request a 504; after three, the next are spared",
)


def classes(rules: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those that can be told by headers and path, from the last to the first."""
    told = [one for one in rules["classes"] if not (one["content"] or one["contains"])]
    found: list[dict[str, Any]] = []
    for one in reversed(told):
        found.append(
            {
                "number": len(found) + 1,
                "name": one["name"],
                "path": re.escape(one["path"]) if one["path"] else "[^|]*",
                "headers": [
                    {"variable": header["name"].replace("-", "_"), "value": _pcre(header["value"])}
                    for header in one["headers"] or ()
                ],
                "otherwise": f"$specops_class_{len(found)}" if found else "default",
            }
        )
    return found


def allowed(rules: Mapping[str, Any]) -> list[str]:
    """Classes that may speculate, `default` among them."""
    if not rules["speculate"]["value"] or rules["max_in_flight"]["value"] < 1:
        return []
    told = {one["name"] for one in classes(rules)}
    every = [*rules["classes"], {"name": "default", **rules["default"]}]
    return [
        one["name"]
        for one in every
        if one["speculate"]["value"] and (one["name"] in told or one["name"] == "default")
    ]


def switch(percent: float) -> str:
    """switch.conf. split_clients knows neither 0% nor 100%."""
    sides = ["* standard;"] if percent <= 0 else ["* speculative;"]
    if 0 < percent < 100:
        sides = [f"{percent:.2f}% speculative;", "* standard;"]
    rows = "".join(f"    {side}\n" for side in sides)
    return (
        "# The switch: 50% speculative; * standard; or one of the two alone. Change it, and reload NGINX.\n"
        f"split_clients $specops_caller $specops_side {{\n{rows}}}\n"
    )


def max_conns(rules: Mapping[str, Any], servers: Sequence[str]) -> int:
    """Of one server; 0 would be no limit. It is one for all classes, so the lowest."""
    limits = [one["max_in_flight"] for one in rules["classes"] if one.get("max_in_flight")]
    lowest = min(rule["value"] for rule in [rules["max_in_flight"], *limits])
    return max(1, int(lowest) // len(servers))


def _pcre(value: str) -> str:
    """As a pattern between double quotes of NGINX's, in which $ would begin a variable."""
    return re.escape(value).replace("\\", "\\\\").replace('"', '\\"').replace("\\\\$", "[$]")
