"""One streamed request after another to an OpenAI-compatible endpoint, with the instants of its bytes.

What goes wrong below an answer becomes a failure here, and an endpoint's failure an error for a person.
"""

from __future__ import annotations

import ast
import asyncio
import errno
import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import responses
from itertools import product
from types import TracebackType
from typing import Any, Self

import aiohttp
import openai
from openai import AsyncOpenAI, DefaultAioHttpClient, Timeout

from specops.access import API_KEYS, NOTHING, Credentials
from specops.errors import EndpointError, UsageError, reason_of
from specops.hints import http_request, with_value
from specops.load import clock
from specops.load.answer import Answer, Failure, contradicts, described, html_page, well_formed
from specops.load.arrivals import Pace
from specops.load.connection import ConnectionLost, Connections, Expired, Unreachable
from specops.load.http1 import BadResponse, Response, decoded, no_http
from specops.load.request_times import Exchange, Observation
from specops.load.settings import Capabilities, Decoding, Endpoint
from specops.load.workload import Prompt
from specops.net import is_loopback
from specops.serving import fields_for_drafts

DEFAULT_MAX_TOKENS = 256
_PROBE_TOKENS = 8
_LIMIT_NAMES = {"chat": ("max_tokens", "max_completion_tokens"), "completions": ("max_tokens",)}
"""What the bound of an answer's length is called, the common name first; OpenAI's newer models refuse it."""

_RETRIED = ("http_429", "http_503", "refused")
_LONGEST_WAIT_S = 30.0
_BACKOFF_S = 0.25

_STALE_S = 1.0
"""A server that had closed the connection lets us know within a round trip. What dies later than this was
being worked on, and its end is the server's failure."""


class Client:
    """Use as an async context manager; `probe` once before the first `send`."""

    def __init__(self, endpoint: Endpoint, decoding: Decoding) -> None:
        self.endpoint = endpoint
        self.decoding = decoding
        self.capabilities = Capabilities(usage=True, continuous_usage=True)
        self._limit_name = "max_tokens"

    async def __aenter__(self) -> Self:
        credentials = self.endpoint.credentials
        self._openai = AsyncOpenAI(
            base_url=self.endpoint.base_url,
            api_key=credentials.api_key,
            max_retries=0,  # a retry that nobody counts is a latency that nobody understands
            timeout=Timeout(None, connect=self.endpoint.connect_s),
            # a proxy of the environment is for other machines: it cannot reach this loopback
            http_client=DefaultAioHttpClient(
                trust_env=not is_loopback(self.endpoint.base_url),
                verify=credentials.tls or True,
                follow_redirects=False,  # they would take headers with secrets to another host
            ),
            default_headers={"Accept-Encoding": "identity", **credentials.headers},
        )
        named = {**self._openai.auth_headers, **self._openai.default_headers}
        headers = {name: value for name, value in named.items() if isinstance(value, str)}
        self._connections = Connections(
            self.endpoint.base_url, headers, self.endpoint.connect_s, credentials.tls
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connections.close()
        await self._openai.close()

    async def models(self) -> list[str]:
        """The models that the endpoint lists; EndpointError when it does not answer."""
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                answer = await self._openai.models.with_raw_response.list()
                page = html_page(answer.http_response.text)
                models = [] if page else [well_formed(model.id) for model in answer.parse().data]
        except Exception as error:
            # where the answer is nonsense, the client fails on it in ways of its own
            failure = self._failure_of(error) or Failure("malformed", "/models gave no list of models")
            raise endpoint_error(self.endpoint.base_url, failure, credentials=self._credentials) from error
        if page:
            raise endpoint_error(self.endpoint.base_url, Failure("html", page), credentials=self._credentials)
        return models

    async def version(self) -> str | None:
        """The version that the server reports at /version, beside /v1; None where it reports none."""
        root = self._openai.with_options(base_url=self.endpoint.base_url.removesuffix("/v1"), timeout=5.0)
        try:
            body = await root.get("/version", cast_to=object)
        except Exception:  # an answer that cannot be read has no version
            return None
        return well_formed(str(body["version"])) if isinstance(body, dict) and "version" in body else None

    async def probe(self, prompt: Prompt, pace: Pace | None = None) -> Observation:
        """One short request, to learn what the endpoint can report. Raises EndpointError if it cannot answer.

        An endpoint that refuses `continuous_usage_stats` gets `include_usage` alone, and then for
        neither; then all over with the other name of the bound on its length. What it accepts and does not
        send is not counted as sent. Only with a pace, that of a measurement, is more requested than that.
        """
        options = [
            replace(requested, finish_reasons=False)  # one probe cannot know that they are missing
            for requested in (Capabilities(True, True), Capabilities(True, False), Capabilities())
        ]
        for limit_name, requested in product(_LIMIT_NAMES[self.endpoint.kind], options):
            self._limit_name, self.capabilities = limit_name, requested
            observation = (await self.send(prompt, pace, max_tokens=_PROBE_TOKENS)).observe(None)
            answer = observation.answer
            if answer.failure is None or answer.failure.kind not in ("http_400", "http_422"):
                break
        if answer.failure and answer.failure.kind != "empty":
            raise endpoint_error(
                self.endpoint.base_url, answer.failure, self.endpoint.model, self._credentials
            )
        self.capabilities = Capabilities(
            usage=requested.usage and answer.tokens is not None,
            continuous_usage=bool(answer.chunks) and answer.chunks[0].tokens is not None,
            miscount=_miscount(answer),
            finish_reasons=answer.finish_reason is not None or not answer.chunks,
        )
        if answer.drafts is None and pace is not None:
            await self._ask_for_drafts(prompt, pace)
        return observation

    def renew_connections(self, keep: int) -> None:
        """Close all idle connections but `keep`: the next requests open new ones."""
        self._connections.renew(keep)

    async def _ask_for_drafts(self, prompt: Prompt, pace: Pace) -> None:
        """Find out whether answers report their drafts on request. Only an engine that its list of models
        names as one that knows such fields gets them."""
        await pace.turn()
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                listed = await self._openai.models.list()
            owner = next((model.owned_by for model in listed.data if model.id == self.endpoint.model), "")
        except Exception:  # whatever is wrong with the list: it only says who serves
            return
        fields = fields_for_drafts(str(owner))
        if not fields:
            return
        without, self.capabilities = self.capabilities, replace(self.capabilities, drafts=fields)
        repeated = (await self.send(prompt, pace, max_tokens=_PROBE_TOKENS)).observe(None).answer
        if repeated.failure is not None or repeated.drafts is None:
            self.capabilities = without

    async def only_model(self) -> str:
        """The only model that the endpoint lists. Raises EndpointError if it lists none, UsageError if
        more."""
        base_url, models = self.endpoint.base_url, await self.models()
        if not models:
            raise EndpointError(
                f"{base_url} lists no model; the server may still load it",
                hint=http_request(f"{base_url}/models", self._credentials.curl),
            )
        if len(models) > 1:
            raise UsageError(
                f"{base_url} serves {len(models)} models: {', '.join(models)}; name one",
                hint=with_value(base_url, f"{base_url}#{models[0]}"),
            )
        return models[0]

    async def send(
        self, prompt: Prompt, pace: Pace | None = None, *, max_tokens: int | None = None
    ) -> Exchange:
        """Send one prompt and take in its whole stream, unread. What fails is in the exchange, not raised."""
        exchange = Exchange(prompt, time.perf_counter())
        await self.carry_out(exchange, pace, max_tokens=max_tokens)
        return exchange

    async def carry_out(
        self, exchange: Exchange, pace: Pace | None = None, *, max_tokens: int | None = None
    ) -> None:
        """Send the prompt of `exchange` and fill in what comes of it, also where this is cancelled.

        Every attempt waits for its turn by `pace`: a retry is a request as well.
        """
        request = self._request(exchange.prompt, max_tokens)
        exchange.temperature = self._temperature(exchange.prompt)
        exchange.finish_reasons = self.capabilities.finish_reasons
        if pace:
            exchange.scheduled = max(exchange.scheduled, await pace.turn())
        while True:
            try:
                wait = await self._attempt(exchange, request)
            finally:
                exchange.first_sent = exchange.first_sent or exchange.sent
            if wait is None or exchange.retries >= self.endpoint.retries:
                return
            exchange.retries += 1
            await asyncio.sleep(wait)
            if pace:
                await pace.turn()

    async def likeliest(self, prompt: Prompt) -> list[tuple[str, list[float]]]:
        """The tokens of an answer, each its text and the log-probabilities of the two likeliest there.

        Empty where the endpoint does not report them.
        """
        body: dict[str, Any] = self._body(prompt, None) | {"stream": False}
        body.pop("stream_options", None)
        chat = self.endpoint.kind == "chat"
        body |= {"logprobs": True, "top_logprobs": 2} if chat else {"logprobs": 2}
        path = "/chat/completions" if chat else "/completions"
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                answer: Any = await self._openai.post(path, body=body, cast_to=object)
            logprobs = answer["choices"][0]["logprobs"]
            if chat:
                entries = [(entry["token"], entry["top_logprobs"]) for entry in logprobs["content"]]
                return [(text, [float(candidate["logprob"]) for candidate in top]) for text, top in entries]
            pairs = zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True)
            return [(str(text), [float(value) for value in top.values()]) for text, top in pairs]
        except (openai.OpenAIError, TimeoutError, LookupError, TypeError, ValueError, AttributeError):
            return []  # log-probabilities help a verdict; none depends on them

    async def _attempt(self, exchange: Exchange, request: bytes) -> float | None:
        """One attempt; how long to wait before the next in seconds, or None for no other."""
        exchange.failure = None
        exchange.sent = time.perf_counter()  # for an attempt that never leaves
        response: Response | None = None
        try:
            response = await self._respond(exchange, request)
            if encoding := response.headers.get("content-encoding", "").removeprefix("identity"):
                raw, exchange.reads = exchange.reads, []
                exchange.reads = decoded(raw, encoding)
        except Exception as error:
            exchange.failure = self._failure_of(error)
            if exchange.failure is None:
                raise
            if exchange.failure.kind == "timeout":
                detail = f"the answer was not whole within {self.endpoint.timeout_s:g} s"
                exchange.failure = Failure("timeout", detail)
        finally:
            exchange.ended = exchange.ended if response else time.perf_counter()
        if response and response.status != 200:
            body = b"".join(data for _, data in exchange.reads)
            exchange.reads.clear()
            exchange.failure = status_failure(response.status, response.headers, body, self._credentials)
        if exchange.failure is None or exchange.reads or exchange.failure.kind not in _RETRIED:
            return None
        return _wait(response.headers if response else {}, exchange.retries)

    async def _respond(self, exchange: Exchange, request: bytes) -> Response:
        """The response to `request`, which is sent a second time where its connection was dead already."""
        exchange.began = False
        exchange.delays.clear()
        while True:
            begun = time.perf_counter()
            async with asyncio.timeout(self.endpoint.timeout_s):
                connection = await self._connections.take()
            exchange.connecting = 0.0 if connection.carried else time.perf_counter() - begun
            exchange.connection = connection.number
            used_before = connection.carried > 0
            try:
                response = await connection.carry(
                    request, exchange, timeout_s=self.endpoint.timeout_s, stall_s=self.endpoint.stall_s
                )
            except ConnectionLost:
                dead_at_once = not exchange.began and time.perf_counter() - exchange.sent < _STALE_S
                if not (used_before and dead_at_once):
                    raise
                # RFC 9112, 9.3.1, and what browsers do. Only requests that are in flight now are excused:
                # from here on each has a connection of its own, and one that dies there is a failure.
                self._connections.reuse = False
                exchange.resent = True
                continue
            self._connections.give_back(connection)
            return response

    def _failure_of(self, error: Exception) -> Failure | None:
        return failure_of(error, self._credentials)

    @property
    def _credentials(self) -> Credentials:
        return self.endpoint.credentials

    def _request(self, prompt: Prompt, max_tokens: int | None) -> bytes:
        """A whole request, as it goes to the kernel."""
        path = "/chat/completions" if self.endpoint.kind == "chat" else "/completions"
        body = json.dumps(self._body(prompt, max_tokens), ensure_ascii=False, separators=(",", ":"))
        return self._connections.post(path, body.encode())

    def _temperature(self, prompt: Prompt) -> float:
        return self.decoding.temperature if prompt.temperature is None else prompt.temperature

    def _body(self, prompt: Prompt, max_tokens: int | None) -> dict[str, Any]:
        decoding, temperature = self.decoding, self._temperature(prompt)
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            self._limit_name: max_tokens or decoding.max_tokens or prompt.max_tokens or DEFAULT_MAX_TOKENS,
            "temperature": temperature,
            "top_p": decoding.top_p,
            "stream": True,
        }
        if options := self.capabilities.stream_options():
            body["stream_options"] = options
        body |= self.capabilities.drafts
        seed = decoding.seed if prompt.seed is None else prompt.seed
        if seed is not None and temperature > 0:
            body["seed"] = seed
        if decoding.ignore_eos:
            body["ignore_eos"] = True
        if self.endpoint.kind == "chat":
            return body | {"messages": prompt.messages()}
        return body | {"prompt": prompt.completion_prompt()}


def _miscount(answer: Answer) -> str | None:
    """Return how the server's count of a probe's tokens contradicts the probe's limit; None where it does
    not."""
    if not contradicts(answer.tokens, _PROBE_TOKENS, answer.finish_reason):
        return None
    ended = f"finish_reason {answer.finish_reason}"
    return f"the server counts {answer.tokens} tokens in an answer with max_tokens {_PROBE_TOKENS} ({ended})"


def _wait(headers: Mapping[str, str], retries: int) -> float | None:
    """Seconds until the next attempt: what Retry-After asks for, else doubling from a quarter second.

    None, for no other attempt, where the endpoint asks for more patience than a measurement has.
    """
    seconds = _retry_after(headers)
    if seconds is None:
        seconds = _BACKOFF_S * 2.0**retries
    return max(0.0, seconds) if seconds <= _LONGEST_WAIT_S else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of Retry-After, which holds seconds or a date (RFC 9110, 10.2.3). A date is compared with
    the server's own clock, in the response's Date."""
    value = headers.get("retry-after", "")
    try:
        return float(value)
    except ValueError:
        pass
    until, sent = _instant(value), _instant(headers.get("date", ""))
    return None if until is None else until - (clock.now() if sent is None else sent)


def _instant(date: str) -> float | None:
    """Seconds since the epoch of an HTTP date, which is always in GMT; None for an invalid date."""
    try:
        return parsedate_to_datetime(date).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


# --- errors below an answer -------------------------------------------------------------------


def failure_of(error: Exception, credentials: Credentials = NOTHING) -> Failure | None:
    """The failure behind an exception, or None for one that no endpoint causes: a fault of ours.

    The openai client wraps what its transport raised, and files a refused connection under time-outs; so
    the whole chain of causes is looked through. Secrets are blotted out where a server echoes them.
    """

    def failure(kind: str, detail: str) -> Failure:
        return Failure(kind, _one_line(detail, credentials))

    if isinstance(error, openai.APIStatusError):
        response = error.response
        return status_failure(error.status_code, response.headers, response.content, credentials)
    if isinstance(error, Expired):
        return failure("stalled" if error.stalled else "timeout", str(error))
    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, BadResponse):
            return failure("malformed", str(cause))
        if isinstance(cause, aiohttp.ClientResponseError):
            first = _first_bytes(cause.message)
            return failure("malformed", no_http(first) if first else str(cause))
        if isinstance(cause, Unreachable | aiohttp.ClientConnectorError):
            refused = any(getattr(chained, "errno", None) == errno.ECONNREFUSED for chained in causes)
            return failure("refused" if refused else "unreachable", reason_of(cause))
        if isinstance(cause, aiohttp.ConnectionTimeoutError):
            return failure("unreachable", reason_of(cause))
        if type(cause).__name__ == "DecodingError":  # of httpx or httpx2, by the version of openai
            return failure("malformed", f"its bytes are not in the encoding that it named: {cause}")
    if any(isinstance(cause, TimeoutError) for cause in causes):  # aiohttp's time-outs are among these
        return failure("timeout", "the answer was not whole in time")
    for cause in causes:
        if isinstance(cause, aiohttp.ClientError | ConnectionError):
            return failure("cut", str(cause) or "the connection was lost")
    if isinstance(error, openai.APIConnectionError):
        return failure("unreachable", str(error.__cause__ or error))
    return None


def status_failure(
    status: int, headers: Mapping[str, str], body: bytes, credentials: Credentials = NOTHING
) -> Failure:
    """The failure of a response with a status other than 200: its cause as the server words it."""
    if 300 <= status < 400:
        return Failure(
            f"http_{status}", _one_line(f"redirected to {headers.get('location', '?')}", credentials)
        )
    detail = described(body) or responses.get(status, "no text")
    return Failure(f"http_{status}", _one_line(detail, credentials))


def endpoint_error(
    base_url: str, failure: Failure, model: str | None = None, credentials: Credentials = NOTHING
) -> EndpointError:
    """The error for an endpoint that cannot be measured at all: its cause, and a command that shows it."""
    kind, detail = failure.kind, failure.detail
    look = http_request(f"{base_url}/models", credentials.curl)
    match kind:
        case _ if "CERTIFICATE_VERIFY_FAILED" in detail:
            return EndpointError(
                f"{credentials.endpoint_name(base_url)} has a certificate that this machine does not trust: "
                f"{detail}; "
                "name the certificate of its authority as the ca_file of its pool",
                hint=look,
            )
        case "refused" | "unreachable":
            return EndpointError(
                f"could not reach {base_url}: {detail}",
                hint=look,
            )
        case "http_401" | "http_403":
            variable = credentials.variable or API_KEYS[0]
            return EndpointError(
                f"{credentials.endpoint_name(base_url)} refused {credentials.description} ({kind[5:]}): "
                f"{detail}",
                hint=f"export {variable}=YOUR_KEY  # then run the same command again",
            )
        case "http_404":
            subject = f"the path or the model {model}" if model else "the path"
            return EndpointError(
                f"{base_url} does not know {subject} (404): {detail}{_did_you_mean(base_url)}",
                hint=f"{look}  # lists the models"
                if base_url.endswith(V1)
                else with_value(base_url, f"{base_url}{V1}"),
            )
        case "http_429":
            return EndpointError(
                f"{base_url} answered that it is over its limit (429), also after waiting: {detail}; send "
                "fewer "
                "requests with --max-rps",
                hint=f"{look}  # run the same command again when this answers",
            )
        case "html":
            return EndpointError(
                f"{base_url} answered with {detail}, not with an OpenAI-compatible API"
                f"{_did_you_mean(base_url)}",
                hint=look if base_url.endswith(V1) else with_value(base_url, f"{base_url}{V1}"),
            )
        case "timeout" | "stalled":
            return EndpointError(
                f"{base_url} accepted the request and did not answer in time: {detail}; --timeout allows "
                "more",
                hint=f"{look}  # shows whether it answers at all",
            )
        case "cut" if base_url.startswith("https:") and " --cert " not in credentials.curl:
            return EndpointError(
                f"{credentials.endpoint_name(base_url)} ended the connection: {detail}; a server that "
                "requires a client "
                "certificate does so: client_cert of its pool",
                hint=look,
            )
        case "malformed" | "cut" | "empty" | "stream_error" | "aborted":
            return EndpointError(
                f"{base_url} gave no usable answer ({kind}): {detail}; expected an OpenAI-compatible server "
                "that streams",
                hint=look,
            )
        case _ if kind.startswith("http_3"):
            return EndpointError(
                f"{base_url} does not answer requests there ({kind[5:]}): {detail}; use the address that it "
                "redirects to as the base URL",
                hint=look,
            )
    return EndpointError(
        f"{base_url} refused the request ({kind.removeprefix('http_')}): {detail}",
        hint=f"{look}  # shows whether it answers at all; the server's log has the cause",
    )


V1 = "/v1"


def _did_you_mean(base_url: str) -> str:
    return "" if base_url.endswith(V1) else f"; did you mean {base_url}{V1}?"


def _first_bytes(message: str) -> bytes | None:
    """The beginning of a response that aiohttp could not parse, where its message quotes it."""
    quoted = re.search(r"^\s*(b'.*'|b\".*\")$", message, re.MULTILINE)
    return bytes(ast.literal_eval(quoted[1])) if quoted else None


def _causes(error: BaseException) -> list[BaseException]:
    """The exception and what it was raised from, outermost first."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) and cause not in causes:
        causes.append(cause)
    return causes


def _one_line(text: str, credentials: Credentials) -> str:
    return " ".join(well_formed(credentials.blotted(text)).split())[:300]


def only_model(endpoint: Endpoint, decoding: Decoding | None = None) -> str:
    """`Client.only_model`, for those who have no client."""

    async def listed() -> str:
        async with Client(endpoint, decoding or Decoding()) as client:
            return await client.only_model()

    return asyncio.run(listed())
