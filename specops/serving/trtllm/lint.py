"""The lint of a command of trtllm-serve and its YAML file for a release, and both as they should be.

Which release knows which flag and key is in the table (releases.json). What a release does with them is here;
it was read in tensorrt_llm/llmapi/llm_args.py and tensorrt_llm/commands/serve.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import methodcaller
from typing import Any, TypeAlias

from specops.errors import ConfigError
from specops.serving import argv, known_issues
from specops.serving.argv import (
    UNKNOWN,
    Command,
    CommandLine,
    Files,
    Finding,
    LintResult,
    Unknown,
    is_unknown,
    settled,
    unknown_values,
    unreadable,
)
from specops.serving.trtllm import limits
from specops.serving.trtllm.arguments import CALL, SPECULATIVE, ParsedCommand
from specops.serving.trtllm.releases import (
    FIRST_ON_PYTORCH,
    OF_TODAY,
    PACKAGES,
    Release,
    Version,
    installed,
    table,
)

Found: TypeAlias = argv.RuleFinding[ParsedCommand]


def _key(*path: str) -> str:
    return ".".join(path)


# Flags


SHORT = {"--tp": "--tp_size", "--pp": "--pp_size", "--ep": "--ep_size", "--cp": "--cp_size"}
OTHERS = SHORT | {
    "--kv_cache_free_gpu_mem_fraction": "--kv_cache_free_gpu_memory_fraction",
    "--extra_llm_api_config": "--config",
    "--extra_options": "--config",
}


def flags(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for option in dict.fromkeys(command.options):
        flag, has_flag = option.flag, table().has_flag(release.requested, option.flag)
        if flag in release.flags and has_flag is not False:
            if release.flags[flag] and not option.values:
                yield Found(Finding("error", flag, "it takes a value"))
            continue
        if flag == "--help" or not flag.startswith("-"):
            continue
        underscores = "--" + flag.removeprefix("--").replace("-", "_")
        new = OTHERS.get(underscores, underscores)
        releases = ", ".join(map(str, table().having(flag)))
        why = f"TensorRT-LLM {release} does not have it" + (f"; {releases} has it" if releases else "")
        if new != flag and new in release.flags:
            why = f"{why}: names have underscores" if new == underscores and new != flag else why
            yield Found(Finding("error", flag, why, new), methodcaller("renamed", flag, new))
            continue
        if has_flag is None:
            continue  # reported as unknown
        near = difflib.get_close_matches(underscores, release.flags, n=1, cutoff=0.8)
        yield Found(Finding("error", flag, why, near[0] if near and not releases else None))


def target(command: ParsedCommand, release: Release) -> Iterator[Found]:
    file_alone = command.config is not None and len(command.options) == 1  # only the YAML file is judged
    if command.model is None and command.options and not file_alone:
        yield Found(Finding("error", "MODEL", "trtllm-serve needs a model: its folder or hub id"))


def _on_tensorrt(command: ParsedCommand, release: Release) -> bool:
    """Return whether the server runs a TensorRT engine. Of a YAML file alone, the command is not known."""
    named = (command.config or {}).get("backend") or command.value("--backend")
    if named is None and not command.model:
        return False
    return named in ("tensorrt", "trt") if named else release.requested < FIRST_ON_PYTORCH


def backend(command: ParsedCommand, release: Release) -> Iterator[Found]:
    if _on_tensorrt(command, release) and release.version >= OF_TODAY:
        why = f"TensorRT-LLM {release} has no TensorRT backend; the PyTorch one is the default"
        fix = (lambda g: g.without("--backend")) if command.has("--backend") else None
        yield Found(Finding("error", "--backend", why, "leave it out"), fix)


# The YAML file's top level


MOVED: Mapping[str, tuple[str, ...]] = {
    "tp_size": ("tensor_parallel_size",),
    "pp_size": ("pipeline_parallel_size",),
    "ep_size": ("moe_expert_parallel_size",),
    "cp_size": ("context_parallel_size",),
    "kv_cache_dtype": ("kv_cache_config", "dtype"),
    "free_gpu_memory_fraction": ("kv_cache_config", "free_gpu_memory_fraction"),
    "kv_cache_free_gpu_memory_fraction": ("kv_cache_config", "free_gpu_memory_fraction"),
    "enable_block_reuse": ("kv_cache_config", "enable_block_reuse"),
    "cuda_graph_batch_sizes": ("cuda_graph_config", "batch_sizes"),
    "cuda_graph_max_batch_size": ("cuda_graph_config", "max_batch_size"),
    "cuda_graph_padding_enabled": ("cuda_graph_config", "enable_padding"),
    "moe_backend": ("moe_config", "backend"),
    "moe_load_balancer": ("moe_config", "load_balancer"),
    "moe_max_num_tokens": ("moe_config", "max_num_tokens"),
    "autotuner_enabled": ("enable_autotuner",),
    "attention_backend": ("attn_backend",),
    "speculative_decoding_config": (SPECULATIVE,),
    "speculation_config": (SPECULATIVE,),
}
"""Keys of earlier releases, and flags that people write as keys, and where they are today."""

GONE = {
    "pytorch_backend_config": "its keys stand at the top level",
    "use_cuda_graph": "cuda_graph_config: {} turns graphs on, cuda_graph_config: null turns them off",
    "enable_trtllm_sampler": "sampler_type: TRTLLMSampler up to 1.2; later there is one sampler",
    "use_torch_sampler": "sampler_type: TorchSampler up to 1.2; later there is one sampler",
    "enable_mixed_sampler": "sampler_type up to 1.2; later there is one sampler",
    "enable_sleep": "sleep_config since 1.3",
}
BESIDE = ("build_config", "disagg_cluster", "multimodal_server_config")
"""Keys that trtllm-serve reads itself."""


def keys(command: ParsedCommand, release: Release) -> Iterator[Found]:
    if _on_tensorrt(command, release):  # it has keys of its own
        return
    for key in command.config or ():
        if key in BESIDE or table().has_key(release.requested, str(key)) is not False:
            continue
        why = f"TensorRT-LLM {release} has no such key and does not start"
        if key in MOVED and MOVED[key][0] in release.keys:
            path = MOVED[key]
            yield Found(
                Finding("error", key, why, _key(*path)), partial(ParsedCommand.moved, old=(key,), new=path)
            )
        elif key in GONE:
            yield Found(Finding("error", key, f"{why}: {GONE[key]}"))
        else:
            near = difflib.get_close_matches(str(key), release.keys, n=1, cutoff=0.8)
            if near or release.complete:
                yield Found(Finding("error", str(key), why, near[0] if near else None))
            else:
                why = f"it is not in the table of TensorRT-LLM {release}, which may lack new keys"
                yield Found(Finding("warning", str(key), why))


def unread(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Yield what keeps the YAML file from being judged."""
    if command.broken is not None:
        yield Found(Finding("error", command.config_file or "--config", f"invalid YAML: {command.broken}"))


GRAPHS = ("batch_sizes", "enable_padding", "max_batch_size")
GRAPHS_OF_TODAY = (*GRAPHS, "mode", "num_tokens", "max_num_token", "seq_lens", "max_seq_len")


def graphs(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Keys of cuda_graph_config, of which NVIDIA's own examples still have an earlier name."""
    settings = (command.config or {}).get("cuda_graph_config")
    allowed = GRAPHS if release.version < OF_TODAY else GRAPHS_OF_TODAY
    for key in settings if isinstance(settings, dict) else ():
        if key in allowed:
            continue
        path, why = _key("cuda_graph_config", str(key)), f"TensorRT-LLM {release} has no such key"
        if key == "padding_enabled":
            new = ("cuda_graph_config", "enable_padding")
            move = partial(ParsedCommand.moved, old=("cuda_graph_config", key), new=new)
            yield Found(Finding("error", path, why, "enable_padding"), move)
        else:
            yield Found(Finding("error", path, f"{why}; it has {', '.join(allowed)}"))


# speculative_config


DRAFT_NAMES = ("pytorch_weights_path", "speculative_model", "speculative_model_dir")
"""Names of the draft, by release; the first that a release has counts."""

RENAMED: Mapping[str, tuple[str, ...]] = {
    "num_speculative_tokens": ("max_draft_len",),
    "draft_len": ("max_draft_len",),
    **dict.fromkeys(("model", "draft_model", "pytorch_eagle_weights_path", *DRAFT_NAMES), DRAFT_NAMES),
    "max_ngram_size": ("max_matching_ngram_size",),
    "prompt_lookup_num_tokens": ("max_draft_len",),
    "acceptance_window": ("acceptance_rate_window_size",),
    "acceptance_rate_window_size": ("acceptance_window",),
    "type": ("decoding_type",),
    "method": ("decoding_type",),
}
"""Names of earlier releases and other engines; the one that the release has counts."""

CALLED = {
    "eagle": "Eagle3",
    "eagle3": "Eagle3",
    "eagle-3": "Eagle3",
    "ngram": "NGram",
    "n-gram": "NGram",
    "mtp": "MTP",
    "draft": "DraftTarget",
    "draft_model": "DraftTarget",
    "draft_target": "DraftTarget",
    "drafttarget": "DraftTarget",
    "nextn": "MTP",
    "auto": "AUTO",
    "dflash": "DFlash",
    "dspark": "DSpark",
    "pard": "PARD",
    "suffix": "SA",
}
NO_LENGTH = ("AUTO", "MTP", "SaveState", "Medusa", "Lookahead")


def decoding_type(command: ParsedCommand, release: Release) -> Iterator[Found]:
    speculation = (command.config or {}).get(SPECULATIVE)
    if speculation is None:
        return
    if not isinstance(speculation, dict):
        yield Found(Finding("error", SPECULATIVE, "it is a mapping of keys, such as decoding_type: Eagle3"))
        return
    type_, path = speculation.get("decoding_type"), _key(SPECULATIVE, "decoding_type")
    if type_ is None:
        if not {"type", "method"} & speculation.keys():  # those are renamed
            why = "without it the server does not know how to draft, and does not start"
            yield Found(Finding("error", path, why, f"one of {', '.join(sorted(release.types))}"))
        return
    if str(type_) in release.types or is_unknown(type_) or _may_have(str(type_), release):
        return
    why = f"TensorRT-LLM {release} has no such type"
    meant = CALLED.get(str(type_).lower())
    if meant == "Eagle3" and meant not in release.types:
        meant = "Eagle"
    if meant is not None and meant in release.types:
        yield Found(Finding("error", f"{path} {type_}", why, meant), methodcaller("typed", meant))
    else:
        has = ", ".join(sorted(release.types))
        yield Found(Finding("error", f"{path} {type_}", f"{why}; it has {has}"))


def speculative_keys(command: ParsedCommand, release: Release) -> Iterator[Found]:
    speculation = command.speculation
    if speculation is None:
        return
    type_ = str(speculation.get("decoding_type"))
    allowed = release.base | release.types.get(
        type_, frozenset(k for own in release.types.values() for k in own)
    )
    for key in speculation:
        path = _key(SPECULATIVE, str(key))
        if key == "decoding_type" or key in allowed:
            continue
        if type_ in release.types and _reads(type_, str(key), release) is None and _exists(str(key)):
            continue  # unknown, and reported as that
        new = next((name for name in RENAMED.get(str(key), ()) if name in (*allowed, "decoding_type")), None)
        if release.ignores and new is None:
            why = f"TensorRT-LLM {release} has no such key for type {type_} and ignores it"
            drop = partial(ParsedCommand.moved, old=(SPECULATIVE, str(key)), new=None)
            yield Found(Finding("warning", path, why, "leave it out"), drop)
            continue
        why = f"TensorRT-LLM {release} has no such key for type {type_} and does not start"
        if new is not None and new not in speculation:
            move = partial(ParsedCommand.moved, old=(SPECULATIVE, str(key)), new=(SPECULATIVE, new))
            yield Found(Finding("error", path, why, new), move)
        elif key in limits.NO_EFFECT:
            drop = partial(ParsedCommand.moved, old=(SPECULATIVE, str(key)), new=None)
            yield Found(Finding("error", path, f"{why}: {limits.NO_EFFECT[key]}", "leave it out"), drop)
        elif key == "acceptance_length_threshold":
            why += ": since 1.3 the gate compares the share of drafted tokens that is accepted, 0 to 1"
            yield Found(Finding("error", path, why, "acceptance_rate_threshold, with a rate"))
        else:
            near = difflib.get_close_matches(str(key), allowed, n=1, cutoff=0.75)
            yield Found(Finding("error", path, why, near[0] if near else None))


def _may_have(type_: str, release: Release) -> bool:
    """Return whether it is not known that the release has a type of TensorRT-LLM, nor that it has not."""
    exists = any(type_ in table().release(version).types for version in table().versions)
    return exists and table().has_type(release.requested, type_) is None


def _reads(type_: str, key: str, release: Release) -> bool | None:
    return table().reads(release.requested, type_, key)


def _exists(key: str) -> bool:
    return any(table().release(version).has(key) for version in table().versions)


def needed(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Yield what a decoding type cannot do without."""
    speculation = command.speculation
    if speculation is None or str(speculation.get("decoding_type")) not in release.types:
        return
    type_ = speculation["decoding_type"]
    named = any(name in speculation for name in RENAMED)
    if type_ in ("Eagle", "Eagle3", "DraftTarget", "Draft_Target", "PARD", "DFlash") and not named:
        path = _key(SPECULATIVE, "speculative_model")
        yield Found(
            Finding("error", path, f"type {type_} needs a draft: the server does not start", "its path or id")
        )
    length = speculation.get("max_draft_len")
    own_length = "prompt_lookup_num_tokens" in release.types[type_]  # it has a default, as its n-grams have
    required = not own_length and type_ not in NO_LENGTH
    if required and not any(n in speculation for n in ("max_draft_len", *RENAMED)):
        why = f"type {type_} needs it: the server does not start"
        yield Found(Finding("error", _key(SPECULATIVE, "max_draft_len"), why, "max_draft_len: 3"))
    elif (number := limits.number(length)) is not None and number < 1 and type_ != "AUTO":
        why = f"it must be greater than 0 for type {type_}"
        yield Found(Finding("error", _key(SPECULATIVE, "max_draft_len"), why))
    elif length is not None and not is_unknown(length) and (number is None or number % 1):
        yield Found(
            Finding("error", _key(SPECULATIVE, "max_draft_len"), f"invalid number of tokens {length!r}")
        )
    old = release.version < OF_TODAY
    if type_ == "NGram" and old and not own_length and not speculation.get("max_matching_ngram_size"):
        path, why = (
            _key(SPECULATIVE, "max_matching_ngram_size"),
            "its default is 0, with which the server ends",
        )
        put = partial(ParsedCommand.put, path=(SPECULATIVE, "max_matching_ngram_size"), value=2)
        yield Found(Finding("error", path, why, "max_matching_ngram_size: 2"), put)
    yield from _mtp(speculation, old)


def _mtp(speculation: Mapping[str, Any], old: bool) -> Iterator[Found]:
    """K of MTP, which changed its name."""
    if speculation["decoding_type"] != "MTP":
        return
    first, second = "max_draft_len", "num_nextn_predict_layers"
    if old and first in speculation and second not in speculation:
        why = f"up to 1.2 it is replaced by {second}, which is 1 by default"
        move = partial(ParsedCommand.moved, old=(SPECULATIVE, first), new=(SPECULATIVE, second))
        yield Found(Finding("error", _key(SPECULATIVE, first), why, second), move)
    elif not old and second in speculation:
        why = f"deprecated: {first} since 1.3"
        new = None if first in speculation else (SPECULATIVE, first)
        move = partial(ParsedCommand.moved, old=(SPECULATIVE, second), new=new)
        yield Found(Finding("warning", _key(SPECULATIVE, second), why, first), move)


def exclusions(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Settings that exclude each other."""
    speculation = command.speculation
    if speculation is None:
        return
    old = release.version < OF_TODAY
    schedule, length = speculation.get("draft_len_schedule"), speculation.get("max_draft_len")
    path = _key(SPECULATIVE, "draft_len_schedule")
    if isinstance(schedule, dict) and schedule:
        sizes = {int(size): drafts for size, drafts in schedule.items() if str(size).isdecimal()}
        if old and 1 not in sizes:
            yield Found(Finding("error", path, "up to 1.2 it must say the draft length of batch size 1"))
        elif sizes and length is not None and sizes[min(sizes)] != length:
            yield Found(Finding("error", path, f"its smallest batch size must have max_draft_len, {length}"))
        if not old and "max_concurrency" in speculation:
            yield Found(Finding("error", path, "it and max_concurrency exclude each other", "one of them"))
    if speculation.get("use_dynamic_tree"):
        tree = _key(SPECULATIVE, "use_dynamic_tree")
        if not speculation.get("dynamic_tree_max_topK"):
            yield Found(Finding("error", tree, "it needs dynamic_tree_max_topK", "dynamic_tree_max_topK: 4"))
        if speculation.get("eagle_choices"):
            yield Found(Finding("error", tree, "it and eagle_choices exclude each other", "one of them"))
    type_ = speculation.get("decoding_type")
    if speculation.get("use_rejection_sampling") is True and type_ in ("NGram", "SA", "AUTO"):
        why = f"type {type_} drafts tokens without probabilities, which rejection sampling needs"
        drop = partial(ParsedCommand.moved, old=(SPECULATIVE, "use_rejection_sampling"), new=None)
        yield Found(Finding("error", _key(SPECULATIVE, "use_rejection_sampling"), why, "leave it out"), drop)
    if _on_tensorrt(command, release) and old and type_ in ("NGram", "MTP", "AUTO", "DraftTarget"):
        why = f"the TensorRT backend does not have type {type_}"
        yield Found(Finding("error", _key(SPECULATIVE, "decoding_type"), why, "--backend pytorch"))
    if not _on_tensorrt(command, release) and old and type_ in ("Medusa", "Lookahead"):
        why = f"the PyTorch backend does not have type {type_}"
        yield Found(Finding("error", _key(SPECULATIVE, "decoding_type"), why, "another type, such as Eagle"))


def gate(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Half an acceptance gate. That a whole one ends speculation for good is a known issue."""
    speculation = command.speculation or {}
    for threshold, window in (
        ("acceptance_rate_threshold", "acceptance_rate_window_size"),
        ("acceptance_length_threshold", "acceptance_window"),
    ):
        has = [name for name in (threshold, window) if speculation.get(name)]
        path = _key(SPECULATIVE, has[0]) if has else ""
        if len(has) == 1:
            partner = window if has[0] == threshold else threshold
            yield Found(Finding("warning", path, f"without {partner} it has no effect", f"add {partner}"))


def measured(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for key, lacks in (
        ("return_perf_metrics", "latencies and counters of drafts"),
        ("enable_iter_perf_stats", "requests and the KV cache"),
    ):
        if (command.config is None and command.config_file is not None) or (command.config or {}).get(key):
            continue
        if table().has_key(release.requested, key) is not True:
            continue
        why = f"without it /prometheus/metrics says nothing of {lacks}"
        put = partial(ParsedCommand.put, path=(key,), value=True)
        has_file = command.config is not None and key not in command.config
        yield Found(Finding("warning", key, why, f"{key}: true"), put if has_file else None)


RULES: tuple[Callable[[ParsedCommand, Release], Iterator[Found]], ...] = (
    flags,
    target,
    backend,
    unread,
    keys,
    graphs,
    decoding_type,
    speculative_keys,
    needed,
    exclusions,
    limits.values,
    limits.ignored,
    limits.combinations,
    gate,
    measured,
)


def lint(words: Sequence[str], release: Release, files: Files | None = None) -> list[Finding]:
    """Return the findings, errors first. A command without findings may still be refused: the server decides.
    `files`: the YAML file's text among them."""
    return _lint(ParsedCommand.read(words, files or Files()), release)


def _lint(command: ParsedCommand, release: Release) -> list[Finding]:
    if command.subcommand is not None:
        return []
    findings, _ = settled(command, release, RULES, partial(_objections, release=release))
    issues = known_issues.applying("trtllm", str(release.requested), _settings(command))
    return known_issues.joined(findings, [issue.finding() for issue in issues])


def _settings(command: ParsedCommand) -> dict[str, str]:
    flat = known_issues.flat(command.config or {}) | known_issues.settings_of(command, CALL)
    return flat | ({"model": command.model} if command.model else {})


def _objections(before: ParsedCommand, after: ParsedCommand, release: Release) -> list[str]:
    return known_issues.objections("trtllm", str(release.requested), _settings(before), _settings(after))


def judge(command: Command, requested: str | None) -> LintResult:
    """Judge a command. `requested`: a version that the operator names. Raises ConfigError for an invalid
    one."""
    version, because = _version(command, requested)
    release = table().release(version)
    if release.version != release.requested:
        where = "the nearest known before it"
        if release.requested < release.version:
            own = release.requested.numbers == release.version.numbers
            where = "the first known of its release" if own else "the oldest of the table"
        because = f"{where}; for {release.requested}, {because}, it was not checked"
    parsed = ParsedCommand.read(command.words, command.files)
    check = partial(_objections, release=release)
    fixed = parsed if parsed.subcommand else settled(parsed, release, RULES, check)[1]
    return LintResult(
        where=command.where,
        engine="TensorRT-LLM",
        version=str(release.version),
        because=because,
        findings=_lint(parsed, release),
        corrected=None if fixed == parsed else _text(fixed, parsed, command.flags_file),
        left=[finding for finding in _lint(fixed, release) if finding.level == "error"],
        unknown=[*command.unread, *_unknown(parsed), *_not_read(parsed, release)],
    )


DECIDING = ("--backend", "--config", "--extra_llm_api_options", "--tp_size", "--pp_size", "--ep_size")


def _unknown(command: ParsedCommand) -> list[Unknown]:
    """Return what was not read: the YAML file, a value in it, a subcommand with a file of its own."""
    unknown = unknown_values(command, CALL, DECIDING)
    name = command.config_file
    if command.subcommand is not None:
        why = "it serves several models by a file of its own, which was not judged"
        unknown.append(
            Unknown(command.subcommand, why, "specops launch lint --file CONFIG.yaml  # of each server")
        )
    elif name is not None and command.config is None and command.broken is None:
        unknown = [entry for entry in unknown if entry.what not in name]
        unknown.append(unreadable(name, "it is not here, or holds variables that are not known"))
    for key, value in known_issues.flat(command.config or {}).items():
        for variable in UNKNOWN.findall(value):
            decides = key.startswith((SPECULATIVE, "backend"))
            how = "write its value in the file"
            unknown.append(Unknown(variable, f"the value of {key} is not known here", how, decides))
    return unknown


def _not_read(command: ParsedCommand, release: Release) -> Iterator[Unknown]:
    """Yield what no source shows of the release itself: flags, keys, and its decoding type."""
    requested, how = release.requested, "trtllm-serve MODEL --config FILE.yaml  # of that release, once"
    for flag in dict.fromkeys(option.flag for option in command.options if option.flag.startswith("--")):
        if table().has_flag(requested, flag) is None:
            yield Unknown(flag, f"whether TensorRT-LLM {requested} has it was not read", how)
    for key in () if _on_tensorrt(command, release) else command.config or ():
        if key not in BESIDE and table().has_key(requested, str(key)) is None:
            yield Unknown(str(key), f"whether TensorRT-LLM {requested} has this key was not read", how)
    speculation = command.speculation
    if speculation is None or is_unknown(type_ := str(speculation.get("decoding_type"))):
        return
    if _may_have(type_, release):
        why = f"whether TensorRT-LLM {requested} has the type {type_} was not read"
        yield Unknown(_key(SPECULATIVE, "decoding_type"), why, how)
    for key in speculation if type_ in release.types else ():
        if key != "decoding_type" and _exists(str(key)) and _reads(type_, str(key), release) is None:
            why = f"whether TensorRT-LLM {requested} reads it for type {type_} is not known"
            yield Unknown(_key(SPECULATIVE, str(key)), why, how)


def _version(command: Command, requested: str | None) -> tuple[Version, str]:
    if requested is not None:
        return Version.parse(requested), "as requested"
    if command.version:
        with suppress(ConfigError):  # a tag of somebody's own
            return Version.parse(command.version), command.version_source
        return table().newest, f"the newest known: the image's tag, {command.version}, is not a release"
    version = installed(command.words)
    if version is not None:
        return version, "as the program's package says"
    return table().newest, "the newest known: no version was given, and the program is not on this machine"


def _text(fixed: ParsedCommand, command: ParsedCommand, file_alone: bool) -> str:
    """Return the text to paste: the YAML file alone, the command alone, or a script that writes one and runs
    the other."""
    if file_alone:
        return fixed.yaml()
    if fixed.config == command.config:
        return fixed.text()
    name = fixed.config_file or "config.yaml"
    text = fixed.yaml()
    end = "CONFIG" if is_unknown(text) else "'CONFIG'"  # without quotes, the shell fills in variables
    return f"cat > {name} <<{end}\n{text}CONFIG\n{fixed.text()}"


def is_config(document: Mapping[str, object]) -> bool:
    """Return whether a YAML file is one of trtllm-serve: by its way of naming speculation, or by keys of its
    own."""
    speculation = document.get(SPECULATIVE, document.get("speculative_decoding_config"))
    if isinstance(speculation, Mapping):
        return "decoding_type" in speculation
    own = {"cuda_graph_config", "kv_cache_config", "moe_config", "enable_iter_perf_stats", "print_iter_log"}
    return bool(own & document.keys()) and all(isinstance(key, str) for key in document)


COMMAND_LINE = CommandLine(
    call=CALL,
    example="trtllm-serve MODEL --config FILE.yaml …",
    judge=judge,
    document=is_config,
    packages=PACKAGES,
)
