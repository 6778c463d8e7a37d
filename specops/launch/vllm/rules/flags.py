"""Flags that the version does not have, has only for a while yet, or that should not be on a command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from operator import methodcaller

from specops.config.starting import SECRET_FLAGS, SECRET_VARIABLE
from specops.launch.vllm.command import LAST_OF_THE_OLD
from specops.launch.vllm.given import CONFIG, Given
from specops.launch.vllm.rules import Found, of_flag
from specops.launch.vllm.versions import Release, table


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
            mend = methodcaller("without_value", word)
            yield of_flag("warning", name, _SEEN, f"{name} set in the environment, and not here", mend)


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
