"""The table of flags and the lint, held against llama.cpp's own parser, which is inside the package."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from real_commands import Case, cases

from specops.serving.argv import UNKNOWN
from specops.serving.llamacpp.builds import packaged, table
from specops.serving.llamacpp.lint import CALL, corrected, lint
from specops.serving.llamacpp.pool import LlamacppPool
from specops.serving.llamacpp.settings import command

BUILD = table().build(packaged() or 0)
SAYS = ("-h", "--help", "--usage", "--version", "--license", "--list-devices", "--completion-bash", "-cl")
"""They print something and end the process."""

SAYS += ("--cache-list",)


def parsed(commands: list[list[str]]) -> list[tuple[bool, str]]:
    script = Path(__file__).with_name("real_parser.py")
    with tempfile.TemporaryDirectory() as folder:  # --log-file writes one
        done = subprocess.run(
            [sys.executable, str(script)],
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
        )
    return [(ok, said) for ok, said in json.loads(done.stdout)]


def test_the_table_has_the_flags_that_the_parser_knows() -> None:
    known = [flag for flag in BUILD.flags if flag not in SAYS]
    others = [flag for flag in _of_all_builds() if flag not in BUILD.flags and flag not in BUILD.gone]
    refused = "error: invalid argument: "
    commands = [[flag, *["1"] * BUILD.flags[flag], "--no-such-flag"] for flag in known]
    for flag, (_, said) in zip(known, parsed(commands), strict=True):
        # Had it taken another number of words, it would have stopped at the 1, or taken the flag behind.
        assert f"{refused}--no-such-flag" in said or f'handling argument "{flag}"' in said, (flag, said)
    for flag, (_, said) in zip(others, parsed([[flag, "1"] for flag in others]), strict=True):
        assert f"{refused}{flag}" in said
    gone = list(BUILD.gone)
    for flag, (_, said) in zip(gone, parsed([[flag, "1"] for flag in gone]), strict=True):
        assert BUILD.gone[flag] in said
    assert len(known) > 350
    assert len(gone) >= 8


def _of_all_builds() -> list[str]:
    return sorted({flag for number in table().builds for flag in table().build(number).flags})


def test_the_parser_takes_every_type_of_the_table() -> None:
    types = sorted(BUILD.types)
    assert all(ok for ok, _ in parsed([["--spec-type", type_] for type_ in types]))
    (ok, said) = parsed([["--spec-type", "draft"]])[0]
    assert not ok
    assert "unknown speculative type: draft" in said


COMMANDS = [
    "-m t.gguf -md d.gguf --draft-max 16 --draft-min 4 --draft-p-min 0.6",
    "-m t.gguf -md d.gguf -cd 4096 -ngld 99 --draft 8 -fa",
    "--model t.gguf --model-draft d.gguf --ctx-size 8192 --parallel 2 --draft-max 8 --device-draft none",
    "-hf ggml-org/gpt-oss-120b-GGUF -c 0 --jinja -ub 2048 -b 2048 -ncmoe 20 --no-mmap",
    "-m t.gguf --spec-type mtp --spec-draft-n-max 3 --metrics -np 1",
    "-m t.gguf -md d.gguf --spec-type draft --draft-max 8 --port=8081",
    "-m t.gguf --spec-type ngram-mod --draft-max 48 --spec-ngram-size-n 24 --draft-min 16",
    "-m t.gguf --spec-type ngram-simple --spec-ngram-size-m 16 --spec-ngram-min-hits 2",
    "-m t.gguf -md d.gguf --spec-replace 'a' 'b' -ctk q8_0 -ctv q8_0 -fa",
    "-m t.gguf --mlock --no-mmap --host 0.0.0.0 --port 8080 --checkpoint-every-n-tokens 512",
    "-m t.gguf -md d.gguf --spec-type eagle3,ngram-mod --chat-template-kwargs '{\"enable_thinking\":false}'",
    "--hf-repo unsloth/Qwen3-8B-GGUF:Q8_0 --hf-repo-draft unsloth/Qwen3-0.6B-GGUF:Q8_0 --draft-n 5",
]
"""As guides, model cards and issues have them, from before and after b9093."""


@pytest.mark.parametrize("words", COMMANDS)
def test_what_the_parser_refuses_is_an_error_and_what_is_corrected_it_accepts(words) -> None:
    given = shlex.split(f"llama-server {words}")
    made = corrected(given, BUILD)
    fixed = made.words() if made else None
    (before, said), (after, why) = parsed([given[1:], (fixed or given)[1:]])
    errors = [found for found in lint(given, BUILD) if found.level == "error"]
    assert before or errors, said
    assert fixed is not None
    left = [found.flag for found in lint(fixed, BUILD) if found.level == "error"]
    assert after or left, why
    assert left in ([], ["--checkpoint-every-n-tokens"]), "nothing else is a person's to fix here"


REAL = cases("llamacpp")


@pytest.mark.parametrize("case", REAL, ids=map(str, REAL))
def test_a_command_from_practice_is_accepted_once_corrected(case: Case) -> None:
    """For the packaged build, whatever build it was written for."""
    given = list(case.command.words)
    made = corrected(given, BUILD)
    fixed = made.words() if made else given
    start = CALL.start(fixed)
    numbered = [UNKNOWN.sub("1", word) for word in fixed[start:]]
    [(accepted, said)] = parsed([numbered])
    left = [found for found in lint(fixed, BUILD) if found.level == "error"]
    assert accepted or left or "not supported in this build" in said, said
    before = [
        found for found in lint(given, BUILD) if found.level == "error" and "does not have it" in found.why
    ]
    if before:
        [(accepted, _)] = parsed([[UNKNOWN.sub("1", word) for word in given[CALL.start(given) :]]])
        assert not accepted


@pytest.mark.parametrize("type_", sorted(BUILD.types - {"none"}))
def test_the_parser_accepts_what_settings_become(type_) -> None:
    draft = {"model": "d.gguf"} if type_.startswith("draft-") else {}
    drafting = {"type": type_, "n_max": 4} | draft
    if type_ in ("draft-simple", "draft-mtp"):
        drafting |= {"n_min": 1, "p_min": 0.5, "sampling": "probabilistic"}
    fields = {"flash_attn": "auto", "cache_type_k": "q8_0", "n_gpu_layers": "auto", "cache_prompt": False}
    pool = LlamacppPool.model_validate(
        {"engine": "llamacpp", "model": "t.gguf", "speculation": drafting, "ctx_size": 4096} | fields
    )
    ((ok, said),) = parsed([command(pool, port=80, build=BUILD)[1:]])
    assert ok, said
