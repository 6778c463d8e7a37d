"""What can be wrong with a command line of vLLM. A rule looks at one subject and yields what it finds.

What a version knows is in the table (versions.json), from the released sources. What a version does with
what it knows is here, with the release in whose source it was read, or the thread that reports it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import methodcaller
from typing import Any, NamedTuple

from specops.section import SECRET_FLAGS, SECRET_VARIABLE
from specops.serving.argv import Finding, Level
from specops.serving.vllm.command import LAST_OF_THE_OLD
from specops.serving.vllm.given import CONFIG, SHORTCUTS, Given
from specops.serving.vllm.settings import WITHOUT_A_DRAFT
from specops.serving.vllm.versions import Release, Version, table

Fix = Callable[[Given], Given]


class Found(NamedTuple):
    finding: Finding
    fix: Fix | None = None
    """Changes the command line so that it is not found again; None: a person has to."""


Rule = Callable[[Given, Release], Iterator[Found]]


def of_flag(
    level: Level, flag: str, why: str, replacement: str | None = None, fix: Fix | None = None
) -> Found:
    return Found(Finding(level, flag, why, replacement), fix)


def of_key(level: Level, key: str, why: str, replacement: str | None = None, fix: Fix | None = None) -> Found:
    """About a key of the JSON of --speculative-config."""
    return Found(Finding(level, f"{CONFIG} {key}", why, replacement), fix)


# Flags that the version does not have, has only for a while yet, or that should not be on a command line.


@dataclass(frozen=True)
class Gone:
    """What became of a flag: a key of the JSON, or nothing but the reason."""

    why: str = ""
    key: str | None = None


GONE = {
    "--speculative-model": Gone(key="model"),
    "--num-speculative-tokens": Gone(key="num_speculative_tokens"),
    "--speculative-draft-tensor-parallel-size": Gone(key="draft_tensor_parallel_size"),
    "--speculative-max-model-len": Gone(key="max_model_len"),
    "--speculative-model-quantization": Gone(key="quantization"),
    "--speculative-disable-by-batch-size": Gone(key="disable_by_batch_size"),
    "--ngram-prompt-lookup-min": Gone(key="prompt_lookup_min"),
    "--ngram-prompt-lookup-max": Gone(key="prompt_lookup_max"),
    "--speculative-method": Gone("no version has it: the method is a key of the JSON", key="method"),
    "--speculative-disable-mqa-scorer": Gone("the scorer was the V0 engine's, and went with it in 0.10.0"),
    "--use-v2-block-manager": Gone("the only block manager since 0.8.0; the flag did nothing"),
    "--spec-decoding-acceptance-method": Gone("the V0 engine's, gone with it in 0.10.0"),
    "--typical-acceptance-sampler-posterior-threshold": Gone("the V0 engine's, gone with it in 0.10.0"),
    "--typical-acceptance-sampler-posterior-alpha": Gone("the V0 engine's, gone with it in 0.10.0"),
    "--disable-logprobs-during-spec-decoding": Gone("logprobs come with speculation too"),
    "--disable-frontend-multiprocessing": Gone(
        "it never had to do with bursts in a stream, which come from several tokens accepted at once"
    ),
    "--num-scheduler-steps": Gone("multi-step scheduling was the V0 engine's"),
    "--disable-log-requests": Gone("requests are no longer logged unless --enable-log-requests says so"),
    "--enable-reasoning": Gone("--reasoning-parser alone turns it on"),
}
"""Flags of which more is to say than when they came and went, where the version does not have them."""

_SEEN = "whoever lists processes, reads the manifest or the shell's history has the secret"
NEVER = ("--help", "--version", "-h", "-v")


def unknown_flags(given: Given, release: Release) -> Iterator[Found]:
    for flag in dict.fromkeys(option.flag.partition(".")[0] for option in given.options):
        if not _known(flag, release) and flag not in NEVER:
            yield _abbreviated(flag, release) or _gone(flag, release, given)


def deprecated_flags(given: Given, release: Release) -> Iterator[Found]:
    for flag in dict.fromkeys(option.flag for option in given.options):
        if flag in release.deprecated:
            yield of_flag("warning", flag, f"vLLM {release.version} warns that it is going", None)


def old_way(given: Given, release: Release) -> Iterator[Found]:
    """0.8.2 has both; what comes next has the JSON alone."""
    old = [flag for flag, gone in GONE.items() if gone.key and given.has(flag) and flag in release.flags]
    if old and release.version == LAST_OF_THE_OLD:
        yield of_flag("warning", old[0], f"0.8.2 is the last version that has it; then {CONFIG} JSON", CONFIG)


def secrets(given: Given, release: Release) -> Iterator[Found]:
    for flag in SECRET_FLAGS:
        if given.has(flag):
            variable = {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"}.get(flag)
            where = f"the environment variable {variable}" if variable else "the file that it protects"
            yield of_flag("warning", flag, _SEEN, where, methodcaller("without", flag))
    for word in given.program:
        name, _, value = word.partition("=")
        if SECRET_VARIABLE.search(name) and value and not value.startswith("$"):
            fix = methodcaller("without_value", word)
            yield of_flag("warning", name, _SEEN, f"{name} set in the environment, and not here", fix)


def _known(flag: str, release: Release) -> bool:
    if flag in release.flags or flag.startswith("-O"):
        return True
    # argparse gives every switch a --no- form.
    return flag.startswith("--no-") and f"--{flag.removeprefix('--no-')}" in release.flags


def _abbreviated(flag: str, release: Release) -> Found | None:
    """argparse takes what only one flag begins with."""
    meant = [known for known in release.flags if flag.startswith("--") and known.startswith(flag)]
    if len(meant) != 1 or flag in GONE:
        return None
    why = f"short for {meant[0]} in vLLM {release.version}; a version with another such flag refuses it"
    return of_flag("note", flag, why, meant[0], lambda given: given.renamed(flag, meant[0]))


def _gone(flag: str, release: Release, given: Given) -> Found:
    history = table().history("flags", flag)
    missing = f"vLLM {release.version} does not have it" + (f" ({history} do)" if history else "")
    gone = GONE.get(flag)
    if gone is None:
        near = difflib.get_close_matches(flag, sorted(release.flags), n=1, cutoff=0.75)
        if history is None:
            missing = f"no version of vLLM from {table().versions[0]} to {table().newest} has it"
        return of_flag("error", flag, missing, near[0] if near else None)
    why = "; ".join(part for part in (missing if history else "", gone.why) if part)
    key = gone.key
    if key is None or release.version <= LAST_OF_THE_OLD:
        return of_flag("error", flag, why, "leave it out", lambda g: g.without(flag))
    value = given.value(flag)
    return of_flag("error", flag, why, f"{CONFIG} {key}", (lambda g: g.as_key(flag, key)) if value else None)


# Keys of --speculative-config that the version does not have, and values that it does not take.

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
    fix: Fix | None = None
    if key in V0_ONLY and release.version >= V1_ALONE:
        fix, replacement = (lambda g: g.without_key(key)), "leave it out"
    elif new is not None and new not in (given.keys or {}):
        value = (given.keys or {})[key]
        fix, replacement = (lambda g: g.without_key(key).with_key(new, value)), new
    elif history is not None:
        replacement = "leave it out, or serve with a version that has it"
    else:
        replacement = new or f"one of: {', '.join(sorted(release.keys))}"
    return of_key("error", key, f"{why}, and an unknown key keeps it from starting", replacement, fix)


# The method, the draft and how many tokens: what has to be there, and what vLLM makes of it.

NO_DRAFT_MODEL = (Version((0, 10, 0)), Version((0, 14, 1)))
"""From the first to the last of the releases that refuse method draft_model."""
MTP_FOR_ALL = Version((0, 11, 0))
"""The first release whose method mtp stands for deepseek_mtp and its like, which warn from then on."""
OWN_LENGTH = ("mtp", "mlp_speculator", "suffix", "dspark", "medusa")
"""Methods whose draft, or whose settings, may say how many tokens."""

PATHS = (
    # text, the method that vLLM takes for it, the first release that does
    ("eagle-", "eagle", Version((0, 8, 5))),
    ("eagle3", "eagle3", Version((0, 10, 2))),
    ("dflash", "dflash", Version((0, 20, 0))),
    ("dspark", "dspark", Version((0, 25, 0))),
)
"""What vLLM makes of a draft's path, unless the method is one of these already: whatever it is."""


def missing_method(given: Given, release: Release) -> Iterator[Found]:
    keys = given.speculation
    if not given.speculates or keys.get("method") is not None:
        return
    model = keys.get("model")
    if not isinstance(model, str):
        if keys:
            why = "there is neither a method nor a model: vLLM refuses to start"
            yield of_key("error", "method", why, "method ngram, or draft_model with its model")
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
    guess = _guessed(model, release) or ("eagle" if "eagle" in model.lower() else "draft_model")
    yield of_key(
        "warning",
        "method",
        f"left out: vLLM guesses it from the draft's path and config, and {model} may be something else",
        f"method {guess}, if that is what it is",
        lambda g: g.with_key("method", guess),
    )


def unknown_method(given: Given, release: Release) -> Iterator[Found]:
    method = given.speculation.get("method")
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


def path_names(given: Given, release: Release) -> Iterator[Found]:
    keys = given.speculation
    method, model = keys.get("method"), keys.get("model")
    if not isinstance(model, str) or not isinstance(method, str) or method in WITHOUT_A_DRAFT:
        return
    # eagle3 was taken at its word before a path could mean it.
    trusted = ["eagle3", *(taken for _, taken, first in PATHS if release.version >= first)]
    guess = _guessed(model, release)
    if method not in trusted and guess is not None and guess != method:
        text = next(text for text, taken, _ in PATHS if taken == guess)
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


def missing_parts(given: Given, release: Release) -> Iterator[Found]:
    keys = given.speculation
    method, tokens = keys.get("method"), keys.get("num_speculative_tokens")
    if not isinstance(method, str) or (release.methods and method not in release.methods):
        method = None  # unknown_method reports it
    if method is not None and keys.get("model") is None and method not in WITHOUT_A_DRAFT:
        why = f"method {method} needs a draft: vLLM refuses to start"
        yield of_key("error", "model", why, "its path or id")
    if tokens is None:
        if method is not None and method not in OWN_LENGTH:
            why = f"method {method} does not say how many by itself: vLLM refuses to start"
            yield of_key(
                "error",
                "num_speculative_tokens",
                why,
                "5 to start from, and `specops sweep ROLLOUT` to find the best",
                lambda g: g.with_key("num_speculative_tokens", 5),
            )
    elif not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        why = f"it is {tokens!r}, and must be a whole number of at least 1"
        yield of_key("error", "num_speculative_tokens", why, "1 or more; for none, leave speculation out")
    if method == "suffix":
        why = "it needs a package that vLLM does not bring"
        yield of_key("note", "method", why, "pip install arctic-inference==0.1.1")


def _guessed(model: str, release: Release) -> str | None:
    for text, method, first in PATHS:
        if text in model.lower() and release.version >= first:
            return method
    return None


# Speculation that is to stop under load: the old key, and the schedule that took its place.

OLD, NEW = "disable_by_batch_size", "num_speculative_tokens_per_batch_size"
WITHOUT_OLD = Version((0, 17, 0))
WITH_SCHEDULE = ("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash")
"""Methods that follow a schedule on Model Runner V1 (vllm/config/vllm.py, 0.33.0)."""


def disable_by_batch_size(given: Given, release: Release) -> Iterator[Found]:
    keys = given.speculation
    if OLD not in keys or release.version < V1_ALONE:
        return
    if release.version < WITHOUT_OLD:
        why = (
            f"vLLM {V1_ALONE} to 0.16 take it and ignore it (vllm#25112): speculation goes on under any load"
        )
    else:
        why = f"the V0 engine's; vLLM {WITHOUT_OLD} and newer refuse to start with it"
    limit, tokens = keys[OLD], keys.get("num_speculative_tokens")
    if NEW in release.keys and _whole(limit) and limit > 1 and _whole(tokens):
        # V0 stopped at this many requests, not above it (spec_decode_worker.py, 0.8.0). The last entry
        # holds for all that is above it.
        schedule = [[1, limit - 1, tokens], [limit, limit, 0]]
        replacement = f"{NEW} {schedule}"
        yield of_key("error", OLD, why, replacement, lambda g: g.without_key(OLD).with_key(NEW, schedule))
    else:
        replacement = f"{NEW} of vLLM 0.24.0, or routing: beyond {limit} requests to the standard pool"
        yield of_key("error", OLD, why, replacement, lambda g: g.without_key(OLD))


def schedule(given: Given, release: Release) -> Iterator[Found]:
    keys = given.speculation
    if NEW not in keys or NEW not in release.keys:
        return
    problem = problem_of(keys[NEW])
    if problem is not None:
        right = "[[1, 7, 5], [8, 8, 0]]: 5 tokens up to 7 requests, none from 8 on"
        yield of_key("error", NEW, f"{problem}: vLLM refuses to start", right)
        return
    most, tokens = max(k for _, _, k in keys[NEW]), keys.get("num_speculative_tokens")
    if _whole(tokens) and most > tokens:
        why = f"it asks for {most} tokens, and num_speculative_tokens caps it at {tokens}"
        fix = f"num_speculative_tokens {most}"
        yield of_key("warning", NEW, why, fix, lambda g: g.with_key("num_speculative_tokens", most))
    if given.number("--data-parallel-size", 1) > 1:
        yield of_key(
            "error",
            NEW,
            "with data parallel vLLM ignores it: ranks that choose differently would wait for each other",
            "servers of one rank each behind the router, or routing by load",
        )
    method = keys.get("method")
    if isinstance(method, str) and method not in WITH_SCHEDULE:
        yield of_key("warning", NEW, f"with method {method} Model Runner V1 ignores it", "another method")


def problem_of(value: Any) -> str | None:
    """What vLLM would refuse a schedule for (v1/spec_decode/dynamic/utils.py, 0.32.0); None: nothing."""
    if not isinstance(value, list) or not value:
        return "it is no list of [FIRST, LAST, TOKENS]"
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 3 or not all(_whole(part) for part in entry):
            return f"{entry!r} is not [FIRST, LAST, TOKENS]"
        first, last, tokens = entry
        if not 1 <= first <= last or tokens < 0:
            return f"{entry!r} must have 1 <= FIRST <= LAST and TOKENS of at least 0"
    ordered = sorted(value)
    if ordered[0][0] != 1:
        return f"it starts at {ordered[0][0]} requests, not at 1"
    for (_, last, _), (first, _, _) in pairwise(ordered):
        if first <= last:
            return f"the ranges that start at {first} and end at {last} overlap"
    return None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# Settings that do not go together with speculation, or with each other.

SAME_TP = Version((0, 15, 0))
"""The first release whose draft_model refuses a tensor parallel size that is not the target's."""
MODULE_IS_GOING = Version((0, 29, 0))
PER_REQUEST = "--per-request-spec-decode-metrics"


def pipeline_parallel(given: Given, release: Release) -> Iterator[Found]:
    size = given.number("--pipeline-parallel-size", 1)
    if given.speculates and size > 1:
        yield of_flag(
            "error",
            "--pipeline-parallel-size",
            "with speculation it fails at start or later, depending on version and method (vllm#14117, "
            "vllm#49355); vLLM's configuration lets it through",
            f"--tensor-parallel-size {size * given.number('--tensor-parallel-size', 1)}",
        )


def draft_tensor_parallel(given: Given, release: Release) -> Iterator[Found]:
    key, keys = "draft_tensor_parallel_size", given.speculation
    size, target = keys.get(key), given.number("--tensor-parallel-size", 1)
    if size is None or size == target:
        return
    if size != 1:
        why = f"it is {size}, and may only be 1 or the target's, {target}: vLLM refuses to start"
        yield of_key("error", key, why, f"leave it out, which means {target}", lambda g: g.without_key(key))
    elif keys.get("method") == "draft_model" and release.version >= SAME_TP:
        why = (
            f"it is 1, and the target's is {target}: from {SAME_TP} on draft_model refuses to start unless "
            "they are the same"
        )
        yield of_key("error", key, why, f"leave it out, which means {target}", lambda g: g.without_key(key))
    elif release.version >= V1_ALONE and keys.get("method") != "mlp_speculator":
        why = f"from {V1_ALONE} on it does nothing: the draft runs as the target does (vllm#31345)"
        yield of_key("warning", key, why, "leave it out", lambda g: g.without_key(key))


def per_request_metrics(given: Given, release: Release) -> Iterator[Found]:
    if given.has(PER_REQUEST) and PER_REQUEST in release.flags and not given.speculates:
        yield of_flag(
            "error",
            PER_REQUEST,
            "without speculation there is nothing to report: vLLM refuses to start",
            "leave it out of the standard pool",
            lambda g: g.without(PER_REQUEST),
        )


def module(given: Given, release: Release) -> Iterator[Found]:
    if "vllm.entrypoints.openai.api_server" in given.program and release.version >= MODULE_IS_GOING:
        yield of_flag(
            "note",
            "python -m vllm.entrypoints.openai.api_server",
            f"from {MODULE_IS_GOING} on it warns that it is going",
            "vllm serve MODEL",
        )
    if "serve" in given.program and given.has("--model"):
        yield of_flag("note", "--model", "vllm serve warns that it is going", "vllm serve MODEL")
