"""-O and its dotted forms, whose meaning changed from release to release."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import methodcaller

from specops.serving.vllm.given import Given, as_json
from specops.serving.vllm.rules.rule import Found, of_flag
from specops.serving.vllm.versions import Release, Version

LEVELS = Version((0, 12, 0))
"""From then on -O is --optimization-level; before, it was the short form of --compilation-config. 0.12 still
took -O.KEY for the latter and warned (utils/argparse_utils.py)."""

CONFIG = "--compilation-config"
KEYS = {"level": "mode"}
"""Renamed in 0.11.1; the levels are the modes' numbers."""


WITHOUT_LEVEL = Version((0, 18, 0))
"""The first release whose --compilation-config refuses the key level."""


def dotted(given: Given, release: Release) -> Iterator[Found]:
    if release.version < LEVELS:
        return
    why = f"since {LEVELS} -O is the optimization level, and --compilation-config has the keys"
    for option in given.options:
        if option.flag.startswith("-O."):
            key = option.flag.removeprefix("-O.")
            new = f"{CONFIG}.{KEYS.get(key, key)}"
            fix = methodcaller("renamed", option.flag, new)
            if release.version == LEVELS:
                yield of_flag("warning", option.flag, f"{why}: {LEVELS} warns", new, fix)
            else:
                refuses = f"{why}: vLLM {release.version} refuses to start"
                yield of_flag("error", option.flag, refuses, new, fix)
        elif option.flag == "-O" and option.values and option.values[0].startswith("{"):
            refuses = f"{why}: vLLM {release.version} refuses to start"
            yield of_flag("error", "-O", refuses, CONFIG, methodcaller("renamed", "-O", CONFIG))


def level(given: Given, release: Release) -> Iterator[Found]:
    config = as_json(given.value(CONFIG) or "")
    if release.version >= LEVELS and isinstance(config, int) and not isinstance(config, bool):
        why = f"it takes JSON of keys; the levels are modes, and vLLM {release.version} refuses a bare one"
        fix = methodcaller("with_option", CONFIG, json.dumps({"mode": config}))
        yield of_flag("error", CONFIG, why, f"{CONFIG} '{{\"mode\": {config}}}'", fix)
    if release.version >= WITHOUT_LEVEL and isinstance(config, dict) and "level" in config:
        why = f"the key level became mode, and vLLM {release.version} refuses it"
        renamed = {KEYS.get(key, key): value for key, value in config.items()}
        fix = methodcaller("with_option", CONFIG, json.dumps(renamed))
        yield of_flag("error", f"{CONFIG} level", why, "mode", fix)
