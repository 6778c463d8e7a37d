"""Renders nginx/examples: the router of one rollout file, with Lua and without. `make generate` runs it."""

from __future__ import annotations

from pathlib import Path

from specops.config import load
from specops.phases.route import files_of
from specops.router.nginx import CONF, RULES, SWITCH, Nginx

EXAMPLES = Path(__file__).parents[1] / "nginx" / "examples"


def files() -> dict[str, str]:
    """Each example's text by its name. What was measured is left out: the playbook's values are shown."""
    rollout = load(EXAMPLES / "rollout.yaml")
    nginx = Nginx.model_validate(rollout.route.router.model_dump() | {"lua": False})
    without = rollout.model_copy(update={"route": rollout.route.model_copy(update={nginx.name: nginx})})
    with_lua, native = (files_of(variant, EXAMPLES / "run") for variant in (rollout, without))
    return {
        CONF: with_lua[CONF],
        "rules.lua": with_lua[RULES],
        "native.conf": native[CONF],
        SWITCH: native[SWITCH],
    }


def main() -> None:
    for name, content in files().items():
        (EXAMPLES / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
