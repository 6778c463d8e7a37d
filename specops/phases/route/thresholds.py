"""The router's rules, each value with its source, and the pools' servers.

The rollout file comes first, then the results in the run folder, then a default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

import yaml

from specops.config import Pool, Rollout
from specops.errors import ConfigError
from specops.hints import in_rollout
from specops.load.record import CellRecord
from specops.phases import PhaseName
from specops.phases.ab.report import Report
from specops.phases.capacity.records import CapacityAnswer
from specops.phases.inputs import left_out
from specops.phases.measurement import cells_of
from specops.phases.run_folder import Missing, RunFolder, Stored, undamaged
from specops.phases.sweep.report import Recommendation
from specops.render.figures import count
from specops.router import RESERVED, TrafficClass
from specops.serving import ENGINES

if TYPE_CHECKING:
    from specops.phases.canary.pool_pair import Conformance

Part = TypeVar("Part")


def servers(rollout: Rollout, pool: Literal["standard", "speculative"]) -> list[str]:
    """HOST:PORT of each server of the pool. Raises ConfigError if the rollout file does not say."""
    addresses: list[str] = getattr(rollout.addresses, pool)
    if addresses:
        return list(dict.fromkeys(addresses))
    configured: Pool = getattr(rollout.pools, pool)
    if configured.endpoint is None:
        raise ConfigError(
            f"the addresses of the {pool} pool's servers are missing: expected addresses.{pool}: [HOST:PORT]",
            hint=in_rollout("addresses", f"add addresses.{pool}: [HOST:PORT]"),
        )
    url = urlsplit(configured.endpoint.base_url)
    if url.scheme != "http" or url.path.rstrip("/") != "/v1" or not url.hostname:
        raise ConfigError(
            f"the router cannot forward to {configured.endpoint.base_url}: expected http://HOST:PORT/v1",
            hint=in_rollout("addresses", f"add addresses.{pool}: [HOST:PORT] of servers with plain HTTP"),
        )
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return [f"{host}:{url.port or 80}"]


DEFAULTS: Mapping[str, Any] = {
    "min_tokens": 32,
    "min_tokens_unstreamed": 64,
    "long_tokens": 256,
    "otherwise": "speculative",
    "max_temperature": 1.0,
    "max_in_flight": 8,
}
IN_THE_FILE = "rollout file"
BY_DEFAULT = "default"
CHALLENGER = "speculative"

UNSIZED = {"/v1/completions": 16}
"""The default of max_tokens by path, in OpenAI's API, vLLM and SGLang. Elsewhere an answer may be as long
as the model allows."""

LONGEST_ANSWER_S = 60
"""Burn-in of a random window where no answers were measured."""

JUDGED = ("max_completion_tokens", "max_tokens", "n", "best_of", "temperature", "stream")


@dataclass
class Rules:
    """`table` is what decide.lua reads, `inputs` the hash of each result that was read, `notes` are for a
    person."""

    table: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unmatched: dict[str, str] = field(default_factory=dict)
    """Classes that must stay off speculation and that no class of the rollout file matches, with the result
    that says so: their requests are speculative."""


def sourced(value: Any, source: str) -> dict[str, Any]:
    return {"value": value, "source": source}


def rules(rollout: Rollout, folder: Path) -> Rules:
    """The rules from the rollout file and the run folder. Raises ConfigError, and FileError for a damaged
    result."""
    measured = _Measured(rollout, folder)
    route = rollout.route
    table: dict[str, Any] = {"speculate": _first(route.speculate, measured.speculate, True)}
    for name, default in DEFAULTS.items():
        limit = measured.max_in_flight() if name == "max_in_flight" else None
        table[name] = _first(getattr(route, name), limit, default)
    table["classes"] = [_class(traffic_class, measured) for traffic_class in route.classes]
    default, _ = RESERVED
    off = sourced(False, measured.off[default]) if default in measured.off else None
    table["default"] = {"speculate": off or measured.of_others or sourced(True, BY_DEFAULT)}
    table["unsupported"] = _unsupported(rollout, measured)
    table["wanted"] = dict.fromkeys(
        [*JUDGED, *(parameter["name"] for parameter in table["unsupported"])], True
    )
    table["unsized"] = UNSIZED
    table["canary_key"] = route.canary_key.lower() if route.canary_key else None
    table["holdout"] = sourced(
        rollout.effect.holdout,
        IN_THE_FILE if "holdout" in rollout.effect.model_fields_set else BY_DEFAULT,
    )
    table["windows"] = _windows(rollout, measured)
    table["paths"] = list(route.paths)
    table["speculative_percent"] = route.speculative_percent
    class_names = {*RESERVED, *(traffic_class.name for traffic_class in route.classes)}
    speculating = table["speculate"]["value"] and table["default"]["speculate"]["value"]
    unmatched = sorted(measured.off.keys() - class_names) if speculating else []
    return Rules(table, measured.inputs, measured.notes, {name: measured.off[name] for name in unmatched})


def _windows(rollout: Rollout, measured: _Measured) -> dict[str, int] | None:
    """The random windows of the live effect, in seconds; None where chance draws requests. Raises ConfigError
    for windows that are hardly longer than their burn-in."""
    effect = rollout.effect
    if effect.mode == "requests" or not effect.holdout:
        return None
    longest_s = measured.longest_answer_s
    burn_in_s = effect.burn_in_s or (LONGEST_ANSWER_S if longest_s is None else math.ceil(longest_s))
    if 2 * burn_in_s > effect.window_s:
        raise ConfigError(
            f"effect.window_s is {effect.window_s} s, and the first {burn_in_s} s of a window do not count"
            " (the longest answer): expected at least twice as long a window",
            hint=in_rollout("effect", f"write window_s: {2 * burn_in_s}"),
        )
    return {"seconds": effect.window_s, "block": effect.block, "burn_in": burn_in_s}


def named_by_header(name: str) -> dict[str, object]:
    """Return a class of `route.classes` by a header that clients would have to send: what its requests look
    like nobody measured."""
    return {"name": name, "headers": {"X-Traffic-Class": name}}


def classes_block(classes: Sequence[Mapping[str, object]]) -> str:
    """Return `route.classes` as YAML to paste."""
    return yaml.safe_dump({"route": {"classes": [*map(dict, classes)]}}, sort_keys=False, allow_unicode=True)


def _first(configured: Any, measured: dict[str, Any] | None, default: Any) -> dict[str, Any]:
    if configured is not None:
        return sourced(configured, IN_THE_FILE)
    return measured or sourced(default, BY_DEFAULT)


def _class(traffic_class: TrafficClass, measured: _Measured) -> dict[str, Any]:
    if traffic_class.speculate is not None:
        speculate = sourced(traffic_class.speculate, IN_THE_FILE)
    elif traffic_class.name in measured.off:
        speculate = sourced(False, measured.off[traffic_class.name])
    elif traffic_class.name in measured.on:
        speculate = sourced(True, measured.on[traffic_class.name])
    else:
        speculate = measured.of_others or sourced(True, BY_DEFAULT)
    return {
        "name": traffic_class.name,
        "content": traffic_class.content,
        "contains": [text.lower() for text in traffic_class.contains] if traffic_class.contains else None,
        "headers": [{"name": name.lower(), "value": value} for name, value in traffic_class.headers.items()]
        or None,
        "path": traffic_class.path,
        "speculate": speculate,
        "max_in_flight": measured.max_in_flight_of(traffic_class.name),
    }


def _unsupported(rollout: Rollout, measured: _Measured) -> list[dict[str, str]]:
    pool = rollout.pools.speculative
    if rollout.route.unsupported is not None:
        sources = dict.fromkeys(rollout.route.unsupported, IN_THE_FILE)
    elif ENGINES[pool.engine].opaque:  # any engine may answer; the standard pool loses nothing but speed
        engines = reversed(ENGINES.values())  # of two reasons, the first engine's
        sources = {name: why for engine in engines for name, why in engine.refused.items()}
    else:
        sources = dict(ENGINES[pool.engine].refused)
    for name, source in measured.unsupported.items():
        sources.setdefault(name, source)
    return [{"name": name, "source": source} for name, source in sources.items()]


@dataclass(frozen=True)
class _Paid:
    """The load up to which speculation was shown to pay."""

    streams: int
    """Concurrent requests of one server."""

    bounded: bool
    """Whether it did not pay at a heavier load that was measured."""

    source: str
    traffic_class: str | None = None
    """None: all classes together."""

    how: str = "is faster"


class _Measured:
    """The facts about routing in the results of a run folder."""

    def __init__(self, rollout: Rollout, folder: Path) -> None:
        self.rollout = rollout
        self.folder = folder
        self.inputs: dict[str, str] = {}
        self.notes: list[str] = []
        self.speculate: dict[str, Any] | None = None
        self.swept: _Paid | None = None
        self.at_objective: _Paid | None = None
        """The requests in flight at the highest rate at which a speculative server meets the objective."""
        self.paid_by_class: dict[str, _Paid] = {}
        """Verdicts by class, for classes that the comparison deploys."""
        self.of_others: dict[str, Any] | None = None
        self.on: dict[str, str] = {}
        self.off: dict[str, str] = {}
        self.unsupported: dict[str, str] = {}
        self.longest_answer_s: float | None = None
        """Seconds, by the baseline; None where it was not measured, or nothing reads it."""
        from specops.phases.canary.pool_pair import conformance_of  # brings a client of pools

        run = RunFolder(folder)
        if (folder / "capacity.json").exists():
            unfit = left_out(rollout, folder)  # it is of one objective, and of these pools alone
            self._read("capacity", RunFolder(folder, unfit).capacity, self._capacity)
        self._read("sweep", run.recommendation, self._sweep)
        self._read("ab", run.finished_comparison, self._ab)
        self._read("canary", run.finished("canary", conformance_of), self._canary)
        if rollout.effect.mode == "windows":
            self._read("baseline", run.finished("baseline", cells_of), self._baseline)

    def _read(
        self, phase: PhaseName, stored: Stored[Part] | Missing, use: Callable[[Stored[Part], str], None]
    ) -> None:
        """Take what a result says; none is needed. Raises FileError for a damaged one."""
        stored = undamaged(stored)
        if isinstance(stored, Stored):
            self.inputs[phase] = stored.sha256
            use(stored, stored.file)
        elif stored.unused:
            self.notes.append(stored.why)

    def _sweep(self, stored: Stored[Recommendation], source: str) -> None:
        recommendation = stored.part
        if recommendation.verdict == "no" or recommendation.k == 0:
            self.speculate = sourced(False, f"{source}: {stored.result.reason}")
            return
        if recommendation.crossover.on_max is not None:
            self.swept = _Paid(recommendation.crossover.on_max, True, source)
        for name, group in recommendation.by_class.items():
            if group.verdict == "no":
                self.off[name] = source
        for name in recommendation.only_for:
            self.on[name] = source
        if recommendation.only_for:
            self.of_others = sourced(
                False, f"{source}: it pays for {', '.join(recommendation.only_for)} only"
            )

    def _capacity(self, stored: Stored[CapacityAnswer], source: str) -> None:
        in_flight = stored.part.arms["speculative"]["in_flight"]
        if in_flight is not None:  # their number scatters about the mean as that of a Poisson process
            streams = max(1, math.ceil(in_flight + 2 * math.sqrt(in_flight)))
            self.at_objective = _Paid(streams, True, source, how="meets the objective")

    def _baseline(self, stored: Stored[list[CellRecord]], source: str) -> None:
        rows = (row for cell in stored.part for row in cell.rows if row.error is None)
        longest_ms = max((row.e2e_ms for row in rows), default=None)
        self.longest_answer_s = None if longest_ms is None else longest_ms / 1000

    def max_in_flight(self) -> dict[str, Any] | None:
        """The limit of a class that was not compared: the lowest limit of the compared classes."""
        paid_loads = [self._paid(name) for name in self.paid_by_class]
        if not paid_loads:
            return self._carried(self.swept)
        among = f", the lowest of {len(paid_loads)} classes" if len(paid_loads) > 1 else ""
        return self._carried(min(paid_loads, key=lambda paid: paid.streams), among)

    def max_in_flight_of(self, name: str) -> dict[str, Any] | None:
        """The limit of a compared class; None if it equals `max_in_flight`."""
        if self.rollout.route.max_in_flight is not None or name not in self.paid_by_class:
            return None
        limit = self._carried(self._paid(name))
        usual = self.max_in_flight()
        return None if limit is None or usual is None or limit["value"] == usual["value"] else limit

    def _paid(self, name: str) -> _Paid:
        """The sweep's crossover, unless the comparison of the deployed pools shows less."""
        comparison, swept = self.paid_by_class[name], self.swept
        if swept is None or (comparison.bounded and comparison.streams < swept.streams):
            return comparison
        return swept

    def _carried(self, paid: _Paid | None, among: str = "") -> dict[str, Any] | None:
        """The limit of one router: the streams at which a replica surely pays, times replicas, over
        routers. `among` says of what it is the lowest."""
        limit_by = self.at_objective
        if limit_by is not None and (paid is None or limit_by.streams < paid.streams):
            paid, among = limit_by, ""
        if paid is None:
            return None
        replicas = len(servers(self.rollout, "speculative"))
        if not self.rollout.addresses.speculative:
            replicas = max(replicas, self.rollout.deploy.speculative_replicas)
        routers = max(1, len(self.rollout.addresses.routers))
        limit = max(1, paid.streams * replicas // routers)
        paying = count(paid.streams, "stream")
        servers_by_router = f"{count(replicas, 'server')}, {count(routers, 'router')}"
        subject = f"{paid.traffic_class} " if paid.traffic_class else ""
        basis = f"{among if subject else ''} ({servers_by_router})"
        why = f"{paid.source}: {subject}{paid.how} up to {paying} a server{basis}"
        return sourced(limit, why)

    def _ab(self, stored: Stored[Report], source: str) -> None:
        """Let only the classes speculate that the comparison deploys, each up to the heaviest load that
        pays."""
        challengers, path = stored.part.challengers, stored.path
        if CHALLENGER not in challengers:
            self.notes.append(f"{path} compares no arm called {CHALLENGER}, and is not used")
            return
        challenger = challengers[CHALLENGER]
        if not challenger.deploy:
            self.speculate = sourced(False, f"{source}: {challenger.decision.reason}")
            return
        measured = [level.speedups.level.concurrency for level in challenger.levels]
        for name in challenger.classes:
            if name not in {target.traffic_class for target in challenger.deploy}:
                self.off[name] = source
                self.on.pop(name, None)
                continue
            if name not in self.off:
                self.on[name] = source
            streams = challenger.deployed_streams(name)
            if streams is not None:
                heavier = any(number is not None and number > streams for number in measured)
                self.paid_by_class[name] = _Paid(streams, heavier, source, name)
        if not self.paid_by_class:
            self.notes.append(f"{path} was measured at rates, which do not limit requests in flight")

    def _canary(self, stored: Stored[Conformance], source: str) -> None:
        for entry in stored.part.unsupported:
            if entry.pool == CHALLENGER:
                self.unsupported[entry.parameter] = source
