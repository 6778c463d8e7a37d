"""The command line as tests call it: in this process, where a process of its own is not the point.

Python and the libraries of a command take a second of CPU to start, which most tests need not pay.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from unittest import mock

from published_schemas import check_printed, check_result

from specops import results
from specops.cli import app


def specops(*words: str) -> subprocess.CompletedProcess[str]:
    """What `specops WORDS…` says into pipes, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["specops", *words]),
        mock.patch.object(results, "listeners", [*results.listeners, check_result]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            app.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    check_printed(words, out.getvalue())
    return subprocess.CompletedProcess(["specops", *words], code, out.getvalue(), err.getvalue())
