"""`init`: a rollout file to start from, commented, or for two endpoints that run already."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specops.assets import asset
from specops.errors import EndpointError, FileError, UsageError
from specops.load.client import Client
from specops.load.counters import Observed
from specops.load.server_identity import probe
from specops.load.settings import BaselineSettings, checked_base_url

FILE_NAME = "rollout.yaml"
PROMPTS = "prompts.json"
APIS = ("chat", "completions")
"""Of an endpoint, in the order of trial: a model without a chat template has only the second."""

ENDPOINTS = """\
# Two endpoints that run already. Paths are relative to this file.
# An API key comes from the environment: SPECOPS_API_KEY. All keys: specops init DIRECTORY
rollout: {name}                    # results go to runs/{name} beside this file
prompts: {prompts}              {provenance}
pools:
  standard:                        # {standard_why}
    engine: endpoint
    base_url: {standard_url}
    model: {standard_model}
  speculative:                     # {speculative_why}
    engine: endpoint
    base_url: {speculative_url}
    model: {speculative_model}
measure:
  endpoint: {api}
  concurrency: [1, 4]              # streams at a time
"""


def write_rollout(folder: Path) -> Path:
    """Write the commented `rollout.yaml` into `folder`, which is made if it is missing. Never overwrites."""
    return _write(folder / FILE_NAME, asset("playbooks", "rollout.template.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Pair:
    """Two endpoints, the standard first, and what is known of whether each speculates."""

    endpoints: tuple[BaselineSettings, BaselineSettings]
    why: tuple[str, str]


def write_rollout_of(folder: Path, base_urls: Sequence[str], prompts: Path | None) -> Path:
    """Write a minimal `rollout.yaml` for two endpoints into `folder`, with sample prompts without `prompts`.

    The endpoints are sent a few short requests. UsageError if they are one server or if both speculate;
    EndpointError if one does not answer.
    """
    if len(base_urls) != 2:
        raise UsageError(
            f"init needs two endpoints, not {len(base_urls)}",
            hint="give --base-url twice, once for each pool",
        )
    if (folder / FILE_NAME).exists():
        raise _exists(folder / FILE_NAME)
    samples = prompts is None and not (folder / PROMPTS).exists()
    pair = asyncio.run(_pair([_checked(url) for url in base_urls]))
    standard, speculative = pair.endpoints
    text = ENDPOINTS.format(
        name=_name(folder),
        prompts=PROMPTS if prompts is None else prompts.resolve(),
        provenance="# samples that ship with specops: give prompts of your own" if samples else "",
        api=standard.endpoint,
        standard_url=standard.base_url,
        standard_model=_quoted(standard.model),
        standard_why=pair.why[0],
        speculative_url=speculative.base_url,
        speculative_model=_quoted(speculative.model),
        speculative_why=pair.why[1],
    )
    if samples:
        _write(folder / PROMPTS, asset("playbooks", "embedded", PROMPTS).read_text(encoding="utf-8"))
    return _write(folder / FILE_NAME, "\n".join(line.rstrip() for line in text.splitlines()) + "\n")


async def _pair(base_urls: Sequence[str]) -> Pair:
    models = [await _model(url) for url in base_urls]
    for api in APIS:
        endpoints = [
            BaselineSettings.model_validate({"base_url": url, "model": model, "endpoint": api})
            for url, model in zip(base_urls, models, strict=True)
        ]
        named = dict(zip(("first", "second"), endpoints, strict=True))
        shared, observed = await probe(named)
        if shared is not None:
            raise UsageError(
                f"both endpoints are one server: {shared}", hint="give the addresses of two servers"
            )
        if len(observed) == len(endpoints):
            return _ordered(endpoints, [observed[name] for name in named])
    silent = next(each.base_url for name, each in named.items() if name not in observed)
    raise EndpointError(
        f"{silent} answered neither a chat nor a completions request",
        hint=f"specops doctor --base-url {silent}",
    )


def _ordered(endpoints: Sequence[BaselineSettings], observed: Sequence[Observed]) -> Pair:
    first, second = endpoints
    one, other = (each.speculates for each in observed)
    if one and other:
        raise UsageError(
            f"both endpoints speculate: {first.base_url} and {second.base_url}",
            hint="start one of them without speculation: it is what the other is compared with",
        )
    if not one and not other:
        why = "taken as such: neither endpoint has counters that show speculation"
        return Pair((first, second), (f"the first address, {why}", f"the second address, {why}"))
    whys = ("it verified no drafts", "it verified drafts while it answered")
    return Pair((second, first) if one else (first, second), whys)


async def _model(base_url: str) -> str:
    at = BaselineSettings.model_validate({"base_url": base_url, "model": ""})
    async with Client(at.target(), at.decoding()) as client:
        return await client.only_model()


def _checked(url: str) -> str:
    try:
        return checked_base_url(url)
    except ValueError as error:
        raise UsageError(
            f"could not use --base-url {url!r}: it {error}", hint="such as http://127.0.0.1:8000/v1"
        ) from None


def _name(folder: Path) -> str:
    """Of the rollout: the folder's, with what a name of a rollout cannot hold replaced."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-_") or "rollout"


def _quoted(text: str) -> str:
    """As a YAML string, where it could be read as something else."""
    return text if re.fullmatch(r"[A-Za-z][\w./-]*", text) else "'" + text.replace("'", "''") + "'"


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise FileError(
            f"could not write {path}: {error.strerror}", hint="give a folder that this user may write to"
        ) from error
    return path


def _exists(path: Path) -> UsageError:
    return UsageError(
        f"{path} exists already and was left as it is", hint="give another folder, or remove it first"
    )
