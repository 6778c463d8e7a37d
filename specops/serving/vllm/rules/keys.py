"""Keys of --speculative-config that the version does not have, and values that it does not take."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from operator import methodcaller

from specops.serving.vllm.arguments import CONFIG, SHORTCUTS, ParsedCommand
from specops.serving.vllm.rules.rule import Fix, Found, of_flag, of_key
from specops.serving.vllm.versions import V1_ALONE, Release, Version, table

DASHES = Version((0, 17, 0))
"""The first release that takes dashes for underscores in keys."""

CHECKED = Version((0, 9, 0))
"""From about then on a text that holds a number is read as the number (pydantic); before, it stays a text."""

INSTEAD = {"tensor_parallel_size": "draft_tensor_parallel_size"}
V0_ONLY = (
    "acceptance_method",
    "posterior_threshold",
    "posterior_alpha",
    "disable_mqa_scorer",
    "disable_logprobs",
)
NUMBERS = ("num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max", "draft_tensor_parallel_size")
OF_OTHER_RULES = ("disable_by_batch_size", "speculative_token_tree")


def unread(command: ParsedCommand, release: Release) -> Iterator[Found]:
    if command.unread is not None:
        yield of_flag(
            "error",
            CONFIG,
            f"its value is not a JSON object: {command.unread}",
            """one word in single quotes for the shell: '{"method": "ngram", "num_speculative_tokens": 5}'""",
        )


def unknown(command: ParsedCommand, release: Release) -> Iterator[Found]:
    if not release.keys or not command.keys:
        return
    for key in command.keys:
        spelt = key.replace("-", "_") if release.version >= DASHES else key
        if spelt not in release.keys and spelt not in OF_OTHER_RULES:
            yield _unknown(key, release, command)


def _unknown(key: str, release: Release, command: ParsedCommand) -> Found:
    history = table().history("keys", key)
    plain = key.replace("-", "_").removeprefix("speculative_")
    new = INSTEAD.get(key) or (plain if plain != key and plain in release.keys else None)
    if new is None and key not in V0_ONLY and history is None:
        new = next(iter(difflib.get_close_matches(plain, sorted(release.keys), n=1, cutoff=0.6)), None)
    if history is None:
        why = "no version of vLLM has this key"
    else:
        why = f"vLLM {release.version} does not have it ({history} do)"
    fix: Fix | None = None
    if key in V0_ONLY and release.version >= V1_ALONE:
        fix, replacement = (lambda g: g.without_key(key)), "leave it out"
    elif new is not None and new not in (command.keys or {}):
        value = (command.keys or {})[key]
        fix, replacement = (lambda g: g.without_key(key).with_key(new, value)), new
    elif history is not None:
        replacement = "leave it out, or serve with a version that has it"
    else:
        replacement = new or f"one of: {', '.join(sorted(release.keys))}"
    return of_key("error", key, f"{why}, and an unknown key keeps it from starting", replacement, fix)


def choices(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for key, value in command.literals.items():
        if release.refuses(key, value):
            history = table().history("choices", f"{key}={value}")
            where = f" ({history} do)" if history else ""
            allowed = sorted(c.partition("=")[2] for c in release.choices if c.startswith(f"{key}="))
            why = f"vLLM {release.version} does not take {value!r}{where}, and refuses to start"
            yield of_key("error", key, why, " or ".join(allowed))


def numbers(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """A number in quotes."""
    for key in NUMBERS:
        written = (command.keys or {}).get(key)
        if isinstance(written, str) and written.strip().isdigit() and release.version < CHECKED:
            why = f"it is the text {written!r}: vLLM {release.version} does not read the number in it"
            fix = methodcaller("with_key", key, int(written))
            yield of_key("error", key, why, f"{key} {int(written)}, without quotes", fix)


def twice(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for flag, key in SHORTCUTS.items():
        if command.has(flag) and key in (command.keys or {}):
            yield of_flag(
                "error",
                flag,
                f"{CONFIG} says {key} too, and vLLM {release.version} refuses to start with both",
                f"{CONFIG} {key} alone",
                methodcaller("without", flag),
            )


def trees(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Tree drafts came in 0.9.0 and went, with their attention backend, in 0.21.0."""
    if release.version < Version((0, 21, 0)):
        return
    if command.keys and "speculative_token_tree" in command.keys:
        yield of_key(
            "error",
            "speculative_token_tree",
            f"{table().history('keys', 'speculative_token_tree')} have it; vLLM drafts chains only now",
            "num_speculative_tokens",
            lambda g: g.without_key("speculative_token_tree"),
        )
    backend = command.value("--attention-backend") or command.environment.get("VLLM_ATTENTION_BACKEND")
    if backend == "TREE_ATTN":
        yield of_flag(
            "error", "TREE_ATTN", "the attention backend of tree drafts went in 0.21.0", "another backend"
        )
