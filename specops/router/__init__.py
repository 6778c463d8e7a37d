"""Routers: one package each, behind the protocol in protocol.py, and their registry.

Only this module is imported from outside (an import-linter contract in pyproject.toml). It names no router's
type: whoever has a rollout asks `rollout.route.router`.
"""

from __future__ import annotations

from specops.router import nginx
from specops.router.protocol import (
    CHAT,
    CLASS_HEADER,
    COMPLETIONS,
    LOOPBACK,
    REASON_HEADER,
    REQUEST_ID,
    Decision,
    Deployment,
    Judge,
    Listener,
    Refusal,
    Request,
    Router,
    RouterCounters,
    StoredRules,
    may_choose,
)
from specops.router.settings import RESERVED, RouteSettings, TrafficClass

__all__ = [
    "CHAT",
    "CLASS_HEADER",
    "COMPLETIONS",
    "LOOPBACK",
    "REASON_HEADER",
    "REQUEST_ID",
    "RESERVED",
    "ROUTERS",
    "Decision",
    "Deployment",
    "Judge",
    "Listener",
    "Refusal",
    "Request",
    "RouteSettings",
    "Router",
    "RouterCounters",
    "StoredRules",
    "TrafficClass",
    "may_choose",
]

ROUTERS: dict[str, type[Router]] = {router.name: router for router in (nginx.ROUTER,)}
"""The registry: one line a router. A rollout file that names none has the first."""
