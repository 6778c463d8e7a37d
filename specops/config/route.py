"""The section `route` of the rollout file: the general settings, and a section for each router."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from specops.router import ROUTERS, Router, RouteSettings

if TYPE_CHECKING:
    _Sections = RouteSettings
else:
    _Sections = create_model(
        "_Sections",
        __base__=RouteSettings,
        **{
            name: (
                router | None,
                Field(default=None, description=f"Settings of {router.title}; default: its own defaults."),
            )
            for name, router in ROUTERS.items()
        },
    )


class Route(_Sections):
    """Routing of requests between the pools, as `specops route render` writes it, by thresholds from this
    file, measurements or defaults."""

    @property
    def router(self) -> Router:
        """Return the router whose section is written; without one, the first of the registry."""
        sections: list[Router] = [getattr(self, name) for name in ROUTERS]
        return next((router for router in sections if router is not None), next(iter(ROUTERS.values()))())

    @model_validator(mode="after")
    def _one_router(self) -> Route:
        written = [name for name in ROUTERS if getattr(self, name) is not None]
        if len(written) > 1:
            raise PydanticCustomError(
                "routers",
                "the sections {names} are of several routers",
                {"names": " and ".join(written), "advice": "keep the section of the router that you run"},
            )
        return self
