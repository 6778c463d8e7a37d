"""The servers of an experiment: any number, the standard first, as they are named."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from specops.access import Access
from specops.config import Pool
from specops.errors import UsageError
from specops.hints import with_options, with_value
from specops.load.settings import checked_base_url
from specops.serving import ENGINES, pool_at
from specops.validation import problem


@dataclass(frozen=True)
class Arm:
    name: str
    pool: Pool


EXAMPLES = {
    "http": "http://127.0.0.1:8000/v1",
    "embedded": "embedded:ngram:8",
    "command": "command:vllm serve MODEL --port {port}",
}
"""An arm's SPEC, by how it begins."""


_ACCESS = re.compile(r",(api_key_env|ca_file|client_cert|client_key)=")
"""Where a setting of access follows an address."""

_NAMES = ("standard", "speculative", "third", "fourth")
"""Names for addresses that were given without one."""


def parse_arms(texts: Sequence[str]) -> list[Arm]:
    """The arms, the standard first. Raises UsageError for a wrong one, two of one name, or fewer than two."""
    bare = [text for text in texts if text.startswith(("http://", "https://"))]
    if bare:
        name_of = dict(zip(bare, _NAMES, strict=False))
        named = (f"{name_of[text]}={text}" if text in name_of else text for text in texts)
        again = " ".join(f"--arm {shlex.quote(text)}" for text in named)
        raise UsageError(
            f"the arm {bare[0]} has no name: expected NAME=URL",
            hint=f"{with_options({'--arm': None})} {again}",
        )
    arms = [parse_arm(text) for text in texts]
    names = [arm.name for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"two arms are called {twice}: expected a name of its own for each", hint="specops ab --help"
        )
    if len(arms) < 2:
        raise UsageError(
            f"a comparison needs two arms, not {len(arms)}: expected --arm twice, the standard first",
            hint="specops ab --arm a=embedded:none --arm b=embedded:ngram:8",
        )
    return arms


def parse_arm(text: str) -> Arm:
    """The arm that `text` describes. The model of an endpoint is empty where none is named."""
    name, separator, spec = text.partition("=")
    kind = spec.partition(":")[0].removesuffix("s")
    hint = with_value(text, f"{name or 'NAME'}={EXAMPLES.get(kind, EXAMPLES['embedded'])}")
    if not separator or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise UsageError(
            f"invalid arm {text!r}: expected NAME=SPEC, with letters, digits, '.', '_' and '-' in the name",
            hint=with_value(text, f"NAME={EXAMPLES['embedded']}"),
        )
    try:
        return Arm(name, _pool(spec))
    except UsageError as error:
        raise UsageError(error.message, hint=hint) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = next((str(part) for part in reversed(first["loc"])), "")
        advice = first.get("ctx", {}).get("advice")
        wrong = " ".join(filter(None, (where, problem(first))))
        raise UsageError(
            f"the arm {name} cannot be used: {wrong}{f'; {advice}' if advice else ''}", hint=hint
        ) from None


def _pool(spec: str) -> Pool:
    kind, _, rest = spec.partition(":")
    if kind in ("http", "https"):
        named, *settings = _ACCESS.split(spec)
        address, _, model = named.partition("#")
        try:
            base_url = checked_base_url(address)
        except ValueError as error:
            raise UsageError(f"{address} is not a usable address: it {error}") from None
        access = dict(zip(settings[::2], settings[1::2], strict=True))
        if kind == "http" and access.keys() - {"api_key_env"}:
            raise UsageError(f"{address} begins with http://, where certificates have no effect")
        return pool_at(base_url, model, Access.model_validate(access))
    engine = ENGINES.get(kind)
    if engine is None or engine.arm is None:
        expected = ", ".join(EXAMPLES.values())
        raise UsageError(
            f"{spec!r} is not a pool that can be served or measured: expected {expected}, or the like"
        )
    return engine.arm(rest)
