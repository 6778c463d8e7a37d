"""The chart's tests check commands as those of the guide do, and run what tests of real routers run."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("unit", "real"):
    sys.path.append(str(Path(__file__).parents[1] / folder))
