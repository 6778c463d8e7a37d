"""Python runs this file at its start where its folder is in PYTHONPATH: servers start from a fork server.

`specops serve` and `specops edge verify-server` take some 2.5 s of CPU to start, nearly all for imports. A
test of what a server does need not pay for them, also where specops itself starts the server.
"""

import os
import sys
from pathlib import Path

VARIABLE = "EMBEDDED_FORK_SERVER"
SERVERS = (["serve"], ["edge", "verify-server"])

if (path := os.environ.get(VARIABLE)) and sys.orig_argv[1:3] == ["-m", "specops"]:
    words = sys.orig_argv[3:]
    if any(words[: len(server)] == server for server in SERVERS):
        sys.path.append(str(Path(__file__).resolve().parents[1]))
        import forked

        forked.request(path, ["-m", "specops", *words])
