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
    for (one, first), (other, second) in combinations(running, 2):
        reason = one_address(first, second)
        if reason is not None:
            raise _one_server(one, other, reason, first.base_url)


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
        others = {other: arms[other].settings for other in open_}
        moved = await moved_with(arms[name].settings, others, partial(send, name))
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
    first, second = (arms[name].settings for name in (one, other))
    return one_address(first, second) or await same_process(first, second)


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
