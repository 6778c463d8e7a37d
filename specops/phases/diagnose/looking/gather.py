"""All that can be seen, once. What cannot be is told, and never an error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from specops.config import Rollout
from specops.errors import SpecopsError
from specops.net import is_loopback
from specops.phases.diagnose.looking import device, live, results, started, stream
from specops.phases.diagnose.looking.live import NO_PROMETHEUS, Asking, Scraping
from specops.phases.diagnose.observations import Observations
from specops.phases.monitor.before import before
from specops.phases.yardsticks import left_out, version_of
from specops.progress import Progress
from specops.prometheus.api import Api

NOT_ASKED = "no request was to be sent"
BY_PROMETHEUS = ("live", "standard", "switched", "earlier", "names")


def gather(
    rollout: Rollout, folder: Path, now: datetime, progress: Progress, *, requests: bool = True
) -> Observations:
    """`requests`: whether a few streamed ones may be sent to the speculative pool."""
    unfit = left_out(rollout, folder, version_of(rollout))
    known = before(rollout, folder, unfit)
    looking = _Looking()
    servers = live.servers(rollout)
    progress.start("looking at the run folder", 0)
    looking.at("baseline", lambda: results.baseline(known))
    looking.at("compared", lambda: results.compared(folder, unfit.get("ab")))
    looking.at("swept", lambda: results.swept(rollout, folder, known, unfit.get("sweep")))
    looking.at("drafts", lambda: results.drafts(folder))
    looking.at("canary", lambda: results.canary(folder))
    looking.at("fall_backs", lambda: results.fall_backs(folder, now))
    looking.at("lint", lambda: started.lint(rollout))
    looking.at("logged", lambda: started.logged(folder))
    looking.at("gpu", lambda: _gpu(rollout, servers))
    progress.start("looking at the servers", 0)
    _look_live(rollout, servers, looking, requests=requests)
    return Observations(
        rollout=rollout.rollout,
        branches=known.branches,
        classes={
            one.name: one.model_dump(mode="json", exclude_defaults=True) for one in rollout.route.classes
        },
        missing=looking.missing,
        **looking.seen,
    )


class _Looking:
    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self.missing: dict[str, str] = {}

    def at(self, part: str, see: Callable[[], object]) -> None:
        """What `see` gives, or its sentence."""
        try:
            found = see()
        except SpecopsError as error:
            found = error.message
        if isinstance(found, str):
            self.missing[part] = found
        else:
            self.seen[part] = found
            self.missing.pop(part, None)


def _look_live(rollout: Rollout, servers: list[str] | str, looking: _Looking, *, requests: bool) -> None:
    """The stream's requests are traffic between two looks at /metrics, where there is no other."""
    scraping = _scraping(servers)
    if isinstance(servers, str):
        looking.missing["stream"] = servers
    elif not requests:
        looking.missing["stream"] = NOT_ASKED
    else:
        first = servers[0]
        looking.at("stream", lambda: stream.stream(rollout, first))
    url = rollout.addresses.prometheus
    if url is None:
        looking.missing |= dict.fromkeys(BY_PROMETHEUS, NO_PROMETHEUS)
    else:
        _ask(rollout, url, looking)
    if "live" not in looking.seen:
        reason = looking.missing["live"]
        looking.at("live", lambda: scraping if isinstance(scraping, str) else scraping.live())
        if "live" in looking.missing:
            looking.missing["live"] = f"{reason}; {looking.missing['live']}"


def _scraping(servers: list[str] | str) -> Scraping | str:
    if isinstance(servers, str):
        return servers
    try:
        return Scraping(servers)
    except SpecopsError as error:
        return error.message


def _ask(rollout: Rollout, url: str, looking: _Looking) -> None:
    try:
        api = Api(url)
    except SpecopsError as error:  # a token or headers in the environment that are none
        looking.missing |= dict.fromkeys(BY_PROMETHEUS, error.message)
        return
    try:
        asking = Asking(api, rollout)
        looking.at("live", asking.live)
        looking.at("standard", Asking(api, rollout, "standard").live)
        looking.at("switched", asking.switched)
        looking.at("earlier", asking.earlier)
        looking.at("names", lambda: started.names(rollout, api))
        if here := looking.missing.get("gpu"):
            looking.at("gpu", asking.gpu)
            if "gpu" in looking.missing:
                looking.missing["gpu"] = f"{here}; {looking.missing['gpu']}"
    finally:
        api.close()


def _gpu(rollout: Rollout, servers: list[str] | str) -> object:
    if rollout.pools.speculative.own is not None:
        return "the embedded engine serves from a CPU"
    if isinstance(servers, str):
        return servers
    if not any(is_loopback(server) for server in servers):
        return "the speculative pool serves from another machine"
    return device.gpu()
