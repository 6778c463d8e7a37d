"""Settings of a measurement: endpoint, decoding, and a load, checked before the first request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Protocol, Self
from urllib.parse import urlsplit

from pydantic import Field, TypeAdapter, WithJsonSchema, field_validator, model_validator
from typing_extensions import TypedDict

from specops import results
from specops.access import NOTHING, OPEN, Access, Credentials
from specops.assets import asset
from specops.defaults import REQUEST_TIMEOUT_S
from specops.load.answer import TokensFrom, token_counter, tokenizer_file
from specops.load.arrivals import AbortRule, Level, Ramp, parse_arrivals
from specops.load.replay import Replay
from specops.load.request_times import Objectives
from specops.load.traces import open_trace
from specops.load.workload import PromptSet, load_prompts
from specops.net import address
from specops.quantities import MILLISECONDS, SECONDS, Share
from specops.section import Frozen

EndpointKind = Literal["chat", "completions"]

MAX_IN_FLIGHT = 1000
"""Connections of the openai client's pool: one request more would wait inside the client, unseen."""


class Reachable(Protocol):
    """A server that answers: its address, its model, and what it requires of a client."""

    @property
    def base_url(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def access(self) -> Access: ...


@dataclass(frozen=True)
class Endpoint:
    base_url: str
    model: str
    kind: EndpointKind = "chat"
    credentials: Credentials = NOTHING
    connect_s: float = 10.0
    timeout_s: float = REQUEST_TIMEOUT_S
    """Seconds from the sending of a request to the end of its answer."""

    stall_s: float = 30.0
    """Seconds between two reads once the answer has begun."""

    retries: int = 2
    """Number of retries after 429, 503 and a refused connection, and only before any byte of an answer."""


@dataclass(frozen=True)
class Decoding:
    """The sampling of every prompt of a run."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False
    max_tokens: int | None = None
    """Number of tokens in place of what each prompt asks for."""


class CountingRecord(TypedDict):
    """`Capabilities.described`."""

    usage: bool
    continuous_usage: bool
    tokens_from: TokensFrom
    miscount: NotRequired[str]


StoredCounting = Annotated[dict[str, Any], WithJsonSchema(TypeAdapter(CountingRecord).json_schema())]
"""How the tokens of a stored result were counted; empty where the endpoint was not reached again."""


@dataclass(frozen=True)
class Capabilities:
    """The abilities of an endpoint: usage reports on request, and finish reasons. What it refuses is not
    requested again."""

    usage: bool = False
    continuous_usage: bool = False
    miscount: str | None = None
    """Where its count of tokens contradicts the limit that a request set, the sentence that says so."""

    finish_reasons: bool = True
    """Whether its answers end with a finish reason. Where none does, [DONE] and usage say that an answer is
    whole."""

    drafts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a request with which its answers report their drafts."""

    def stream_options(self) -> dict[str, bool]:
        requested = {"include_usage": self.usage, "continuous_usage_stats": self.continuous_usage}
        return {option: True for option, on in requested.items() if on}

    def described(self, *, retokenised: bool) -> dict[str, Any]:
        """Return how this endpoint's tokens are counted, stored with the figures that depend on it."""
        fallback = "retokenised" if retokenised else "unknown"
        return {
            "usage": self.usage,
            "continuous_usage": self.continuous_usage,
            "tokens_from": "usage" if self.usage else fallback,
        } | ({"miscount": self.miscount} if self.miscount else {})


def checked_base_url(url: str) -> str:
    """`url` without a trailing slash. Raises ValueError for an invalid base URL, or one that holds
    secrets."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http or https address, such as http://127.0.0.1:8000/v1")
    if parts.username or parts.password:
        raise ValueError("must not hold credentials: the API key comes from the environment")
    if parts.query or parts.fragment:  # paths are appended to it; and a query may hold a key
        raise ValueError("must end with its path: no query and no fragment")
    return url.rstrip("/")


Positive = Annotated[float, Field(gt=0)]
PositiveSeconds = Annotated[float, Field(gt=0), SECONDS]


WHEN_TO_STOP = ("max_error_share", "abort_error_share", "abort_e2e_ms", "abort_window")
OF_THE_RUN = ("concurrency", "repeats", *WHEN_TO_STOP)
"""Settings that say which cells there are and when to stop, and change nothing within a cell."""

_ELSEWHERE = ("base_url", "identity", "prompts", "api_key_env", "access", "name")
"""Settings that say where something is; what is there has a hash of its own."""


class BaselineSettings(Frozen):
    """Settings of a baseline: what to measure and how."""

    base_url: str
    """An OpenAI base URL, mostly ending in /v1."""

    model: str
    endpoint: EndpointKind = "chat"
    identity: str | None = None
    """Stands for address and model in the inputs' hash, where a server gets a new port at every start."""

    api_key_env: str | None = None
    """The variable that holds the API key of a server that names none; default: `API_KEYS`."""

    access: Access = Field(default=OPEN, exclude=True)
    name: str = Field(default="", exclude=True)
    """What messages call the server; empty: its address alone."""

    prompts: Path = Field(default_factory=lambda: asset("playbooks", "embedded", "prompts.json"))
    classes: tuple[str, ...] = ()
    """Traffic classes to measure; none means all."""

    tokenizer: Path | None = None
    """A tokenizer.json to count tokens with where the endpoint reports no usage."""

    concurrency: tuple[Annotated[int, Field(ge=1, le=MAX_IN_FLIGHT)], ...] = Field(default=(1,), min_length=1)
    arrivals: str = "closed"
    """closed, poisson, gamma, ramp:FIRST-LAST/TIME or trace:FILE; `arrivals.parse_arrivals` reads it."""

    rate: Positive | None = None
    burstiness: Positive = 1.0
    trace_speed: Positive = 1.0
    """How many times as fast a trace is replayed as it was recorded."""

    trace_from_s: float = Field(default=0.0, ge=0)
    trace_for_s: Positive | None = None
    """The part of a trace that is replayed, in seconds of the trace: where it begins, and how long it is."""

    repeats: int = Field(default=2, ge=1)
    warmup: int = Field(default=4, ge=0)
    """Requests before the first cell of each concurrency. Their times are not compared; that one fails
    counts."""

    temperature: float = Field(default=0.0, ge=0)
    top_p: Share = Field(default=1.0, gt=0, le=1)
    seed: int = 0
    """Seed of order and arrivals; sent with each request as well where temperature is above 0."""

    same_prompts: bool = False
    """Send each prompt as it is, although a cache may know it. By default a nonce is put in front."""

    think_time: float = Field(default=0.0, ge=0)
    """Pauses before later turns of conversations, times as long as recorded; 0: none."""

    ignore_eos: bool = False
    max_tokens: int | None = Field(default=None, ge=1)
    timeout_s: PositiveSeconds = REQUEST_TIMEOUT_S
    stall_s: PositiveSeconds = 30.0
    retries: int = Field(default=2, ge=0)
    max_rps: Positive | None = None
    slo: Objectives = Objectives()
    max_error_share: Share = Field(default=0.05, ge=0, lt=1)
    """Share of failed requests above which the verdict is no."""

    abort_error_share: Share = Field(default=0.5, gt=0, le=1)
    abort_e2e_ms: Annotated[float, Field(gt=0), MILLISECONDS] | None = None
    abort_window: int = Field(default=20, ge=1)
    """Stop when more than the share of so many requests in a row fail, or their median is too slow."""

    @field_validator("base_url")
    @classmethod
    def _http_without_credentials(cls, url: str) -> str:
        return checked_base_url(url)

    @field_validator("arrivals")
    @classmethod
    def _known_arrivals(cls, text: str) -> str:
        parse_arrivals(text)
        return text

    @model_validator(mode="after")
    def _load_makes_sense(self) -> Self:
        process = parse_arrivals(self.arrivals)
        if (process in ("poisson", "gamma")) != (self.rate is not None):
            raise ValueError("poisson and gamma arrivals need a rate, and others take none")
        if self.arrivals != "gamma" and self.burstiness != 1:
            raise ValueError("burstiness is for gamma arrivals")
        if self.rate and self.max_rps and self.rate > self.max_rps:
            raise ValueError("the rate is above max_rps")
        if self.arrivals != "closed" and self.concurrency != (1,):
            raise ValueError("concurrency is for closed arrivals: an open loop sends at its rate")
        part = (self.trace_speed, self.trace_from_s, self.trace_for_s)
        if not isinstance(process, Path) and part != (1.0, 0.0, None):
            raise ValueError("trace_speed, trace_from and trace_for are for a trace: arrivals trace:FILE")
        if isinstance(process, Path | Ramp) and self.max_rps:
            raise ValueError("max_rps would move the instants of a trace or a ramp: use trace_speed below 1")
        if isinstance(process, Path) and self.same_prompts:
            raise ValueError("same_prompts: a trace says which prompts share a beginning")
        if len(set(self.concurrency)) < len(self.concurrency):
            raise ValueError("a level of concurrency is named twice; use repeats to measure it again")
        return self

    def at(self, server: Reachable, name: str = "") -> Self:
        """Return a copy of these settings for another server, which messages call `name`."""
        update = {"base_url": server.base_url, "model": server.model, "access": server.access, "name": name}
        return self.model_copy(update=update)

    def replay(self, prompts: PromptSet, *, for_comparison: bool = False) -> Replay | None:
        """The requests of a trace or a ramp, with `prompts`; None for other arrivals. `for_comparison` cuts
        it into windows. Raises UsageError for a file that is not a trace."""
        process = parse_arrivals(self.arrivals)
        if isinstance(process, str):
            return None
        return Replay(
            process,
            prompts,
            seed=self.seed,
            speed=self.trace_speed,
            from_s=self.trace_from_s,
            for_s=self.trace_for_s,
            for_comparison=for_comparison,
            count_tokens=token_counter(self.tokenizer) if self.tokenizer else None,
        )

    def levels(self) -> list[Level]:
        """The loads of a measurement without a replay, which has its own."""
        if self.rate is not None:
            return [Level(rate=self.rate, burstiness=self.burstiness)]
        return [Level(concurrency=n) for n in self.concurrency]

    def prompt_set(self) -> PromptSet:
        """The prompts to send, each content once; of conversations that a completions request cannot carry,
        the first turns. Raises PromptsError where the endpoint cannot take one of them."""
        chosen = load_prompts(self.prompts).select(self.classes).distinct()
        if self.endpoint == "completions":
            chosen = chosen.as_text()
        for prompt in chosen.prompts:
            _ = prompt.messages() if self.endpoint == "chat" else prompt.completion_prompt()
        return chosen

    def inputs(self, prompts: PromptSet) -> dict[str, str]:
        """Hashes of what decides a cell. Address and model do not, where an identity stands for them."""
        requested = self.model_dump(mode="json", exclude={*_ELSEWHERE, *OF_THE_RUN, "model"})
        endpoint = self.identity or [address(self.base_url), self.model]
        fields = requested | self._files() | {"endpoint_identity": endpoint}
        return {"prompts": prompts.sha256, "settings": results.sha256(fields)}

    def plan(self) -> dict[str, Any]:
        """The requests, whatever the server: of a comparison's arms all the same."""
        return self.model_dump(mode="json", exclude={*_ELSEWHERE, *WHEN_TO_STOP, "model"}) | self._files()

    def _files(self) -> dict[str, str | None]:
        """Return tokenizer and trace by the hash of their files: the paths depend on where the rollout file
        lies."""
        process, arrivals = parse_arrivals(self.arrivals), self.arrivals
        if isinstance(process, Path):
            length = "to its end" if self.trace_for_s is None else f"for {self.trace_for_s:g} s"
            part = f"from {self.trace_from_s:g} s {length}"
            arrivals = f"trace:{open_trace(process).sha256} at speed {self.trace_speed:g} {part}"
        return {
            "tokenizer": results.sha256(tokenizer_file(self.tokenizer)) if self.tokenizer else None,
            "arrivals": arrivals,
        }

    def target(self) -> Endpoint:
        """Raises UsageError where a variable of its secrets is not set."""
        return Endpoint(
            self.base_url,
            self.model,
            self.endpoint,
            self.access.credentials(self.name, self.api_key_env),
            timeout_s=self.timeout_s,
            stall_s=self.stall_s,
            retries=self.retries,
        )

    def abort_rule(self) -> AbortRule:
        bound_s = self.abort_e2e_ms / 1000 if self.abort_e2e_ms else None
        return AbortRule(self.abort_error_share, bound_s, self.abort_window)

    def decoding(self) -> Decoding:
        return Decoding(
            self.temperature,
            self.top_p,
            self.seed,
            self.ignore_eos,
            self.max_tokens,
        )
