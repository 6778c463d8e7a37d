"""Whether the arms of a comparison are different servers, as a comparison needs, or one, as an A/A needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import combinations

from specops.errors import UsageError
from specops.load.server_identity import moved_with, one_address, same_process
from specops.load.target_server import TargetServer
from specops.phases.ab.settings import Arm


def check_addresses(arms: Sequence[Arm], *, same_server: bool) -> None:
    """UsageError, before anything is started, for two arms with one address; with `same_server`, for an arm
    that is not a running server."""
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


async def introduce(
    arms: Mapping[str, TargetServer],
    send: Callable[[str], Awaitable[None]],
    *,
    same_server: bool,
) -> None:
    """Introduce the arms that are up, one after the other; `send` sends one request to the arm of that name.

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
    apart = next((pair for pair, reason in shared.items() if reason is None), None)
    if same_server and apart is not None:
        one, other = apart
        raise UsageError(
            f"--same-server needs one server, and nothing shows that {one} and {other} are one",
            hint=f"give both the same address: {_same_server(apart, arms[one].settings.base_url)}",
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
        f"the arms {one} and {other} are one server: {reason}",
        hint="give the address of the second server; to measure this tool's own noise: "
        + _same_server((one, other), base_url),
    )


def _same_server(names: tuple[str, str], base_url: str) -> str:
    one, other = names
    return f"specops ab --same-server --arm {one}={base_url} --arm {other}={base_url}"
