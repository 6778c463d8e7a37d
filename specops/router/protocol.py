"""The protocol of a router: what sends each request to one of the two pools.

A router is one package beside this module and one line of the registry (specops/router/__init__.py).
Everything else in specops asks the objects below and never names a router.

`Router` is the router's own section of the rollout file, `route.NAME`, and answers all that its kind decides:
the files that it runs from, how it is started and tested, how a request is judged, and what stands at an
admin listener. The general keys of `route:` are in settings.py, and reach it as a `Deployment`.

`Listener` is a running router at its admin listener: the switch, set and read back, and the counters.

What does not differ between routers is part of the contract:

- an answer carries X-Specops-Route (the pool that answered), and the headers below;
- `decide.lua` in the folder nginx/lua has the meaning of every rule and reason;
- Prometheus reads the series ROUTE_… of specops/prometheus/series.py at `metrics_path`.

Its versions, modules, access log and reload are its own: nothing outside its package reads them.

To add a router: a package with a subclass of `Router`, and its line in the registry. Answers are data: the
caller writes the files and runs the commands. A question is here because a module outside asks it; remove it
with its last caller.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, ClassVar, NotRequired, Protocol, Self, TypedDict

from specops.actions.action import Target
from specops.router.settings import RouteSettings
from specops.section import Section
from specops.serving import Survey

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LOOPBACK = "127.0.0.1"
CLASS_HEADER, REASON_HEADER = "X-Specops-Class", "X-Specops-Reason"
"""Headers of an answer: the request's class, and the reason of its pool."""

REQUEST_ID = "x-request-id"
"""Header by which the holdout is drawn. Without it a router makes an id; a judge then takes the request for
one in no group of the live effect."""

Pools = Mapping[str, int]
"""Ports of loopback, by `standard` and `speculative`."""


@dataclass(frozen=True)
class Deployment:
    """The input of a router's configuration."""

    rollout: str
    route: RouteSettings
    standard: Sequence[str]
    """HOST:PORT of each server of the pool."""

    speculative: Sequence[str]
    rules: Mapping[str, Any]
    """Each rule with its source, as phases/route/thresholds.py makes them and decide.lua reads them."""


@dataclass(frozen=True)
class Request:
    """A request as the router receives it."""

    body: bytes
    method: str = "POST"
    path: str = CHAT
    headers: Mapping[str, str] = field(default_factory=dict)
    """Values by name in lower case."""

    address: str = LOOPBACK


Decision = TypedDict(
    "Decision",
    {
        "pool": str,
        "class": str,
        "reason": str,
        "weight": float,
        "about": NotRequired[str],
        "observed": NotRequired[float],
        "limit": NotRequired[float],
        "group": NotRequired[str],
    },
)
"""The pool of a request (speculative, standard or none), why, and the number of sequences that it asks for;
`about` and `observed` are the parameter that decided and its value; `group`, `holdout` or `speculative`, is
that of the live effect."""


class Judge(Protocol):
    """The decision of a router with the rules of one rollout, without the router."""

    def decide(self, request: Request, *, in_flight: float = 0, percent: float = 100.0) -> Decision:
        """Decide on `request` beside `in_flight` sequences, with the switch at `percent`."""


@dataclass(frozen=True)
class StoredRules:
    """What rendered files say that decides."""

    table: Mapping[str, Any]
    trusted: Sequence[str]
    """Networks whose callers may choose the pool."""


@dataclass(frozen=True)
class Refusal:
    """Why a router does not load its files."""

    text: str
    """The router's own error, unchanged."""

    sentence: str
    hint: str


@dataclass(frozen=True)
class RouterCounters:
    """What a running router has counted since it started."""

    rollout: str | None
    """The rollout that it was rendered for; None: it does not say."""

    decided: Mapping[str, float]
    """Requests decided, by pool; counted when a request begins."""

    ended: Mapping[str, float]
    """Requests that ended: `lost`, where nothing served them or the answer was a 5xx, and `well`."""


class Listener(Target):
    """A running router, at its admin listener. As a target it is the router's switch."""

    address: str
    """HOST:PORT."""

    @abstractmethod
    def counters(self) -> RouterCounters:
        """Read its counters. Raises EndpointError."""


class Router(Section):
    """The section `route.NAME` of the rollout file: settings that only this router has."""

    name: ClassVar[str]
    """Key of the section, and name of the folder that it is rendered into."""

    title: ClassVar[str]
    """Title in sentences."""

    main: ClassVar[str]
    """The file that it is started with, in its folder."""

    folders: ClassVar[Sequence[str]] = ()
    """Folders that it needs beside its files."""

    edited: ClassVar[Sequence[str]] = ()
    """Rendered files that people change: one that exists is left as it is."""

    generated: ClassVar[str] = ""
    """Pattern of files to delete that are no longer rendered; empty: none."""

    metrics_path: ClassVar[str] = "/metrics"
    """Path at the admin listener that Prometheus reads."""

    @property
    def limits(self) -> Sequence[str]:
        """Return what it cannot do with these settings, a sentence each."""
        return ()

    @property
    def untestable(self) -> str | None:
        """Return why `route check` cannot test it with these settings. None: it can."""
        return None

    def for_trial(self) -> Self:
        """Return settings with which this user can run it for a while on this machine."""
        return self

    @abstractmethod
    def render(self, deployment: Deployment) -> dict[str, str]:
        """Return each file's text by its path in the folder that the router runs from."""

    @abstractmethod
    def start_command(self, folder: Path) -> str:
        """Return the command with which a person starts it."""

    @abstractmethod
    def start(self, program: str, folder: Path) -> list[str]:
        """Return the command that runs it in the foreground."""

    @abstractmethod
    def survey(self) -> Survey:
        """Return what of it is installed on this machine."""

    @abstractmethod
    def find_program(self, program: str | None) -> str:
        """Return the path of `program`; None: its usual one. Raises EnvironmentFailure without one."""

    @abstractmethod
    def refusal(self, program: str, folder: Path) -> Refusal | None:
        """Return why it does not load the files in `folder`; None: it does. Raises EnvironmentFailure."""

    @abstractmethod
    def read_files(self, main: Path) -> dict[str, str]:
        """Return the rendered files beside `main`, that one included. Raises FileError."""

    @abstractmethod
    def moved(self, files: Mapping[str, str], listen: int, admin: int, pools: Pools) -> dict[str, str]:
        """Return `files` with these ports of loopback, one server a pool, the switch at 100%, and no random
        windows. Its admin listener answers /health and /v1/models. Raises UsageError for files that were
        not rendered."""

    @abstractmethod
    def stored_rules(self, files: Mapping[str, str]) -> StoredRules:
        """Return the rules in rendered files. Raises UsageError for damaged ones."""

    @abstractmethod
    def judge(self, rules: StoredRules) -> Judge:
        """Return what decides as the router does."""

    @abstractmethod
    def listener(self, address: str) -> Listener:
        """Return the router at an admin listener, HOST:PORT."""


def may_choose(address: str, networks: Sequence[str]) -> bool:
    """Return whether a caller at this IP address may set X-Specops-Pool."""
    return any(ip_address(address) in ip_network(network) for network in networks)
