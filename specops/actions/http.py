"""A feature flag behind HTTP: the value of one key of a body, read back from the same key of an answer."""

from __future__ import annotations

import os
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.actions.action import ENABLED, PERCENT, Action, Site, Target, placeholders
from specops.actions.http_client import ask, ask_json
from specops.errors import EndpointError
from specops.hints import http_request
from specops.net import machine_address
from specops.quantities import Seconds
from specops.section import Url

TOKEN = "SPECOPS_FLAG_TOKEN"


class HttpAction(Action):
    """A feature flag over HTTP. The environment variable SPECOPS_FLAG_TOKEN holds its token."""

    kind: Literal["http"]
    url: Url = Field(description="URL to which the body is sent.")
    method: Literal["POST", "PUT", "PATCH"] = Field(
        default="POST", description="HTTP method of the request that sets the flag."
    )
    body: dict[str, Any] = Field(
        default={"speculative_decoding_enabled": ENABLED},
        description="JSON body in which one value is {percent}, 0 to 100, or {enabled}, true or false.",
    )
    read_url: Url | None = Field(
        default=None, description="URL whose answer to GET has the flag's current value; default: `url`."
    )
    read_at: str | None = Field(
        default=None,
        min_length=1,
        description="Keys, joined by dots, that lead to the value in that answer; default: as in the body.",
    )
    timeout_s: Seconds = Field(default=5.0, gt=0.0, description="Timeout of one request, in seconds.")

    @model_validator(mode="after")
    def _has_one_placeholder(self) -> HttpAction:
        if len(list(placeholders(self.body))) != 1:
            raise PydanticCustomError(
                "action",
                "invalid body: expected exactly one value {percent} or {enabled}",
                {"advice": 'such as body: {speculative_percent: "{percent}"}'},
            )
        return self

    @property
    def stepwise(self) -> bool:
        return any(which == PERCENT for _, which in placeholders(self.body))

    def targets(self, site: Site) -> list[Target]:
        return [Http(self)]


class Http(Target):
    def __init__(self, action: HttpAction) -> None:
        self.name = f"flag {action.url}"
        self._action = action
        ((path, self._kind),) = placeholders(action.body)
        self._keys = tuple(action.read_at.split(".")) if action.read_at else path

    @property
    def identity(self) -> str:
        query = urlsplit(self._action.url).query
        return f"flag {machine_address(self._action.url)}" + (f"?{query}" if query else "")

    def read(self) -> int:
        action, purpose = self._action, f"read {self.name}"
        url = action.read_url or action.url
        value = ask_json(purpose, "GET", url, token=os.environ.get(TOKEN), timeout_s=action.timeout_s)
        for key in self._keys:
            value = value.get(key) if isinstance(value, dict) else None
        if self._kind == ENABLED and isinstance(value, bool):
            return 100 if value else 0
        if (
            self._kind == PERCENT
            and isinstance(value, int)
            and not isinstance(value, bool)
            and 0 <= value <= 100
        ):
            return value
        expected = "true or false" if self._kind == ENABLED else "a whole number from 0 to 100"
        raise EndpointError(
            f"could not {purpose}: {url} does not say {expected} at {'.'.join(self._keys)}; read_url and "
            "read_at say where "
            "it is read",
            hint=http_request(url),
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
