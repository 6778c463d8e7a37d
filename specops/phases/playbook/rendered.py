"""A phase that renders files for pools and their router."""

from __future__ import annotations

from abc import abstractmethod

from pydantic import BaseModel, ConfigDict

from specops.errors import ConfigError
from specops.phases.phase import Phase, PhaseInput, Skipped, Step
from specops.phases.route.thresholds import servers
from specops.prometheus.series import POOLS
from specops.results import Result


class RenderedFiles(BaseModel):
    """The part of a result that names the rendered files."""

    model_config = ConfigDict(frozen=True)

    files: list[str]
    """Paths relative to the run folder."""


class RenderedPhase(Phase):
    """It is skipped while the address of a pool is unknown: specops starts that pool only to measure it."""

    data = RenderedFiles

    @abstractmethod
    def render(self, task: PhaseInput) -> Result:
        """Write the files. Raises ConfigError, FileError."""

    def run(self, task: PhaseInput) -> Step | Skipped:
        try:
            for pool in POOLS:
                servers(task.rollout, pool)
        except ConfigError as error:
            return Skipped(self.name, error.message, error.hint)
        return self.write(task, self.render(task))
