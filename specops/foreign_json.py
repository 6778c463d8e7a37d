"""JSON that another program wrote: read without trust in its shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def object_at(body: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return the JSON object at this path; an empty one where there is none."""
    value: Any = body
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}
