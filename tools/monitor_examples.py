"""Writes alerts/examples/baseline.json and ab.json from a run of alerts/examples/rollout.yaml.

    specops run alerts/examples/rollout.yaml --only baseline --out FOLDER
    specops run alerts/examples/rollout.yaml --only ab --out FOLDER
    python tools/monitor_examples.py FOLDER && make generate

Single requests and settings are left out, and paths are relative to the repository: what remains is what rules
and alerts are made of. Each result is sealed anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from specops.results import sealed

ROOT = Path(__file__).resolve().parents[1]
KEPT = {
    "baseline": ("acceptance", "acceptance_missing", "by_concurrency", "endpoint", "errors", "percentiles"),
    "ab": (
        *("arms", "best", "challengers", "confidence_of_classes", "confidence_of_levels", "differences"),
        *("drift", "expected", "format", "parity_missing", "standard"),
    ),
}


def main(folder: Path) -> None:
    for phase, names in KEPT.items():
        text = (folder / f"{phase}.json").read_text(encoding="utf-8")
        made = json.loads(text.replace(f"{ROOT}/", "").replace(str(ROOT), "."))
        made["settings"] = {}
        made["data"] = {name: made["data"][name] for name in names}
        (ROOT / "alerts" / "examples" / f"{phase}.json").write_text(sealed(made), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
