"""A rollout's actions as targets."""

from __future__ import annotations

import shlex
from pathlib import Path

from specops.config import Rollout
from specops.config.guard import CommandAction, FlagFileAction, HttpAction, NginxAction, RestartAction
from specops.errors import ConfigError
from specops.guard.actions.command import Command
from specops.guard.actions.flag_file import FlagFile
from specops.guard.actions.http import Http
from specops.guard.actions.nginx import Nginx
from specops.guard.actions.restart import Restart
from specops.guard.actions.running import Commands
from specops.guard.actions.target import Target


def counting(rollout: Rollout) -> list[str]:
    """The routers by whose counters traffic is seen to move. Where a server is started anew it does not: to a
    router before it, it is the same pool as ever."""
    actions = rollout.guard.actions
    restarts = bool(actions) and all(isinstance(action, RestartAction) for action in actions)
    return [] if restarts else rollout.addresses.routers


def switched(rollout: Rollout) -> list[str]:
    """What the actions switch, by names that two guards of the same things have in common."""
    names: list[str] = []
    for action in rollout.guard.actions or [NginxAction(kind="nginx")]:
        match action:
            case NginxAction():
                names += [f"router {address}" for address in rollout.addresses.routers]
            case FlagFileAction():
                names.append(f"file {Path(action.path).resolve()}")
            case HttpAction():
                names.append(f"flag {action.url}")
            case CommandAction():
                names.append(f"command {shlex.join(action.set)}")
            case RestartAction():
                names.append(f"server {action.health}")
    return names


def targets(rollout: Rollout, folder: Path) -> list[Target]:
    """`folder` is the guard's. Raises ConfigError where nothing can be switched."""
    routers = rollout.addresses.routers
    commands = Commands(folder)
    made: list[Target] = []
    for action in rollout.guard.actions or [NginxAction(kind="nginx")]:
        match action:
            case NginxAction():
                made += [Nginx(address) for address in routers]
            case FlagFileAction():
                made.append(FlagFile(action.path))
            case HttpAction():
                made.append(Http(action))
            case CommandAction():
                made.append(Command(action, commands))
            case RestartAction():
                made.append(Restart(action, commands))
    if not made:
        raise ConfigError(
            "the guard has nothing to switch: the rollout file names no router and no other action",
            hint="add addresses.routers, the admin listeners of NGINX, or guard.actions",
        )
    return made
