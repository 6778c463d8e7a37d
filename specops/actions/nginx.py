"""A router's switch, at its admin listener: GET and PUT {"speculative_percent": 0 to 100}."""

from __future__ import annotations

import math
import os
from typing import Literal

from specops.actions.action import Action, Site, Target
from specops.actions.http_client import ask_json
from specops.errors import EndpointError
from specops.hints import in_rollout
from specops.net import machine_address

TOKEN = "SPECOPS_ROUTER_TOKEN"
PATH = "/specops/switch"
KEY = "speculative_percent"
TIMEOUT_S = 1.2
"""A turn sends at most two requests to a router that hangs: when it begins, and when it acts."""


class NginxAction(Action):
    """The switch of every router in addresses.routers."""

    kind: Literal["nginx"]

    def targets(self, site: Site) -> list[Target]:
        return [Nginx(address) for address in site.routers]


class Nginx(Target):
    patience_s = TIMEOUT_S

    def __init__(self, address: str) -> None:
        """`address`: host and port of the admin listener."""
        self.name = f"router {address}"
        self._url = f"http://{address}{PATH}"

    @property
    def identity(self) -> str:
        return f"router {machine_address(self._url)}"

    def read(self) -> int:
        return self._request(f"read the switch of {self.name}", "GET")

    def set(self, percent: int) -> None:
        self._request(f"switch {self.name} to {percent}%", "PUT", {KEY: percent})

    def _request(self, what: str, method: str, body: object = None) -> int:
        token = os.environ.get(TOKEN)
        answer = ask_json(what, method, self._url, body=body, token=token, timeout_s=TIMEOUT_S)
        percent = answer.get(KEY) if isinstance(answer, dict) else None
        if not isinstance(percent, int | float) or isinstance(percent, bool) or not 0 <= percent <= 100:
            raise EndpointError(
                f"could not {what}: {self._url} does not say {KEY}: expected a router's admin listener",
                hint=in_rollout("routers", "name the admin listeners"),
            )
        return math.ceil(percent)  # a share below 1% is not 0
