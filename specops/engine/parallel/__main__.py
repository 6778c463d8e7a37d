"""A rank other than 0: `python -m specops.engine.parallel JSON`, started by parallel_engine.py."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from specops.engine.load import load_engine
from specops.engine.parallel.parallel_engine import ParallelEngine
from specops.engine.parallel.process_group import Parallel, Ranks, meeting, reported
from specops.errors import SpecopsError


def main() -> int:
    options = json.loads(sys.argv[1])
    rank, parallel = options["rank"], Parallel(options["kind"], options["ranks"])
    try:
        with reported("reach rank 0"):
            store = meeting(Path(options["folder"]), parallel.ranks)
            store.set(f"here/{rank}", "")
        engine = load_engine(**options["load"], ranks=Ranks(parallel, rank, store))
        assert isinstance(engine, ParallelEngine)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent to a whole service: rank 0 decides
        with reported("reach rank 0"):
            store.set(f"loaded/{rank}", "")
        engine.follow()
    except SpecopsError as error:
        print(f"rank {rank}: {error.message}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
