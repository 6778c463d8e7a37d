"""The two pools of a rollout, each in its engine's own section, and what they must have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.section import Section
from specops.serving import ENGINES, Pool

if TYPE_CHECKING:
    AnyPool = Pool
else:
    AnyPool = Annotated[
        Union[tuple(engine.settings for engine in ENGINES.values())],  # noqa: UP007
        Field(discriminator="engine"),
    ]


class Pools(Section):
    standard: AnyPool = Field(description="Without speculation: what the other is compared with.")
    speculative: AnyPool = Field(description="With speculation.")

    @model_validator(mode="after")
    def _one_speculates(self) -> Pools:
        if self.standard.speculates:
            raise PydanticCustomError(
                "pools",
                "the standard pool must not have speculation",
                {"hint": "remove pools.standard.speculation: it is what the other pool is compared with"},
            )
        if self.speculative.speculates is False:
            raise PydanticCustomError(
                "pools",
                "the speculative pool has no speculation",
                {"hint": "add pools.speculative.speculation, such as tree: chain:3"},
            )
        return self

    @model_validator(mode="after")
    def _nothing_else_differs(self) -> Pools:
        one, other = self.standard.comparable, self.speculative.comparable
        if one is None or other is None or self.standard.engine != self.speculative.engine:
            return self
        unlike = sorted(key for key in {**one, **other} if one.get(key) != other.get(key))
        if unlike:
            raise PydanticCustomError(
                "pools",
                "the pools differ in more than speculation: {keys}",
                {
                    "keys": ", ".join(unlike),
                    "hint": "write the same for both: what else differs would be measured as speculation",
                },
            )
        return self
