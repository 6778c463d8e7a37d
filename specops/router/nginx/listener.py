"""NGINX's admin listener: the switch, GET and PUT {"speculative_percent": 0 to 100}, and the counters."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families

from specops.actions.action import SWITCH_KEY
from specops.actions.http_client import ask, ask_json
from specops.errors import EndpointError
from specops.hints import in_rollout
from specops.net import machine_address
from specops.router.protocol import Listener, RouterCounters

TOKEN = "SPECOPS_ROUTER_TOKEN"
PATH = "/specops/switch"
TIMEOUT_S = 1.2
"""A turn sends at most two requests to a router that hangs: when it begins, and when it acts."""
DECISIONS = "specops_route_decisions_total"
REQUESTS = "specops_route_requests_total"
INFO = "specops_route_info"


class NginxListener(Listener):
    patience_s = TIMEOUT_S

    def __init__(self, address: str) -> None:
        self.address = address
        self.name = f"router {address}"
        self._url = f"http://{address}{PATH}"

    @property
    def identity(self) -> str:
        return f"router {machine_address(self._url)}"

    def read(self) -> int:
        return self._request(f"read the switch of {self.name}", "GET")

    def set(self, percent: int) -> None:
        self._request(f"switch {self.name} to {percent}%", "PUT", {SWITCH_KEY: percent})

    def _request(self, purpose: str, method: str, body: object = None) -> int:
        token = os.environ.get(TOKEN)
        answer = ask_json(purpose, method, self._url, body=body, token=token, timeout_s=TIMEOUT_S)
        percent = answer.get(SWITCH_KEY) if isinstance(answer, dict) else None
        if not isinstance(percent, int | float) or isinstance(percent, bool) or not 0 <= percent <= 100:
            raise EndpointError(
                f"could not {purpose}: {self._url} does not say {SWITCH_KEY}: expected a router's admin "
                "listener",
                hint=in_rollout("routers", "name the admin listeners"),
            )
        return math.ceil(percent)  # a share below 1% is not 0

    def counters(self) -> RouterCounters:
        decided: dict[str, float] = {}
        ended: dict[str, float] = {}
        rollout = None
        for name, labels, value in self._samples():
            if name == DECISIONS:
                pool = labels.get("pool", "")
                decided[pool] = decided.get(pool, 0.0) + value
            elif name == REQUESTS:
                lost = labels.get("served") == "none" or labels.get("status") == "5xx"
                end = "lost" if lost else "well"
                ended[end] = ended.get(end, 0.0) + value
            elif name == INFO:
                rollout = labels.get("rollout")
        return RouterCounters(rollout, decided, ended)

    def _samples(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        purpose = f"see where {self.name} sends requests"
        text = ask(purpose, "GET", f"http://{self.address}/metrics", timeout_s=TIMEOUT_S)
        try:
            for family in text_string_to_metric_families(text.decode(errors="replace")):
                for sample in family.samples:
                    yield sample.name, sample.labels, sample.value
        except ValueError as error:
            raise EndpointError(
                f"could not read a router's counters: {error}: expected the admin listener of a router",
                hint=in_rollout("routers", "name the admin listeners"),
            ) from None
