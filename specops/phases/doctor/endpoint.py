"""An OpenAI-compatible endpoint: reachable, ours to ask, and which names its /metrics have."""

from __future__ import annotations

import http.client
import json
import shlex
import time
import urllib.error
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from typing_extensions import TypedDict

from specops.access import API_KEYS, OPEN, Credentials
from specops.config import Rollout
from specops.errors import EndpointError, UsageError, reason_of
from specops.hints import with_value
from specops.load.settings import checked_base_url
from specops.phases.doctor import fixes
from specops.phases.doctor.machine import ANSWER_S, Check, FileText
from specops.phases.monitor.check import fitting, of_server
from specops.prometheus import exposition
from specops.prometheus.exposition import NoData, Scrape
from specops.prometheus.series import PoolName
from specops.prometheus.series import exposed as series_of
from specops.serving import ENGINES


def usable(base_url: str) -> str:
    try:
        return checked_base_url(base_url)
    except ValueError as error:
        raise UsageError(
            f"could not use --base-url: it {error}: expected the root of the API",
            hint=with_value(base_url, "http://127.0.0.1:8000/v1"),
        ) from None


@dataclass(frozen=True)
class PoolSection:
    """The endpoint as a pool of a rollout file."""

    rollout: Rollout
    pool: PoolName

    @property
    def model(self) -> str | None:
        pool_endpoint = getattr(self.rollout.pools, self.pool).endpoint
        return None if pool_endpoint is None else pool_endpoint.model

    @property
    def credentials(self) -> Credentials:
        """Raises UsageError where a variable of its secrets is not set."""
        pool_endpoint = getattr(self.rollout.pools, self.pool).endpoint
        access = OPEN if pool_endpoint is None else pool_endpoint.access
        credentials: Credentials = access.credentials(self.pool)
        return credentials

    @property
    def speculates(self) -> bool:
        return self.pool == "speculative"

    def section_with(self, **changes: str) -> FileText:
        return fixes.pool_at(self.rollout, self.pool, **changes)


def endpoint(base_url: str, place: PoolSection | None = None) -> Iterator[Check]:
    """Yield the checks of an endpoint. `place`: where a rollout file names it; None: it is known by its
    address alone."""
    try:
        credentials = place.credentials if place else OPEN.credentials()
    except UsageError as error:
        yield _failed(error.message, fix=error.hint)
        return
    try:
        body, sent = _models(base_url, place, credentials)
        if body.lstrip()[:1] == b"<":
            # A login page of a proxy, a server's own page, or the wrong path.
            yield _failed(
                f"{base_url}/models answered with a page (HTML or XML), not with an API's JSON",
                **_up_to_v1(base_url, place),
            )
            return
        models = [str(model["id"]) for model in json.loads(body)["data"]]
    except urllib.error.HTTPError as error:
        error.close()
        message = f"{base_url}/models answered {error.code}"
        if error.code in (401, 403):
            message += f": it refused {credentials.description}"
        yield _failed(message, **_refused(base_url, place, error, credentials))
        return
    except (http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        if isinstance(error, ConnectionError) and base_url.startswith("https:"):
            yield _of_tls(base_url, str(error), credentials)
            return
        yield _failed(f"{base_url}/models gave no list of models: {error}", **_up_to_v1(base_url, place))
        return
    except OSError as error:
        reason = getattr(error, "reason", error)
        if "CERTIFICATE" in str(reason):
            yield _of_tls(base_url, str(reason), credentials)
            return
        speculates = place is None or place.speculates
        yield _failed(
            f"{base_url} gave no answer: {reason_of(error)}", fix=fixes.start(base_url, speculates=speculates)
        )
        return
    yield _serving(base_url, models, place)
    yield from clock(base_url, _seconds(sent))
    yield from _metrics(base_url, models, place, credentials)


def _models(base_url: str, place: PoolSection | None, credentials: Credentials) -> tuple[bytes, str | None]:
    """The list of models, and the Date of the answer. It is requested a second time where it was limited and
    the rollout file has a limit: after as long a pause as that limit gives."""
    limit = place.rollout.measure.max_rps if place else None
    for last in (limit is None, True):
        try:
            with exposition.opened(f"{base_url}/models", credentials, ANSWER_S) as answer:
                return answer.read(), answer.headers.get("Date")
        except urllib.error.HTTPError as error:
            if last or error.code != LIMITED:
                raise
            error.close()
            assert limit is not None
            time.sleep(min(1 / limit, ANSWER_S))
    raise AssertionError


def _failed(message: str, fix: str | None = None, paste: FileText | None = None) -> Check:
    return Check(name="endpoint", status="fail", found=message, fix=fix, paste=paste)


def _of_tls(base_url: str, reason: str, credentials: Credentials) -> Check:
    """Return what is wrong with a certificate, the server's or ours."""
    from specops.load.answer import Failure
    from specops.load.client import endpoint_error  # it loads an HTTP client, which the checks do not need

    error = endpoint_error(base_url, Failure("cut", reason), credentials=credentials)
    return _failed(error.message, fix=error.hint)


class Fix(TypedDict, total=False):
    fix: str
    paste: FileText


LIMITED = 429


def _refused(
    base_url: str, place: PoolSection | None, error: urllib.error.HTTPError, credentials: Credentials
) -> Fix:
    if error.code in (401, 403):
        return {"fix": f"export {credentials.variable or API_KEYS[0]}=YOUR_KEY"}
    if error.code == LIMITED:
        retry_after = error.headers.get("Retry-After", "")
        pause_s = int(retry_after) if retry_after.isdecimal() and int(retry_after) else PAUSE_S
        if place is None:
            return {"fix": f"sleep {pause_s} && specops doctor --base-url {shlex.quote(base_url)}"}
        earlier = place.rollout.measure.max_rps
        rate = 1 / pause_s if earlier is None else earlier / 2
        return {"paste": fixes.sections(place.rollout, {"measure": {"max_rps": rate}})}
    if error.code >= SERVER_ERROR:
        look = f"curl -i{credentials.curl} {shlex.quote(base_url)}/models"
        return {"fix": f"{look}  # the log of the server says why"}
    return _up_to_v1(base_url, place)


SERVER_ERROR = 500
PAUSE_S = 2
"""Seconds between two requests to a server that limits them and does not say how."""


def _up_to_v1(base_url: str, place: PoolSection | None) -> Fix:
    root = base_url if base_url.endswith("/v1") else f"{base_url}/v1"
    url = fixes.ELSEWHERE if root == base_url else root
    if place is not None:
        return {"paste": place.section_with(base_url=url)}
    return {"fix": f"specops doctor --base-url {shlex.quote(url)}"}


def _serving(base_url: str, models: Sequence[str], place: PoolSection | None) -> Check:
    model = place.model if place else None
    message = f"{base_url} serves {', '.join(models) or 'no model'}"
    if models and model in (None, *models):
        return Check(name="endpoint", status="ok", found=message)
    if place is not None and model is not None:
        message += f", not {model}"
        if models:
            return _failed(message, paste=place.section_with(model=models[0]))
    return _failed(message, fix=fixes.start(base_url, speculates=place is None or place.speculates))


SKEW_S = 5.0
"""A difference of clocks beyond this shifts live figures against the journal and the results."""


def clock(where: str, clock_s: float | None) -> Iterator[Check]:
    """Check that machine's clock. `clock_s`: seconds since the epoch by that machine's clock, now; None: it
    did not say."""
    if clock_s is None:
        return
    skew = clock_s - time.time()
    if abs(skew) > SKEW_S:
        yield Check(
            name="clock",
            status="warn",
            found=f"the clock of {where} is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this"
            f" machine's (threshold {SKEW_S:.0f} s)",
            fix=f"timedatectl set-ntp true  # here and on the machine of {where}",
        )


def _seconds(date: str | None) -> float | None:
    """Return the time of a Date header, in whole seconds since the epoch."""
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None


def _metrics(
    base_url: str, models: Sequence[str], place: PoolSection | None, credentials: Credentials
) -> Iterator[Check]:
    try:
        scrape = exposition.scrape(base_url, credentials)
    except EndpointError as error:
        yield Check(
            name="metrics",
            status="warn",
            found=f"{error.message}; latency is measured without it, acceptance only where answers report it",
            fix="YOUR_START_COMMAND --metrics  # of llama.cpp; of SGLang: --enable-metrics",
        )
        return
    yield acceptance_check(scrape, base_url, speculates=place is None or place.speculates)
    if exposition.naming_of(scrape) is not None or place is not None:
        yield _watched(base_url, {name for name, _ in scrape}, models, place, credentials)


def acceptance_check(scrape: Scrape, base_url: str, *, speculates: bool) -> Check:
    """Say whether the names that acceptance is read from are there, in the words of the server's own
    engine. A server with the names of no engine is unknown."""
    series = exposition.naming_of(scrape)
    if series is None:
        names = sorted({name for name, _ in scrape})
        message = f"none of its {len(names)} names is of an engine whose metrics are known"
        message += f" (such as {names[0]})" if names else ""
        return Check(
            name="metrics",
            status="unknown",
            found=f"{message}; whether it speculates cannot be read",
            fix=f"specops doctor --base-url {fixes.ELSEWHERE}  # of the engine itself, behind any gateway",
        )
    engine = next(candidate for candidate in ENGINES.values() if series in candidate.namings.values())
    exposed = {name for name, _ in scrape}
    ways = ([name for name in drafts.names if name not in exposed] for drafts in series.acceptance)
    missing = min(ways, key=len)
    if not speculates:
        return Check(name="metrics", status="ok", found=f"{engine.title}'s")
    if not missing:
        return Check(name="metrics", status="ok", found=f"{engine.title}'s, with every name of acceptance")
    counts = exposition.draft_counts({}, scrape)
    if not isinstance(counts, NoData):
        message = f"{engine.title}'s; acceptance is read without {', '.join(missing)}"
        return Check(name="metrics", status="ok", found=message)
    if counts.drafts == 0.0 and series.drafts_come_late:
        message = f"{engine.title}'s, and it does not speculate: {counts.reason}"
        return Check(
            name="metrics",
            status="warn",
            found=message,
            fix=fixes.start(base_url, speculates=True, engine=engine.name),
        )
    return Check(
        name="metrics",
        status="unknown",
        found=f"{engine.title}'s, without {', '.join(missing)}: whether it speculates cannot be read yet"
        f" ({counts.reason})",
        fix=f"specops doctor --base-url {shlex.quote(base_url)}  # again, after a few requests",
    )


def _watched(
    base_url: str,
    exposed: Collection[str],
    models: Sequence[str],
    place: PoolSection | None,
    credentials: Credentials,
) -> Check:
    """The names that rules, panels and the guard read of it in Prometheus."""
    pool: PoolName = "speculative" if place is None else place.pool
    names = {(name, frozenset[tuple[str, str]]()): 0.0 for name in exposed}
    series = exposition.series_of(names) if place is None else series_of(place.rollout, pool)
    needs, lacking = of_server(series, pool, exposed)
    if not lacking:
        return Check(name="metric names", status="ok", found=f"all {len(needs)} that monitoring reads")
    renamed = [(need, alias) for need in lacking for alias in need.aliases if alias in exposed]
    if renamed:
        called = ", ".join(f"{need.name} is {alias}" for need, alias in renamed)
        message = f"under other names: {called}"
        naming = fitting(series, pool, exposed)
        if naming is None:
            message += f"; {renamed[0][0].aliases[renamed[0][1]]}"
        return Check(name="metric names", status="warn", found=message, **_named(base_url, place, naming))
    return Check(
        name="metric names",
        status="warn",
        found=f"{len(needs) - len(lacking)} of the {len(needs)} that monitoring reads; not there:"
        f" {', '.join(need.name for need in lacking)}; some come with the first request, those of drafts"
        " with speculation",
        fix=fixes.request(base_url, models[0], credentials) if models else None,
    )


def _named(base_url: str, place: PoolSection | None, naming: str | None) -> Fix:
    """Check the metric names of a server. `naming`: the word of `monitor.names` for the names that it has;
    None: something renamed them."""
    if place is None and naming is None:
        return {"fix": f"specops doctor --base-url {fixes.ELSEWHERE}  # of the server itself"}
    if place is None:
        return {
            "fix": f"specops init mine --base-url {fixes.ELSEWHERE} --base-url {shlex.quote(base_url)}"
            " && specops doctor mine/rollout.yaml  # HOST:PORT is the other pool's server"
        }
    if naming is None:
        return {"paste": place.section_with(base_url=fixes.ELSEWHERE)}
    names = {**place.rollout.monitor.names, place.pool: naming}
    return {"paste": fixes.sections(place.rollout, {"monitor": {"names": names}})}
