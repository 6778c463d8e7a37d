"""What went wrong below an answer: exceptions of the openai client and its transport as failures."""

from __future__ import annotations

import errno

import aiohttp
import openai

from specops.errors import EndpointError
from specops.load.answer import Failure
from specops.load.endpoint import NO_KEY
from specops.load.unicode import well_formed


def failure_of(error: Exception, *, secret: str = NO_KEY) -> Failure | None:
    """The failure behind an exception, or None for one that no endpoint causes: a fault of ours.

    The client wraps what its transport raised, and files a refused connection under time-outs; so
    the whole chain of causes is looked through. `secret` is blotted out where a server echoes it.
    """

    def failure(kind: str, detail: str) -> Failure:
        return Failure(kind, _one_line(detail if secret == NO_KEY else detail.replace(secret, "***")))

    if isinstance(error, openai.APIStatusError):
        return failure(f"http_{error.status_code}", error.message)
    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, aiohttp.ClientConnectorError):
            refused = cause.os_error.errno == errno.ECONNREFUSED
            return failure("refused" if refused else "unreachable", str(cause))
        if isinstance(cause, aiohttp.ConnectionTimeoutError):
            return failure("unreachable", str(cause))
        if type(cause).__name__ == "DecodingError":  # of httpx or httpx2, by the version of openai
            return failure("malformed", f"its bytes are not in the encoding that it named: {cause}")
    if any(isinstance(cause, TimeoutError) for cause in causes):  # aiohttp's time-outs are among these
        return failure("timeout", "no answer in time")
    for cause in causes:
        if isinstance(cause, aiohttp.ClientError | ConnectionError):
            return failure("cut", str(cause) or "the connection was lost")
    if isinstance(error, openai.APIConnectionError):
        return failure("unreachable", str(error.__cause__ or error))
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
            what = f"the path or the model {model}" if model else "the path"
            return EndpointError(
                f"{base_url} does not know {what} (404): {detail}",
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


def _causes(error: BaseException) -> list[BaseException]:
    """The exception and what it was raised from, outermost first."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) and cause not in causes:
        causes.append(cause)
    return causes


def _one_line(text: str) -> str:
    return " ".join(well_formed(text).split())[:300]
