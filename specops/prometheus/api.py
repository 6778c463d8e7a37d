"""Asks a Prometheus, and gives up in time: what comes back is samples, or an EndpointError that says why not.

prometheus-api-client sends the queries. The session underneath is ours, since the client's own waits for ever
and asks again for six seconds, takes a redirect to a login page for an answer, and would send a request to
this machine through the environment's proxy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from requests.adapters import Retry

from specops.errors import EndpointError, UsageError, reason_of
from specops.hints import http_request, with_value
from specops.net import is_loopback, within

TOKEN = "SPECOPS_PROMETHEUS_TOKEN"
HEADERS = "SPECOPS_PROMETHEUS_HEADERS"
MOST_POINTS = 10_000
"""Points of one series in a query; Prometheus refuses more than 11,000."""

PAUSE_S = 0.2
"""Seconds before the one more time that it asks a Prometheus that refused the connection, or is not ready."""

_PASSING = (502, 503, 504)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Sample:
    labels: Mapping[str, str]
    value: float
    """Perhaps NaN or infinite: Prometheus says so of 0/0."""

    ts: float
    """Seconds since the epoch by Prometheus' clock: when it was queried, not when it was scraped."""


@dataclass(frozen=True)
class Series:
    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
    """(seconds since the epoch, value), in order; there is none where Prometheus has none."""


class Api:
    """A Prometheus, or what speaks its API, at `url`: its root, with the path it is served under, if any.

    No call takes longer than twice `timeout_s` and a pause. Raises UsageError where the URL or what the
    environment says is unusable; every call raises EndpointError where there is no answer.
    """

    def __init__(self, url: str, *, timeout_s: float = 5.0) -> None:
        self.url = _checked(url)
        self.timeout_s = timeout_s
        self._session = _Session(self.url, timeout_s)
        self._connect = PrometheusConnect(
            self.url, session=self._session, retry=Retry(0, read=False), timeout=timeout_s, method="POST"
        )

    def instant(self, expr: str, time_s: float | None = None) -> list[Sample]:
        """Return `expr` as it is at the instant `time_s`; by Prometheus' own clock where that is None."""
        params = {"timeout": f"{self.timeout_s:g}s"} | ({} if time_s is None else {"time": f"{time_s:.3f}"})
        return self._requested(lambda: _samples(self._connect.custom_query(expr, params=params)))

    def range(self, expr: str, start: float, end: float, step_s: float) -> list[Series]:
        """Return `expr` at every `step_s` from `start` to `end`, whole seconds since the epoch."""
        ends = [datetime.fromtimestamp(ts, UTC) for ts in (start, end)]
        params = {"timeout": f"{self.timeout_s:g}s"}
        return self._requested(
            lambda: _series(self._connect.custom_query_range(expr, *ends, f"{step_s:g}", params=params))
        )

    def raw(self, which: str, start: float, end: float) -> list[Series]:
        """The samples themselves of the series that `which` selects: later than `start`, up to `end`, each
        with the instant at which it was scraped."""
        params = {"timeout": f"{self.timeout_s:g}s", "time": f"{end:.3f}"}
        span = f"{which}[{round((end - start) * 1000)}ms]"
        series = self._requested(lambda: _series(self._connect.custom_query(span, params=params)))
        # Before Prometheus 3 a range has both its ends.
        return [
            Series(selected.labels, selected.points[1:])
            if selected.points and selected.points[0][0] <= start
            else selected
            for selected in series
        ]

    def ready(self) -> None:
        """Raise EndpointError where it does not answer, or is not ready for queries."""
        self._requested(lambda: self._session.get(f"{self.url}/-/ready", timeout=self.timeout_s))

    def close(self) -> None:
        self._session.close()

    def _requested(self, ask: Callable[[], _Answer]) -> _Answer:
        try:
            return self._read(ask)
        except _Passing:
            time.sleep(PAUSE_S)
        try:
            return self._read(ask)
        except _Passing as failure:
            raise failure.error from failure.__cause__

    def _read(self, ask: Callable[[], _Answer]) -> _Answer:
        try:
            return within(self.timeout_s, ask)
        except TimeoutError:
            raise self._session.timed_out() from None
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise EndpointError(
                f"invalid answer from {self.url}: expected an answer of Prometheus",
                hint=is_up(self.url),
            ) from error


class _Passing(Exception):
    """A failure that may be over in a moment: nothing listens, or it is not ready yet."""

    def __init__(self, error: EndpointError) -> None:
        super().__init__(error.message)
        self.error = error


class _Session(requests.Session):
    """One that ends in time, says what went wrong in a sentence, and goes nowhere else."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__()
        self.given_url = url
        self.timeout_s = timeout_s
        self.max_redirects = 0  # a login page is not an answer; and another host must not get the headers
        self.trust_env = not is_loopback(url)
        self.headers.update(_headers(os.environ.get(HEADERS, "")))
        token = _printable(os.environ.get(TOKEN, "").strip(), TOKEN)
        self.auth = _Bearer(token)

    def request(  # type: ignore[override]
        self, method: str, url: str, params: Any = None, **options: Any
    ) -> requests.Response:
        # The client writes a query into the address, also of a POST; proxies take 8 kB of that at most.
        where = {"data": params} if method == "POST" else {"params": params}
        return super().request(method, url, **where, **options)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        try:
            response = super().send(request, **options)
        except requests.Timeout as error:
            raise self.timed_out() from error
        except requests.TooManyRedirects as error:
            raise self._error("it redirects, as to a login page", HINT_ACCESS) from error
        except requests.ConnectionError as error:
            raise _Passing(self._error(_cause(error), is_up(self.given_url))) from error
        except requests.RequestException as error:
            raise self._error(type(error).__name__) from error
        if response.status_code != 200:
            self._refuse(response)
        if warning := _warning(response):
            raise self._error(f"its answer may be incomplete: {warning}")
        return response

    def timed_out(self) -> EndpointError:
        return self._error(f"it did not answer within {self.timeout_s:g} s")

    def _refuse(self, response: requests.Response) -> None:
        status = response.status_code
        if status in (401, 403):
            raise self._error(f"it refused access ({status})", HINT_ACCESS)
        error = self._error(f"it answered {status}: {_message(response)}")
        # It also answers 503 where a query took longer than `timeout`: to ask again would take as long.
        over_in_a_moment = status in _PASSING and response.elapsed.total_seconds() < self.timeout_s / 2
        raise _Passing(error) if over_in_a_moment else error

    def _error(self, problem: str, hint: str | None = None) -> EndpointError:
        return EndpointError(f"could not ask Prometheus at {self.given_url}: {problem}", hint=hint)


HINT_ACCESS = f"export {TOKEN}=…  # or {HEADERS}='Name: value, …'"


def is_up(url: str) -> str:
    """Return the command that shows whether Prometheus answers there."""
    return http_request(f"{url.rstrip('/')}/-/ready")


class _Bearer(requests.auth.AuthBase):
    """Set even without a token: else requests takes one out of ~/.netrc, over the headers that were given."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise UsageError(
            f"invalid address of Prometheus {url!r}: expected an http URL, the root of its API",
            hint=with_value(url, "http://127.0.0.1:9090"),
        )
    if parts.username or parts.password:
        raise UsageError("the address of Prometheus must not hold credentials", hint=HINT_ACCESS)
    return url.rstrip("/")


def _headers(text: str) -> dict[str, str]:
    """Return the headers in `Name: value, Name: value`. A value is never repeated in an error: it may be a
    secret."""
    pairs = [part.partition(":") for part in text.split(",") if part.strip()]
    if not all(colon and _is_name(name.strip()) for name, colon, _ in pairs):
        raise UsageError(f"{HEADERS} is not of the form Name: value, Name: value")
    return {name.strip(): _printable(value.strip(), HEADERS) for name, _, value in pairs}


def _is_name(text: str) -> bool:
    return bool(text) and text.isascii() and all(c.isalnum() or c in "-_" for c in text)


def _printable(text: str, variable: str) -> str:
    if not (text.isascii() and text.isprintable()):
        raise UsageError(f"{variable} has characters that no header can carry")
    return text


def _cause(error: requests.ConnectionError) -> str:
    text = str(error.args[0] if error.args else error)
    if "resolve" in text:
        return "its name is not known"
    reason = reason_of(error)
    return "the connection was lost" if reason == str(error) else reason


def _message(response: requests.Response) -> str:
    """Prometheus' own words where it has any, else the beginning of what was said."""
    try:
        return str(response.json()["error"])[:300]
    except (ValueError, KeyError, TypeError):
        return " ".join(response.text.split())[:100] or str(response.reason)


def _warning(response: requests.Response) -> str | None:
    """The first warning of an answer: a part of the data could not be read, as with Thanos or remote read."""
    try:
        warnings = response.json().get("warnings")
        return str(warnings[0])[:300] if warnings else None
    except (ValueError, AttributeError, LookupError, TypeError):
        return None


def _samples(result: Any) -> list[Sample]:
    if len(result) == 2 and not isinstance(result[0], dict):  # a scalar
        return [Sample({}, float(result[1]), float(result[0]))]
    return [
        Sample(sample["metric"], float(sample["value"][1]), float(sample["value"][0])) for sample in result
    ]


def _series(result: Any) -> list[Series]:
    return [
        Series(series["metric"], tuple((float(ts), float(value)) for ts, value in series["values"]))
        for series in result
    ]
