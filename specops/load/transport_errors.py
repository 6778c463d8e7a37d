"""What went wrong below an answer, as failures, and failures of an endpoint as errors."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import aiohttp
import openai

from specops.errors import EndpointError
from specops.load.answer import Failure, described, well_formed
from specops.load.connection import Expired, Unreachable
from specops.load.http1 import BadResponse
from specops.load.settings import NO_KEY


def failure_of(error: Exception, *, secret: str = NO_KEY) -> Failure | None:
    """The failure behind an exception, or None for one that no endpoint causes: a fault of ours.

    The openai client wraps what its transport raised, and files a refused connection under time-outs; so
    the whole chain of causes is looked through. `secret` is blotted out where a server echoes it.
    """

    def failure(kind: str, detail: str) -> Failure:
        return Failure(kind, _one_line(detail, secret))

    if isinstance(error, openai.APIStatusError):
        response = error.response
        return status_failure(error.status_code, response.headers, response.content, secret=secret)
    if isinstance(error, Expired):
        return failure("stalled" if error.stalled else "timeout", str(error))
    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, BadResponse):
            return failure("malformed", str(cause))
        if isinstance(cause, Unreachable | aiohttp.ClientConnectorError):
            refused = any(getattr(one, "errno", None) == errno.ECONNREFUSED for one in causes)
            return failure("refused" if refused else "unreachable", str(cause))
        if isinstance(cause, aiohttp.ConnectionTimeoutError):
            return failure("unreachable", str(cause))
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


def status_failure(status: int, headers: Mapping[str, str], body: bytes, *, secret: str = NO_KEY) -> Failure:
    """The failure of a response with a status other than 200: its cause as the server words it."""
    if 300 <= status < 400:
        return Failure(f"http_{status}", _one_line(f"redirected to {headers.get('location', '?')}", secret))
    return Failure(f"http_{status}", _one_line(described(body), secret))


def endpoint_error(base_url: str, failure: Failure, model: str | None = None) -> EndpointError:
    """The error for an endpoint that cannot be measured at all: its cause, and a command that shows it."""
    kind, detail = failure.kind, failure.detail
    look = f": curl -sS {base_url}/models" if "://" in base_url else ""
    match kind:
        case "refused" | "unreachable":
            return EndpointError(
                f"could not reach {base_url}: {detail}",
                hint=f"is the server up, and is this its address? Try{look}" if look else "is the server up?",
            )
        case "http_401" | "http_403":
            return EndpointError(
                f"{base_url} refused the API key ({kind[5:]}): {detail}",
                hint="set the key, and run the same command again: export SPECOPS_API_KEY=YOUR_KEY",
            )
        case "http_404":
            what = f"the path or the model {model}" if model else "the path"
            return EndpointError(
                f"{base_url} does not know {what} (404): {detail}",
                hint=f"a base URL mostly ends in /v1; list the models{look}",
            )
        case "http_429":
            return EndpointError(
                f"{base_url} answered that it is over its limit (429), also after waiting: {detail}",
                hint=f"send fewer requests with --max-rps, or try again when this answers{look}",
            )
        case "html":
            return EndpointError(
                f"{base_url} answered with {detail}, not with an OpenAI-compatible API",
                hint=f"a base URL mostly ends in /v1; see what answers there{look}",
            )
        case "timeout" | "stalled":
            return EndpointError(
                f"{base_url} accepted the request and did not answer in time: {detail}",
                hint=f"allow more with --timeout, or see whether it answers at all{look}",
            )
        case "malformed" | "cut" | "empty" | "stream_error" | "aborted":
            return EndpointError(
                f"{base_url} gave no usable answer ({kind}): {detail}",
                hint=f"is it an OpenAI-compatible server that streams? See what answers there{look}",
            )
        case _ if kind.startswith("http_3"):
            return EndpointError(
                f"{base_url} does not answer requests there ({kind[5:]}): {detail}",
                hint=f"give the address that it redirects to as the base URL; see{look}",
            )
    return EndpointError(
        f"{base_url} refused the request ({kind.removeprefix('http_')}): {detail}",
        hint=f"read the server's log, or see whether it answers at all{look}",
    )


def _causes(error: BaseException) -> list[BaseException]:
    """The exception and what it was raised from, outermost first."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) and cause not in causes:
        causes.append(cause)
    return causes


def _one_line(text: str, secret: str) -> str:
    shown = text if secret == NO_KEY else text.replace(secret, "***")
    return " ".join(well_formed(shown).split())[:300]
