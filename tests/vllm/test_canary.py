"""`specops canary` finds what a real vLLM does wrong where it speculates, and no more than that.

This build for CPUs emulates a sampling kernel: greedy requests among sampled ones are answered wrongly.
Asked for top_k = 1 its engine ends, which the canary tells too; other tests share these servers, so it is not
asked here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from real_vllm import MODEL, specops

from specops.config.canary import CheckName
from specops.errors import Exit

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


def test_it_passes_parity_and_fails_mixed_temperatures(
    standard: str, speculative: str, prompts_file: Path, tmp_path: Path
) -> None:
    at = ("--standard", standard, "--speculative", speculative, "--model", MODEL)
    only = ",".join(name for name in get_args(CheckName) if name != "top_k")
    asked = (*at, "--prompts", prompts_file, "--only", only)
    done = specops("canary", *asked, "--out", tmp_path, "--json", "--quiet")
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    found = {check["name"]: check for check in result["data"]["checks"]}
    assert (done.returncode, result["verdict"]) == (Exit.NO, "no")
    assert found["parity"]["status"] == "pass", found["parity"]
    assert found["mixed"]["status"] == "fail", found["mixed"]
    assert found["mixed"]["evidence"]["control"] == "12/12"
    assert found["mixed"]["request"].count("curl") > 1
    entries = result["data"]["unsupported"]
    refused = {entry["parameter"] for entry in entries if entry["pool"] == "speculative"}
    assert {"min_p", "logit_bias"} <= refused
