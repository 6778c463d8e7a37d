"""That the arms of an experiment are different servers; of an A/A, one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import combinations

from specops.errors import UsageError
from specops.experiment.arms import Arm
from specops.load.server_identity import moved_with, one_address, same_process
from specops.load.target_server import TargetServer


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
    for (first_name, first), (second_name, second) in combinations(running, 2):
        reason = one_address(first, second)
        if reason is not None:
            raise _one_server(first_name, second_name, reason, first.base_url)


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
        open_ = [second for second in names[number + 1 :] if shared[name, second] is None]
        targets = {second: arms[second].settings for second in open_}
        moved = await moved_with(arms[name].settings, targets, partial(send, name))
        shared |= {(name, second): reason for second, reason in moved.items()}
        _refuse(arms, {} if same_server else shared)
    separate = next((pair for pair, reason in shared.items() if reason is None), None)
    if same_server and separate is not None:
        first, second = separate
        raise UsageError(
            f"--same-server needs one server, and nothing shows that {first} and {second} are one",
            hint=_same_server(separate, arms[first].settings.base_url),
        )


async def _shown_at_rest(arms: Mapping[str, TargetServer], first: str, second: str) -> str | None:
    standard, challenger = (arms[name].settings for name in (first, second))
    return one_address(standard, challenger) or await same_process(standard, challenger)


def _refuse(arms: Mapping[str, TargetServer], shared: Mapping[tuple[str, str], str | None]) -> None:
    for (first, second), reason in shared.items():
        if reason is not None:
            raise _one_server(first, second, reason, arms[first].settings.base_url)


def _one_server(first: str, second: str, reason: str, base_url: str) -> UsageError:
    return UsageError(
        f"the arms {first} and {second} are one server: {reason}; expected the address of a second server",
        hint=f"{_same_server((first, second), base_url)}  # measures this tool's own noise",
    )


def _same_server(names: tuple[str, str], base_url: str) -> str:
    first, second = names
    return f"specops ab --same-server --arm {first}={base_url} --arm {second}={base_url}"
