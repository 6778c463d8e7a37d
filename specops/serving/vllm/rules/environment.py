"""Secrets that others can read, and variables of the environment that a version does not read."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import partial
from operator import methodcaller

from specops.section import SECRET_FLAGS, SECRET_VARIABLE
from specops.serving.argv import is_unknown
from specops.serving.vllm.arguments import ParsedCommand
from specops.serving.vllm.rules.rule import Found, of_flag
from specops.serving.vllm.versions import V1_ALONE, Release, Version, table

_VISIBLE = "the secret is visible in the process list, the manifest and the shell history"
_ANOTHER = {
    "VLLM_ATTENTION_BACKEND": "--attention-backend",
    "VLLM_FLASH_ATTN_VERSION": """--attention-config '{"flash_attn_version": …}'""",
    "VLLM_USE_MODELSCOPE": "the model's path on disk",
    "VLLM_TORCH_PROFILER_DIR": """--profiler-config '{"profiler": "torch", "torch_profiler_dir": …}'""",
    "VLLM_ALL2ALL_BACKEND": "--all2all-backend",
}
"""What took a variable's place."""

OTHERS = ("VLLM_ADDITIONAL_ARGS", "VLLM_API_KEY", "VLLM_PORT", "VLLM_HOST", "VLLM_VERSION", "VLLM_IMAGE")
"""Variables that charts, images and scripts give a meaning, and vLLM does not read; and VLLM_API_KEY, which
it does."""

V0_GONE = Version((0, 11, 1))
"""The first release that does not read VLLM_USE_V1."""


def secrets(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for flag in SECRET_FLAGS:
        value = command.value(flag)
        if command.has(flag) and not _is_placeholder(value or ""):
            variable = {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"}.get(flag)
            where = f"the environment variable {variable}" if variable else "the file that it protects"
            yield of_flag("warning", flag, _VISIBLE, where, methodcaller("without", flag))
    for word in command.program:
        name, _, value = word.partition("=")
        if SECRET_VARIABLE.search(name) and value and not _is_placeholder(value):
            fix = methodcaller("without_value", word)
            yield of_flag("warning", name, _VISIBLE, f"{name} set in the environment, and not here", fix)
    for name, value in command.around.items():
        if SECRET_VARIABLE.search(name) and value and not _is_placeholder(value):
            why = "it stands in the file in plain text: whoever reads the file has the secret"
            yield of_flag(
                "warning", name, why, "a Secret that the file names, or the environment of who starts it"
            )


def _is_placeholder(value: str) -> bool:
    """A variable, or what a reader is to fill in: <YOUR TOKEN>."""
    return is_unknown(value) or value.startswith("<")


def variables(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for name, value in command.environment.items():
        if not name.startswith("VLLM_") or name in release.variables or name in OTHERS:
            continue
        history = table().history("variables", name)
        if name == "VLLM_USE_V1":
            yield _v0(value, release)
        elif history is not None:
            why = f"vLLM {release.version} does not read it ({history} do): it does nothing"
            yield of_flag("warning", name, why, _ANOTHER.get(name, "leave it out"))
        else:
            near = difflib.get_close_matches(name, sorted(release.variables), n=1, cutoff=0.8)
            why = f"no version of vLLM from {table().versions[0]} to {table().newest} reads it"
            yield of_flag("warning", name, why, near[0] if near else "leave it out")
    if "VLLM_USE_V1" in release.variables and command.environment.get("VLLM_USE_V1") == "0":
        yield from _with_v0(command, release)


def _v0(value: str, release: Release) -> Found:
    fix = partial(_unset, name="VLLM_USE_V1")
    if value == "0":
        why = (
            f"from {V0_GONE} on vLLM does not read it: there is no V0 engine any more, and what needed it "
            "runs on V1 or not at all"
        )
        return of_flag("warning", "VLLM_USE_V1", why, "leave it out", fix)
    why = f"from {V0_GONE} on vLLM does not read it: V1 is the only engine"
    return of_flag("note", "VLLM_USE_V1", why, "leave it out", fix)


def _with_v0(command: ParsedCommand, release: Release) -> Iterator[Found]:
    if not command.speculates:
        return
    if release.version >= V1_ALONE:
        why = f"the V0 engine of vLLM {release.version} does not speculate: it went with 0.10.0"
        fix = partial(_unset, name="VLLM_USE_V1")
        yield of_flag("error", "VLLM_USE_V1", why, "leave it out", fix)
    else:
        why = "the V0 engine speculates otherwise than V1 does: its acceptance metrics have other names"
        yield of_flag("note", "VLLM_USE_V1", why, "leave it out, for the V1 engine")


def _unset(command: ParsedCommand, name: str) -> ParsedCommand:
    for word in [word for word in command.program if word.startswith(f"{name}=")]:
        command = command.without_assignment(word)
    return command
