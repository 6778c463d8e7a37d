"""Sends requests to a pool, so many at a time; answers as checks look at them; requests as curl commands."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp

from specops.load import counters
from specops.load.answer import Failure, events, well_formed
from specops.load.arrivals import Pace
from specops.load.client import endpoint_error, failure_of
from specops.load.settings import Endpoint
from specops.load.workload import Prompt
from specops.net import is_loopback
from specops.prometheus.exposition import NoData, Scrape, series_of
from specops.serving import RequestDrafts, fields_for_drafts, parameter, request_drafts

REFUSALS = ("http_400", "http_404", "http_422", "http_501")
PASSING = ("timeout", "stalled", "http_429", "http_503")
"""What a busy server does as well, so that it shows nothing of speculation."""


@dataclass(frozen=True)
class Token:
    text: str
    logprob: float
    top: tuple[float, ...] = ()
    """Log-probabilities of the likeliest there, the greatest first."""

    top_texts: tuple[str, ...] = ()
    """Their texts."""


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool; `arguments` is the text of a JSON object."""

    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class AnswerChoice:
    text: str = ""
    finish_reason: str | None = None
    tokens: tuple[Token, ...] | None = None
    """None without them."""

    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    """Its reasoning, in the field of its own that a parser of reasoning fills."""


@dataclass(frozen=True)
class Usage:
    prompt: int
    completion: int
    total: int
    cached: int | None = None
    """Prompt tokens that came from a cache; None where this is not reported."""


@dataclass(frozen=True)
class Reply:
    choices: Mapping[int, AnswerChoice] = field(default_factory=dict)
    """Choices by their index."""

    usage: Usage | None = None
    failure: Failure | None = None
    drafts: RequestDrafts | None = None

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return self.first.text

    @property
    def first(self) -> AnswerChoice:
        return self.choices.get(0, AnswerChoice())

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def refused(self) -> bool:
        return self.failure is not None and self.failure.kind in REFUSALS

    @property
    def compared_parts(self) -> tuple[str, tuple[ToolCall, ...], int | None]:
        """Return what two answers must share to be the same."""
        return self.text, self.first.calls, self.usage.completion if self.usage else None


def whole(body: Any) -> Reply:
    """A reply from the JSON of an answer that was not streamed."""
    try:
        choices = {int(choice.get("index", 0)): _whole_choice(choice) for choice in body["choices"]}
        return Reply(choices, _usage(body.get("usage")), drafts=request_drafts(body))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return Reply(failure=Failure("malformed", f"the answer cannot be read: {error!r}"[:200]))


def streamed(events: Iterable[str], *, ended: bool = True) -> Reply:
    """A reply from the data of a stream's events. With `ended` it must have come to its end."""
    choices: dict[int, AnswerChoice] = {}
    usage: Usage | None = None
    done = False
    try:
        for data in events:
            if data == "[DONE]":
                done = True
                break
            event = json.loads(data)
            if error := event.get("error"):
                raw = error.get("message") if isinstance(error, dict) else error
                return Reply(choices, usage, Failure("stream_error", str(raw)[:200]))
            usage = _usage(event.get("usage")) or usage
            for entry in event.get("choices") or []:
                index = int(entry.get("index", 0))
                choices[index] = _grown(choices.get(index, AnswerChoice()), entry)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return Reply(choices, usage, Failure("malformed", f"an event cannot be read: {error!r}"[:200]))
    if ended and not done and not any(choice.finish_reason for choice in choices.values()):
        return Reply(choices, usage, Failure("cut", "the stream ended without a finish reason or [DONE]"))
    return Reply({i: replace(choice, text=well_formed(choice.text)) for i, choice in choices.items()}, usage)


def _whole_choice(raw: dict[str, Any]) -> AnswerChoice:
    message = raw.get("message") or {}
    text = raw["text"] if "text" in raw else message.get("content")
    calls = message.get("tool_calls") or []
    return AnswerChoice(
        well_formed(text or ""),
        raw.get("finish_reason"),
        _tokens(raw.get("logprobs")),
        tuple(ToolCall(call["function"]["name"], call["function"]["arguments"]) for call in calls),
        _reasoning(message),
    )


def _reasoning(message: Mapping[str, Any]) -> str:
    text = message.get("reasoning_content") or message.get("reasoning")
    return text if isinstance(text, str) else ""


def _grown(choice: AnswerChoice, raw: dict[str, Any]) -> AnswerChoice:
    delta = raw.get("delta") or {}
    text = raw["text"] if "text" in raw else delta.get("content")
    tokens = _tokens(raw.get("logprobs"))
    calls = list(choice.calls)
    for call in delta.get("tool_calls") or []:
        place, function = int(call.get("index", 0)), call.get("function") or {}
        calls += [ToolCall()] * (place + 1 - len(calls))
        so_far = calls[place]
        calls[place] = ToolCall(
            so_far.name + (function.get("name") or ""), so_far.arguments + (function.get("arguments") or "")
        )
    return AnswerChoice(
        choice.text + (text or ""),
        raw.get("finish_reason") or choice.finish_reason,
        choice.tokens if tokens is None else (*(choice.tokens or ()), *tokens),
        tuple(calls),
        choice.reasoning + _reasoning(delta),
    )


def _tokens(raw: Any) -> tuple[Token, ...] | None:
    """Return the tokens of the chat's shape of logprobs, or of the completions'."""
    if not raw:
        return None
    if "content" in raw:
        return tuple(
            Token(
                token["token"],
                float(token["logprob"]),
                *_top((t["token"], t["logprob"]) for t in token["top_logprobs"] or []),
            )
            for token in raw["content"] or []
        )
    tops = raw.get("top_logprobs") or [{}] * len(raw["tokens"])
    return tuple(
        Token(str(text), float(value), *_top((top or {}).items()))
        for text, value, top in zip(raw["tokens"], raw["token_logprobs"], tops, strict=True)
    )


def _top(likeliest: Iterable[tuple[Any, Any]]) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Log-probabilities and texts, the likeliest first."""
    ranked = sorted(((float(value), str(text)) for text, value in likeliest), reverse=True)
    return tuple(value for value, _ in ranked), tuple(text for _, text in ranked)


def _usage(raw: Any) -> Usage | None:
    if not raw:
        return None
    details = raw.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        int(raw["prompt_tokens"]),
        int(raw["completion_tokens"]),
        int(raw["total_tokens"]),
        cached if type(cached) is int else None,
    )


CHAT = "/chat/completions"
COMPLETIONS = "/completions"
TRIES = 4
BACKOFF_S = 0.5
GONE = ("refused", "unreachable")


@dataclass(frozen=True)
class CanaryRequest:
    """One request."""

    path: str
    body: dict[str, Any]

    def with_fields(self, **fields: Any) -> CanaryRequest:
        """The same with other fields; None leaves one out."""
        body = {key: value for key, value in (self.body | fields).items() if value is not None}
        return CanaryRequest(self.path, body)

    def streaming(self) -> CanaryRequest:
        return self.with_fields(stream=True, stream_options={"include_usage": True})

    def with_logprobs(self, top: int) -> CanaryRequest:
        """Return the request with the log-probability of each token, and of the `top` likeliest."""
        if self.path == CHAT:
            return self.with_fields(logprobs=True, top_logprobs=top)
        return self.with_fields(logprobs=top)


class PoolLost(Exception):
    """A pool that had answered does not any more."""

    def __init__(self, pool: str, failure: Failure) -> None:
        super().__init__(f"the {pool} pool does not answer any more: {failure.detail}")
        self.pool = pool


@dataclass
class PoolClient:
    """Use as an async context manager. `endpoint` says where it is and what its model is called."""

    name: Literal["standard", "speculative"]
    endpoint: Endpoint
    concurrency: int
    pace: Pace
    sent: int = 0
    _plain: dict[str, Reply] = field(default_factory=dict)
    _answered: bool = False

    async def __aenter__(self) -> Self:
        self._free = asyncio.Semaphore(self.concurrency)
        self._session = aiohttp.ClientSession(
            headers=self.endpoint.credentials.all_headers,
            timeout=aiohttp.ClientTimeout(total=self.endpoint.timeout_s, connect=self.endpoint.connect_s),
            # a proxy of the environment is for other machines: it cannot reach this loopback
            trust_env=not is_loopback(self.endpoint.base_url),
            # A connection a request: llama.cpp ends those that it says it keeps, and a request is lost.
            connector=aiohttp.TCPConnector(
                limit=0, force_close=True, ssl=self.endpoint.credentials.tls or True
            ),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    def greedy(self, prompt: Prompt, max_tokens: int) -> CanaryRequest:
        return self.asking(prompt, max_tokens=max_tokens, temperature=0)

    def asking(self, prompt: Prompt, **fields: Any) -> CanaryRequest:
        """A prompt of the set, at the route that is measured."""
        if self.endpoint.kind == "chat":
            return CanaryRequest(
                CHAT, {"model": self.endpoint.model, "messages": prompt.messages(), **fields}
            )
        return CanaryRequest(
            COMPLETIONS, {"model": self.endpoint.model, "prompt": prompt.completion_prompt(), **fields}
        )

    def chat_request(self, text: str, **fields: Any) -> CanaryRequest:
        messages = [{"role": "user", "content": text}]
        return CanaryRequest(CHAT, {"model": self.endpoint.model, "messages": messages, **fields})

    async def plain(self, ask: CanaryRequest) -> Reply:
        """Send a request as `ask` does, but do not send again what was sent before."""
        key = json.dumps([ask.path, ask.body], sort_keys=True)
        if key not in self._plain:
            self._plain[key] = await self.ask(ask)
        return self._plain[key]

    async def ask_all(self, asks: Sequence[CanaryRequest]) -> list[Reply]:
        return list(await asyncio.gather(*(self.ask(ask) for ask in asks)))

    async def ask(self, ask: CanaryRequest, *, leave_after: int | None = None) -> Reply:
        """The answer, or what came in its place. A server that is too busy gets it again, not for ever.

        leave_after: go away after so many events of the stream.
        Raises PoolLost where the pool cannot be reached any more, and EndpointError where it never could.
        """
        async with self._free:
            for attempt in range(TRIES):
                await self.pace.turn()
                self.sent += 1
                reply = await self._send_once(ask, leave_after)
                kind = reply.failure.kind if reply.failure else None
                if kind not in ("http_429", "http_503", *GONE):
                    self._answered = True
                    return reply
                await asyncio.sleep(BACKOFF_S * 2**attempt)
            assert reply.failure is not None
            if kind not in GONE:
                return reply
            if self._answered:
                raise PoolLost(self.name, reply.failure)
            raise endpoint_error(self.endpoint.base_url, reply.failure, credentials=self.endpoint.credentials)

    async def _send_once(self, ask: CanaryRequest, leave_after: int | None) -> Reply:
        url = self.endpoint.base_url + ask.path
        reads: list[tuple[float, bytes]] = []
        try:
            # a redirect would take headers with secrets to another host
            async with self._session.post(url, json=ask.body, allow_redirects=False) as response:
                if response.status != 200:
                    return Reply(failure=self._refusal(response.status, await response.text()))
                if not ask.body.get("stream"):
                    return whole(json.loads(await response.read()))
                async for data in response.content.iter_any():
                    reads.append((0.0, data))
                    if leave_after is not None and len(events(reads)) >= leave_after:
                        response.close()
                        break
        except ValueError as error:
            return Reply(failure=Failure("malformed", f"the answer is not JSON: {error}"))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = failure_of(error, self.endpoint.credentials)
            return Reply(failure=failure or Failure("cut", self.endpoint.credentials.blotted(str(error))))
        return streamed((event.data for event in events(reads)), ended=leave_after is None)

    def _refusal(self, status: int, text: str) -> Failure:
        try:
            error = json.loads(text)
            error = error.get("error", error)
            message = str(error["message"])
        except (ValueError, LookupError, TypeError, AttributeError):
            message = text
        message = " ".join(self.endpoint.credentials.blotted(message).split())[:200]
        return Failure(f"http_{status}", message)

    async def _listed(self) -> dict[str, Any]:
        """Return what the pool lists of its model; empty where it lists nothing that can be read."""
        try:
            async with self._session.get(
                f"{self.endpoint.base_url}/models", allow_redirects=False
            ) as response:
                models = (await response.json())["data"]
            message = next((model for model in models if model.get("id") == self.endpoint.model), models[0])
            return dict(message)
        except (
            aiohttp.ClientError,
            TimeoutError,
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
        ):
            return {}

    async def longest(self) -> int | None:
        """Tokens that a sequence may have, as the pool lists it; None where it does not."""
        message = await self._listed()
        try:
            return int(message["max_model_len"] if "max_model_len" in message else message["meta"]["n_ctx"])
        except (ValueError, LookupError, TypeError):
            return None

    async def draft_fields(self) -> Mapping[str, Any]:
        """Return the fields that a request needs for its answer to report its drafts."""
        return fields_for_drafts(str((await self._listed()).get("owned_by", "")))

    async def gauges(self) -> Scrape | None:
        """Return what its /metrics says; None where it has none."""
        scrape = await counters.scrape(self.endpoint.base_url, self.endpoint.credentials)
        return None if isinstance(scrape, NoData) else scrape

    async def called(self, name: str) -> str:
        """Return what its engine calls the request parameter; `name` is vLLM's."""
        return parameter(name, series_of(await self.gauges() or {}))

    async def introduce(self, ask: CanaryRequest) -> None:
        """Send the plainest request. Raises EndpointError where the pool does not answer it."""
        reply = await self.ask(ask)
        if reply.failure is not None:
            raise endpoint_error(
                self.endpoint.base_url, reply.failure, self.endpoint.model, self.endpoint.credentials
            )


LONGEST = 4000
"""Characters of a body that is written out; a longer one is stored in a file of its own."""

Keep = Callable[[str], str]
"""Keeps a body, and says in which file."""


def curl_of(ask: CanaryRequest, endpoint: Endpoint, keep: Keep, among: Sequence[CanaryRequest] = ()) -> str:
    """A curl of `ask`, behind those of `among`, which go out first and are still under way.

    BASE_URL stands in for the address where it is set: a server that specops started is gone by then.
    """
    base = f'BASE_URL="${{BASE_URL:-{endpoint.base_url}}}"'
    lines = [base, *(f"{_curl(request, endpoint, keep)} > /dev/null &" for request in among)]
    return "\n".join([*lines, _curl(ask, endpoint, keep), *(["wait"] if among else [])])


def _curl(ask: CanaryRequest, endpoint: Endpoint, keep: Keep) -> str:
    access = endpoint.credentials.curl
    words = [f"curl -sS{access}", f'"$BASE_URL{ask.path}"', "-H 'Content-Type: application/json'"]
    body = json.dumps(ask.body, ensure_ascii=False)
    words += ["-d", shlex.quote(body if len(body) <= LONGEST else f"@{keep(body)}")]
    return " ".join(words)
