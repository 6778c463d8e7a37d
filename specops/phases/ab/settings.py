"""What `ab` compares, and how: checked before the first request.

Arms are written on the command line as NAME=SPEC:

http://HOST/v1#MODEL         an endpoint that is running; without #MODEL, the only model that it serves
embedded                     what `specops serve` serves
embedded:TREE,KEY=VALUE,…    the same with another tree, or `none`, and other settings
command:WORDS                a server to start; {port} among the words becomes a free port
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field, ValidationError

from specops.config import Ab, Pool
from specops.errors import UsageError
from specops.load.settings import checked_base_url
from specops.serving import ENGINES, pool_at


@dataclass(frozen=True)
class Arm:
    name: str
    pool: Pool


class AbSettings(Ab):
    """How arms are compared: the section `ab` of the rollout file, and what only this program sets.

    The requests themselves are in `BaselineSettings`, the same for every arm. The intervals at the looks are
    so wide that all of them hold together with `confidence` (group-sequential repeated confidence intervals,
    Jennison and Turnbull 1989; Lan and DeMets 1983 with O'Brien and Fleming's spending). Intervals of traffic
    classes and of several challengers share the error.

    Designs: `interleaved`, where every arm is up and they take turns, block of prompts by block of prompts;
    `abba-restart`, where arms that share a device are started in turn, A B B A, and only one is ever up.
    """

    ttft_veto_ratio: float = Field(default=1.2, gt=1)
    ttft_veto_ms: float = Field(default=50.0, ge=0)
    """A class stays off speculation where its TTFT surely grows by more than the ratio, and by at least so
    many milliseconds: a user does not notice a fifth of very little."""

    mixed_temperature: float = Field(default=0.7, gt=0)
    """Of the sampled requests, two for each of `mixed_prompts` greedy ones."""

    same_server: bool = False
    """An A/A: all arms are one server, so every difference is noise. The verdict is never deploy."""


FORMS = (
    "write an arm like NAME=http://127.0.0.1:8000/v1, NAME=embedded:ngram:8, NAME=embedded:none,threads=1 "
    'or NAME="command:vllm serve MODEL --port {port}"'
)


def parse_arms(texts: Sequence[str]) -> list[Arm]:
    """The arms, the standard first. UsageError for a wrong one, two of one name, or fewer than two."""
    arms = [parse_arm(text) for text in texts]
    names = [arm.name for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two arms are called {twice}", hint="give each arm its own name")
    if len(arms) < 2:
        raise UsageError(
            f"a comparison needs two arms, not {len(arms)}",
            hint="give --arm twice, the standard first; " + FORMS,
        )
    return arms


def parse_arm(text: str) -> Arm:
    """The arm that `text` describes. The model of an endpoint is empty where none is named."""
    name, separator, spec = text.partition("=")
    if not separator or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise UsageError(
            f"invalid arm {text!r}: expected NAME=SPEC, with letters, digits, '.', '_' and '-' in the name",
            hint=FORMS,
        )
    try:
        return Arm(name, _pool(spec))
    except ValidationError as error:
        first = error.errors()[0]
        where = next((str(part) for part in reversed(first["loc"])), "")
        raise UsageError(
            f"the arm {name} cannot be used: " + ": ".join(filter(None, (where, first["msg"]))),
            hint=str(first.get("ctx", {}).get("hint") or FORMS),
        ) from None


def _pool(spec: str) -> Pool:
    kind, _, rest = spec.partition(":")
    if kind in ("http", "https"):
        address, _, model = spec.partition("#")
        try:
            base_url = checked_base_url(address)
        except ValueError as error:
            raise UsageError(f"{address} is not a usable address: it {error}", hint=FORMS) from None
        return pool_at(base_url, model)
    engine = ENGINES.get(kind)
    if engine is None or engine.arm is None:
        raise UsageError(f"{spec!r} is not a pool that can be served or measured", hint=FORMS)
    try:
        return engine.arm(rest)
    except UsageError as error:
        raise UsageError(error.message, hint=error.hint or FORMS) from None
