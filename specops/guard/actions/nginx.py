"""A router's switch, at its admin listener: GET and PUT {"speculative_percent": 0 to 100}."""

from __future__ import annotations

import os

from specops.errors import EndpointError
from specops.guard.actions.asking import ask_json
from specops.guard.actions.target import Target

TOKEN = "SPECOPS_ROUTER_TOKEN"
PATH = "/specops/switch"
KEY = "speculative_percent"
TIMEOUT_S = 1.2
"""A turn asks a router that hangs twice at most: when it begins, and when it acts."""


class Nginx(Target):
    patience_s = TIMEOUT_S

    def __init__(self, address: str) -> None:
        """`address`: host and port of the admin listener."""
        self.name = f"router {address}"
        self._url = f"http://{address}{PATH}"

    def read(self) -> int:
        return self._ask(f"read the switch of {self.name}", "GET")

    def set(self, percent: int) -> None:
        self._ask(f"switch {self.name} to {percent}%", "PUT", {KEY: percent})

    def _ask(self, what: str, method: str, body: object = None) -> int:
        token = os.environ.get(TOKEN)
        said = ask_json(what, method, self._url, body=body, token=token, timeout_s=TIMEOUT_S)
        percent = said.get(KEY) if isinstance(said, dict) else None
        if not isinstance(percent, int | float) or isinstance(percent, bool) or not 0 <= percent <= 100:
            raise EndpointError(
                f"could not {what}: {self._url} does not say {KEY}",
                hint="addresses.routers are the routers' admin listeners",
            )
        return round(percent)
