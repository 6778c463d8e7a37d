"""Renders nginx/examples: the router of one rollout file, with Lua and without. `make generate` runs it."""

from __future__ import annotations

from pathlib import Path

from specops.config import load
from specops.phases.route import CONF, SWITCH, of, text
from specops.phases.route.thresholds import rules

EXAMPLES = Path(__file__).parents[1] / "nginx" / "examples"


def files() -> dict[str, str]:
    """Each example's text by its name. What was measured is left out: the playbook's values are shown."""
    rollout = load(EXAMPLES / "rollout.yaml")
    router = of(rollout, rules(rollout, EXAMPLES / "run"))
    with_lua, native = text(router), text(router, without_lua=True)
    return {
        CONF: with_lua[CONF],
        "rules.lua": with_lua["lua/specops/rules.lua"],
        "native.conf": native[CONF],
        SWITCH: native[SWITCH],
    }


def main() -> None:
    for name, content in files().items():
        (EXAMPLES / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
