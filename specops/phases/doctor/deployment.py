"""What a rollout file names, looked at where it is: pools, programs, routers, the guard, Prometheus."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

from specops import stats
from specops.actions.http_client import ask
from specops.config import Pool, Rollout
from specops.errors import EndpointError, SpecopsError
from specops.load.counters import Observed, several_tokens, speculating_standard
from specops.load.server_identity import address, probe
from specops.load.settings import BaselineSettings
from specops.phases.doctor.endpoint import endpoint
from specops.phases.doctor.machine import ANSWER_S, Check
from specops.phases.doctor.programs import prometheus_at
from specops.phases.inputs import settings_of
from specops.prometheus.series import POOLS, PoolName, exposed
from specops.serving import ENGINES, Engine


def deployment(rollout: Rollout) -> Iterator[Check]:
    """All endpoints are queried at once: a machine that is down takes its whole time, and many may be."""
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
    classes = Counter(prompt.traffic_class for prompt in prompts.prompts)
    name, number = min(classes.items(), key=lambda one: one[1])
    found = f"{len(prompts.prompts)} in {len(classes)} traffic classes"
    few = stats.shortage(number * rollout.measure.repeats, 0.95)
    if few:
        return Check(
            name="prompts",
            status="warn",
            found=f"{found}; too few of {name} to decide for it: {number}, each sent"
            f" {rollout.measure.repeats} times ({few})",
            fix="add prompts of that class to the file of prompts in ROLLOUT, or raise measure.repeats",
        )
    return Check(
        name="prompts",
        status="ok" if rollout.prompts else "warn",
        found=found + ("" if rollout.prompts else ", those that ship with specops"),
        fix="write prompts: FILE in ROLLOUT, with prompts of your own traffic: acceptance depends on them",
    )


def engines() -> Iterator[Check]:
    """Engines whose programs can be run, as they are mostly called."""
    for engine in ENGINES.values():
        if engine.program is not None:
            yield surveyed(engine, engine.program, needed=False)


def surveyed(engine: Engine, program: str, *, needed: bool) -> Check:
    """Of a `program` of the engine; `needed`: a pool is started with it."""
    assert engine.survey is not None
    name = engine.name if program == engine.program else f"{engine.name} ({program})"
    observed = engine.survey(program)
    if observed.status != "missing":
        return Check(name=name, status=observed.status, found=observed.found, fix=observed.fix)
    only = f"only pools that specops starts with {engine.title} need it"
    return Check(
        name=name,
        status="fail" if needed else "ok",
        found=f"{observed.found}; {'a pool is started with it' if needed else only}",
        fix=observed.fix,
    )


def _programs(rollout: Rollout) -> Iterator[Check]:
    """That the pools are started with; each once."""
    pools: list[Pool] = [rollout.pools.standard, rollout.pools.speculative]
    started = [(ENGINES[pool.engine], program) for pool in pools for program in pool.programs]
    for engine, program in dict.fromkeys((one.name, program) for one, program in started if one.survey):
        yield surveyed(ENGINES[engine], program, needed=True)
    words = [shlex.split(program)[0] for one, program in started if not one.survey]
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
    at = getattr(rollout.pools, name).endpoint
    if at is None:
        return
    for check in endpoint(
        at.base_url, exposed(rollout, name), speculates=name == "speculative", model=at.model
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


SWAP = "swap pools.standard and pools.speculative in ROLLOUT, or start the standard without speculation"


def pools(rollout: Rollout) -> Iterator[Check]:
    """Sends short requests to each pool that is an endpoint."""
    yield from _addresses(rollout)
    if all(getattr(rollout.pools, name).endpoint is None for name in POOLS):
        return
    try:
        requested = settings_of(rollout, rollout.pools.standard)
        running: dict[str, BaselineSettings] = {}
        for name in POOLS:
            at = getattr(rollout.pools, name).endpoint
            if at is not None:
                running[name] = requested.at(at.base_url, at.model)
        shared, observed = asyncio.run(probe(running))
    except SpecopsError:  # prompts that cannot be read have a check of their own
        return
    if shared is not None:
        yield Check(
            name="pools",
            status="fail",
            found=f"both pools are one server: {shared}",
            fix="write the address of the second server to pools.*.base_url in ROLLOUT",
        )
    elif "standard" in observed:
        yield _standard(observed["standard"], observed.get("speculative"))


def _addresses(rollout: Rollout) -> Iterator[Check]:
    """A check where the router would send the traffic of both pools to one server."""
    pairs = product(rollout.addresses.standard, rollout.addresses.speculative)
    both = [one for one, other in pairs if address(f"http://{one}") == address(f"http://{other}")]
    if both:
        yield Check(
            name="pool addresses",
            status="fail",
            found=f"addresses.standard and addresses.speculative both have {', '.join(both)}",
            fix="give each server to one pool in ROLLOUT",
        )


def _standard(standard: Observed, speculative: Observed | None) -> Check:
    name = "standard speculates"
    wrong = speculating_standard(standard, speculative)
    if wrong is not None:
        return Check(name=name, status="fail", found=wrong, fix=SWAP)
    several = several_tokens(standard)
    if several is not None:
        fix = "see its start command for speculation, and for an interval of its stream"
        return Check(name=name, status="warn", found=several, fix=fix)
    known = standard.drafts is not None or standard.sends_one
    found = "no" if known else "not known: it shows neither counters of drafts nor tokens per chunk"
    return Check(name=name, status="ok", found=found)
