"""The router's configuration for NGINX: the main file, from the templates in nginx/, and the rules as a Lua
table.

There are two variants. With Lua, decide.lua reads rules.lua. The native variant needs no Lua module;
NATIVE_LIMITS lists what it cannot do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from specops import __version__
from specops.assets import asset
from specops.net import is_loopback
from specops.router.protocol import Deployment

CONF = "nginx.conf"
SWITCH = "switch.conf"
"""The switch without Lua."""
SWITCH_STATE = "switch.json"
"""The switch with Lua, which NGINX writes."""
RULES = "lua/specops/rules.lua"
LUA = ("body", "bucket", "decide", "effect", "in_flight", "metrics", "router", "switch")
"""The modules in nginx/lua/specops. rules.lua is rendered beside them."""
NATIVE_LIMITS = (
    "sizes, temperature, streaming and parameters that the engine refuses do not count: what a pool refuses"
    " is answered with its error",
    "classes go by headers and path alone; a class with content or contains is left out",
    "the spill is by connections to each server (max_conns), so n does not count, and a reload resets it",
    "the switch is switch.conf and a reload; it has no listener, and guard needs the action `command` for it",
    "a trusted caller that is on the standard side of the switch stays there, whatever it chooses",
    "callers are split by another hash than with Lua: a caller may change pools when the variant changes",
    "no holdout, so there is no live effect",
    "no metrics by class; the answer's X-Specops-Route names the pool decided on, not the one that answered",
    "a server that takes no connection in time costs that request a 504; after three, the next are spared",
    "the second server that answers 502 or 503 is the answer: the standard pool gets nothing after it",
)


def nginx_conf(deployment: Deployment, workers: int | None, user: str | None, modules: str | None) -> str:
    """The main configuration with Lua. Its paths are relative to the folder that it is rendered into."""
    values = _values(deployment, workers, user) | {
        "modules": modules,
        "token_needed": not is_loopback(f"http://{deployment.route.admin}"),
        "max_conns": 0,
        "again": {"speculative": deployment.speculative, "standard": deployment.standard},
    }
    return _rendered("nginx.conf.j2", values)


def native_conf(deployment: Deployment, workers: int | None, user: str | None) -> str:
    """The main configuration without Lua."""
    classes = _native_classes(deployment.rules)
    caller = deployment.route.canary_key or "Authorization"
    values = _values(deployment, workers, user) | {
        "limits": NATIVE_LIMITS,
        "classes": classes,
        "first_class": f"$specops_class_{len(classes)}" if classes else "default",
        "allowed": native_allowed(deployment.rules),
        "canary_variable": f"http_{caller.lower().replace('-', '_')}",
        "again": {"standard": deployment.standard},
        "max_conns": _max_conns(deployment.rules, deployment.speculative),
    }
    return _rendered("native.conf.j2", values)


def _values(deployment: Deployment, workers: int | None, user: str | None) -> dict[str, Any]:
    return {
        "made_by": _made_by(deployment.rollout),
        "route": deployment.route,
        "workers": workers,
        "user": user,
        "standard": deployment.standard,
        "speculative": deployment.speculative,
        "rate": _rate(deployment.route.limits.requests_per_s),
    }


def _rendered(template: str, values: Mapping[str, Any]) -> str:
    environment = Environment(
        loader=FileSystemLoader(asset("nginx")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(template).render(values)


def _made_by(rollout: str) -> str:
    return f"Made by specops {__version__} from the rollout {rollout}: change its file and render again."


def _rate(per_s: float | None) -> str | None:
    """NGINX's notation of a rate: whole numbers, by second or by minute."""
    if per_s is None:
        return None
    return f"{per_s:.0f}r/s" if per_s.is_integer() else f"{max(1, math.floor(per_s * 60))}r/m"


def _native_classes(rules: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The classes that headers and path identify, from the last to the first."""
    identified = [
        traffic_class
        for traffic_class in rules["classes"]
        if not (traffic_class["content"] or traffic_class["contains"])
    ]
    native: list[dict[str, Any]] = []
    for traffic_class in reversed(identified):
        native.append(
            {
                "number": len(native) + 1,
                "name": traffic_class["name"],
                "path": re.escape(traffic_class["path"]) if traffic_class["path"] else "[^|]*",
                "headers": [
                    {"variable": header["name"].replace("-", "_"), "value": _pcre(header["value"])}
                    for header in traffic_class["headers"] or ()
                ],
                "otherwise": f"$specops_class_{len(native)}" if native else "default",
            }
        )
    return native


def native_allowed(rules: Mapping[str, Any]) -> list[str]:
    """The classes that may speculate without Lua, `default` among them."""
    if not rules["speculate"]["value"] or rules["max_in_flight"]["value"] < 1:
        return []
    names = {"default", *(traffic_class["name"] for traffic_class in _native_classes(rules))}
    every = [*rules["classes"], {"name": "default", **rules["default"]}]
    return [
        traffic_class["name"]
        for traffic_class in every
        if traffic_class["speculate"]["value"] and traffic_class["name"] in names
    ]


def native_switch(percent: float) -> str:
    """Return switch.conf. NGINX's split_clients accepts neither 0% nor 100%."""
    sides = ["* standard;"] if percent <= 0 else ["* speculative;"]
    if 0 < percent < 100:
        sides = [f"{percent:.2f}% speculative;", "* standard;"]
    rows = "".join(f"    {side}\n" for side in sides)
    return (
        "# The switch: 50% speculative; * standard; or one of the two alone. Change it, and reload NGINX.\n"
        f"split_clients $specops_caller $specops_side {{\n{rows}}}\n"
    )


def _max_conns(rules: Mapping[str, Any], servers: Sequence[str]) -> int:
    """Connections of one server, at least 1 (0 means no limit). All classes share it, so the lowest
    counts."""
    limits = [
        traffic_class["max_in_flight"]
        for traffic_class in rules["classes"]
        if traffic_class.get("max_in_flight")
    ]
    lowest = min(rule["value"] for rule in [rules["max_in_flight"], *limits])
    return max(1, int(lowest) // len(servers))


def _pcre(value: str) -> str:
    """`value` as a pattern between NGINX's double quotes, in which $ begins a variable."""
    return re.escape(value).replace("\\", "\\\\").replace('"', '\\"').replace("\\\\$", "[$]")


def rules_lua(deployment: Deployment) -> str:
    """rules.lua: the rules as a Lua table."""
    servers = {"standard": len(deployment.standard), "speculative": len(deployment.speculative)}
    rules = {"rollout": deployment.rollout, "specops": __version__, "servers": servers, **deployment.rules}
    head = f"-- {_made_by(deployment.rollout)}\n"
    head += "-- Rules of decide.lua. `source` is where a value comes from.\n\n"
    return f"{head}return {literal(rules)}\n"


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = (
    *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in"),
    *("local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
)


def literal(value: object, indent: str = "") -> str:
    """`value` as a Lua expression: text (as its UTF-8 bytes), numbers, booleans, and lists and mappings of
    those.

    A member that is None is left out, as in Lua. TypeError for any other type.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    deeper = indent + "  "
    if isinstance(value, Mapping):
        rows = [f"{_key(k)} = {literal(v, deeper)}" for k, v in value.items() if v is not None]
    elif isinstance(value, Sequence):
        rows = [literal(element, deeper) for element in value]
    else:
        raise TypeError(f"{type(value).__name__} has no form in Lua")
    flat = "{ " + ", ".join(rows) + " }"
    if not rows or (len(indent) + len(flat) < 90 and "\n" not in flat):
        return flat if rows else "{}"
    return "{\n" + "".join(f"{deeper}{row},\n" for row in rows) + indent + "}"


def _key(name: str) -> str:
    return name if _NAME.fullmatch(name) and name not in _KEYWORDS else f"[{_quoted(name)}]"


def _quoted(text: str) -> str:
    # Always three digits, so that a digit that follows is not part of the escape.
    escaped = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in (0x22, 0x5C) else f"\\{byte:03}"
        for byte in text.encode()
    )
    return '"' + "".join(escaped).replace("\\034", '\\"').replace("\\092", "\\\\") + '"'
