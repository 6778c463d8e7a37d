"""`init`: a rollout file to start from: minimal, for two endpoints or pools of one engine, or commented."""

from __future__ import annotations

import asyncio
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from specops.access import Access
from specops.assets import asset
from specops.checkpoints.draft_kind import Draft
from specops.defaults import CONCURRENCY
from specops.errors import EndpointError, FileError, HubError, UsageError
from specops.hints import folder_state, with_options, with_value
from specops.load.client import Client
from specops.load.counters import Observed
from specops.load.server_identity import probe
from specops.load.settings import BaselineSettings, checked_base_url
from specops.phases.monitor.check import fitting
from specops.phases.phase import ASSUMED_TOKENS, Span
from specops.phases.verify_draft.engine_fit import EngineRelease
from specops.phases.verify_draft.guide import kind_by_name
from specops.phases.verify_draft.pair import ServingEngine, VerifySettings
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress
from specops.prometheus import exposition
from specops.prometheus.series import PoolName
from specops.serving import ENGINES, OWN, USUAL, Endpoint, Startable

FILE_NAME = "rollout.yaml"
PROMPTS = "prompts.json"
PORT = 8000
APIS = ("chat", "completions")
"""APIs of an endpoint, in the order of trial: a model without a chat template has only the second."""

SCHEMA = "rollout.schema.json"
"""The JSON schema of rollout files, beside each, for editors: the first line of a rollout file names it."""

LIMIT = "  # max_rps: {limit}  # limit on requests per second, for servers that have users{unlimited}\n"
"""The next line of `MINIMAL`, for servers that run already."""

TIMED = Span(0.5, 2.0)
"""How far the time of a token may be from that of one short answer."""

MINIMAL = """\
# yaml-language-server: $schema={schema}
# {about} Paths are relative to this file.
# One key, explained: specops explain measure.concurrency. All keys: specops init NAME --full
rollout: {name}  # results go to runs/{name} beside this file
prompts: {prompts}  {provenance}
pools:
  standard:  # {standard_why}
{standard}
  speculative:  # {speculative_why}
{speculative}
measure:
  endpoint: {api}  # chat, or completions for a model without a chat template
  concurrency: {concurrency}  # streams at a time
"""


@dataclass(frozen=True)
class WrittenFile:
    path: Path
    warnings: tuple[str, ...] = ()
    """What could not be checked, in sentences."""

    check: str | None = None
    """The command that checks it; None: nothing is left to check."""

    token_s: Span | None = None
    """The time of a token, of servers that were timed."""


def write_commented(folder: Path) -> Path:
    """Write a `rollout.yaml` with every key into `folder`, made if it is missing. Never overwrites."""
    name = _name(folder)
    text = asset("playbooks", "rollout.template.yaml").read_text(encoding="utf-8")
    for of_template, of_rollout in (("rollout: first ", f"rollout: {name} "), ("runs/first", f"runs/{name}")):
        text = text.replace(of_template, of_rollout, 1)
    return _write_with_schema(folder, text)


def write_pools(
    folder: Path, engine: ServingEngine, target: str | None, draft: str | None, prompts: Path | None
) -> WrittenFile:
    """Write a minimal `rollout.yaml` for two pools that specops starts; sample prompts too without `prompts`.

    The draft's kind is read from its files, and gives the engine's name of the method. Where the hub does not
    answer, it is taken from the draft's name, with a warning. Without a draft, the method copies n-grams of
    the text; the embedded engine takes the shipped pair without a target.

    Raises UsageError for a pair that does not fit, or a target that is missing.
    """
    _refuse_existing(folder)
    if target is None and (engine != OWN.name or draft is not None):
        raise UsageError(
            f"{ENGINES[engine].title} has no target of its own: --model is missing",
            hint=f"specops init {folder} --engine {engine} --model FOLDER_OR_HUB_ID",
        )
    drafts = ENGINES[engine].drafts
    assert drafts is not None
    shipped = target is None
    method = drafts.methods["independent" if shipped else "ngram"]
    more: Mapping[str, Any] = {}
    warnings: tuple[str, ...] = ()
    check = f"specops verify-draft {target} {draft} --engine {engine}"
    if draft is not None:
        assert target is not None
        method, more, unread = _method(target, draft, engine, check)
        if unread is not None:
            warnings = (f"the draft was not checked, and its method {method} is by its name: {unread}",)
    startable = ENGINES[engine].settings
    assert issubclass(startable, Startable)
    standard, speculative = startable.sections(_place(target), _place(draft), method)
    speculative["speculation"] |= more
    _refuse_unfit(startable, engine, (standard, speculative))
    path = _write_minimal(
        folder,
        prompts,
        about=f"Two pools that specops starts, and stops when they are measured: {ENGINES[engine].title}.",
        api="completions" if shipped else "chat",
        pools=({"engine": engine} | standard, {"engine": engine} | speculative),
        why=("without speculation", f"the same, with {Path(draft).name if draft else method}"),
    )
    return WrittenFile(path, warnings, check if warnings else None)


def _method(
    target: str, draft: str, engine: ServingEngine, check: str
) -> tuple[str, Mapping[str, Any], str | None]:
    """Return the engine's method for the draft, its further settings, and why the files were not read; None:
    they were. `check`: the command that verifies the pair. Raises UsageError for a pair that does not fit."""
    settings = VerifySettings(target=target, draft=draft, engine=engine, allow_degraded=True)
    try:
        verified = verify(settings, None, SilentProgress())
        verdict, reason, unread = verified.verdict, verified.reason, None
        method, more = verified.data["engine"]["method"], verified.data["engine"]["settings"]
    except HubError as error:
        treatment = EngineRelease.at_version(engine, None).treats(Draft(kind_by_name(draft), "its name"))
        verdict, reason, unread = "yes", treatment.message, error.message
        method, more = treatment.method, treatment.settings
    if verdict != "yes" or method is None:
        unknown = verdict == "undecided"
        claim = "it is not known whether the draft fits" if unknown else "the draft does not fit"
        raise UsageError(f"{claim} the target: {reason}", hint=check)
    return method, more, unread


def _refuse_unfit(settings: type[Startable], engine: str, sections: Sequence[Mapping[str, Any]]) -> None:
    """Raise UsageError where the lint or a known issue has an error against a pool before it is written."""
    for section in sections:
        pool = settings.model_validate({"engine": engine} | dict(section))
        errors = [f for f in pool.rendering(PORT, "pool").findings if f.level == "error"]
        if errors:
            raise UsageError(
                f"could not write pools that start: {errors[0].flag}: {errors[0].why}",
                hint="specops init NAME --full  # all settings, to write by hand",
            )


def _place(model: str | None) -> str | None:
    """A folder or file by its full path: in a rollout file paths are relative to that file."""
    return str(Path(model).resolve()) if model is not None and Path(model).exists() else model


def _refuse_existing(folder: Path) -> None:
    if (folder / FILE_NAME).exists():
        raise _exists(folder / FILE_NAME)


def _write_minimal(
    folder: Path,
    prompts: Path | None,
    *,
    about: str,
    api: str,
    pools: tuple[dict[str, Any], dict[str, Any]],
    why: tuple[str, str],
    more: str = "",
) -> Path:
    samples = prompts is None and not (folder / PROMPTS).exists()
    standard, speculative = (_section(pool) for pool in pools)
    text = MINIMAL.format(
        schema=SCHEMA,
        about=about,
        name=_name(folder),
        prompts=PROMPTS if prompts is None else prompts.resolve(),
        provenance="# samples that ship with specops: give prompts of your own" if samples else "",
        api=api,
        concurrency=list(CONCURRENCY),
        standard=standard,
        standard_why=why[0],
        speculative=speculative,
        speculative_why=why[1],
    )
    if samples:
        _write(folder / PROMPTS, asset("playbooks", "embedded", PROMPTS).read_text(encoding="utf-8"))
    return _write_with_schema(folder, "\n".join(line.rstrip() for line in text.splitlines()) + f"\n{more}")


def _section(pool: Mapping[str, Any]) -> str:
    """The lines of a pool. A setting that only fits a measurement on one machine says so."""
    lines = yaml.safe_dump(dict(pool), sort_keys=False, width=200).rstrip().splitlines()
    startable = ENGINES[pool["engine"]].settings
    beside = startable.SIDE_BY_SIDE if issubclass(startable, Startable) else {}
    for index, line in enumerate(lines):
        if (key := line.partition(":")[0]) in beside:
            share = isinstance(beside[key], float)
            why = "both pools share a GPU; 0.9 with a GPU each" if share else "repeated prompts are measured"
            lines[index] = f"{line}  # {why}"
    return textwrap.indent("\n".join(lines), "    ")


@dataclass(frozen=True)
class Pair:
    """Two endpoints, the standard first, and what is known of whether each speculates."""

    endpoints: tuple[BaselineSettings, BaselineSettings]
    why: tuple[str, str]
    token_s: Span | None = None
    """The time of a token at both; None: their tokens are not known."""


def write_endpoints(
    folder: Path, base_urls: Sequence[str], prompts: Path | None, accesses: Sequence[Access]
) -> WrittenFile:
    """Write a minimal `rollout.yaml` for two endpoints into `folder`, with sample prompts without `prompts`.
    `accesses`: what each endpoint requires, in the order of `base_urls`.

    The endpoints are timed by a few short requests. Raises UsageError if they are one server or if both
    speculate; EndpointError if one does not answer.
    """
    if len(base_urls) != 2:
        raise UsageError(
            f"init needs two endpoints, not {len(base_urls)}",
            hint="specops init DIR --base-url http://127.0.0.1:8000/v1 --base-url http://127.0.0.1:8001/v1",
        )
    _refuse_existing(folder)
    places = [Endpoint(_checked(url), "", access) for url, access in zip(base_urls, accesses, strict=True)]
    for place in places:
        place.access.credentials(place.base_url)
    if places[0] == places[1]:
        first = places[0].base_url
        raise UsageError(f"both endpoints have the address {first}: expected two", hint=_another(first))
    pair = asyncio.run(_pair(places))
    standard, speculative = pair.endpoints
    path = _write_minimal(
        folder,
        prompts,
        about="Two endpoints that run already. Their API keys come from the environment: SPECOPS_API_KEY, or "
        "api_key_env of a pool.",
        api=standard.endpoint,
        pools=(_running(standard), _running(speculative)),
        why=pair.why,
        more=_limit(pair.token_s) + _names({"standard": standard, "speculative": speculative}),
    )
    return WrittenFile(path, token_s=pair.token_s)


def _limit(token_s: Span | None) -> str:
    """The line that proposes half the rate of an unlimited load."""
    if token_s is None:
        return LIMIT.format(limit="2.0", unlimited="")
    rate = max(CONCURRENCY) / (token_s.least / TIMED.least * ASSUMED_TOKENS)
    half, whole = (f"{number:.2g}" if number < 100 else f"{number:.0f}" for number in (rate / 2, rate))
    return LIMIT.format(limit=half, unlimited=f"; without it, about {whole}")


def _names(endpoints: Mapping[PoolName, BaselineSettings]) -> str:
    """The section of the metric names; empty where both servers have the usual ones, or show none."""
    names = {}
    for pool, settings in endpoints.items():
        try:
            exposed = {
                name for name, _ in exposition.scrape(settings.base_url, settings.target().credentials)
            }
        except EndpointError:
            continue
        naming = fitting(USUAL, pool, exposed)
        if naming is not None:
            names[pool] = naming
    return yaml.safe_dump({"monitor": {"names": names}}, sort_keys=False) if names else ""


def _running(settings: BaselineSettings) -> dict[str, Any]:
    where = {"engine": "endpoint", "base_url": settings.base_url, "model": settings.model}
    return where | settings.access.model_dump(mode="json")


async def _pair(places: Sequence[Endpoint]) -> Pair:
    models = [await _model(place) for place in places]
    for api in APIS:
        endpoints = [
            BaselineSettings.model_validate(
                {"base_url": place.base_url, "model": model, "endpoint": api, "access": place.access}
            )
            for place, model in zip(places, models, strict=True)
        ]
        named = dict(zip(("first", "second"), endpoints, strict=True))
        shared, observed = await probe(named)
        if shared is not None:
            raise UsageError(
                f"both endpoints are one server: {shared}: expected two servers",
                hint=_another(places[0].base_url),
            )
        if len(observed) == len(endpoints):
            pair = _ordered(endpoints, [observed[name] for name in named])
            times = [server.token_s for server in observed.values() if server.token_s is not None]
            if len(times) < len(endpoints):
                return pair
            return replace(pair, token_s=Span(TIMED.least * min(times), TIMED.most * max(times)))
    silent = next(settings.base_url for name, settings in named.items() if name not in observed)
    raise EndpointError(
        f"{silent} answered neither a chat nor a completions request",
        hint=f"specops doctor --base-url {silent}",
    )


def _another(first: str) -> str:
    """Return the command that was typed with a second address that is not the first."""
    addresses = ("http://127.0.0.1:8001/v1", "http://127.0.0.1:8002/v1")
    second = next(url for url in addresses if url != first)
    return f"{with_options({'--base-url': first})} --base-url {second}  # the second server's address"


def _ordered(endpoints: Sequence[BaselineSettings], observed: Sequence[Observed]) -> Pair:
    first, second = endpoints
    first_speculates, second_speculates = (server.speculates for server in observed)
    if first_speculates and second_speculates:
        raise UsageError(
            f"both endpoints speculate: {first.base_url} and {second.base_url}; one must serve "
            "without speculation, to be compared with",
            hint=f"specops doctor --base-url {shlex.quote(first.base_url)}",
        )
    if not first_speculates and not second_speculates:
        counted = all(server.drafts is not None for server in observed)
        why = (
            "neither endpoint verified a draft"
            if counted
            else "whether they speculate is not known: no counters"
        )
        why = f"taken as such: {why}"
        return Pair((first, second), (f"the first address, {why}", f"the second address, {why}"))
    idle = observed[1] if first_speculates else observed[0]
    unknown = "taken as such: it has no counters that show whether it speculates"
    whys = (
        unknown if idle.drafts is None else "it verified no drafts",
        "it verified drafts while it answered",
    )
    return Pair((second, first) if first_speculates else (first, second), whys)


async def _model(place: Endpoint) -> str:
    settings = BaselineSettings(base_url=place.base_url, model="", access=place.access)
    async with Client(settings.target(), settings.decoding()) as client:
        return await client.only_model()


def _checked(url: str) -> str:
    try:
        return checked_base_url(url)
    except ValueError as error:
        raise UsageError(
            f"could not use --base-url {url!r}: it {error}", hint=with_value(url, "http://127.0.0.1:8000/v1")
        ) from None


def _name(folder: Path) -> str:
    """Return the name of the rollout: the folder's, with what a name of a rollout cannot hold replaced."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-_") or "rollout"


def _write_with_schema(folder: Path, text: str) -> Path:
    """Write the rollout file, and the schema that its first line names; a schema that is there stays."""
    path = _write(folder / FILE_NAME, text)
    if not (folder / SCHEMA).exists():
        _write(folder / SCHEMA, asset("playbooks", SCHEMA).read_text(encoding="utf-8"))
    return path


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise FileError(
            f"could not write {path}: {error.strerror}", hint=folder_state(path.parent)
        ) from error
    return path


def _exists(path: Path) -> UsageError:
    return UsageError(
        f"{path} exists already and was left as it is",
        hint=f"specops init {shlex.quote(f'{path.parent}-2')}  # writes into another folder",
    )
