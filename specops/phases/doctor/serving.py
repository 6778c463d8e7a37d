"""vLLM as a program calls it: its version, and what that one knows of speculation."""

from __future__ import annotations

import shlex

from specops.errors import ConfigError
from specops.launch.vllm.installed import installed
from specops.launch.vllm.versions import Release, table
from specops.phases.doctor.check import Check

PROGRAM = "vllm serve"
METHODS = ("ngram", "draft_model", "eagle", "eagle3", "mtp", "suffix", "medusa", "dflash")
"""That rollout files mostly name; a release knows more."""
GONE_KEY = "disable_by_batch_size"
"""Of old guides. vLLM ignored it from 0.10 on, and refuses it since it is gone."""


def vllm(program: str = PROGRAM, *, needed: bool = False) -> Check:
    """Of `program`, which a pool is started with where `needed`."""
    name = "vllm" if program == PROGRAM else f"vllm ({program})"
    version = installed(shlex.split(program))
    if version is None:
        return Check(
            name=name,
            status="fail" if needed else "ok",
            found=f"'{program}' leads to no vLLM here; "
            + ("a pool is started with it" if needed else "only pools that specops starts with vLLM need it"),
            fix="install vLLM, or give pools.*.program as it is called here",
        )
    try:
        release = table().release(version)
    except ConfigError as error:
        return Check(name=name, status="warn", found=error.message, fix="take vLLM 0.8 or newer")
    newer = version > table().newest
    return Check(
        name=name,
        status="warn" if newer else "ok",
        found="; ".join([str(version), *_speculation(release)]),
        fix=f"specops knows releases up to {table().newest}, and judges it by that one",
    )


def _speculation(release: Release) -> list[str]:
    """In words: what can draft, and flags of other releases that this one does not have."""
    told = [f"drafts by {', '.join(method for method in METHODS if method in release.methods)}"]
    gone = [flag for flag in ("--speculative-model", "--num-speculative-tokens") if flag not in release.flags]
    if gone and "--speculative-config" in release.flags:
        told.append(f"--speculative-config in place of {', '.join(gone)}")
    if GONE_KEY not in release.keys:
        told.append(f"no {GONE_KEY}")
    return told
