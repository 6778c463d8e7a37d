"""A pool that specops configures in its engine's own words: what all such engines answer alike."""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic_core import PydanticCustomError

from specops.quantities import Count, Seconds, Tokens
from specops.section import Arguments, Environment, Program, Section
from specops.serving.argv import flag_of
from specops.serving.engine import Grid, Setting, Startable, by_k, check_program

Size = Annotated[Count, Field(ge=1)]
Length = Annotated[Tokens, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]

PLACES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "VLLM_CPU_OMP_THREADS_BIND",
)
"""Variables that say where a server runs: two that run at once cannot share them."""


def unfit(problem: str, advice: str | None) -> PydanticCustomError:
    """Return what an engine refuses of a section `speculation`, or would silently change."""
    return PydanticCustomError("speculation", "{message}", {"message": problem, "advice": advice})


class ConfiguredPool(Startable):
    """An engine's own class adds its settings, its defaults for `version` and `program`, and the command."""

    TARGET: ClassVar[str]
    """The setting that names the target: a folder or a hub id."""

    DRAFT: ClassVar[str]
    """The setting of `speculation` that names the draft, where the method has one."""

    METHOD: ClassVar[str]
    """The setting of `speculation` that names the method."""

    version: str | None = None
    program: Program
    arguments: Arguments = Field(default=[], description="Further arguments at the end of the command.")
    environment: Environment = Field(
        default={},
        description="Environment variables of the server, without secrets, which belong in `deploy.secrets`.",
    )
    speculation: Section | None = None
    start_timeout_s: Seconds = Field(
        default=600.0, gt=0.0, description="Timeout of the server's start, in seconds."
    )

    @classmethod
    def sections(
        cls, target: str | None, draft: str | None, method: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        standard = {cls.TARGET: target, **cls.SIDE_BY_SIDE}
        speculation = {cls.METHOD: method} | ({cls.DRAFT: draft} if draft else {})
        return standard, standard | {"speculation": speculation}

    @abstractmethod
    def at_k(self, k: int) -> dict[str, object]:
        """Return what changes in `speculation` for K drafted tokens."""

    @property
    def target(self) -> str:
        return str(getattr(self, self.TARGET))

    @property
    def draft(self) -> str | None:
        """Return the draft; None where the method needs none, or the pool does not speculate."""
        return None if self.speculation is None else getattr(self.speculation, self.DRAFT)

    @property
    def environment_variables(self) -> Mapping[str, str]:
        return self.environment

    @property
    def models(self) -> Mapping[str, str]:
        draft = {f"speculation.{self.DRAFT}": self.draft} if self.draft else {}
        return {self.TARGET: self.target} | draft

    @property
    def target_folder(self) -> Path:
        return Path(self.target)

    @property
    def programs(self) -> Sequence[str]:
        return (self.program,)

    @property
    def speculates(self) -> bool:
        return self.speculation is not None

    @property
    def comparable(self) -> Mapping[str, Any]:
        """All settings but speculation, where it runs, and how long it may take to start."""
        fields = self.model_dump(exclude={"speculation", "start_timeout_s", "environment"})
        variables = self.environment
        return fields | {f"environment.{name}": variables[name] for name in variables if name not in PLACES}

    def variants(self, grid: Grid) -> list[Setting]:
        return by_k(self, grid, self._with_k)

    def _with_k(self, k: int, draft: str | None) -> ConfiguredPool:
        assert self.speculation is not None  # Pools refuses a speculative pool without it
        update = self.at_k(k) | ({self.DRAFT: draft} if draft else {})
        return self.model_copy(update={"speculation": self.speculation.model_copy(update=update)})

    def flags(self, names: Iterable[str]) -> list[str]:
        """The words of the settings among `names` that are given: --NAME VALUE, with hyphens."""
        settings = ((name, getattr(self, name)) for name in names)
        return [word for name, value in settings if value is not None for word in (flag_of(name), str(value))]

    def _startable(self, words: list[str]) -> list[str]:
        """Return `words` with the pool's environment before them. Raises ConfigError where this machine does
        not have the program."""
        check_program(shlex.split(self.program)[0])
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return ["env", *variables, *words] if variables else words
