"""What is installed only where it is asked for: the extras of the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from specops.errors import EnvironmentFailure


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around imports. EnvironmentFailure, that `what` could not be done, where one of them is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise EnvironmentFailure(
            f"could not {what}: {error.name} is not installed",
            hint=f"install the {name} extra: pip install 'specops[{name}]'",
        ) from error
