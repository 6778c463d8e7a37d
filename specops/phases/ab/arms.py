"""Arms as they are written on the command line: NAME=SPEC.

http://HOST/v1#MODEL         an endpoint that is running; without #MODEL, the only model that it serves
embedded                     what `specops serve` serves
embedded:TREE,KEY=VALUE,…    the same with another tree, or `none`, and other settings
command:WORDS                a server to start; {port} among the words becomes a free port
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from specops.config import CommandPool, EmbeddedPool, EndpointPool, Pool, Speculation
from specops.errors import UsageError
from specops.load.endpoint import checked_base_url
from specops.phases.ab.settings import Arm

FORMS = (
    "write an arm like NAME=http://127.0.0.1:8000/v1, NAME=embedded:ngram:8, NAME=embedded:none,threads=1 "
    'or NAME="command:vllm serve MODEL --port {port}"'
)
_OF_THE_POOL = ("target", "max_batch", "max_length", "threads", "device", "dtype", "attention", "graphs")
_OF_SPECULATION = ("draft", "verifier")
_WHOLE = ("max_batch", "max_length", "threads")


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
            raise UsageError(f"{address} cannot be asked: an address {error}", hint=FORMS) from None
        return EndpointPool.model_construct(engine="endpoint", base_url=base_url, model=model)
    if kind == "command":
        return CommandPool(engine="command", command=rest)
    if kind == "embedded":
        return _embedded(rest)
    raise UsageError(f"{spec!r} is nothing that can be served or asked", hint=FORMS)


def _embedded(spec: str) -> EmbeddedPool:
    parts = spec.split(",") if spec else []
    options = {key: value for key, separator, value in (part.partition("=") for part in parts) if separator}
    # An expansion's tree has commas of its own.
    tree = ",".join(part for part in parts if "=" not in part) or Speculation().tree
    _refuse_unknown(options)
    pool = {key: _value(key, options[key]) for key in _OF_THE_POOL if key in options}
    speculation = {key: options[key] for key in _OF_SPECULATION if key in options}
    if tree != "none":
        pool["speculation"] = {"tree": tree} | speculation
    elif speculation:
        raise UsageError(
            f"embedded:none does not speculate, so it takes no {next(iter(speculation))}",
            hint="leave it out, or name a tree in place of none",
        )
    return EmbeddedPool.model_validate({"engine": "embedded"} | pool)


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = (*_OF_THE_POOL, *_OF_SPECULATION)
    for key in options:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1)
            guess = f"did you mean {nearest[0]}? " if nearest else ""
            raise UsageError(
                f"an embedded arm has no setting {key!r}", hint=f"{guess}known: {', '.join(known)}"
            )


def _value(key: str, text: str) -> object:
    if key == "graphs" and text in ("yes", "no"):
        return text == "yes"
    if key not in _WHOLE:
        return text
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{key} is {text!r}, and should be a whole number", hint=FORMS) from None
