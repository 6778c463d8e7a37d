"""Collectors: all observations of a rollout, from its servers and its run folder, gathered once.

What cannot be observed gets a reason, and is never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from specops import results
from specops.config import Rollout
from specops.errors import SpecopsError
from specops.net import is_loopback
from specops.phases.diagnose.collectors import live, run_folder
from specops.phases.diagnose.collectors.live import NO_PROMETHEUS, PrometheusPool, ScrapedPool
from specops.phases.diagnose.finding import PRESENT_S
from specops.phases.diagnose.observations import Observations
from specops.phases.inputs import left_out, version_of
from specops.phases.monitor.thresholds import measurements
from specops.phases.run_folder import RunFolder
from specops.progress import Progress
from specops.prometheus.api import Api

NO_REQUESTS = "--no-requests: no request was sent"
BY_PROMETHEUS = ("live", "standard", "routed_share", "routed_errors", "earlier", "names")
MEASURED = {
    "baseline": "baseline",
    "compared": "ab",
    "sweep": "sweep",
    "drafts": "drafts",
    "canary": "canary",
}
"""The phase whose result is observed, by part. All other parts are of now."""


def gather(
    rollout: Rollout, folder: Path, now: datetime, progress: Progress, *, requests: bool = True
) -> Observations:
    """Observe a rollout. `requests`: whether a few streamed ones may be sent to the speculative pool."""
    unfit = left_out(rollout, folder, version_of(rollout))
    run, measured = RunFolder(folder, unfit), measurements(rollout, folder, unfit)
    collector = _Collector()
    servers = live.servers(rollout)
    progress.start("reading the run folder", 0)
    collector.collect("baseline", lambda: run_folder.baseline(measured))
    collector.collect("compared", lambda: run_folder.comparison(run))
    collector.collect("sweep", lambda: run_folder.swept(rollout, run, measured))
    collector.collect("drafts", lambda: run_folder.drafts(run))
    collector.collect("canary", lambda: run_folder.canary(run))
    collector.collect("fallbacks", lambda: run_folder.fallbacks(folder, now))
    collector.collect("deployed", lambda: run_folder.deployed(rollout))
    collector.collect("lint", lambda: run_folder.lint(rollout))
    collector.collect("vocabulary_log", lambda: run_folder.logged(folder))
    collector.collect("gpu", lambda: _gpu(rollout, servers))
    progress.start("observing the servers", 0)
    _collect_live(rollout, servers, collector, requests=requests)
    return Observations(
        rollout=rollout.rollout,
        branches=measured.branches,
        classes={
            traffic_class.name: traffic_class.model_dump(mode="json", exclude_defaults=True)
            for traffic_class in rollout.route.classes
        },
        missing=collector.missing,
        ages=_ages(collector.observed, folder, now),
        **collector.observed,
    )


def _ages(observed: Mapping[str, Any], folder: Path, now: datetime) -> dict[str, float]:
    """Seconds since what each source says was so."""
    ages: dict[str, float] = {}
    for part, observation in observed.items():
        if phase := MEASURED.get(part):
            created = results.read(folder / f"{phase}.json").created
            ages[observation.source] = (now - created).total_seconds()
        elif source := getattr(observation, "source", None):
            ages[source] = getattr(observation, "age_s", 0.0)
    return ages


class _Collector:
    def __init__(self) -> None:
        self.observed: dict[str, Any] = {}
        self.missing: dict[str, str] = {}

    def collect(self, part: str, see: Callable[[], object]) -> None:
        """Store what `see` returns; a sentence is the reason why there is nothing."""
        try:
            observation = see()
        except SpecopsError as error:
            observation = error.message
        if isinstance(observation, str):
            self.missing[part] = observation
        else:
            self.observed[part] = observation
            self.missing.pop(part, None)


def _collect_live(
    rollout: Rollout, servers: list[str] | str, collector: _Collector, *, requests: bool
) -> None:
    """The stream's requests are traffic between two scrapes of /metrics, where there is no other."""
    scraping = _scraping(rollout, servers)
    if isinstance(servers, str):
        collector.missing["stream"] = servers
    elif not requests:
        collector.missing["stream"] = NO_REQUESTS
    else:
        first = servers[0]
        collector.collect("stream", lambda: live.stream(rollout, first))
    url = rollout.addresses.prometheus
    if url is None:
        collector.missing |= dict.fromkeys(BY_PROMETHEUS, NO_PROMETHEUS)
    else:
        _collect_from(rollout, url, collector)
    observed = collector.observed.get("live")
    if observed is None or observed.age_s > PRESENT_S:
        reason = collector.missing.get("live")
        collector.collect("live", lambda: scraping if isinstance(scraping, str) else scraping.live())
        if "live" in collector.missing and reason is not None:
            collector.missing["live"] = f"{reason}; {collector.missing['live']}"


def _scraping(rollout: Rollout, servers: list[str] | str) -> ScrapedPool | str:
    if isinstance(servers, str):
        return servers
    try:
        return ScrapedPool(
            {server: live.access_at(rollout, server).credentials("speculative") for server in servers}
        )
    except SpecopsError as error:
        return error.message


def _collect_from(rollout: Rollout, url: str, collector: _Collector) -> None:
    try:
        api = Api(url)
    except SpecopsError as error:  # an invalid token or invalid headers in the environment
        collector.missing |= dict.fromkeys(BY_PROMETHEUS, error.message)
        return
    try:
        pool = PrometheusPool(api, rollout)
        collector.collect("live", pool.live)
        collector.collect("standard", PrometheusPool(api, rollout, "standard").live)
        collector.collect("routed_share", pool.switched)
        collector.collect("routed_errors", pool.routed_errors)
        collector.collect("earlier", pool.earlier)
        collector.collect("names", lambda: run_folder.names(rollout, api))
        if local_problem := collector.missing.get("gpu"):
            collector.collect("gpu", pool.gpu)
            if "gpu" in collector.missing:
                collector.missing["gpu"] = f"{local_problem}; {collector.missing['gpu']}"
    finally:
        api.close()


def _gpu(rollout: Rollout, servers: list[str] | str) -> object:
    if rollout.pools.speculative.own is not None:
        return "the embedded engine serves from a CPU"
    if isinstance(servers, str):
        return servers
    if not any(is_loopback(server) for server in servers):
        return "the speculative pool serves from another machine"
    return live.gpu()
