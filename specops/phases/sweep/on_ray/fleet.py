"""The testbeds that are held on the cluster: taken, listened to, lost, taken again, and let go."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from specops.errors import EnvironmentFailure
from specops.phases.sweep.jobs import Setting
from specops.phases.sweep.on_ray import nodes
from specops.phases.sweep.on_ray.nodes import Node, Place
from specops.phases.sweep.on_ray.testbed import END_S, Needs, Said, Testbed
from specops.progress import Progress

LOOK_S = 2.0
"""How often it is seen which nodes there are."""

PATIENCE_S = 30.0
"""After so long it is said that what a node has is taken by others."""

GPU = "GPU"
"""In the name of a machine that is a share of a node: its GPUs follow."""

OUT_OF_REACH = "Ray does not reach it any more"

MOST_LOSSES = 3
"""A node whose testbeds are lost so often is left alone."""


@dataclass
class Held:
    """`saying` is what it will say next; nothing while it is idle."""

    node: str
    called: str
    place: Place
    actor: Any
    saying: Any
    since: float
    machine: str | None = None
    """Known once it has introduced itself."""


class Fleet:
    def __init__(self, ray: Any, settings: Sequence[Setting], needs: Needs, progress: Progress) -> None:
        self._ray = ray
        self._settings = settings
        self._needs = needs
        self._progress = progress
        self._held: list[Held] = []
        self._names: dict[str, str] = {}
        self._losses: Counter[str] = Counter()
        self._out: dict[str, str] = {}
        """Why nodes are left out, by their ids."""

        self._kind: str | None = None
        self._ending = False
        self._looked = 0.0
        self._impatient: set[str] = set()

    @property
    def idle(self) -> list[Held]:
        return [held for held in self._held if held.machine and held.saying is None]

    @property
    def busy(self) -> list[Held]:
        return [held for held in self._held if held.machine and held.saying is not None]

    @property
    def coming(self) -> list[Held]:
        return [held for held in self._held if held.machine is None]

    def awaits(self, machines: Collection[str]) -> bool:
        """Whether one of these was lost and is to be held again."""
        return any(
            machine == held.called or machine.startswith(f"{held.called} {GPU}")
            for held in self.coming
            for machine in machines
        )

    def look(self, *, now: bool = False) -> None:
        """Take the testbeds that can be had and are not held."""
        if not now and time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        alive = nodes.alive(self._ray.nodes())
        self._names |= nodes.names(alive, self._names)
        places, unfit = nodes.alike(alive, self._settings, self._kind)
        self._kind = self._kind or next((place.kind for place in places.values()), None)
        for node, why in unfit.items():
            self._leave_out(node.id, why)
        for node, place in places.items():
            if node.id not in self._out:
                taken = sum(held.node == node.id for held in self._held)
                self._held += [self._hold(node, place) for _ in range(place.count - taken)]
        self._grumble()

    def _hold(self, node: Node, place: Place) -> Held:
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
        return Held(node.id, name, place, actor, actor.introduce.remote(), time.monotonic())

    def _grumble(self) -> None:
        for held in self.coming:
            if time.monotonic() - held.since > PATIENCE_S and held.node not in self._impatient:
                self._impatient.add(held.node)
                asked = f"{held.place.gpus} GPUs" if held.place.gpus else f"{held.place.cpus} CPUs"
                self._progress.note(f"waiting for {held.called}: others of the cluster use its {asked}")

    def begin(self, held: Held, task: bytes) -> None:
        held.saying = held.actor.begin.remote(task)

    def hear(self) -> Iterator[tuple[Held, Said]]:
        """What busy testbeds say now, if any does within a moment. One that is lost says that it died, and
        is held no longer."""
        waiting = {held.saying: held for held in self._held if held.saying is not None}
        ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=LOOK_S)
        for saying in ready:
            held = waiting[saying]
            try:
                said = self._ray.get(saying)
            except self._ray.exceptions.RayError:  # the same for a node and a worker that died
                self._lose(held, OUT_OF_REACH)
                if held.machine:
                    yield held, ("died", OUT_OF_REACH)
                continue
            if held.machine is None:
                self._introduced(held, *said)
                continue
            held.saying = held.actor.next.remote() if said[0] == "record" else None
            if said[0] == "died":
                self._lose(held, said[1])
            yield held, said

    def _introduced(self, held: Held, gpus: str, lacks: str | None) -> None:
        if lacks:
            self._leave_out(held.node, lacks)
            self._drop(held)
            return
        shared = held.place.count > 1
        held.machine = f"{held.called} {GPU} {gpus}" if shared else held.called
        held.saying = None

    def _lose(self, held: Held, why: str) -> None:
        self._drop(held)
        self._losses[held.node] += 1
        self._looked = 0.0
        if self._losses[held.node] == MOST_LOSSES:
            self._leave_out(held.node, f"was lost {MOST_LOSSES} times; the last time {why}")

    def leave_out(self, held: Held, why: str) -> None:
        """For good: its node cannot run errands."""
        self._leave_out(held.node, why)
        self._drop(held)

    def _leave_out(self, node: str, why: str) -> None:
        if node not in self._out:
            self._out[node] = why
            self._progress.note(f"{self._names[node]} is left out: it {why}")

    def _drop(self, held: Held) -> None:
        self._held.remove(held)
        self._ray.kill(held.actor)

    def nobody(self) -> EnvironmentFailure:
        """What to say when no testbed is left."""
        reasons = "; ".join(f"{self._names[node]} {why}" for node, why in self._out.items())
        return EnvironmentFailure(
            f"no machine of the Ray cluster can go on measuring: {reasons or 'it has no nodes'}",
            hint="measurements are stored: once a node can, the same command resumes",
        )

    def end_errands(self, hear: Callable[[Said], None]) -> None:
        """Stop the servers that are up, and hear what their errands still have to say."""
        ending, self._ending = self.busy, True
        deadline = time.monotonic() + END_S

        def get(said: Any) -> Any:
            return self._ray.get(said, timeout=max(0.0, deadline - time.monotonic()))

        with suppress(self._ray.exceptions.RayError, ConnectionError):
            ends = [held.actor.end.remote() for held in ending]
            for held in ending:
                while held.saying is not None:
                    said = get(held.saying)
                    held.saying = held.actor.next.remote() if said[0] == "record" else None
                    hear(said)
            get(ends)

    def let_go(self) -> None:
        if not self._ending:  # else someone has no patience for it
            self.end_errands(lambda _: None)
        with suppress(ConnectionError):
            for held in list(self._held):
                self._drop(held)
