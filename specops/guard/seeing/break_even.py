"""What a sweep says of the acceptance at which speculation breaks even. Alerts go by it as well."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from specops.config import Pool
from specops.results import Result


def break_even(deployed: Pool, sweep: Result) -> float | None:
    """Accepted over drafted tokens below which a token takes longer than without, of the setting that is
    deployed. None where `sweep` did not measure that setting, or is not a result of a sweep: another setting
    breaks even elsewhere."""
    if sweep.phase != "sweep":
        return None
    ours = _wherever(deployed.model_dump(mode="json"))
    swept: dict[str, Any] = sweep.settings.get("settings") or {}
    for step in sweep.data.get("steps") or []:
        if isinstance(step, dict) and _wherever(swept.get(str(step.get("setting")))) == ours:
            return _share(step.get("break_even_acceptance"))
    return None


def _wherever(pool: Any) -> Any:
    """A pool's settings without the place of its model folders: a rollout that was copied, or is named by
    another path, has the same. Whether the folders' content changed is a matter of the result's inputs."""
    if not isinstance(pool, dict):
        return pool
    speculation = pool.get("speculation")
    if isinstance(speculation, dict) and speculation.get("draft"):
        speculation = speculation | {"draft": PurePath(str(speculation["draft"])).name}
    return {name: value for name, value in pool.items() if name != "target"} | {"speculation": speculation}


def _share(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else None
