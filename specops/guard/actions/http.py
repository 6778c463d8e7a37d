"""A feature flag behind HTTP: the value of one key of a body, read back from the same key of an answer."""

from __future__ import annotations

import os
from typing import Any

from specops.config.guard import ENABLED, PERCENT, HttpAction, placeholders
from specops.errors import EndpointError
from specops.guard.actions.asking import ask, ask_json
from specops.guard.actions.target import Target

TOKEN = "SPECOPS_FLAG_TOKEN"


class Http(Target):
    def __init__(self, action: HttpAction) -> None:
        self.name = f"flag {action.url}"
        self._action = action
        ((path, self._kind),) = placeholders(action.body)
        self._keys = tuple(action.read_at.split(".")) if action.read_at else path

    def read(self) -> int:
        action, what = self._action, f"read {self.name}"
        url = action.read_url or action.url
        said = ask_json(what, "GET", url, token=os.environ.get(TOKEN), timeout_s=action.timeout_s)
        for key in self._keys:
            said = said.get(key) if isinstance(said, dict) else None
        if self._kind == ENABLED and isinstance(said, bool):
            return 100 if said else 0
        if (
            self._kind == PERCENT
            and isinstance(said, int)
            and not isinstance(said, bool)
            and 0 <= said <= 100
        ):
            return said
        wanted = "true or false" if self._kind == ENABLED else "a whole number from 0 to 100"
        raise EndpointError(
            f"could not {what}: {url} does not say {wanted} at {'.'.join(self._keys)}",
            hint="set read_url and read_at of the action to where the flag can be read",
        )

    def set(self, percent: int) -> None:
        action = self._action
        ask(
            f"set {self.name} to {percent}%",
            action.method,
            action.url,
            body=_filled(action.body, percent),
            token=os.environ.get(TOKEN),
            timeout_s=action.timeout_s,
        )


def _filled(value: Any, percent: int) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, percent) for key, inner in value.items()}
    return {PERCENT: percent, ENABLED: percent > 0}.get(value, value) if isinstance(value, str) else value
