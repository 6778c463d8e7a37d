"""A set-up of its own for the drill: both pools and the router on loopback, and a little traffic through it.

What is rehearsed is the switch, so the stage's router has the playbook's rules and all traffic may be
speculative; which requests go where is `route check`'s to try. The guard's journal is the stage's own too:
a rehearsal is not an incident.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

from specops.config import Addresses, Effect, Rollout, Route
from specops.config.effect import MOST_HOLDOUT
from specops.errors import ConfigError, EnvironmentFailure
from specops.hints import in_rollout
from specops.launch.servers import Server, free_port, serving
from specops.load.client import Client
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.phases.inputs import settings_of
from specops.phases.phase import PhaseInput
from specops.phases.route import files_of, folder_of, render
from specops.phases.route.check import refusal, started

STAGED = "stage"
STREAMS = 4
TOKENS = 32
"""Number of tokens of each answer: the fewest that the playbook has speculative."""
PAUSE_S = 0.2
"""Seconds after a request that failed, so that a router that is gone is not queried as fast as it refuses."""
FLOWS_S = 60.0
"""How long the first answers may take, before the drill begins without them."""


def missing(rollout: Rollout) -> EnvironmentFailure | None:
    """Return why there can be no router here, and what fixes it."""
    with tempfile.TemporaryDirectory(prefix="specops-stage-") as folder:
        tried = _moved(rollout, "127.0.0.1:1", "127.0.0.1:2")
        try:
            router = tried.route.router
            refused = refusal(router, router.find_program(None), files_of(tried, Path(folder)))
        except EnvironmentFailure as error:
            return error
    return EnvironmentFailure(refused.sentence, hint=refused.hint) if refused is not None else None


@contextmanager
def staged(phase_input: PhaseInput) -> Iterator[tuple[Rollout, Path]]:
    """The stage's rollout and its run folder, while traffic flows through its router.

    Raises as `launch.servers.serving` does, ConfigError for pools that no router can be put before.
    """
    pools = phase_input.rollout.pools
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specops-stage-")))

        def up(name: str) -> Server:
            pool, log = getattr(pools, name), phase_input.logs / f"guard-drill-{name}.log"
            return stack.enter_context(
                serving(pool, name, model=phase_input.rollout.rollout, log=log, progress=phase_input.progress)
            )

        standard, speculative = up("standard"), up("speculative")
        if standard.model != speculative.model:
            raise ConfigError(
                f"no router can be put before these pools: a request names its model, and the standard pool"
                f" calls it {standard.model}, the speculative one {speculative.model}: expected one "
                "name, as by --served-model-name",
                hint=in_rollout("pools", "give both pools one served model name"),
            )
        rollout = _moved(phase_input.rollout, _address(standard), _address(speculative))
        render(rollout, folder)
        router = rollout.route.router
        stack.enter_context(
            started(
                router,
                router.find_program(None),
                folder / folder_of(router),
                int(rollout.route.listen.rpartition(":")[2]),
                log=phase_input.logs / "guard-drill-router.log",
                progress=phase_input.progress,
            )
        )
        requested = settings_of(phase_input.rollout, pools.standard)
        through = requested.at(Server(f"http://{rollout.route.listen}/v1", standard.model))
        stack.enter_context(_traffic(through, requested.prompt_set().prompts))
        yield rollout, folder


def _moved(rollout: Rollout, standard: str, speculative: str) -> Rollout:
    """The rollout with a router of the stage's before pools that answer there."""
    router = rollout.route.router.for_trial()
    route = Route.model_validate(
        {
            "listen": f"127.0.0.1:{free_port()}",
            "admin": f"127.0.0.1:{free_port()}",
            router.name: router.model_dump(),
        }
    )
    addresses = Addresses(standard=[standard], speculative=[speculative], routers=[route.admin])
    guard = rollout.guard.model_copy(update={"actions": []})  # of the live set-up, which is left alone
    effect = Effect(holdout=min(rollout.effect.holdout, MOST_HOLDOUT))  # a random window outlasts a rehearsal
    update = {"route": route, "addresses": addresses, "guard": guard, "effect": effect}
    return rollout.model_copy(update=update)


def _address(server: Server) -> str:
    return urlsplit(server.base_url).netloc


@contextmanager
def _traffic(requested: BaselineSettings, prompts: Sequence[Prompt]) -> Iterator[None]:
    """Greedy streams, one request after the other, from the time that the first answers have come."""
    flows, enough = threading.Event(), threading.Event()

    async def stream(client: Client, number: int) -> None:
        for prompt in cycle([*prompts[number:], *prompts[:number]]):
            if enough.is_set():
                return
            exchange = await client.send(prompt, max_tokens=TOKENS)
            if exchange.failure is None:
                flows.set()
            else:
                await asyncio.sleep(PAUSE_S)

    async def streams() -> None:
        decoding = requested.model_copy(update={"temperature": 0.0}).decoding()
        async with Client(requested.target(), decoding) as client:
            await asyncio.gather(*(stream(client, number % len(prompts)) for number in range(STREAMS)))

    thread = threading.Thread(target=lambda: asyncio.run(streams()), name="traffic", daemon=True)
    thread.start()
    try:
        flows.wait(FLOWS_S)
        yield
    finally:
        enough.set()
        thread.join()
