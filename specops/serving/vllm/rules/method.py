"""The method, the draft and how many tokens: what has to be there, and what vLLM makes of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from specops.serving.vllm.arguments import ParsedCommand
from specops.serving.vllm.rules.rule import Found, is_whole, of_key
from specops.serving.vllm.settings import needs_draft, plain
from specops.serving.vllm.versions import V1_ALONE, Release, Version, table

NO_DRAFT_MODEL = (Version((0, 10, 0)), Version((0, 14, 1)))
"""First and last of the releases that refuse method draft_model."""
MTP_FOR_ALL = Version((0, 11, 0))
"""The first release whose method mtp stands for deepseek_mtp and its like, which warn from then on."""
LENGTH_IN_DRAFT = ("mtp", "mlp_speculator", "dspark", "medusa")
"""Methods whose draft says how many tokens, where a draft is named (config/speculative.py, n_predict)."""

PATHS = (
    # text, the method that vLLM takes for it, the first release that does
    ("eagle-", "eagle", Version((0, 8, 5))),
    ("eagle3", "eagle3", Version((0, 10, 2))),
    ("dflash", "dflash", Version((0, 20, 0))),
    ("dspark", "dspark", Version((0, 25, 0))),
)
"""What vLLM makes of a draft's path, unless the method is one of these already: whatever it is."""


def missing(command: ParsedCommand, release: Release) -> Iterator[Found]:
    keys = command.speculation
    if not command.speculates or command.opaque or "method" in keys:
        return
    if "model" not in keys:
        if keys:
            why = "there is neither a method nor a model: vLLM refuses to start"
            yield of_key("error", "method", why, "method ngram, or draft_model with its model")
        return
    model = command.literals.get("model")
    if not isinstance(model, str):
        return
    if model in ("ngram", "[ngram]"):
        yield of_key(
            "warning",
            "method",
            "left out, and the name of a method in the place of a draft",
            "method ngram, and no model",
            lambda g: g.without_key("model").with_key("method", "ngram"),
        )
        return
    named = (method for text, method in NAMED if text in model.lower())  # vLLM's own list
    by_name = next((m for m in named if not release.methods or m in release.methods), "draft_model")
    guess = _guessed(model, release) or by_name
    yield of_key(
        "warning",
        "method",
        f"left out: vLLM guesses it from the draft's path and config, and {model} may be something else",
        f"method {guess}, if that is what it is",
        lambda g: g.with_key("method", guess),
    )


def unknown(command: ParsedCommand, release: Release) -> Iterator[Found]:
    method = command.literals.get("method")
    if method is None or not release.methods or method == "[ngram]":  # an old spelling, still taken
        return
    if not isinstance(method, str) or method not in release.methods:
        history = table().history("methods", str(method))
        near = difflib.get_close_matches(str(method), sorted(release.methods), n=1)
        if history:
            why = f"vLLM {release.version} does not have {method} ({history} do)"
            instead = "a draft of another kind: eagle3, draft_model, or ngram, which needs none"
            yield of_key("error", "method", why, instead)
        elif near:
            why = f"no version of vLLM has the method {method}"
            yield of_key("error", "method", why, near[0], lambda g: g.with_key("method", near[0]))
        else:
            why = f"no version of vLLM has the method {method}"
            yield of_key("error", "method", why, ", ".join(sorted(release.methods)))
    elif str(method).endswith("_mtp") and release.version >= MTP_FOR_ALL:
        yield of_key(
            "warning",
            "method",
            f"{method} warns that mtp takes its place",
            "mtp",
            lambda g: g.with_key("method", "mtp"),
        )
    elif method == "draft_model" and NO_DRAFT_MODEL[0] <= release.version <= NO_DRAFT_MODEL[1]:
        yield of_key(
            "error",
            "method",
            f"{NO_DRAFT_MODEL[0]} to {NO_DRAFT_MODEL[1]} do not implement draft_model, and refuse to start",
            "vLLM 0.15.0 or newer, or another method: eagle3, ngram",
        )
    elif method == "mlp_speculator" and release.version >= V1_ALONE:
        why = f"{V1_ALONE} and newer take the method and have no such model: they refuse to start"
        yield of_key("error", "method", why, "another method: eagle3, draft_model, ngram")


def read_from_path(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Yield what vLLM reads from a draft's path outweighs a method, unless it is one of those."""
    method, model = command.literals.get("method"), command.literals.get("model")
    if not isinstance(model, str) or not isinstance(method, str) or not needs_draft(method):
        return
    # eagle3 was taken at its word before a path could mean it.
    trusted = ["eagle3", *(implied for _, implied, first in PATHS if release.version >= first)]
    guess = _guessed(model, release)
    if method not in trusted and guess is not None and guess != method:
        text = next(text for text, implied, _ in PATHS if implied == guess)
        yield of_key(
            "error",
            "model",
            f"vLLM takes any draft with '{text}' in its path for {guess}, though the method says {method}",
            f"the draft under a path without '{text}', or method {guess} if that is what it is",
        )
    elif method == "eagle" and "eagle3" in model.lower().replace("-", "").replace("_", ""):
        yield of_key(
            "warning",
            "method",
            f"{model} is an EAGLE-3 head by its name, and vLLM will take it for EAGLE-1",
            "eagle3",
            (lambda g: g.with_key("method", "eagle3")) if "eagle3" in release.methods else None,
        )


def missing_draft(command: ParsedCommand, release: Release) -> Iterator[Found]:
    method = _usable(command, release)
    if method is not None and "model" not in command.speculation and needs_draft(method):
        why = f"method {method} needs a draft: vLLM refuses to start"
        yield of_key("error", "model", why, "its path or id")
    if method == "suffix":
        why = "it needs a package that vLLM does not bring"
        yield of_key("note", "method", why, "pip install arctic-inference==0.1.1")


def missing_tokens(command: ParsedCommand, release: Release) -> Iterator[Found]:
    method = _usable(command, release)
    if "num_speculative_tokens" not in command.speculation:
        if method is None or method == "suffix":
            return
        if plain(method) in LENGTH_IN_DRAFT and "model" in command.speculation:
            return
        tokens = 1 if plain(method) == "mtp" else 5
        why = f"method {method} needs num_speculative_tokens: vLLM refuses to start"
        yield of_key(
            "error",
            "num_speculative_tokens",
            why,
            f"{tokens} to start from, and `specops sweep ROLLOUT` to find the best",
            lambda g: g.with_key("num_speculative_tokens", tokens),
        )
        return
    written = command.literals.get("num_speculative_tokens", 1)
    if not is_whole(written) or written < 1:
        why = f"it is {written!r}, and must be a whole number of at least 1"
        yield of_key("error", "num_speculative_tokens", why, "1 or more; for none, leave speculation out")


def _usable(command: ParsedCommand, release: Release) -> str | None:
    """The method, where it is known and the release has it; `unknown` reports others."""
    method = command.literals.get("method")
    if not isinstance(method, str) or (release.methods and method not in release.methods):
        return None
    return method


NAMED = (
    ("eagle3", "eagle3"),
    ("eagle-3", "eagle3"),
    ("eagle", "eagle"),
    ("dflash", "dflash"),
    ("dspark", "dspark"),
    ("medusa", "medusa"),
    ("assistant", "mtp"),
    ("mtp", "mtp"),
)
"""What drafts are called, and their methods. Gemma 4's assistants share the target's KV cache: MTP."""


def _guessed(model: str, release: Release) -> str | None:
    for text, method, first in PATHS:
        if text in model.lower() and release.version >= first:
            return method
    return None
