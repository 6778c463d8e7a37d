"""The switch of every router, whichever routers they are."""

from __future__ import annotations

from typing import Literal

from specops.actions.action import Action, Site, Target


class RouterAction(Action):
    """The switch of every router in addresses.routers."""

    kind: Literal["router"]

    def targets(self, site: Site) -> list[Target]:
        return list(site.routers)
