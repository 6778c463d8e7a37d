"""Checks of what a rollout file names, where it is: pools, programs, routers, the guard, Prometheus."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, product
from pathlib import Path
from urllib.parse import urlsplit

from specops import stats
from specops.actions.http_client import ask
from specops.config import Pool, Rollout, run_folder
from specops.defaults import CONFIDENCE
from specops.errors import EndpointError, SpecopsError
from specops.load.counters import Observed, looks_idle, several_tokens, speculating_standard
from specops.load.server_identity import probe
from specops.load.settings import BaselineSettings
from specops.net import address, is_loopback
from specops.phases.doctor import fixes
from specops.phases.doctor.endpoint import PoolSection, endpoint
from specops.phases.doctor.machine import ANSWER_S, Check, FileText
from specops.phases.doctor.programs import ScrapedRollout, prometheus_at
from specops.phases.inputs import settings_of
from specops.phases.route import folder_of
from specops.prometheus.series import POOLS, PoolName
from specops.serving import ENGINES, Engine


def deployment(rollout: Rollout, path: Path | None = None) -> Iterator[Check]:
    """All that a rollout names. `path` is the rollout file's; None: rollout.yaml in this folder."""
    yield from _programs(rollout)
    yield from addressed(rollout, path, partial(pools, rollout))


def addressed(rollout: Rollout, path: Path | None, *more: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """The prompts, and each address that the rollout names, as `deployment` checks them. Sends no prompt.

    All addresses, and `more`, are queried at once: a machine that is down takes its whole time, and many may
    be.
    """
    folder = run_folder(path or Path("rollout.yaml"), rollout.rollout)
    yield _prompts(rollout)
    addresses = rollout.addresses
    looks = [*(partial(_endpoint, rollout, name) for name in POOLS), *more]
    looks += [partial(_router, rollout, folder, where) for where in addresses.routers]
    looks += [partial(_guard, rollout, addresses.guard)] if addresses.guard else []
    if addresses.prometheus:
        looks += [partial(prometheus_at, addresses.prometheus, ScrapedRollout(rollout, folder))]
    with ThreadPoolExecutor(len(looks)) as threads:
        for checks in threads.map(lambda look: list(look()), looks):
            yield from checks


def _prompts(rollout: Rollout) -> Check:
    try:
        prompts = settings_of(rollout, rollout.pools.standard).prompt_set()
    except SpecopsError as error:
        description = f"{error.message}; {error.hint}" if error.hint else error.message
        return Check(
            name="prompts",
            status="fail",
            found=description,
            paste=FileText(into=fixes.INTO_ROLLOUT, text=OWN_PROMPTS),
        )
    classes = Counter(prompt.traffic_class for prompt in prompts.prompts)
    name, number = min(classes.items(), key=lambda item: item[1])
    description = f"{len(prompts.prompts)} in {len(classes)} traffic classes"
    few = stats.shortage(number * rollout.measure.repeats, CONFIDENCE)
    if few:
        enough = next(n for n in count(1) if stats.shortage(number * n, CONFIDENCE) is None)
        return Check(
            name="prompts",
            status="warn",
            found=f"{description}; too few prompts of class {name} to decide: {number}, each sent"
            f" {rollout.measure.repeats} times ({few}); new prompts help more than repeats",
            paste=fixes.sections(rollout, {"measure": {"repeats": enough}}),
        )
    if prompts.provenance()["samples"]:
        return Check(
            name="prompts",
            status="warn",
            found=f"{description}, the samples that ship with specops: acceptance depends on the prompts",
            paste=FileText(into=fixes.INTO_ROLLOUT, text=OWN_PROMPTS),
        )
    return Check(name="prompts", status="ok", found=description)


OWN_PROMPTS = """\
prompts: YOUR_FILE.json  # [{"id": "1", "class": "chat", "text": "…", "max_tokens": 128}, …], of your traffic
"""


def engines() -> Iterator[Check]:
    """Engines whose programs can be run, as they are mostly called."""
    for engine in ENGINES.values():
        if engine.program is not None:
            yield surveyed(engine, engine.program, needed=False)


def surveyed(engine: Engine, program: str, *, needed: bool) -> Check:
    """Return the survey of a `program` of the engine; `needed`: a pool is started with it."""
    assert engine.survey is not None
    name = engine.name if program == engine.program else f"{engine.name} ({program})"
    observed = engine.survey(program)
    if observed.status != "missing":
        return Check(name=name, status=observed.status, found=observed.description, fix=observed.fix)
    only = f"needed only if specops starts {engine.title}"
    return Check(
        name=name,
        status="fail" if needed else "ok",
        found=f"{observed.description}; {'a pool is started with it' if needed else only}",
        fix=observed.fix,
    )


def _programs(rollout: Rollout) -> Iterator[Check]:
    """Yield the programs that the pools are started with; each once."""
    pools: list[Pool] = [rollout.pools.standard, rollout.pools.speculative]
    started = [(ENGINES[pool.engine], program) for pool in pools for program in pool.programs]
    for engine, program in dict.fromkeys(
        (engine.name, program) for engine, program in started if engine.survey
    ):
        yield surveyed(ENGINES[engine], program, needed=True)
    words = [shlex.split(program)[0] for engine, program in started if not engine.survey]
    yield from map(_program, dict.fromkeys(words))


def _program(word: str) -> Check:
    path = shutil.which(word)
    if path:
        return Check(name="program", status="ok", found=path)
    near = next((folder for folder in PROGRAMS if shutil.which(word, path=folder)), "FOLDER_OF_THE_PROGRAM")
    return Check(
        name="program",
        status="fail",
        found=f"there is no program {word} on the PATH, which starts a pool",
        fix=f"export PATH={near}:$PATH",
    )


PROGRAMS = (
    str(Path(sys.executable).parent),
    str(Path.home() / ".local" / "bin"),
    "/usr/local/bin",
    "/opt/bin",
)
"""Where a program is looked for that is not on the PATH."""


def _endpoint(rollout: Rollout, name: PoolName) -> Iterator[Check]:
    """A pool that runs already."""
    pool_endpoint = getattr(rollout.pools, name).endpoint
    if pool_endpoint is None:
        return
    for check in endpoint(pool_endpoint.base_url, PoolSection(rollout, name)):
        yield check.model_copy(update={"name": f"{name} {check.name}"})


def _router(rollout: Rollout, folder: Path, where: str) -> Iterator[Check]:
    router = rollout.route.router
    try:
        router.listener(where).read()
    except EndpointError as error:
        yield Check(
            name="router",
            status="warn",
            found=error.message,
            fix=f"specops route render ROLLOUT && {router.start_command(folder / folder_of(router))}",
            paste=_listening(rollout, where, rollout.route.admin),
        )
        return
    yield Check(name="router", status="ok", found=f"{where} answers, and says where its switch stands")


def _listening(rollout: Rollout, where: str, listens: str) -> FileText | None:
    """The addresses, with the one at which a program of this machine listens by the rollout file."""
    if where == listens or not is_loopback(f"http://{where}"):
        return None
    addresses = rollout.addresses
    changed = {"guard": listens} if where == addresses.guard else {}
    routers = [listens if router == where else router for router in addresses.routers]
    return fixes.sections(rollout, {"addresses": changed or {"routers": routers}})


def _guard(rollout: Rollout, where: str) -> Iterator[Check]:
    try:
        ask("see whether the guard lives", "GET", f"http://{where}/health", timeout_s=ANSWER_S)
    except EndpointError as error:
        yield Check(
            name="guard",
            status="warn",
            found=error.message,
            fix="specops guard run ROLLOUT",
            paste=_listening(rollout, where, rollout.guard.listen),
        )
        return
    yield Check(name="guard", status="ok", found=f"{where} answers")


def pools(rollout: Rollout) -> Iterator[Check]:
    """Sends short requests to each pool that is an endpoint."""
    yield from _addresses(rollout)
    if all(getattr(rollout.pools, name).endpoint is None for name in POOLS):
        return
    try:
        requested = settings_of(rollout, rollout.pools.standard)
        running: dict[str, BaselineSettings] = {}
        for name in POOLS:
            pool_endpoint = getattr(rollout.pools, name).endpoint
            if pool_endpoint is not None:
                running[name] = requested.at(pool_endpoint, name)
        shared, observed = asyncio.run(probe(running))
    except SpecopsError:  # prompts that cannot be read have a check of their own
        return
    if shared is not None:
        yield Check(
            name="pools",
            status="fail",
            found=f"both pools are one server: {shared}",
            paste=fixes.pool_at(rollout, "speculative", base_url=fixes.ELSEWHERE),
        )
    elif "standard" in observed:
        yield _standard(rollout, observed["standard"], observed.get("speculative"))


def _addresses(rollout: Rollout) -> Iterator[Check]:
    """A check where the router would send the traffic of both pools to one server."""
    pairs = product(rollout.addresses.standard, rollout.addresses.speculative)
    shared = [
        standard
        for standard, speculative in pairs
        if address(f"http://{standard}") == address(f"http://{speculative}")
    ]
    if shared:
        yield Check(
            name="pool addresses",
            status="fail",
            found=f"addresses.standard and addresses.speculative both have {', '.join(shared)}",
            paste=fixes.sections(
                rollout, {"addresses": {pool: _own(rollout, pool, shared) for pool in POOLS}}
            ),
        )


def _own(rollout: Rollout, pool: PoolName, shared: Sequence[str]) -> list[str]:
    """The pool's addresses: an endpoint's own, else those that only this pool has."""
    pool_endpoint = getattr(rollout.pools, pool).endpoint
    if pool_endpoint is not None:
        return [urlsplit(pool_endpoint.base_url).netloc]
    addresses: list[str] = getattr(rollout.addresses, pool)
    return [server for server in addresses if pool == "standard" or server not in shared] or ["HOST:PORT"]


def _standard(rollout: Rollout, standard: Observed, speculative: Observed | None) -> Check:
    name = "standard speculates"
    wrong = speculating_standard(standard, speculative)
    pool_endpoint = rollout.pools.standard.endpoint
    assert pool_endpoint is not None
    if wrong is not None:
        if speculative is not None and looks_idle(speculative):
            return Check(name=name, status="fail", found=wrong, paste=fixes.swapped(rollout))
        restart = fixes.start(pool_endpoint.base_url, speculates=False)
        return Check(name=name, status="fail", found=wrong, fix=restart)
    several = several_tokens(standard)
    if several is not None:
        fix = "YOUR_START_COMMAND --stream-interval 1  # of vLLM and SGLang; and without speculation"
        return Check(name=name, status="warn", found=several, fix=fix)
    if standard.drafts is not None or standard.sends_one:
        return Check(name=name, status="ok", found="no")
    return Check(
        name=name,
        status="unknown",
        found="it shows neither counters of drafts nor tokens per chunk",
        fix="YOUR_START_COMMAND --metrics  # of llama.cpp; of SGLang: --enable-metrics",
    )
