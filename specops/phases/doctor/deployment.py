"""What a rollout file names, looked at where it is: pools, programs, routers, the guard, Prometheus."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from specops.config import CommandPool, EndpointPool, Pool, Rollout, SglangPool, VllmPool
from specops.errors import EndpointError, SpecopsError
from specops.guard.actions.asking import ask
from specops.phases.doctor.check import ANSWER_S, Check
from specops.phases.doctor.endpoint import endpoint
from specops.phases.doctor.pools import pools
from specops.phases.doctor.programs import prometheus_at
from specops.phases.doctor.serving import vllm
from specops.phases.inputs import settings_of
from specops.prometheus.exposed import POOLS, PoolName, exposed


def deployment(rollout: Rollout) -> Iterator[Check]:
    """All that answers is asked at once: a machine that is down takes its whole time, and many may be."""
    yield _prompts(rollout)
    yield from _programs(rollout)
    addresses = rollout.addresses
    looks = [partial(_endpoint, rollout, name) for name in POOLS]
    looks += [partial(pools, rollout)]
    looks += [partial(_router, where) for where in addresses.routers]
    looks += [partial(_guard, addresses.guard)] if addresses.guard else []
    looks += [partial(prometheus_at, addresses.prometheus, rollout)] if addresses.prometheus else []
    with ThreadPoolExecutor(len(looks)) as threads:
        for found in threads.map(lambda look: list(look()), looks):
            yield from found


def _prompts(rollout: Rollout) -> Check:
    try:
        prompts = settings_of(rollout, rollout.pools.standard).prompt_set()
    except SpecopsError as error:
        return Check(name="prompts", status="fail", found=error.message, fix=error.hint)
    classes = len({prompt.traffic_class for prompt in prompts.prompts})
    return Check(
        name="prompts",
        status="ok" if rollout.prompts else "warn",
        found=f"{len(prompts.prompts)} in {classes} traffic classes"
        + ("" if rollout.prompts else ", those that ship with specops"),
        fix="give prompts of your own traffic: what is accepted depends on what is asked",
    )


def _programs(rollout: Rollout) -> Iterator[Check]:
    """That the pools are started with; each once."""
    pools: list[Pool] = [rollout.pools.standard, rollout.pools.speculative]
    for program in dict.fromkeys(pool.program for pool in pools if isinstance(pool, VllmPool)):
        yield vllm(program, needed=True)
    words = [shlex.split(pool.command)[0] for pool in pools if isinstance(pool, CommandPool)]
    words += [shlex.split(pool.program)[0] for pool in pools if isinstance(pool, SglangPool)]
    for word in dict.fromkeys(words):
        found = shutil.which(word)
        yield Check(
            name="program",
            status="ok" if found else "fail",
            found=found or f"there is no program {word} here, which starts a pool",
            fix="install it, or give its path",
        )


def _endpoint(rollout: Rollout, name: PoolName) -> Iterator[Check]:
    """A pool that runs already."""
    pool = getattr(rollout.pools, name)
    if not isinstance(pool, EndpointPool):
        return
    for check in endpoint(
        pool.base_url, exposed(rollout, name), speculates=name == "speculative", model=pool.model
    ):
        yield check.model_copy(update={"name": f"{name} {check.name}"})


def _router(where: str) -> Iterator[Check]:
    try:
        ask("see where the switch stands", "GET", f"http://{where}/specops/switch", timeout_s=ANSWER_S)
    except EndpointError as error:
        yield Check(
            name="router",
            status="warn",
            found=error.message,
            fix="start NGINX from what `specops route render ROLLOUT` wrote; addresses.routers are"
            " admin listeners",
        )
        return
    yield Check(name="router", status="ok", found=f"{where} answers, and says where its switch stands")


def _guard(where: str) -> Iterator[Check]:
    try:
        ask("see whether the guard lives", "GET", f"http://{where}/health", timeout_s=ANSWER_S)
    except EndpointError as error:
        yield Check(name="guard", status="warn", found=error.message, fix="specops guard run ROLLOUT")
        return
    yield Check(name="guard", status="ok", found=f"{where} answers")
