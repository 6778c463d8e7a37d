"""What the commands that serve have in common: their options, and where their log goes."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

HostOption = Annotated[str, typer.Option(help="Address to listen on.")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
MaxQueueOption = Annotated[
    int, typer.Option(min=0, help="Sequences that may wait; above it the answer is 429.")
]
GraceOption = Annotated[
    float, typer.Option(min=0, help="Seconds that running requests have to finish in at the end.")
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="Threads that PyTorch computes with.")]


def log_to_stderr(*, quiet: bool) -> None:
    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO,
        format="%(levelname)s: %(message)s",
        stream=sys.stderr,
    )
