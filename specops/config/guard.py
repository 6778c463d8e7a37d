"""When `guard` takes speculation off, how it brings it back, and what it does for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.config.addresses import HostPort, Url
from specops.section import Section

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Words = Annotated[list[str], Field(min_length=1)]
PERCENT, ENABLED = "{percent}", "{enabled}"
"""Where an action puts the share of traffic that may be speculative: 0 to 100, or whether it is above 0."""


class NginxAction(Section):
    """The switch of every router in addresses.routers."""

    kind: Literal["nginx"]


class FlagFileAction(Section):
    """A file for others to read, such as a router on another road: {"speculative_percent": 100}."""

    kind: Literal["flag_file"]
    path: str = Field(pattern=r"^/", description="Replaced whole; its folder must be there.")


class HttpAction(Section):
    """A feature flag. A token for it comes from the environment: SPECOPS_FLAG_TOKEN."""

    kind: Literal["http"]
    url: Url
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    body: dict[str, Any] = Field(
        default={"speculative_decoding_enabled": ENABLED},
        description="JSON; one value is {percent}, a number from 0 to 100, or {enabled}, true or false.",
    )
    read_url: Url | None = Field(
        default=None, description="GET says what the flag is; left out: the same address."
    )
    read_at: str | None = Field(
        default=None,
        min_length=1,
        description="Keys by dots to the value in that answer; left out: as in the body.",
    )
    timeout_s: float = Field(default=5.0, gt=0.0)

    @model_validator(mode="after")
    def _says_what_to_set(self) -> HttpAction:
        if len(list(placeholders(self.body))) != 1:
            raise PydanticCustomError(
                "action",
                "body must have exactly one value that is {percent} or {enabled}",
                {"hint": 'such as body: {speculative_percent: "{percent}"}'},
            )
        return self


class CommandAction(Section):
    """Commands of yours; no shell reads them."""

    kind: Literal["command"]
    set: Words = Field(description="Its words; one contains {percent} or {enabled} (true or false).")
    read: Words = Field(description="Prints what is set in its last line: 0 to 100, or true or false.")
    timeout_s: float = Field(default=60.0, gt=0.0)

    @model_validator(mode="after")
    def _says_what_to_set(self) -> CommandAction:
        if not any(PERCENT in word or ENABLED in word for word in self.set):
            raise PydanticCustomError(
                "action",
                "no word of set contains {percent} or {enabled}",
                {"hint": 'such as set: [switch, --speculative, "{percent}"]'},
            )
        return self


class RestartAction(Section):
    """For a single pool: the server is drained, and started anew without speculation, or with it."""

    kind: Literal["restart"]
    drain: Words | None = Field(default=None, description="Takes it out of traffic, and waits until it is.")
    stop: Words = Field(description="Must succeed where nothing runs, too.")
    start_standard: Words = Field(description="Returns once it is started; it must not stay in front.")
    start_speculative: Words
    admit: Words | None = Field(default=None, description="Gives it traffic again, once it is healthy.")
    health: Url = Field(description="Answers 200 once it serves, such as http://127.0.0.1:8000/health.")
    metrics: Url | None = Field(
        default=None,
        description="vLLM's or the embedded engine's /metrics, which count drafts if it speculates.",
    )
    read: Words | None = Field(
        default=None,
        description="In its place: prints in its last line whether it speculates, true or false.",
    )
    timeout_s: float = Field(default=1800.0, gt=0.0, description="Of each command, and to become healthy.")

    @model_validator(mode="after")
    def _can_be_read(self) -> RestartAction:
        if (self.metrics is None) == (self.read is None):
            raise PydanticCustomError(
                "action",
                "whether it speculates is read from metrics or by read, one of the two",
                {"hint": "such as metrics: http://127.0.0.1:8000/metrics"},
            )
        return self


Action = Annotated[
    NginxAction | FlagFileAction | HttpAction | CommandAction | RestartAction, Field(discriminator="kind")
]


def placeholders(value: object, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Keys that lead to each value of a body that is to be filled in, and which one it is."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from placeholders(inner, (*at, str(key)))
    elif value in (PERCENT, ENABLED):
        yield at, str(value)


def stepwise(action: Action) -> bool:
    """Whether it can set a share of the traffic; else all or nothing."""
    match action:
        case HttpAction():
            return any(which == PERCENT for _, which in placeholders(action.body))
        case CommandAction():
            return any(PERCENT in word for word in action.set)
        case RestartAction():
            return False
        case _:
            return True


class Guard(Section):
    interval_s: int = Field(default=60, ge=1, description="Between two evaluations.")
    consecutive: int = Field(default=3, ge=1, description="Bad evaluations in a row that it takes.")
    min_acceptance: Share | None = Field(
        default=None, description="Less is bad; left out: break-even as the sweep measured it, else 0.4."
    )
    max_regression: float = Field(
        default=0.20, gt=0.0, description="Mean latency above the baseline's by more than this is bad."
    )
    max_error_share: Share = Field(default=0.05, description="More failed requests than this are bad.")
    min_requests: int | None = Field(
        default=None, ge=1, description="Fewer within the window are no traffic; left out: what noise asks."
    )
    cooldown_s: int = Field(
        default=1800, ge=1, description="After a fall-back, before the first step back is tried."
    )
    canary_percents: list[Annotated[int, Field(ge=1, le=99)]] = Field(
        default=[5, 25, 50], description="Steps back, in per cent of what may be speculative; then 100."
    )
    hold_evaluations: int = Field(default=5, ge=1, description="Healthy ones that each step takes.")
    margin: float = Field(
        default=0.05,
        ge=0.0,
        lt=1.0,
        description="Of a threshold: at a step, healthy is better than it by this.",
    )
    attempts: int = Field(
        default=4, ge=0, le=20, description="To come back; then a person must act. 0: always a person."
    )
    backoff: float = Field(
        default=2.0, ge=1.0, le=100.0, description="The cool-down grows so after each failed attempt."
    )
    max_wait_s: int = Field(default=86400, ge=1, description="The longest that it grows to.")
    actions: list[Action] = Field(
        default=[], description="What switches, in this order; left out: the switch of addresses.routers."
    )
    listen: HostPort = Field(
        default="127.0.0.1:9469", description="Of `specops guard run`: /metrics, /health, /alerts."
    )

    @model_validator(mode="after")
    def _steps_go_up(self) -> Guard:
        if self.canary_percents != sorted(set(self.canary_percents)):
            raise PydanticCustomError(
                "guard", "canary_percents must go up", {"hint": "such as canary_percents: [5, 25, 50]"}
            )
        return self
