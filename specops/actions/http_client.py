"""One HTTP request: bounded in time, never through a proxy to this machine itself, and never redirected,
since a redirect would take a token to another host."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any

from specops.access import NOTHING, Credentials
from specops.errors import EndpointError, reason_of
from specops.hints import http_request
from specops.net import is_loopback, within

MOST = 8 * 2**20


def ask(
    purpose: str,
    method: str,
    url: str,
    *,
    body: object = None,
    token: str | None = None,
    credentials: Credentials = NOTHING,
    timeout_s: float,
    url_label: str | None = None,
) -> bytes:
    """The answer's bytes, in `timeout_s` at most.

    The error says that it could not `purpose`. `url_label` stands in it for a `url` that is a secret. Raises
    EndpointError, which shows no token.
    """
    where = url_label or url
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, method=method)
    request.add_header("Accept", "*/*")
    if data is not None:
        request.add_header("Content-Type", "application/json")
    for name, value in credentials.all_headers.items():
        request.add_header(name, value)
    if token and (token := token.strip()):  # a file that it came from may end in a newline
        if not (token.isascii() and token.isprintable()):
            raise EndpointError(f"could not {purpose}: its token has characters that no header can carry")
        request.add_header("Authorization", f"Bearer {token}")
    handlers: list[urllib.request.BaseHandler] = [
        _NoRedirect(),
        urllib.request.HTTPSHandler(context=credentials.tls),
    ]
    if is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))
    opener = urllib.request.build_opener(*handlers)
    try:
        return within(timeout_s, lambda: _answer(opener, request, timeout_s))
    except urllib.error.HTTPError as error:
        with error:
            excerpt = credentials.blotted(" ".join(error.read(300).decode(errors="replace").split()))
        refused = "; it needs its token in the environment" if error.code in (401, 403) else ""
        raise EndpointError(
            f"could not {purpose}: {where} answered {error.code} {excerpt}".rstrip() + refused,
            hint=http_request(url) if url_label is None else None,
        ) from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # UnicodeError: http://a..b
        # Texts of other errors may quote the address.
        quotable = url_label is None or isinstance(error, urllib.error.URLError)
        why = reason_of(error) if quotable else type(error).__name__
        if isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError):
            why = f"it did not answer within {timeout_s:g} s"
        raise EndpointError(
            f"could not {purpose}: {where}: {why}", hint=http_request(url) if url_label is None else None
        ) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Return None, so that the answer is an HTTPError with its status."""


def _answer(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, timeout_s: float
) -> bytes:
    """Return all of the answer, up to `MOST` bytes."""
    deadline = time.monotonic() + timeout_s
    read = b""
    with opener.open(request, timeout=timeout_s) as answer:
        while len(read) < MOST and (part := answer.read1(MOST - len(read))):
            read += part
            if time.monotonic() > deadline:  # nobody waits for it any more
                break
    return read


def ask_json(
    purpose: str,
    method: str,
    url: str,
    *,
    body: object = None,
    token: str | None = None,
    credentials: Credentials = NOTHING,
    timeout_s: float,
) -> Any:
    answer = ask(purpose, method, url, body=body, token=token, credentials=credentials, timeout_s=timeout_s)
    try:
        return json.loads(answer)
    except ValueError:
        raise EndpointError(
            f"could not {purpose}: {url} did not answer with JSON", hint=http_request(url)
        ) from None
