"""No speed is called a drift or a cache, and no client a bottleneck: for tests of other things.

Their servers answer within milliseconds, so a busy machine shows all three. The verdict would then be
undecided, and rightly so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def any_speed_passes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specops.load.validity.DRIFT", math.inf)
        patch.setattr("specops.load.validity.CACHED", math.inf)
        patch.setattr("specops.load.record.client_bound", lambda _: None)
        patch.setattr("specops.load.record.behind_schedule", lambda _: None)
        yield
