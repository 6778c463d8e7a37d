"""What `verify-draft` is asked: checked before any file is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from specops.config import Pool
from specops.serving import ENGINES

if TYPE_CHECKING:
    ServingEngine = str
else:
    ServingEngine = Literal[tuple(name for name, engine in ENGINES.items() if engine.drafts is not None)]


DEFAULT_ENGINE = next(name for name, engine in ENGINES.items() if engine.command_line is not None)


class VerifySettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str = Field(min_length=1)
    draft: str = Field(min_length=1)
    """A folder, a hub id, `exit:LAYERS`, or `ngram` or `suffix`."""

    engine: ServingEngine = DEFAULT_ENGINE
    engine_version: str | None = None
    """None: the newest one that this specops knows."""

    gpu: str | None = None
    """A name of specops.phases.verify_draft.memory, or a number of GiB."""

    tensor_parallel: int = Field(default=1, ge=1)
    allow_degraded: bool = False


def settings_for(pool: Pool) -> VerifySettings | None:
    """What `verify-draft` is asked of `pool`; None where its models are not known.

    A pair that is only degraded passes: it is lossless, and whether it pays is about to be measured.
    """
    pair = pool.pair
    if pair is None:
        return None
    return VerifySettings(
        target=pair.target,
        draft=pair.draft,
        engine=pool.engine,
        engine_version=pair.version,
        tensor_parallel=pair.tensor_parallel,
        allow_degraded=True,
    )
