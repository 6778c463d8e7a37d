"""An OpenAI-compatible endpoint: reachable, ours to ask, and which names its /metrics have."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from email.utils import parsedate_to_datetime

from specops.errors import EndpointError, UsageError
from specops.load.settings import checked_base_url
from specops.phases.doctor.machine import ANSWER_S, Check
from specops.phases.monitor.check import WINDOW, of_engine
from specops.prometheus import exposition
from specops.prometheus.series import PoolName
from specops.serving import USUAL, Series, tables

_DRAFTS = exposition.usual_drafts()
METRICS = (
    _DRAFTS.drafts,
    _DRAFTS.draft_tokens,
    _DRAFTS.accepted_tokens,
    _DRAFTS.per_position,
    USUAL.generated,
)
"""What the phases read from a server's /metrics."""


def usable(base_url: str) -> str:
    try:
        return checked_base_url(base_url)
    except ValueError as error:
        raise UsageError(
            f"could not use --base-url: it {error}", hint="give the API's root, such as http://host:8000/v1"
        ) from None


def endpoint(
    base_url: str, series: Series | None = None, *, speculates: bool = True, model: str | None = None
) -> Iterator[Check]:
    """`series`: the names that it is to have; None: those of the engine that its /metrics look like.
    `model` is to be among those that it serves."""
    key = os.environ.get("SPECOPS_API_KEY") or os.environ.get("OPENAI_API_KEY")
    request = urllib.request.Request(
        f"{base_url}/models", headers={"Authorization": f"Bearer {key}"} if key else {}
    )
    try:
        with exposition.opener(base_url).open(request, timeout=ANSWER_S) as answer:
            body, sent = answer.read(), answer.headers.get("Date")
        if body.lstrip()[:1] == b"<":
            yield _page(base_url)
            return
        models = [str(model["id"]) for model in json.loads(body)["data"]]
    except urllib.error.HTTPError as error:
        error.close()
        yield Check(
            name="endpoint",
            status="fail",
            found=f"{base_url}/models answered {error.code}",
            fix=_fix(base_url, error.code),
        )
        return
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        yield Check(
            name="endpoint",
            status="fail",
            found=f"{base_url}/models gave no list of models: {getattr(error, 'reason', error)}",
            fix="start the server, or give the URL of its API up to /v1",
        )
        return
    lacking = model is not None and model not in models
    yield Check(
        name="endpoint",
        status="fail" if lacking else "ok",
        found=f"{base_url} serves {', '.join(models) or 'no model'}" + f", not {model}" * lacking,
        fix=f"write model: {models[0]} for this pool in ROLLOUT"
        if models
        else "load a model into the server",
    )
    yield from clock(base_url, _seconds(sent))
    yield from _metrics(base_url, series, speculates=speculates)


def _fix(base_url: str, status: int) -> str:
    if status in (401, 403):
        return "export SPECOPS_API_KEY=KEY, with a key that it accepts"
    if status == 429:
        return "it limits requests: set measure.max_rps in ROLLOUT below its limit, then run doctor again"
    return "its log says why" if status >= 500 else _up_to_v1(base_url)


def _up_to_v1(base_url: str) -> str:
    if base_url.endswith("/v1"):
        return "give the address of the API's server, up to /v1"
    return f"specops doctor --base-url {base_url}/v1"


def _page(base_url: str) -> Check:
    """A login page of a proxy, a server's own page, or the wrong path."""
    return Check(
        name="endpoint",
        status="fail",
        found=f"{base_url}/models answered with a page (HTML or XML), not with an API's JSON",
        fix=_up_to_v1(base_url),
    )


SKEW_S = 5.0
"""A difference of clocks beyond this shifts live figures against the journal and the results."""


def clock(where: str, theirs: float | None) -> Iterator[Check]:
    """`theirs`: seconds since the epoch by that machine's clock, now; None: it did not say."""
    if theirs is None:
        return
    skew = theirs - time.time()
    if abs(skew) > SKEW_S:
        yield Check(
            name="clock",
            status="warn",
            found=f"the clock of {where} is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this"
            f" machine's (threshold {SKEW_S:.0f} s)",
            fix="timedatectl set-ntp true, on both machines",
        )


def _seconds(date: str | None) -> float | None:
    """Of a Date header, which has whole seconds."""
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None


def _metrics(base_url: str, series: Series | None, *, speculates: bool) -> Iterator[Check]:
    try:
        exposed = {name for name, _ in exposition.scrape(base_url)}
    except EndpointError as error:
        yield Check(
            name="metrics",
            status="warn",
            found=error.message,
            fix="without /metrics latency is still measured, acceptance is not",
        )
        return
    missing = [name for name in METRICS if name not in exposed] if speculates else []
    yield Check(
        name="metrics",
        status="warn" if missing else "ok",
        found=f"missing: {', '.join(missing)}" if missing else "every name that specops reads is there",
        fix="servers show the draft counters only while they speculate; see its start command",
    )
    yield _watched(exposed, series or _of(exposed), speculates=speculates)


def _of(exposed: Collection[str]) -> Series:
    return next((one for one in tables() if one.e2e + "_count" in exposed), USUAL)


def _watched(exposed: Collection[str], series: Series, *, speculates: bool) -> Check:
    """The names that rules, panels and the guard read of it in Prometheus."""
    pool: PoolName = "speculative" if speculates else "standard"
    needs = list(of_engine(series, pool, {}, WINDOW, pool))
    lacking = [need for need in needs if need.name not in exposed]
    renamed = [(need.name, other) for need in lacking for other in need.others if other in exposed]
    if not lacking:
        return Check(name="metric names", status="ok", found=f"all {len(needs)} that monitoring reads")
    if renamed:
        called = ", ".join(f"{name} is {other}" for name, other in renamed)
        fix = next(need.others[other] for need in lacking for other in need.others if other in exposed)
        return Check(name="metric names", status="warn", found=f"under other names: {called}", fix=fix)
    return Check(
        name="metric names",
        status="warn",
        found=f"{len(needs) - len(lacking)} of the {len(needs)} that monitoring reads; not there:"
        f" {', '.join(need.name for need in lacking)}",
        fix="some come with the first request, those of drafts with speculation: send one, and look again",
    )
