"""One streamed request after another to an OpenAI-compatible endpoint, with the instants of its bytes."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from itertools import product
from types import TracebackType
from typing import Any, Self

import openai
from openai import DEFAULT_CONNECTION_LIMITS, AsyncOpenAI, DefaultAioHttpClient, Timeout

from specops.errors import EndpointError, UsageError
from specops.load.answer import Failure
from specops.load.endpoint import Capabilities, Decoding, Endpoint
from specops.load.observation import Exchange, Observation
from specops.load.pace import Pace
from specops.load.transport_errors import endpoint_error, failure_of
from specops.load.unicode import well_formed
from specops.load.workload import Prompt
from specops.net import is_loopback

DEFAULT_MAX_TOKENS = 256
_PROBE_TOKENS = 8
_LIMIT_NAMES = {"chat": ("max_tokens", "max_completion_tokens"), "completions": ("max_tokens",)}
"""What the bound of an answer's length is called, the common name first; OpenAI's newer models refuse it."""

_RETRIED = ("http_429", "http_503", "refused")
_LONGEST_WAIT_S = 30.0
_BACKOFF_S = 0.25


# The client calls its request hook with nothing that names the caller; a task's context does.
_in_flight: ContextVar[Exchange] = ContextVar("_in_flight")


# A server closes what was idle for some seconds, uvicorn after 5. A request that leaves on such a
# connection at that moment is lost, and would count as the server's failure; we let go of it well before.
_LIMITS = type(DEFAULT_CONNECTION_LIMITS)(
    max_connections=DEFAULT_CONNECTION_LIMITS.max_connections,
    max_keepalive_connections=DEFAULT_CONNECTION_LIMITS.max_keepalive_connections,
    keepalive_expiry=2.0,
)


async def _stamp_sent(_request: object) -> None:
    """Runs when a request is built and about to go out: building it is our time, not the server's."""
    if exchange := _in_flight.get(None):
        exchange.sent = time.perf_counter()


class Client:
    """Use as an async context manager; `probe` once before the first `send`."""

    def __init__(self, endpoint: Endpoint, decoding: Decoding) -> None:
        self.endpoint = endpoint
        self.decoding = decoding
        self.capabilities = Capabilities(usage=True, continuous_usage=True)
        self._limit_name = "max_tokens"

    async def __aenter__(self) -> Self:
        self._openai = AsyncOpenAI(
            base_url=self.endpoint.base_url,
            api_key=self.endpoint.api_key,
            max_retries=0,  # a retry that nobody counts is a latency that nobody understands
            timeout=Timeout(None, connect=self.endpoint.connect_s),
            http_client=DefaultAioHttpClient(
                event_hooks={"request": [_stamp_sent]},
                limits=_LIMITS,
                # a proxy of the environment is for the world outside: none reaches our loopback
                trust_env=not is_loopback(self.endpoint.base_url),
            ),
            default_headers={"Accept-Encoding": "identity"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._openai.close()

    async def models(self) -> list[str]:
        """The models that the endpoint lists; EndpointError when it does not answer."""
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                return [well_formed(model.id) async for model in self._openai.models.list()]
        except Exception as error:
            # where the answer is nonsense, the client fails on it in ways of its own
            failure = self._failure_of(error) or Failure("malformed", "/models gave no list of models")
            raise endpoint_error(self.endpoint.base_url, failure) from error

    async def version(self) -> str | None:
        """What the server says at /version, beside /v1; None where it says nothing of the kind."""
        root = self._openai.with_options(base_url=self.endpoint.base_url.removesuffix("/v1"), timeout=5.0)
        try:
            body = await root.get("/version", cast_to=object)
        except Exception:  # nonsense too is nothing of the kind
            return None
        return well_formed(str(body["version"])) if isinstance(body, dict) and "version" in body else None

    async def probe(self, prompt: Prompt, pace: Pace | None = None) -> Observation:
        """One short request, to learn what the endpoint can report. EndpointError if it cannot answer.

        An endpoint that refuses `continuous_usage_stats` is asked for `include_usage` alone, and then for
        neither; then all over with the other name of the bound on its length. What it accepts and does not
        send is not counted as sent.
        """
        options = (Capabilities(True, True), Capabilities(True, False), Capabilities())
        for limit_name, asked in product(_LIMIT_NAMES[self.endpoint.kind], options):
            self._limit_name, self.capabilities = limit_name, asked
            observation = (await self.send(prompt, pace, max_tokens=_PROBE_TOKENS)).observe(None)
            answer = observation.answer
            if answer.failure is None or answer.failure.kind not in ("http_400", "http_422"):
                break
        if answer.failure and answer.failure.kind != "empty":
            raise endpoint_error(self.endpoint.base_url, answer.failure, self.endpoint.model)
        self.capabilities = Capabilities(
            usage=asked.usage and answer.tokens is not None,
            continuous_usage=bool(answer.chunks) and answer.chunks[0].tokens is not None,
        )
        return observation

    def adopt(self, probed: Client) -> None:
        """Ask as `probed` found out that the same endpoint can be asked."""
        self._limit_name, self.capabilities = probed._limit_name, probed.capabilities

    async def only_model(self) -> str:
        """The only model that the endpoint lists; EndpointError where there is none, UsageError for more."""
        base_url, served = self.endpoint.base_url, await self.models()
        if not served:
            raise EndpointError(f"{base_url} lists no model", hint="is the server still loading it?")
        if len(served) > 1:
            raise UsageError(f"{base_url} serves {len(served)} models", hint=f"name one: {', '.join(served)}")
        return served[0]

    async def send(
        self,
        prompt: Prompt,
        pace: Pace | None = None,
        *,
        scheduled: float | None = None,
        max_tokens: int | None = None,
    ) -> Exchange:
        """Send one prompt and take in its whole stream, unread. What fails is in the exchange, not raised.

        Every attempt waits for its turn by `pace`: a retry is a request as well.
        """
        arguments = self._arguments(prompt, max_tokens)
        if pace:
            await pace.turn()
        exchange = Exchange(prompt, time.perf_counter() if scheduled is None else scheduled)
        context = _in_flight.set(exchange)
        try:
            while True:
                exchange.sent = time.perf_counter()
                wait = await self._attempt(exchange, arguments)
                exchange.ended = time.perf_counter()
                exchange.first_sent = exchange.first_sent or exchange.sent
                if wait is None or exchange.retries >= self.endpoint.retries:
                    return exchange
                exchange.retries += 1
                await asyncio.sleep(wait)
                if pace:
                    await pace.turn()
        finally:
            _in_flight.reset(context)

    async def likeliest(self, prompt: Prompt) -> list[tuple[str, list[float]]]:
        """The tokens of an answer, each its text and the log-probabilities of the two likeliest there.

        Empty where the endpoint does not tell.
        """
        body: dict[str, Any] = self._arguments(prompt, None)["extra_body"] | {"stream": False}
        body.pop("stream_options", None)
        chat = self.endpoint.kind == "chat"
        body |= {"logprobs": True, "top_logprobs": 2} if chat else {"logprobs": 2}
        path = "/chat/completions" if chat else "/completions"
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                answer: Any = await self._openai.post(path, body=body, cast_to=object)
            told = answer["choices"][0]["logprobs"]
            if chat:
                entries = [(entry["token"], entry["top_logprobs"]) for entry in told["content"]]
                return [(text, [float(one["logprob"]) for one in top]) for text, top in entries]
            pairs = zip(told["tokens"], told["top_logprobs"], strict=True)
            return [(str(text), [float(value) for value in top.values()]) for text, top in pairs]
        except (openai.OpenAIError, TimeoutError, LookupError, TypeError, ValueError, AttributeError):
            return []  # what it is asked for here is a help, never a condition

    async def _attempt(self, exchange: Exchange, arguments: dict[str, Any]) -> float | None:
        """One attempt; how long to wait before the next in seconds, or None for no other."""
        exchange.failure = None
        api = self._openai.chat.completions if self.endpoint.kind == "chat" else self._openai.completions
        now = time.perf_counter
        clock = asyncio.get_running_loop().time
        stall_s = self.endpoint.stall_s
        ends_at = clock() + self.endpoint.timeout_s
        reads = exchange.reads
        try:
            async with asyncio.timeout_at(ends_at) as deadline:
                async with api.with_streaming_response.create(**arguments) as response:
                    async for data in response.iter_bytes():
                        reads.append((now(), data))
                        deadline.reschedule(min(ends_at, clock() + stall_s))
        except Exception as error:
            failure = self._failure_of(error)
            if failure is None:
                raise
            if failure.kind == "timeout" and reads and clock() < ends_at:
                failure = Failure("stalled", f"nothing came for {stall_s:g} s in the middle of the answer")
            elif failure.kind == "timeout":
                failure = Failure("timeout", f"the answer was not whole within {self.endpoint.timeout_s:g} s")
            exchange.failure = failure
            return None if reads or failure.kind not in _RETRIED else _wait(error, exchange.retries)
        return None

    def _failure_of(self, error: Exception) -> Failure | None:
        return failure_of(error, secret=self.endpoint.api_key)

    def _arguments(self, prompt: Prompt, max_tokens: int | None) -> dict[str, Any]:
        """For the client's `create`."""
        decoding = self.decoding
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            self._limit_name: max_tokens or decoding.max_tokens or prompt.max_tokens or DEFAULT_MAX_TOKENS,
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "stream": True,
        }
        if options := self.capabilities.stream_options():
            body["stream_options"] = options
        if decoding.seed is not None:
            body["seed"] = decoding.seed
        if decoding.ignore_eos:
            body["ignore_eos"] = True
        # As extra_body it is sent as it is. Typed arguments are converted by their annotations: a fifth of
        # the time that building a request takes, in which no other stream is stamped.
        if self.endpoint.kind == "chat":
            body["messages"] = prompt.messages()
            return {"model": self.endpoint.model, "messages": [], "stream": True, "extra_body": body}
        body["prompt"] = prompt.completion_prompt()
        return {"model": self.endpoint.model, "prompt": "", "stream": True, "extra_body": body}


def _wait(error: Exception, retries: int) -> float | None:
    """Seconds until the next attempt: what Retry-After asks for, else doubling from a quarter second.

    None, for no other attempt, where the endpoint asks for more patience than a measurement has.
    """
    seconds = None
    if isinstance(error, openai.APIStatusError):
        seconds = _retry_after(str(error.response.headers.get("retry-after", "")))
    if seconds is None:
        seconds = _BACKOFF_S * 2.0**retries
    return max(0.0, seconds) if seconds <= _LONGEST_WAIT_S else None


def _retry_after(header: str) -> float | None:
    """Retry-After's seconds from now: it holds seconds or a date (RFC 9110, 10.2.3)."""
    try:
        return float(header)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(header).timestamp() - time.time()
    except ValueError:
        return None
