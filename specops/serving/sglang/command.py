"""SGLang: a pool's settings -> the command line that starts it, and what is wrong with one.

Flags as in SGLang 0.5.23's released source (`srt/arg_groups/fields/*.py`); flags.json lists them all, made
from that source by tools/sglang_table.py.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from specops.section import SECRET_FLAGS
from specops.serving import known_issues
from specops.serving.argv import Call, Command, CommandLine, Finding, Judged, Words
from specops.serving.sglang.settings import SglangSettings, SglangSpeculation

EAGLE_FAMILY = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
"""Algorithms that draft step by step, several branches a step where `eagle_topk` says so."""
VERSION = "0.5.23"
"""The release whose flags these are: the newest one known."""

_NAMED = (
    "served_model_name",
    "revision",
    "tp_size",
    "pp_size",
    "dp_size",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "mem_fraction_static",
    "context_length",
    "chunked_prefill_size",
    "schedule_policy",
    "attention_backend",
    "random_seed",
)
"""Settings that are SGLang's own to choose where they are left out."""

_SWITCHES = ("disable_radix_cache", "trust_remote_code")


def command(pool: SglangSettings, *, port: int | str, host: str = "127.0.0.1") -> list[str]:
    """The words that serve `pool`.

    `--max-running-requests` is always among them, since SGLang's default differs with and without
    speculation; and `--enable-metrics`, without which it exposes none.
    """
    words = [*shlex.split(pool.program), "--model-path", pool.model_path]
    words += ["--host", host, "--port", str(port), "--enable-metrics"]
    words += ["--max-running-requests", str(pool.max_running_requests)]
    for name in _NAMED:
        if getattr(pool, name) is not None:
            words += [_flag(name), str(getattr(pool, name))]
    words += [_flag(name) for name in _SWITCHES if getattr(pool, name)]
    words += pool.arguments
    if pool.speculation is not None:
        words += _speculative(pool.speculation)
    return words


def _speculative(speculation: SglangSpeculation) -> list[str]:
    steps, branches = speculation.num_steps, speculation.eagle_topk
    nodes = speculation.num_draft_tokens or steps + 1
    flags: dict[str, str | int | None] = {
        "algorithm": speculation.algorithm,
        "draft_model_path": speculation.draft_model_path,
    }
    if speculation.algorithm in EAGLE_FAMILY:
        flags |= {"num_steps": steps, "eagle_topk": branches, "num_draft_tokens": nodes}
    elif speculation.algorithm == "NGRAM":  # has its own word for the branches, and copies it to topk
        flags |= {"num_steps": steps, "ngram_max_bfs_breadth": branches, "num_draft_tokens": nodes}
    elif speculation.algorithm == "DFLASH":  # a block of masks behind the last token; its steps are fixed
        flags |= {"num_draft_tokens": nodes}
    else:
        flags |= {"dspark_block_size": steps}
    words = [
        word
        for name, value in flags.items()
        if value is not None
        for word in (_flag(f"speculative_{name}"), str(value))
    ]
    return words + speculation.arguments


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def lint(words: Sequence[str], version: str = VERSION) -> list[Finding]:
    """What SGLang `VERSION` would refuse, or silently change where it speculates. Errors first.

    version: the one whose known issues are looked up.
    """
    table = _table()
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    found = []
    for flag in dict.fromkeys(flags):
        if flag not in table["flags"]:
            near = difflib.get_close_matches(flag, table["flags"], n=1)
            why = f"SGLang {VERSION} does not have it"
            found.append(Finding("error", flag, why, near[0] if near else None))
        elif flag in table["deprecated"]:
            found.append(
                Finding("warning", flag, f"deprecated: SGLang {VERSION}: {table['deprecated'][flag]}")
            )
    if "--speculative-algorithm" in flags:
        if "--max-running-requests" not in flags:
            why = f"unset, SGLang {VERSION} makes it 48 with speculation and far more without: pools differ"
            found.append(
                Finding("warning", "--max-running-requests", why, "--max-running-requests 48 on both")
            )
        if "--enable-mixed-chunk" in flags:
            why = f"SGLang {VERSION} turns it off where it speculates: the pools differ in it"
            found.append(Finding("warning", "--enable-mixed-chunk", why, "leave it out on both"))
    return found + known_issues.findings("sglang", version, _Given.parse(words), CALL)


def judge(command: Command, asked: str | None) -> Judged:
    """`asked`: a version that the operator names."""
    version = asked or command.version or VERSION
    because = f"its flags are known of {VERSION}"
    findings = lint(command.words, version)
    given = _Given.parse(command.words)
    for flag in SECRET_FLAGS:
        if given.has(flag):
            why = "whoever lists processes, reads the manifest or the shell's history has the secret"
            findings.append(Finding("warning", flag, why, "a file that only the server can read"))
    errors = [finding for finding in findings if finding.level == "error"]
    return Judged(command.where, "SGLang", version, because, findings, None, errors)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_name("flags.json").read_text(encoding="utf-8"))
    return table


CALL = Call(mark="sglang", programs=(("sglang", "serve"),), modules=("sglang.launch_server",))


class _Given(Words):
    CALL: ClassVar[Call] = CALL


COMMAND_LINE = CommandLine(call=CALL, example="python -m sglang.launch_server …", judge=judge)
