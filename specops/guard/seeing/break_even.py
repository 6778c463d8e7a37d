"""What a sweep says of the acceptance at which speculation breaks even. Alerts go by it as well."""

from __future__ import annotations

from typing import Any

from specops.config import Pool
from specops.results import Result


def break_even(deployed: Pool, sweep: Result) -> float | None:
    """Accepted over drafted tokens below which a token takes longer than without, of the setting that is
    deployed, where the sweep had it; else of the one that it recommends. None where it says nothing of
    either, or is no sweep."""
    if sweep.phase != "sweep":
        return None
    as_written = deployed.model_dump(mode="json")
    swept: dict[str, Any] = sweep.settings.get("settings") or {}
    for step in sweep.data.get("steps") or []:
        if isinstance(step, dict) and swept.get(str(step.get("setting"))) == as_written:
            return _share(step.get("break_even_acceptance"))
    if sweep.verdict != "yes":
        return None
    return _share((sweep.recommendation or {}).get("break_even_acceptance"))


def _share(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else None
