"""Keys of --speculative-config that the version does not have, and values that it does not take."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from operator import methodcaller

from specops.launch.vllm.given import CONFIG, SHORTCUTS, Given
from specops.launch.vllm.rules import Found, Mend, of_flag, of_key
from specops.launch.vllm.versions import Release, Version, table

V1_ALONE = Version((0, 10, 0))
"""The first release without the V0 engine."""

DASHES = Version((0, 17, 0))
"""The first release that takes dashes for underscores in keys."""
INSTEAD = {"tensor_parallel_size": "draft_tensor_parallel_size"}
V0_ONLY = (
    "acceptance_method",
    "posterior_threshold",
    "posterior_alpha",
    "disable_mqa_scorer",
    "disable_logprobs",
)


def unread(given: Given, release: Release) -> Iterator[Found]:
    if given.unread is not None:
        yield of_flag(
            "error",
            CONFIG,
            f"its value is no JSON object: {given.unread}",
            """one word in single quotes for the shell: '{"method": "ngram", "num_speculative_tokens": 5}'""",
        )


def unknown_keys(given: Given, release: Release) -> Iterator[Found]:
    if not release.keys or not given.keys:
        return
    for key in given.keys:
        known = key.replace("-", "_") if release.version >= DASHES else key
        if known not in release.keys and known not in ("disable_by_batch_size", "speculative_token_tree"):
            yield _unknown(key, release, given)


def unknown_choices(given: Given, release: Release) -> Iterator[Found]:
    for key, value in given.speculation.items():
        if release.refuses(key, value):
            history = table().history("choices", f"{key}={value}")
            known = f" ({history} do)" if history else ""
            taken = sorted(c.partition("=")[2] for c in release.choices if c.startswith(f"{key}="))
            why = f"vLLM {release.version} does not take {value!r}{known}, and refuses to start"
            yield of_key("error", key, why, " or ".join(taken))


def twice(given: Given, release: Release) -> Iterator[Found]:
    for flag, key in SHORTCUTS.items():
        if given.has(flag) and key in (given.keys or {}):
            yield of_flag(
                "error",
                flag,
                f"{CONFIG} says {key} too, and vLLM {release.version} refuses to start with both",
                f"{CONFIG} {key} alone",
                methodcaller("without", flag),
            )


def trees(given: Given, release: Release) -> Iterator[Found]:
    """Tree drafts came in 0.9.0 and went, with their attention backend, in 0.21.0."""
    if release.version < Version((0, 21, 0)):
        return
    if given.keys and "speculative_token_tree" in given.keys:
        yield of_key(
            "error",
            "speculative_token_tree",
            f"{table().history('keys', 'speculative_token_tree')} have it; vLLM drafts chains only now",
            "num_speculative_tokens",
            lambda g: g.without_key("speculative_token_tree"),
        )
    backend = given.value("--attention-backend") or ""
    if "TREE_ATTN" in (backend, *(word.partition("=")[2] for word in given.program)):
        yield of_flag(
            "error", "TREE_ATTN", "the attention backend of tree drafts went in 0.21.0", "another backend"
        )


def lengths(given: Given, release: Release) -> Iterator[Found]:
    limit = given.speculation.get("max_model_len")
    if limit is not None:
        yield of_key(
            "note",
            "max_model_len",
            "longer sequences may be drafted for all the same, and accepted hardly (vllm#52258)",
            "measure prompts of the length you serve, or route long ones to the standard pool",
        )


def ngrams(given: Given, release: Release) -> Iterator[Found]:
    keys = given.speculation
    if keys.get("method") not in ("ngram", "ngram_gpu"):
        return
    low, high = keys.get("prompt_lookup_min"), keys.get("prompt_lookup_max")
    for key, value in (("prompt_lookup_min", low), ("prompt_lookup_max", high)):
        if value is not None and (not isinstance(value, int) or value < 1):
            yield of_key("error", key, f"it is {value!r}, and must be at least 1", "1 or more")
            return
    if low is None and high is None:
        why = "both left out: vLLM looks up n-grams of 5 tokens and no shorter"
        yield of_key("note", "prompt_lookup_min", why, "measure 2 to 5")
    elif low is not None and high is not None and low > high:
        yield of_key(
            "error",
            "prompt_lookup_min",
            f"it is {low}, more than prompt_lookup_max, {high}: vLLM refuses to start",
            f"prompt_lookup_min {high}, prompt_lookup_max {low}",
            lambda g: g.with_key("prompt_lookup_min", high).with_key("prompt_lookup_max", low),
        )


def sampling(given: Given, release: Release) -> Iterator[Found]:
    keys = given.speculation
    rule = keys.get("rejection_sample_method")
    rates, length = keys.get("synthetic_acceptance_rates"), keys.get("synthetic_acceptance_length")
    if rule == "synthetic":
        yield of_key(
            "error",
            "rejection_sample_method",
            "synthetic accepts drafts by chance, whatever the target says: answers are not the target's. "
            "It is for load tests",
            "standard",
            lambda g: (
                g.without_key("rejection_sample_method")
                .without_key("synthetic_acceptance_rates")
                .without_key("synthetic_acceptance_length")
                .without_key("synthetic_acceptance_rate")
            ),
        )
    elif rates is not None or length is not None:
        key = "synthetic_acceptance_rates" if rates is not None else "synthetic_acceptance_length"
        why = "it is for rejection_sample_method synthetic alone: vLLM refuses to start"
        yield of_key("error", key, why, "leave it out", lambda g: g.without_key(key))
    if rule == "fly" and not release.refuses("rejection_sample_method", rule):
        why = "fly accepts drafts that the target would not have said: answers differ from the target's"
        yield of_key("warning", "rejection_sample_method", why, "standard or block, which are lossless")


def vocabularies(given: Given, release: Release) -> Iterator[Found]:
    keys = given.speculation
    if not keys.get("use_heterogeneous_vocab"):
        return
    if keys.get("method", "draft_model") != "draft_model":
        why = f"it is for method draft_model; with {keys['method']} vLLM refuses to start"
        yield of_key(
            "error", "use_heterogeneous_vocab", why, None, lambda g: g.without_key("use_heterogeneous_vocab")
        )
    elif keys.get("draft_sample_method", "greedy") != "greedy":
        why = "with use_heterogeneous_vocab vLLM takes greedy drafts only, and refuses to start"
        yield of_key(
            "error",
            "draft_sample_method",
            why,
            "greedy",
            lambda g: g.with_key("draft_sample_method", "greedy"),
        )


def _unknown(key: str, release: Release, given: Given) -> Found:
    history = table().history("keys", key)
    plain = key.replace("-", "_").removeprefix("speculative_")
    new = INSTEAD.get(key) or (plain if plain != key and plain in release.keys else None)
    if new is None and key not in V0_ONLY and history is None:
        new = next(iter(difflib.get_close_matches(plain, sorted(release.keys), n=1, cutoff=0.6)), None)
    if history is None:
        why = "no version of vLLM has this key"
    else:
        why = f"vLLM {release.version} does not have it ({history} do)"
    mend: Mend | None = None
    if key in V0_ONLY and release.version >= V1_ALONE:
        mend, replacement = (lambda g: g.without_key(key)), "leave it out"
    elif new is not None and new not in (given.keys or {}):
        value = (given.keys or {})[key]
        mend, replacement = (lambda g: g.without_key(key).with_key(new, value)), new
    elif history is not None:
        replacement = "leave it out, or serve with a version that has it"
    else:
        replacement = new or f"one of: {', '.join(sorted(release.keys))}"
    return of_key("error", key, f"{why}, and an unknown key keeps it from starting", replacement, mend)
