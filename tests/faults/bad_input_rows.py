"""Endpoints that are no API, want a key or answer nothing but errors: refused, with the cause."""

from __future__ import annotations

from dataclasses import replace

from fault_rows import EQUAL, FASTER, ab, baseline, sweep
from zoo_knobs import Bad, Server

BAD: dict[Bad, tuple[str, str]] = {
    "html": ("HTML", r"html|web page"),
    "401": ("401", r"API key|401"),
    "404": ("404", r"404"),
    "429": ("429 without end", r"429|limit"),
    "no_models": ("that it lists no model", r"no model"),
    "loading": ("503", r"503|loading"),
    "http2": ("HTTP/2 alone", r"HTTP/2 alone"),
}
"""What it answers, and the words that say so."""

BAD_INPUT = [
    row
    for bad, (answer, says) in BAD.items()
    for row in (
        ab(
            bad,
            f"the challenger answers {answer}",
            replace(EQUAL, bad=bad),
            "refused",
            says,
            fast=bad == "html",
        ),
        sweep(bad, f"K 3 answers {answer}", [replace(EQUAL, bad=bad), FASTER], "refused", says),
        baseline(bad, f"it answers {answer}", Server(bad=bad), "refused", says, fast=bad == "html"),
    )
]
