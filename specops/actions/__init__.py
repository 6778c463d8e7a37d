"""Actions of the guard, which switch traffic or notify: one file for each kind of action of the rollout file.

A file has the settings, a section of `guard.actions`, and the code that acts. `ACTIONS` is the registry.

action.py      the protocol: Action (settings), Target (has a percentage), Notification (only sends)
router.py      the switch of every router
flag_file.py   a file that others read
http.py        a feature flag
command.py     commands of the user; locked_command.py runs one and outlives a guard that is killed
restart.py     a single server, started again with or without speculation
notify.py      a message after a change, as Slack's webhooks take it
http_client.py one HTTP request, bounded in time
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, Union, get_args

from pydantic import Field

from specops.actions.action import Action, Message, Notification, Site, Target
from specops.actions.command import CommandAction, Commands
from specops.actions.flag_file import FlagFileAction
from specops.actions.http import HttpAction
from specops.actions.notify import NotifyAction
from specops.actions.restart import RestartAction
from specops.actions.router import RouterAction
from specops.errors import ConfigError

__all__ = [
    "ACTIONS",
    "KINDS",
    "Action",
    "AnyAction",
    "Message",
    "Notification",
    "Target",
    "counted_routers",
    "notifications",
    "targets",
]

ACTIONS: tuple[type[Action], ...] = (
    RouterAction,
    FlagFileAction,
    HttpAction,
    CommandAction,
    RestartAction,
    NotifyAction,
)
"""The registry: one line an action."""

KINDS = tuple(get_args(action.model_fields["kind"].annotation)[0] for action in ACTIONS)
"""Words of the rollout file, in the order of `ACTIONS`."""

if TYPE_CHECKING:
    AnyAction = Action
else:
    AnyAction = Annotated[Union[ACTIONS], Field(discriminator="kind")]  # noqa: UP007


_Router = TypeVar("_Router")


def targets(actions: Sequence[Action], routers: Sequence[Target], folder: Path) -> list[Target]:
    """All that `actions` switch, in their order. Where none of them switches anything: the `routers`.

    `folder` is the guard's: commands take a lock in it. Raises ConfigError where nothing can be switched.
    """
    site = Site(tuple(routers), Commands(folder))
    switching = [action for action in actions if action.switches] or [RouterAction(kind="router")]
    switched = [target for action in switching for target in action.targets(site)]
    if not switched:
        raise ConfigError(
            "the guard has nothing to switch: the rollout file names no router and no other action: "
            "expected addresses.routers, the admin listeners of the routers, or guard.actions",
            hint="specops explain guard.actions",
        )
    return switched


def notifications(actions: Sequence[Action]) -> list[Notification]:
    return [notification for action in actions for notification in action.notifications()]


def counted_routers(actions: Sequence[Action], routers: Sequence[_Router]) -> list[_Router]:
    """The `routers` whose counters show that traffic moved. None where every switch restarts a server: to a
    router in front of it, the pool stays the same."""
    switching = [action for action in actions if action.switches]
    return [] if switching and not any(action.moves_traffic for action in switching) else list(routers)
