"""The embedded engine: a pool's settings -> the command line of `specops serve`."""

from __future__ import annotations

import sys

from specops.config import EmbeddedPool
from specops.launch.address import Announced

SERVED_AS = "specops"
"""What its model is called wherever settings are compared: the same, so that requests are the same bytes."""


def command(pool: EmbeddedPool, model: str) -> list[str]:
    """Serve `pool` under the name `model`, on a free port of the system's choice.

    The server says which in the line that ANNOUNCED matches.
    """
    return [sys.executable, "-m", "specops", *arguments(pool, model, port=0)]


def arguments(pool: EmbeddedPool, model: str, *, port: int) -> list[str]:
    """What comes behind `specops`."""
    words = ["serve", "--port", str(port), "--served-model-name", model]
    words += ["--max-batch", str(pool.max_batch)]
    if pool.target is not None:
        words += ["--target", str(pool.target)]
    if pool.speculation is None:
        words += ["--no-speculation"]
    else:
        if pool.speculation.draft is not None:
            words += ["--draft", str(pool.speculation.draft)]
        words += ["--tree", pool.speculation.tree]
        if pool.speculation.verifier is not None:
            words += ["--verifier", pool.speculation.verifier]
    if pool.max_length is not None:
        words += ["--max-length", str(pool.max_length)]
    if pool.threads is not None:
        words += ["--threads", str(pool.threads)]
    for name in ("device", "dtype", "attention"):
        if (value := getattr(pool, name)) != EmbeddedPool.model_fields[name].default:
            words += [f"--{name}", value]
    return words if pool.graphs else [*words, "--no-graphs"]


ANNOUNCED = Announced(r"^serving .* on (http://\S+)")
