"""An OpenAI-compatible endpoint: reachable, ours to ask, and which names its /metrics have."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator

from specops.errors import EndpointError, UsageError
from specops.load.settings import checked_base_url
from specops.phases.doctor.check import ANSWER_S, Check
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
            models = [str(model["id"]) for model in json.load(answer)["data"]]
    except urllib.error.HTTPError as error:
        error.close()
        yield Check(
            name="endpoint",
            status="fail",
            found=f"{base_url}/models answered {error.code}",
            fix=_fix(error.code),
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
        fix="write the model as the endpoint calls it",
    )
    yield from _metrics(base_url, series, speculates=speculates)


def _fix(status: int) -> str:
    if status in (401, 403):
        return "set SPECOPS_API_KEY to a key that it accepts"
    return "its log says why" if status >= 500 else "give its URL up to /v1"


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
