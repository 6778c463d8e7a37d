"""The servers of an experiment: any number, the standard first; and that they are different servers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from pydantic import ValidationError

from specops.config import Pool
from specops.errors import UsageError
from specops.hints import with_value
from specops.load.server_identity import moved_with, one_address, same_process
from specops.load.settings import checked_base_url
from specops.load.target_server import TargetServer
from specops.serving import ENGINES, pool_at


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


def parse_arms(texts: Sequence[str]) -> list[Arm]:
    """The arms, the standard first. Raises UsageError for a wrong one, two of one name, or fewer than two."""
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
        problem = ": ".join(filter(None, (where, first["msg"])))
        raise UsageError(
            f"the arm {name} cannot be used: {problem}{f'; {advice}' if advice else ''}", hint=hint
        ) from None


def _pool(spec: str) -> Pool:
    kind, _, rest = spec.partition(":")
    if kind in ("http", "https"):
        address, _, model = spec.partition("#")
        try:
            base_url = checked_base_url(address)
        except ValueError as error:
            raise UsageError(f"{address} is not a usable address: it {error}") from None
        return pool_at(base_url, model)
    engine = ENGINES.get(kind)
    if engine is None or engine.arm is None:
        expected = ", ".join(EXAMPLES.values())
        raise UsageError(
            f"{spec!r} is not a pool that can be served or measured: expected {expected}, or the like"
        )
    return engine.arm(rest)


def check_addresses(arms: Sequence[Arm], *, same_server: bool) -> None:
    """Raise UsageError, before anything is started, for two arms with one address; with `same_server`, for an
    arm that is not a running server."""
    if same_server:
        started = next((arm.name for arm in arms if arm.pool.endpoint is None), None)
        if started is not None:
            raise UsageError(
                f"--same-server compares one running server with itself, and {started} would be started here",
                hint="specops ab --same-server --arm a=http://HOST:8000/v1 --arm b=http://HOST:8000/v1",
            )
        return
    running = [(arm.name, arm.pool.endpoint) for arm in arms if arm.pool.endpoint is not None]
    for (one, ours), (other, its) in combinations(running, 2):
        reason = one_address((ours.base_url, ours.model), (its.base_url, its.model))
        if reason is not None:
            raise _one_server(one, other, reason, ours.base_url)


async def introduce_all(
    arms: Mapping[str, TargetServer],
    send: Callable[[str], Awaitable[None]],
    *,
    same_server: bool,
) -> None:
    """Describe the arms that are up, one after the other; `send` sends one request to the arm of that name.

    Raises UsageError where two of them are one server; with `same_server`, where two are not shown to be one.
    """
    names = list(arms)
    shared = {pair: await _shown_at_rest(arms, *pair) for pair in combinations(names, 2)}
    _refuse(arms, {} if same_server else shared)
    for number, name in enumerate(names):
        open_ = [other for other in names[number + 1 :] if shared[name, other] is None]
        others = {other: arms[other].settings.base_url for other in open_}
        moved = await moved_with(arms[name].settings.base_url, others, partial(send, name))
        shared |= {(name, other): reason for other, reason in moved.items()}
        _refuse(arms, {} if same_server else shared)
    separate = next((pair for pair, reason in shared.items() if reason is None), None)
    if same_server and separate is not None:
        one, other = separate
        raise UsageError(
            f"--same-server needs one server, and nothing shows that {one} and {other} are one",
            hint=_same_server(separate, arms[one].settings.base_url),
        )


async def _shown_at_rest(arms: Mapping[str, TargetServer], one: str, other: str) -> str | None:
    ours, theirs = ((arms[name].settings.base_url, arms[name].settings.model) for name in (one, other))
    return one_address(ours, theirs) or await same_process(ours, theirs)


def _refuse(arms: Mapping[str, TargetServer], shared: Mapping[tuple[str, str], str | None]) -> None:
    for (one, other), reason in shared.items():
        if reason is not None:
            raise _one_server(one, other, reason, arms[one].settings.base_url)


def _one_server(one: str, other: str, reason: str, base_url: str) -> UsageError:
    return UsageError(
        f"the arms {one} and {other} are one server: {reason}; expected the address of a second server",
        hint=f"{_same_server((one, other), base_url)}  # measures this tool's own noise",
    )


def _same_server(names: tuple[str, str], base_url: str) -> str:
    one, other = names
    return f"specops ab --same-server --arm {one}={base_url} --arm {other}={base_url}"
