"""NGINX's main configuration, from the templates in nginx/, and the rules beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from specops import __version__
from specops.assets import asset
from specops.config import Route
from specops.net import is_loopback
from specops.render.nginx import native
from specops.render.nginx.lua import literal

LUA = ("body", "bucket", "decide", "in_flight", "metrics", "router", "switch")
"""Modules of nginx/lua/specops; rules.lua, which is rendered, is one more."""


@dataclass(frozen=True)
class Router:
    """What is rendered."""

    rollout: str
    route: Route
    standard: Sequence[str]
    """HOST:PORT of each server of the pool."""

    speculative: Sequence[str]
    rules: Mapping[str, Any]
    """As decide.lua describes them."""


def config(router: Router, *, without_lua: bool = False) -> str:
    """The main configuration; paths in it are relative to the folder that it is rendered into."""
    route = router.route
    values: dict[str, Any] = {
        "made_by": made_by(router.rollout),
        "route": route,
        "standard": router.standard,
        "speculative": router.speculative,
        "rate": _rate(route.limits.requests_per_s),
    }
    if without_lua:
        classes = native.classes(router.rules)
        values |= {
            "limits": native.LIMITS,
            "classes": classes,
            "first_class": f"$specops_class_{len(classes)}" if classes else "default",
            "allowed": native.allowed(router.rules),
            "canary_variable": _variable(route.canary_key or "Authorization"),
            "tries": 3,  # the last is the standard pool's
            "max_conns": native.max_conns(router.rules, router.speculative),
        }
        return _template("native.conf.j2").render(values)
    values |= {
        "modules": route.modules,
        "token_needed": not is_loopback(f"http://{route.admin}"),
        "max_conns": 0,
        "tries": 2,
    }
    return _template("nginx.conf.j2").render(values)


def _template(name: str) -> Template:
    environment = Environment(
        loader=FileSystemLoader(asset("nginx")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(name)


def _variable(header: str) -> str:
    return "http_" + header.lower().replace("-", "_")


def rules_lua(router: Router) -> str:
    """rules.lua: the rules as a Lua table."""
    rules = {"rollout": router.rollout, "specops": __version__, **router.rules}
    head = (
        f"-- {made_by(router.rollout)}\n-- What decide.lua goes by. `source` is where a value comes from.\n\n"
    )
    return f"{head}return {literal(rules)}\n"


def made_by(rollout: str) -> str:
    return f"Made by specops {__version__} from the rollout {rollout}: change its file and render again."


def _rate(per_s: float | None) -> str | None:
    """NGINX takes whole numbers, by second or by minute."""
    if per_s is None:
        return None
    return f"{per_s:.0f}r/s" if per_s.is_integer() else f"{max(1, math.floor(per_s * 60))}r/m"
