"""What launch.json keeps: the files that were written, and of each pool what is to be known of its start."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from specops.phases.capacity import Capacity
from specops.serving import Condition, Finding

RENDERED = "rendered"
COMPOSE = f"{RENDERED}/compose.yaml"


class RenderedPool(BaseModel):
    """`data.pools.NAME` of launch.json. Commands of a pool that runs already are empty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str
    version: str | None
    """Of the engine that the command is for; None where it does not depend on one."""

    judged: str | None = None
    """The engine's release that `findings` and `conditions` hold for, in words."""

    command: list[str]
    in_a_container: list[str]
    findings: list[Finding]
    left_out: dict[str, str]
    """What was not rendered, and why."""

    conditions: list[Condition] = []
    """What the engine chooses by itself."""


class Rendered(BaseModel):
    """`data` of launch.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str
    """The run folder, as it was given."""

    files: list[str]
    """Relative to it."""

    pools: dict[str, RenderedPool]
    capacity: Capacity
