"""The embedded engine: a pool's settings -> the command line of `specops serve`."""

from __future__ import annotations

import sys

from specops.config import EmbeddedPool
from specops.launch.address import Announced


def command(pool: EmbeddedPool, model: str) -> list[str]:
    """Serve `pool` under the name `model`.

    Port 0 lets the system choose a free one; the server says which in the line that ANNOUNCED matches.
    """
    words = [sys.executable, "-m", "specops", "serve", "--port", "0", "--served-model-name", model]
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
    return words


ANNOUNCED = Announced(r"^serving .* on (http://\S+)")
