"""The pair that ships, through the command: each engine takes its draft and its head."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from specops.assets import asset

PAIR = asset("playbooks", "embedded")


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("engine", "draft", "kind"),
    [
        *((engine, "draft", "independent") for engine in ("vllm", "sglang", "embedded")),
        *((engine, "head", "eagle") for engine in ("vllm", "embedded")),
    ],
)
def test_the_shipped_drafts_suit_the_shipped_target(engine: str, draft: str, kind: str) -> None:
    words = ["verify-draft", str(PAIR / "target"), str(PAIR / draft), "--engine", engine, "--gpu", "t4-16"]
    words += ["--prompts", str(PAIR / "prompts.json"), "--json", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "specops", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert (result["summary"]["verdict"], result["summary"]["kind"]) == ("compatible", kind)
    assert result["data"]["memory"]["draft"]["weights_bytes"] > 2_000_000
    if draft == "draft":  # a head brings no tokenizer
        assert result["data"]["encodings"]["differing"] == 0
        assert result["data"]["encodings"]["own"] == 64


@pytest.mark.slow
def test_the_shipped_head_has_an_architecture_that_sglang_does_not_load() -> None:
    """It is named as vLLM's EAGLE heads are; SGLang's are LlamaForCausalLMEagle."""
    words = ["verify-draft", str(PAIR / "target"), str(PAIR / "head"), "--engine", "sglang", "--gpu", "t4-16"]
    done = subprocess.run(
        [sys.executable, "-m", "specops", *words, "--json", "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    findings = json.loads(done.stdout)["data"]["findings"]
    assert [one["check"] for one in findings if one["verdict"] == "incompatible"] == ["architecture"]
