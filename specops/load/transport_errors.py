"""What went wrong below an answer: exceptions of the openai client and its transport as failures."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import aiohttp
import openai

from specops.errors import EndpointError
from specops.load.answer import Failure


def failure_of(error: Exception) -> Failure | None:
    """The failure behind an exception, or None for one that no endpoint causes: a fault of ours.

    The client wraps what its transport raised, and files a refused connection under time-outs; so the
    whole chain of causes is looked through, the transport's own exceptions first.
    """
    if isinstance(error, openai.APIStatusError):
        return Failure(f"http_{error.status_code}", _one_line(error.message))
    for cause in _causes(error):
        match cause:
            case aiohttp.ClientConnectorError():
                refused = cause.os_error.errno == errno.ECONNREFUSED or "Connect call failed" in str(cause)
                return Failure("refused" if refused else "unreachable", _one_line(str(cause)))
            case TimeoutError():  # aiohttp's time-outs are among these
                return Failure("timeout", "no answer in time")
            case aiohttp.ClientError() | ConnectionError():
                return Failure("cut", _one_line(str(cause)) or "the connection was lost")
    if isinstance(error, openai.APIConnectionError):
        return Failure("unreachable", _one_line(str(error.__cause__ or error)))
    return None


def endpoint_error(base_url: str, failure: Failure, model: str | None = None) -> EndpointError:
    """The error for an endpoint that cannot be measured at all."""
    kind, detail = failure.kind, failure.detail
    match kind:
        case "refused" | "unreachable":
            return EndpointError(
                f"could not reach {base_url}: {detail}",
                hint="is the server up, and is this its address? specops serve starts the embedded one",
            )
        case "http_401" | "http_403":
            return EndpointError(
                f"{base_url} refused the API key ({kind[5:]}): {detail}",
                hint="set SPECOPS_API_KEY or OPENAI_API_KEY in the environment",
            )
        case "http_404":
            return EndpointError(
                f"{base_url} does not know the path or the model {model} (404): {detail}",
                hint="the base URL mostly ends in /v1; GET /v1/models lists the models",
            )
        case "http_429":
            return EndpointError(
                f"{base_url} answered that it is over its limit (429), also after waiting: {detail}",
                hint="try again later, or lower the load with --max-rps",
            )
        case "timeout" | "stalled":
            return EndpointError(
                f"{base_url} accepted the request and did not answer in time: {detail}",
                hint="look at the server's log, or allow it more with --timeout",
            )
        case "malformed" | "cut" | "empty" | "stream_error":
            return EndpointError(
                f"{base_url} gave no usable answer ({kind}): {detail}",
                hint="is this an OpenAI-compatible server that streams, and does no proxy cut it off?",
            )
    return EndpointError(
        f"{base_url} refused the request ({kind}): {detail}", hint="look at the server's log"
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return iter(reversed(seen))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
