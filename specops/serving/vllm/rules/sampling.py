"""How drafts are looked up, sampled and accepted."""

from __future__ import annotations

from collections.abc import Iterator

from specops.serving.vllm.given import Given
from specops.serving.vllm.rules.rule import Found, is_whole, of_key
from specops.serving.vllm.versions import Release


def ngrams(given: Given, release: Release) -> Iterator[Found]:
    keys = given.known
    if keys.get("method") not in ("ngram", "ngram_gpu"):
        return
    low, high = keys.get("prompt_lookup_min"), keys.get("prompt_lookup_max")
    for key, value in (("prompt_lookup_min", low), ("prompt_lookup_max", high)):
        if value is not None and (not is_whole(value) or value < 1):
            yield of_key("error", key, f"it is {value!r}, and must be at least 1", "1 or more")
            return
    if not {"prompt_lookup_min", "prompt_lookup_max"} & given.speculation.keys():
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


def lengths(given: Given, release: Release) -> Iterator[Found]:
    if "max_model_len" in given.speculation:
        yield of_key(
            "note",
            "max_model_len",
            "longer sequences may be drafted for all the same, and accepted hardly (vllm#52258)",
            "measure prompts of the length you serve, or route long ones to the standard pool",
        )


def acceptance(given: Given, release: Release) -> Iterator[Found]:
    keys = given.known
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
    keys = given.known
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
