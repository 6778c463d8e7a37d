"""Arms as they are written on the command line: NAME=SPEC.

http://HOST/v1#MODEL         an endpoint that is running; without #MODEL, the only model that it serves
embedded                     what `specops serve` serves
embedded:TREE,KEY=VALUE,…    the same with another tree, or `none`, and other settings
command:WORDS                a server to start; {port} among the words becomes a free port
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import ValidationError

from specops.config import Pool
from specops.errors import UsageError
from specops.load.settings import checked_base_url
from specops.phases.ab.settings import Arm
from specops.serving import ENGINES, pool_at

FORMS = (
    "write an arm like NAME=http://127.0.0.1:8000/v1, NAME=embedded:ngram:8, NAME=embedded:none,threads=1 "
    'or NAME="command:vllm serve MODEL --port {port}"'
)


def parse_arms(texts: Sequence[str]) -> list[Arm]:
    """The first is the standard. UsageError where one is no arm, two share a name, or there is but one."""
    arms = [parse_arm(text) for text in texts]
    names = [arm.name for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two arms are called {twice}", hint="give each arm a name of its own")
    if len(arms) < 2:
        raise UsageError(
            f"a comparison needs two arms, not {len(arms)}",
            hint="give --arm twice, the standard first; " + FORMS,
        )
    return arms


def parse_arm(text: str) -> Arm:
    """One arm. The model of an endpoint is empty where none is named: it is the endpoint's to say."""
    name, separator, spec = text.partition("=")
    if not separator or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise UsageError(
            f"{text!r} is no arm: it must begin with a name of letters, digits, '.', '_' and '-', and '='",
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
