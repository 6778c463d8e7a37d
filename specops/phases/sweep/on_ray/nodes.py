"""Which nodes of a cluster can serve the settings, what a server takes of one, and what a node is called."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specops import __version__
from specops.errors import UsageError
from specops.load.settings import BaselineSettings
from specops.phases.sweep.jobs import Setting
from specops.phases.sweep.on_ray.testbed import Needs

ACCELERATOR = "accelerator_type:"
"""Begins the name of a resource that Ray gives to nodes with such a GPU (ray 2.x, `ray.nodes()`)."""


@dataclass(frozen=True)
class Node:
    id: str
    host: str
    name: str
    """By default its address; `ray start --node-name` gives another."""

    resources: Mapping[str, float] = field(hash=False)

    @property
    def gpus(self) -> int:
        return int(self.resources.get("GPU", 0))

    @property
    def cpus(self) -> int:
        return int(self.resources.get("CPU", 0))

    @property
    def accelerator(self) -> str:
        kinds = sorted(name for name in self.resources if name.startswith(ACCELERATOR))
        return ", ".join(name.removeprefix(ACCELERATOR) for name in kinds) or "GPU"


@dataclass(frozen=True)
class Place:
    """What one testbed takes of its node, and how many of them fit there."""

    gpus: int
    cpus: int
    count: int
    kind: str
    """Of the node, in words: H100, or 64 CPUs where servers use no GPU."""


def alive(listed: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Of what `ray.nodes()` lists, in an order that does not change."""
    nodes = [
        Node(entry["NodeID"], entry["NodeManagerHostname"], entry["NodeName"], entry["Resources"])
        for entry in listed
        if entry["Alive"]
    ]
    return sorted(nodes, key=lambda node: (node.host, node.name, node.id))


def alike(
    nodes: Sequence[Node], settings: Sequence[Setting], kind: str | None = None
) -> tuple[dict[Node, Place], dict[Node, str]]:
    """The nodes that can serve, all of one kind, and why the others are left out.

    A speed-up on one kind of device is not that on another, so a sweep stays with one `kind` of node; where
    it has none yet, with the one that most are of.
    """
    wanted = max((setting.pool.gpus or 0 for setting in settings), default=0)
    if not any(node.gpus for node in nodes):
        wanted = 0  # an engine's build for CPUs
    fit, out = {}, {}
    for node in nodes:
        if node.cpus < 1 or node.gpus < wanted:
            out[node] = f"has no {'CPUs to give' if node.cpus < 1 else f'{wanted} GPUs'}"
        else:
            fit[node] = _place(node, wanted, settings)
    if fit and kind is None:
        kind = Counter(place.kind for place in fit.values()).most_common(1)[0][0]
    out |= {
        node: f"has {place.kind}, and the sweep stays with nodes of {kind}"
        for node, place in fit.items()
        if place.kind != kind
    }
    return {node: place for node, place in fit.items() if place.kind == kind}, out


def names(nodes: Sequence[Node], known: Mapping[str, str]) -> dict[str, str]:
    """What nodes are called, by id: their host names, with more where that is not enough. A node keeps the
    name it is `known` by."""
    hosts = Counter(node.host for node in nodes)
    both = Counter((node.host, node.name) for node in nodes)

    def name(node: Node) -> str:
        if hosts[node.host] == 1:
            return node.host
        return f"{node.host} {node.name if both[node.host, node.name] == 1 else node.id[:8]}"

    return {node.id: known.get(node.id) or name(node) for node in nodes}


def needs_of(settings: Sequence[Setting], asked: BaselineSettings) -> Needs:
    """UsageError for endpoints that run already: where they run does not change."""
    paths: set[str] = {str(asked.tokenizer)} if asked.tokenizer else set()
    programs: set[str] = set()
    for setting in settings:
        pool = setting.pool
        if pool.endpoint is not None:
            raise UsageError(
                f"{setting.name} is an endpoint that runs already, and Ray starts servers",
                hint="leave out --on: this machine asks the endpoint",
            )
        paths |= _folders(pool.models.values())
        programs |= {shlex.split(program)[0] for program in pool.programs}
    return Needs(__version__, str(Path.cwd()), sorted(paths), sorted(programs))


def _folders(models: Iterable[str]) -> set[str]:
    """Those that are folders, and not ids of a hub."""
    return {model for model in models if Path(model).exists() or model[0] in "./"}


def _place(node: Node, gpus: int, settings: Sequence[Setting]) -> Place:
    count = 1
    if any(setting.pool.gpus is None for setting in settings):
        gpus = node.gpus  # such a server may use all of them
    elif gpus:
        count = min(node.gpus // gpus, node.cpus)
    kind = node.accelerator if gpus else f"{node.cpus} CPUs"
    return Place(gpus, node.cpus // count, count, kind)
