"""`exit:LAYERS` in place of a draft's folder: the target's own first layers draft for it."""

from __future__ import annotations

import re

from specops.errors import UsageError


def exit_layers(draft: str) -> int | None:
    """After how many layers; None where `draft` names a folder. UsageError where it is neither."""
    if not draft.startswith("exit:"):
        return None
    number = re.fullmatch(r"exit:([1-9]\d{0,3})", draft)
    if number is None:
        raise UsageError(
            f"could not take {draft!r} for a draft: after exit: stands a number of layers",
            hint="such as exit:2",
        )
    return int(number[1])
