"""Endpoints that are no API, want a key or answer nothing but errors: refused, with the cause."""

from __future__ import annotations

from dataclasses import replace

from fault_rows import EQUAL, ab, baseline
from zoo_knobs import Server

BAD_INPUT = [
    ab(
        "html",
        "the challenger answers HTML",
        replace(EQUAL, bad="html"),
        "refused",
        r"html|web page",
        fast=True,
    ),
    ab("needs_a_key", "the challenger answers 401", replace(EQUAL, bad="401"), "refused", r"API key|401"),
    ab("not_found", "the challenger answers 404", replace(EQUAL, bad="404"), "refused", r"404"),
    ab("always_busy", "the challenger answers 429 without end", replace(EQUAL, bad="429"), "refused", r"429"),
    ab("no_models", "the challenger lists no model", replace(EQUAL, bad="no_models"), "refused", r"no model"),
    ab("loading", "the challenger answers 503", replace(EQUAL, bad="loading"), "refused", r"503|loading"),
    baseline("html", "it answers HTML", Server(bad="html"), "refused", r"html|web page", fast=True),
    baseline("needs_a_key", "it answers 401", Server(bad="401"), "refused", r"API key|401"),
    baseline("not_found", "it answers 404", Server(bad="404"), "refused", r"404"),
    baseline("always_busy", "it answers 429 without end", Server(bad="429"), "refused", r"429|limit"),
    baseline("no_models", "it lists no model", Server(bad="no_models"), "refused", r"no model"),
    baseline("loading", "it answers 503", Server(bad="loading"), "refused", r"503|loading"),
]
