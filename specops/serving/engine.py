"""The protocol of serving engines: what an engine, and a pool that is configured for it, can answer.

An engine is one package beside this module and one line of the registry (specops/serving/__init__.py).
Everything else in specops asks the two objects below and never names an engine.

`Pool` is the engine's section of the rollout file, and answers what depends on the settings: the endpoint
where it already runs; the models and programs it names; its GPUs; its metric names; the settings a sweep
tries in its place; the question for `verify-draft`. The class answers for a server of which nothing but its
address is known. An engine's own class overrides what it knows. A pool that specops can start is a
`Startable`, which also gives the words that start it and its container.

`Engine` answers what holds for every pool: its names, its metric tables by version, the request parameters
it refuses, its command line (which words call it, and what a version has against them), what it does with
each kind of draft, how its program is found, which setting holds K.

Answers are data (`Start`, `Container`, `Setting`, …): the caller decides what to do with them. No answer
imports a phase. A question is here because a module outside asks it; remove it with its last caller.
An engine's known issues live in its package: as lint rules where a command shows them, as rows of its
draft table where the kind of draft does.

To add an engine: a package with a subclass of `Startable` and an `Engine`, and its line in the registry.
What engines that specops configures answer alike is in configured_pool.py.
"""

from __future__ import annotations

import shlex
import shutil
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from specops.access import OPEN, Access
from specops.errors import ConfigError, EnvironmentFailure
from specops.hints import in_rollout
from specops.section import Section
from specops.serving.acceptance import RequestDrafts
from specops.serving.argv import CommandLine, Finding
from specops.serving.drafts import DraftSupport
from specops.serving.metrics import Series
from specops.serving.place_drafts import PlaceDrafts

EVERYWHERE = "0.0.0.0"
"""A container is reached from outside it; what may reach it is its network's to say."""


@dataclass(frozen=True)
class Endpoint:
    """The address of a pool that runs already, and that specops does not start."""

    base_url: str
    model: str
    access: Access = OPEN


@dataclass(frozen=True)
class Start:
    """The command and environment that start a server on this machine."""

    words: list[str]
    announced: str | None = None
    """A pattern whose first group, in the server's log, is its root URL; None: the port it was given."""

    timeout_s: float = 180.0
    """Longest time for it to come up."""

    model: str | None = None
    """What its API calls the model; None: the only one that it lists."""


@dataclass(frozen=True)
class Condition:
    """A choice that an engine makes by itself for a command, and that may differ between two pools that
    differ in speculation alone."""

    name: str
    value: str | None
    """None: it depends on what is not known here."""

    why: str
    """Empty where it is the engine's usual."""

    pin: str
    """Settings of a pool that make it so, for a sentence."""


@dataclass(frozen=True)
class Rendering:
    """The command that a person starts a server with, for the version that is to serve."""

    words: list[str]
    version: str | None = None
    judged: str | None = None
    """The release for which `findings` hold, in words. None: no engine's lint knows such a command."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    """About how the version was chosen."""

    conditions: list[Condition] = field(default_factory=list)


@dataclass(frozen=True)
class Container:
    """The image, command and mounts of a server in a container."""

    image: str | None
    """None: the engine has no published image."""

    words: list[str]
    gpus: int = 0
    downloads: bool = False
    """Whether it may fetch its model from a hub."""

    drains: bool = False
    """Whether it finishes running requests after SIGTERM."""

    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class MultiHost:
    """A server over several hosts."""

    first: tuple[str, ...]
    """The command of the one that answers requests."""

    worker: tuple[str, ...]
    """The command of each host after the first."""


@dataclass(frozen=True)
class Grid:
    """The settings that a sweep tries. Folders of drafts are relative to `folder`."""

    ks: Sequence[int]
    trees: Sequence[str] | None
    drafts: Mapping[str, str] | None
    folder: Path


@dataclass(frozen=True)
class Setting:
    """One way to serve, which a sweep tries: a pool with another K, tree or draft."""

    name: str
    """An engine leaves the draft out of it."""

    pool: Pool
    k: int
    """Tokens drafted ahead; of a tree, its depth. 0 is the standard."""

    tree: str | None = None
    """Where trees are swept, or the engine is the embedded one."""

    draft: str | None = None
    """The name of the draft, where drafts are compared."""


@dataclass(frozen=True)
class PairQuestion:
    """The facts about a pool that `verify-draft` needs."""

    target: str
    draft: str
    version: str | None = None
    tensor_parallel: int = 1


@dataclass(frozen=True)
class OwnModels:
    """The models of a pool that specops serves by itself, which phases may load, hash and simulate."""

    target: Path
    tree: str | None
    """None: it does not speculate."""

    draft: str | None
    """A folder, or exit:LAYERS; None: none is named."""

    weights: Mapping[str, Path]
    """Folders by role, target and draft, of all that is loaded."""

    draft_model: Path | None
    """The folder of a draft that has one of its own, or the shipped one."""

    verifier: str | None
    max_batch: int
    threads: int | None


@dataclass(frozen=True)
class Survey:
    """A program of an engine, as it was found on this machine."""

    status: Literal["ok", "warn", "missing"]
    description: str
    fix: str


class Pool(Section):
    """A pool of a rollout file. This class answers for a server of which nothing is known but its address."""

    engine: str

    @property
    def endpoint(self) -> Endpoint | None:
        """Return where it already runs. None: specops starts it."""
        return None

    @property
    def environment_variables(self) -> Mapping[str, str]:
        return {}

    @property
    def models(self) -> Mapping[str, str]:
        """Folders or hub ids that it names, by the key of the rollout file."""
        return {}

    @property
    def target_folder(self) -> Path | None:
        """Return the folder of the target, which need not be on this machine; None: not known."""
        return None

    @property
    def programs(self) -> Sequence[str]:
        """Return the programs that it is started with, as its settings call them."""
        return ()

    @property
    def gpus(self) -> int | None:
        """Return the number of GPUs of one server; None: it is not known, and may be all of a machine's."""
        return 0

    @property
    def series(self) -> Series | None:
        """Return its metric names; None: which engine answers is not known."""
        return None

    @property
    def speculates(self) -> bool | None:
        """Return whether it speculates; None: its speculation is not specops's to set."""
        return None

    @property
    def comparable(self) -> Mapping[str, Any] | None:
        """Settings in which two pools of this engine must not differ. None: not all of them are known."""
        return None

    @property
    def method(self) -> str | None:
        """Return how it drafts, as its engine calls it. None: not known, or it does not speculate."""
        return None

    @property
    def drafted_tokens(self) -> int | None:
        """Return the most tokens that a step drafts. None: not known, or it does not speculate."""
        return None

    def variants(self, grid: Grid) -> list[Setting]:
        """Return what a sweep tries in its place. Raises ConfigError where `grid` is not for such a pool."""
        raise ConfigError(f"the K of a pool of engine {self.engine} is not specops's to set")

    def against_schedule(self, ranges: Sequence[Sequence[int]]) -> list[str]:
        """Return the ids of known issues of K by the size of the batch, [FIRST, LAST, K], on this server."""
        return []

    @property
    def ends_speculation(self) -> str | None:
        """Return what may end its speculation by itself until it is started anew. None: nothing does."""
        return None

    @property
    def open_k(self) -> str | None:
        """The placeholder that a sweep fills with K, where the settings still hold one."""
        return None

    @property
    def fixed_k(self) -> str | None:
        """Return why a sweep cannot set K. None: it can."""
        return None

    @property
    def pair(self) -> PairQuestion | None:
        """Return its two models; None: they are not known."""
        return None

    def copied_drafts(self, prompt: Sequence[int], written: Sequence[int], most: int) -> PlaceDrafts | None:
        """Return the drafts of up to `most` tokens that it would copy before each token of an answer that is
        `written` after `prompt`, in token ids. None: it does not copy, or its rule is not fully known here.
        The embedded engine's drafters answer for themselves (engine/planner/copied_acceptance.py)."""
        return None

    @property
    def own(self) -> OwnModels | None:
        """Return the embedded engine's settings; None: another program serves it."""
        return None


class Startable(Pool):
    """A pool whose servers specops can start, describe in a script, and put into a container."""

    SIDE_BY_SIDE: ClassVar[Mapping[str, Any]] = {}
    """Settings with which two servers fit on one device, and repeated prompts are not faster."""

    @classmethod
    def sections(
        cls, target: str | None, draft: str | None, method: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fewest settings, without `engine`, of a standard pool and of one that speculates by `method`,
        named as in `drafts.methods`. Both fit beside each other on one device, and repeated prompts are not
        faster. `target` None: the engine's own; `draft` None: the method has none. Raises ConfigError where
        only a person can write the settings."""
        raise ConfigError(
            "could not write such pools: their settings are a person's to write",
            hint="specops init --full",
        )

    @abstractmethod
    def start(self, port: int, name: str) -> Start:
        """Return how to start it on `port` of this machine; `name` is its model's where the engine lets
        specops choose. Raises EnvironmentFailure for a program that is not here, ConfigError for a setting
        that its version lacks."""

    @abstractmethod
    def rendering(self, port: int | str, name: str) -> Rendering:
        """The command for a script. Raises ConfigError for a setting that the version lacks."""

    @abstractmethod
    def container(self, port: int, name: str, version: str | None, drain_s: int) -> Container:
        """Return the container of a server. `version`: of the engine; None: the newest known. Raises
        ConfigError for settings that it lacks."""

    def spread(self, words: Sequence[str], nodes: int, address: str, rank: str) -> MultiHost | None:
        """Return its container's `words` over several hosts: `address` is the first one's, `rank` an other's
        number. None: the engine cannot, or not by its own words."""
        return None


@dataclass(frozen=True)
class Engine:
    name: str
    """Name in rollout files: `engine: NAME`."""

    title: str
    """Title in sentences."""

    about: str
    """Who serves, for the error that lists the engines."""

    settings: type[Pool]
    opaque: bool = False
    """Which engine answers cannot be known from the settings."""

    namings: Mapping[str, Series] = field(default_factory=dict)
    """Metric names, by the word for them in `monitor.names`; the current ones first."""

    answer_drafts: Callable[[Mapping[str, Any]], RequestDrafts | None] | None = None
    """Reads the drafts of a request out of its answer, or out of an event of a stream. None: its answers
    never report them."""

    ask_for_drafts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a request without which the answer does not report its drafts."""

    owned_by: str | None = None
    """What its list of models says of who serves them. None: nothing that tells it."""

    refused: Mapping[str, str] = field(default_factory=dict)
    """Request parameters that it refuses where it speculates, and the reason."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    """Its names of request parameters, by vLLM's, where they differ."""

    command_line: CommandLine | None = None
    speculation_flags: tuple[str, ...] = ()
    """How the flags begin that turn speculation on or say how."""

    outcomes: tuple[str, ...] = ()
    """Labels of its `cache_config` series that result from the settings, such as the memory that is left."""

    vocabulary_errors: tuple[str, ...] = ()
    """Patterns of the lines in which it refuses a draft of another vocabulary."""

    drafts: DraftSupport | None = None
    k_key: str | None = None
    """The setting of `speculation` that a sweep's recommendation goes into."""

    program: str | None = None
    """How it is mostly called; `doctor` looks for it."""

    survey: Callable[[str], Survey] | None = None
    """What a program of it is; None: only whether it is there can be said."""

    serve: Callable[[Mapping[str, Any]], str] | None = None
    """The command that serves a pool as a result stores it."""

    arm: Callable[[str], Pool] | None = None
    """A pool from `NAME:TEXT` of `specops ab --arm`. Raises UsageError and pydantic's ValidationError."""

    packages: tuple[str, ...] = ()
    """Python packages whose versions are part of what is measured."""


def by_k(pool: Pool, grid: Grid, with_k: Callable[[int, str | None], Pool]) -> list[Setting]:
    """Return a pool for each K and each draft, made by `with_k`. Raises ConfigError for a grid of trees."""
    if grid.trees is not None:
        raise ConfigError(
            f"trees are the embedded engine's, and the speculative pool is of engine {pool.engine}: "
            "expected sweep.k",
            hint=in_rollout("trees", "write k: [3, 5] in its place"),
        )
    drafts: list[tuple[str | None, str | None]] = [*grid.drafts.items()] if grid.drafts else [(None, None)]
    return [Setting(f"k={k}", with_k(k, draft), k, draft=name) for name, draft in drafts for k in grid.ks]


def check_program(program: str) -> None:
    """Raise EnvironmentFailure where this machine does not have it."""
    if shutil.which(program) is None:
        raise EnvironmentFailure(
            f"could not start a server: there is no program {program}: expected one on PATH, or its whole "
            "path",
            hint=f"find / -name {shlex.quote(Path(program).name)} -type f 2>/dev/null",
        )
