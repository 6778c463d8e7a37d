"""Python runs this file at its start where its folder is in PYTHONPATH: servers start from a fork server there.

`specops serve` and `specops edge verify-server` take some 2.5 s of CPU to start, nearly all for imports. A test
of what a server does need not pay for them, also where specops itself starts the server.
"""

import os
import sys

VARIABLE = "EMBEDDED_FORK_SERVER"
SERVERS = (["serve"], ["edge", "verify-server"])

if (path := os.environ.get(VARIABLE)) and sys.orig_argv[1:3] == ["-m", "specops"]:
    words = sys.orig_argv[3:]
    if any(words[: len(server)] == server for server in SERVERS):
        sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        import forked

        forked.request(path, ["-m", "specops", *words])
