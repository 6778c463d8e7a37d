"""A Ray cluster: the connection to it, the nodes that can serve, and the testbeds that are held on them.

The cluster exists already, or a Ray is started for this machine alone; Ray's own output stays off the
terminal.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import secrets
import shlex
import signal
import socket
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specops import __version__
from specops.errors import EnvironmentFailure, UsageError, install_command
from specops.hints import with_options, with_value
from specops.load.settings import BaselineSettings
from specops.phases.sweep import ray_testbed
from specops.phases.sweep.ray_testbed import END_S, NodeMessage, NodeRequirements, Testbed
from specops.progress import Progress
from specops.serving import Setting

LOCAL = "local"
ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^\s/:]+):(?P<port>\d{1,5})")
ANSWER_S = 5.0
FORK = "Starting Ray client server failed"
"""What a cluster's client port (ray 2.60, grpcio 1.85) now and then says of a server that died as it was
forked beside gRPC's threads; the next one lives."""

OBJECT_STORE_BYTES = 80 * 2**20
"""Nearly the least that Ray takes: what passes through it are pickled records."""

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # a Ray that we start would report itself to its makers
    "RAY_SCHEDULER_EVENTS": "0",  # the autoscaler's messages, and
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # those of lost nodes, would go to standard output: the answer's place
}
"""Read when Ray is imported; one that the environment sets already stays."""

SETTINGS_OF_LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # as where Ray has no clusters: it listens on 127.0.0.1 alone
    "RAY_worker_niceness": "0",  # servers inherit it: as important as those that are started without Ray
}

TOKEN = ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE")
"""A Ray that we start is given a token of its own. Without one, Ray (2.60) writes a token into the user's
home, and every cluster that is started there from then on asks its nodes for it."""


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module ray, connected to the cluster at `address` until the block ends.

    `ray://HOST:PORT` is a cluster's client port, `HOST:PORT` a cluster that this machine is a node of, and
    `local` a Ray of this machine alone, which ends with the block.

    Raises UsageError for another address, EnvironmentFailure where Ray is not installed, not there, or of
    another version.
    """
    parts = ADDRESS.fullmatch(address)
    if parts is None and address != LOCAL:
        raise UsageError(
            f"invalid address of Ray {address!r}: expected ray://HOST:10001, HOST:6379 on a node of the "
            "cluster, "
            "or local",
            hint=with_value(address, LOCAL),
        )
    ray = _imported(SETTINGS | SETTINGS_OF_LOCAL if address == LOCAL else SETTINGS)
    if parts is not None:
        _answers(address, parts["host"], int(parts["port"]))
    with _token() if address == LOCAL else nullcontext():
        _init(ray, address)
        try:
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _token() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in TOKEN}
    os.environ.setdefault(TOKEN[0], secrets.token_hex(32))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _imported(settings: Mapping[str, str]) -> Any:
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise EnvironmentFailure(
            "could not sweep on many machines: Ray is not installed",
            hint=f"{install_command('ray')}  # the version of Ray must be that of the cluster",
        ) from error
    logging.getLogger("ray").setLevel(logging.ERROR)
    # By value: a node may have another specops, or none, and the testbed reports it.
    importlib.import_module("ray.cloudpickle").register_pickle_by_value(ray_testbed)
    return ray


def _answers(address: str, host: str, port: int) -> None:
    # Ray itself would try for half a minute, or two, and print how it fares.
    try:
        socket.create_connection((host, port), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def _init(ray: Any, address: str) -> None:
    started = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's advice to itself
            for tries_left in (2, 1, 0):
                try:
                    ray.init(
                        address,
                        logging_level=logging.ERROR,
                        log_to_driver=False,
                        **(started if address == LOCAL else {}),
                    )
                    break
                except ConnectionError as error:
                    if FORK not in str(error) or not tries_left:
                        raise
    except (ray.exceptions.RayError, RuntimeError, ImportError, ValueError, OSError) as error:
        raise _unreachable(address, str(error)) from error
    finally:
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray puts its own in, which prints a stack


def _unreachable(address: str, why: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"could not reach Ray at {address}: {' '.join(why.split())[:300]}",
        hint="ray status  # on the cluster's head; Ray and Python must have one version on all machines",
    )


ACCELERATOR = "accelerator_type:"
"""Begins the name of a resource that Ray gives to nodes with such a GPU (ray 2.x, `ray.nodes()`)."""


@dataclass(frozen=True)
class Node:
    id: str
    host: str
    name: str
    """Name of the node: its address, unless `ray start --node-name` gives another."""

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
class NodePlacement:
    """The part of a node that one testbed takes, and how many of them fit there."""

    gpus: int
    cpus: int
    count: int
    kind: str
    """Kind of the node, in words: H100, or 64 CPUs where servers use no GPU."""


def alive(listed: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Return the nodes that are alive of what `ray.nodes()` lists, in an order that does not change."""
    nodes = [
        Node(entry["NodeID"], entry["NodeManagerHostname"], entry["NodeName"], entry["Resources"])
        for entry in listed
        if entry["Alive"]
    ]
    return sorted(nodes, key=lambda node: (node.host, node.name, node.id))


def alike(
    nodes: Sequence[Node], settings: Sequence[Setting], kind: str | None = None
) -> tuple[dict[Node, NodePlacement], dict[Node, str]]:
    """The nodes that can serve, all of one kind, and why the others are left out.

    A speed-up on one kind of device is not that on another, so a sweep stays with one `kind` of node; where
    it has none yet, with the one that most are of.
    """
    needed = max((setting.pool.gpus or 0 for setting in settings), default=0)
    if not any(node.gpus for node in nodes):
        needed = 0  # an engine's build for CPUs
    fit, out = {}, {}
    for node in nodes:
        if node.cpus < 1 or node.gpus < needed:
            out[node] = f"has no {'CPUs to give' if node.cpus < 1 else f'{needed} GPUs'}"
        else:
            fit[node] = _place(node, needed, settings)
    if fit and kind is None:
        kind = Counter(place.kind for place in fit.values()).most_common(1)[0][0]
    out |= {
        node: f"has {place.kind}, and the sweep stays with nodes of {kind}"
        for node, place in fit.items()
        if place.kind != kind
    }
    return {node: place for node, place in fit.items() if place.kind == kind}, out


def names(nodes: Sequence[Node], earlier: Mapping[str, str]) -> dict[str, str]:
    """Return what nodes are called, by id: their host names, with more where that is not enough. A node keeps
    its name in `earlier`."""
    hosts = Counter(node.host for node in nodes)
    occurrences = Counter((node.host, node.name) for node in nodes)

    def name(node: Node) -> str:
        if hosts[node.host] == 1:
            return node.host
        return f"{node.host} {node.name if occurrences[node.host, node.name] == 1 else node.id[:8]}"

    return {node.id: earlier.get(node.id) or name(node) for node in nodes}


def needs_of(settings: Sequence[Setting], requests: BaselineSettings) -> NodeRequirements:
    """Return what a node needs. Raises UsageError for endpoints that run already: where they run does not
    change."""
    paths: set[str] = {str(requests.tokenizer)} if requests.tokenizer else set()
    programs: set[str] = set()
    for setting in settings:
        pool = setting.pool
        if pool.endpoint is not None:
            raise UsageError(
                f"{setting.name} is an endpoint that runs already, and Ray starts servers",
                hint=with_options({"--on": None}),
            )
        paths |= _folders(pool.models.values())
        programs |= {shlex.split(program)[0] for program in pool.programs}
    return NodeRequirements(__version__, str(Path.cwd()), sorted(paths), sorted(programs))


def _folders(models: Iterable[str]) -> set[str]:
    """Return the paths that are folders, and not ids of a hub."""
    return {model for model in models if Path(model).exists() or model[0] in "./"}


def _place(node: Node, gpus: int, settings: Sequence[Setting]) -> NodePlacement:
    count = 1
    if any(setting.pool.gpus is None for setting in settings):
        gpus = node.gpus  # such a server may use all of them
    elif gpus:
        count = min(node.gpus // gpus, node.cpus)
    kind = node.accelerator if gpus else f"{node.cpus} CPUs"
    return NodePlacement(gpus, node.cpus // count, count, kind)


LOOK_S = 2.0
"""Seconds between two looks at the list of nodes."""

PATIENCE_S = 30.0
"""Seconds after which a note says that others use what a node has."""

GPU = "GPU"
"""Part of the name of a machine that is a share of a node: its GPUs follow."""

OUT_OF_REACH = "Ray does not reach it any more"

MOST_LOSSES = 3
"""A node whose testbeds are lost so often is left alone."""


@dataclass
class HeldTestbed:
    """A testbed that is held. `saying` is its next message; None while it is idle."""

    node: str
    called: str
    place: NodePlacement
    actor: Any
    saying: Any
    since: float
    machine: str | None = None
    """Known once it has introduced itself."""


class Fleet:
    def __init__(
        self, ray: Any, settings: Sequence[Setting], needs: NodeRequirements, progress: Progress
    ) -> None:
        self._ray = ray
        self._settings = settings
        self._needs = needs
        self._progress = progress
        self._held: list[HeldTestbed] = []
        self._names: dict[str, str] = {}
        self._losses: Counter[str] = Counter()
        self._out: dict[str, str] = {}
        """Why nodes are left out, by their ids."""

        self._kind: str | None = None
        self._ending = False
        self._looked = 0.0
        self._impatient: set[str] = set()

    @property
    def idle(self) -> list[HeldTestbed]:
        return [held for held in self._held if held.machine and held.saying is None]

    @property
    def busy(self) -> list[HeldTestbed]:
        return [held for held in self._held if held.machine and held.saying is not None]

    @property
    def coming(self) -> list[HeldTestbed]:
        return [held for held in self._held if held.machine is None]

    def awaits(self, machines: Collection[str]) -> bool:
        """Return whether one of these was lost and is to be held again."""
        return any(
            machine == held.called or machine.startswith(f"{held.called} {GPU}")
            for held in self.coming
            for machine in machines
        )

    def look(self, *, now: bool = False) -> None:
        """Take the testbeds that are available and not held."""
        if not now and time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        nodes = alive(self._ray.nodes())
        self._names |= names(nodes, self._names)
        places, unfit = alike(nodes, self._settings, self._kind)
        self._kind = self._kind or next((place.kind for place in places.values()), None)
        for node, why in unfit.items():
            self._leave_out(node.id, why)
        for node, place in places.items():
            if node.id not in self._out:
                in_use = sum(held.node == node.id for held in self._held)
                self._held += [self._hold(node, place) for _ in range(place.count - in_use)]
        self._grumble()

    def _hold(self, node: Node, place: NodePlacement) -> HeldTestbed:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = (
            self._ray.remote(Testbed)
            .options(
                num_cpus=place.cpus,
                num_gpus=place.gpus,
                max_concurrency=2,  # `end` while `next` waits
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote(self._needs)
        )
        name = self._names[node.id]
        return HeldTestbed(node.id, name, place, actor, actor.introduce.remote(), time.monotonic())

    def _grumble(self) -> None:
        for held in self.coming:
            if time.monotonic() - held.since > PATIENCE_S and held.node not in self._impatient:
                self._impatient.add(held.node)
                needs = f"{held.place.gpus} GPUs" if held.place.gpus else f"{held.place.cpus} CPUs"
                self._progress.note(f"waiting for {held.called}: others of the cluster use its {needs}")

    def begin(self, held: HeldTestbed, task: bytes) -> None:
        held.saying = held.actor.begin.remote(task)

    def hear(self) -> Iterator[tuple[HeldTestbed, NodeMessage]]:
        """Yield what busy testbeds say now, if any does within a moment. One that is lost says that it died,
        and is held no longer."""
        waiting = {held.saying: held for held in self._held if held.saying is not None}
        ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=LOOK_S)
        for saying in ready:
            held = waiting[saying]
            try:
                message = self._ray.get(saying)
            except self._ray.exceptions.RayError:  # the same for a node and a worker that died
                self._lose(held, OUT_OF_REACH)
                if held.machine:
                    yield held, ("died", OUT_OF_REACH)
                continue
            if held.machine is None:
                self._introduced(held, *message)
                continue
            held.saying = held.actor.next.remote() if message[0] == "record" else None
            if message[0] == "died":
                self._lose(held, message[1])
            yield held, message

    def _introduced(self, held: HeldTestbed, gpus: str, lacks: str | None) -> None:
        if lacks:
            self._leave_out(held.node, lacks)
            self._drop(held)
            return
        shared = held.place.count > 1
        held.machine = f"{held.called} {GPU} {gpus}" if shared else held.called
        held.saying = None

    def _lose(self, held: HeldTestbed, why: str) -> None:
        self._drop(held)
        self._losses[held.node] += 1
        self._looked = 0.0
        if self._losses[held.node] == MOST_LOSSES:
            self._leave_out(held.node, f"was lost {MOST_LOSSES} times; the last time {why}")

    def leave_out(self, held: HeldTestbed, why: str) -> None:
        """Leave the testbed's node out from here on: it cannot run errands."""
        self._leave_out(held.node, why)
        self._drop(held)

    def _leave_out(self, node: str, why: str) -> None:
        if node not in self._out:
            self._out[node] = why
            self._progress.note(f"{self._names[node]} is left out: it {why}")

    def _drop(self, held: HeldTestbed) -> None:
        self._held.remove(held)
        self._ray.kill(held.actor)

    def nobody(self) -> EnvironmentFailure:
        """Return what to say when no testbed is left."""
        reasons = "; ".join(f"{self._names[node]} {why}" for node, why in self._out.items())
        return EnvironmentFailure(
            f"no machine of the Ray cluster can go on measuring: {reasons or 'it has no nodes'}",
            hint=f"{with_options({})}  # resumes, once a node can",
        )

    def end_errands(self, hear: Callable[[NodeMessage], None]) -> None:
        """Stop the servers that are up, and hear what their errands still have to say."""
        ending, self._ending = self.busy, True
        deadline = time.monotonic() + END_S

        def get(reference: Any) -> Any:
            return self._ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))

        with suppress(self._ray.exceptions.RayError, ConnectionError):
            ends = [held.actor.end.remote() for held in ending]
            for held in ending:
                while held.saying is not None:
                    message = get(held.saying)
                    held.saying = held.actor.next.remote() if message[0] == "record" else None
                    hear(message)
            get(ends)

    def let_go(self) -> None:
        if not self._ending:  # else someone has no patience for it
            self.end_errands(lambda _: None)
        with suppress(ConnectionError):
            for held in list(self._held):
                self._drop(held)
