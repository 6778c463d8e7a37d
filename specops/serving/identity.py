"""What a pool is, without where it is: how results of one rollout are compared with another spelling of
it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from specops.access import HOW
from specops.net import address


def without_places(pool: Any) -> Any:
    """The settings of a pool, as JSON has them, without the places of its model folders, its key and its
    certificates, and with its address in one spelling. A rollout that was copied, or is named by another
    path, has the same.

    A draft counts by the name of its folder. What is in the folders is compared by the hashes of a result's
    inputs.
    """
    if not isinstance(pool, Mapping):
        return pool
    described = {name: value for name, value in pool.items() if name not in ("target", *HOW)}
    if isinstance(url := described.get("base_url"), str):
        described["base_url"] = address(url)
    speculation = pool.get("speculation")
    if isinstance(speculation, Mapping) and speculation.get("draft"):
        described["speculation"] = {**speculation, "draft": PurePath(str(speculation["draft"])).name}
    return described


def relocated(pool: Mapping[str, Any], places: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """The settings of a pool with its model folders where they are now: `places` by setting and name of the
    folder."""
    moved = dict(pool)
    if isinstance(target := pool.get("target"), str):
        moved["target"] = places.get(("target", PurePath(target).name), target)
    speculation = pool.get("speculation")
    if isinstance(speculation, Mapping) and isinstance(draft := speculation.get("draft"), str):
        moved["speculation"] = {**speculation, "draft": places.get(("draft", PurePath(draft).name), draft)}
    return moved
