"""What specops renders and what its lint says, held against vLLM 0.32.0's own parser and configuration.

Versions that are not installed are judged by the table of their released sources; here the table itself is
held against a parser.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from real_commands import Case, cases
from real_vllm import ENVIRONMENT, FORKED, PAIR, UNFORKED, complete, counters, inside_vllm

from specops.errors import ConfigError
from specops.launch.servers import serving
from specops.progress import SilentProgress
from specops.serving.argv import UNKNOWN
from specops.serving.vllm.arguments import CALL, ParsedCommand
from specops.serving.vllm.lint import corrected, lint
from specops.serving.vllm.pool import VllmPool
from specops.serving.vllm.settings import VllmSpeculation, command
from specops.serving.vllm.versions import Version, installed, table, version_of

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]  # a server takes minutes to start
INSTALLED = Version.parse("0.32.0")
TARGET, DRAFT, HEAD = str(PAIR / "target"), str(PAIR / "draft"), str(PAIR / "head")
K = {"num_speculative_tokens": 3}

GOOD: dict[str, dict[str, Any]] = {
    "standard": {},
    "every setting": {
        "served_model_name": "m",
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "max_model_len": 512,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 1024,
        "gpu_memory_utilization": 0.5,
        "kv_cache_dtype": "auto",
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "seed": 1,
        "arguments": ["--disable-log-stats"],
    },
    "prefix caching": {"enable_prefix_caching": True, "enforce_eager": False},
    "ngram": {"speculation": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4, **K}},
    "draft_model": {"speculation": {"method": "draft_model", "model": DRAFT, **K}},
    "draft_model, every key": {
        "speculation": {
            "method": "draft_model",
            "model": DRAFT,
            "draft_tensor_parallel_size": 1,
            "max_model_len": 256,
            "enforce_eager": True,
            "draft_sample_method": "greedy",
            "rejection_sample_method": "standard",
            "parallel_drafting": False,
            "disable_padded_drafter_batch": False,
            "use_heterogeneous_vocab": True,
            "more": {"moe_backend": "auto"},
            **K,
        }
    },
    "eagle": {"speculation": {"method": "eagle", "model": HEAD, **K}},
    "schedule": {
        "speculation": {
            "method": "ngram",
            "prompt_lookup_max": 4,
            "num_speculative_tokens_per_batch_size": [[1, 7, 3], [8, 8, 0]],
            **K,
        }
    },
    "load test": {
        "speculation": {
            "method": "ngram",
            "prompt_lookup_max": 4,
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_rates": [0.9, 0.5, 0.1],
            **K,
        }
    },
}


def speculating(**keys: Any) -> list[str]:
    return ["--speculative-config", json.dumps(keys)]


def ngram(**more: Any) -> list[str]:
    return speculating(**{"method": "ngram", "prompt_lookup_max": 4, **K} | more)


REFUSED: dict[str, tuple[list[str], str]] = {
    # words beside the model, and a piece of what vLLM says
    "old model flag": (["--speculative-model", DRAFT, "--num-speculative-tokens", "5"], "unrecognized"),
    "mqa scorer": (["--speculative-disable-mqa-scorer"], "unrecognized"),
    "block manager": (["--use-v2-block-manager"], "unrecognized"),
    "method flag": (["--speculative-method", "eagle"], "unrecognized"),
    "frontend": (["--disable-frontend-multiprocessing"], "unrecognized"),
    "no JSON": (["--speculative-config", "ngram"], "--speculative-config"),
    "batch size": (ngram(disable_by_batch_size=8), "Unexpected"),
    "tree": (ngram(speculative_token_tree="[(0,)]"), "Unexpected"),
    "misspelt": (ngram(promt_lookup_min=2), "Unexpected"),
    "method": (ngram(method="n-gram"), "method"),
    "ngram bounds": (ngram(prompt_lookup_min=5), "prompt_lookup_min"),
    "no tokens": (speculating(method="ngram"), "num_speculative_tokens"),
    "zero tokens": (ngram(num_speculative_tokens=0), "greater than"),
    "no draft": (speculating(method="eagle", **K), "without speculative model"),
    "draft TP": (
        speculating(method="draft_model", model=DRAFT, draft_tensor_parallel_size=2, **K),
        "draft_tensor_parallel_size",
    ),
    "rates": (ngram(synthetic_acceptance_rates=[1, 1, 1]), "synthetic"),
    "vocabulary": (ngram(use_heterogeneous_vocab=True), "draft_model"),
    "twice": (["--spec-tokens", "3", *ngram()], "mutually exclusive"),
    "mtp without tokens": (speculating(method="mtp"), "num_speculative_tokens"),
    "async scheduling": (["--async-scheduling", *ngram()], "sync scheduling is only supported"),
    "dotted level": (["-O.level=3"], "optimization_level"),
    "level as JSON": (["-O", '{"level": 3}'], "unrecognized"),
}
NOT_OF_MTP = ("mtp without tokens",)
"""Right when it is corrected, and not for this target, which has no MTP layers."""
ACCEPTED = {
    "a number in quotes": ngram(num_speculative_tokens="3"),
    "a draft's number in quotes": speculating(method="draft_model", model=DRAFT, num_speculative_tokens="3"),
    "a key in words": [
        "--speculative-config.method",
        "ngram",
        "--speculative-config.num-speculative-tokens",
        "3",
    ],
}
LET_THROUGH = {
    # What its configuration accepts, and what goes wrong later, or is not done.
    "schedule from 2": ngram(num_speculative_tokens_per_batch_size=[[2, 9, 3]]),
    "overlap": ngram(num_speculative_tokens_per_batch_size=[[1, 9, 3], [9, 12, 1]]),
    "pipeline": ["--pipeline-parallel-size", "2", *ngram()],
    "synthetic": ngram(rejection_sample_method="synthetic", synthetic_acceptance_length=2),
}


REAL = cases("vllm")
"""Commands from practice; here all are judged by the installed version, whatever they were written for."""
PIECE = re.compile(rf'(?<=")({UNKNOWN.pattern})(?=}})')
"""A variable that may hold a further key of the JSON."""
SERVED = {"ngram": {}, "draft_model": {"model": DRAFT}, "eagle": {"model": HEAD}}
"""Methods whose configuration can be made here, and the shipped draft in the place of the command's."""


def in_practice(case: Case) -> list[str]:
    """What is behind `vllm serve`, corrected; its model as --model, variables as 1."""
    words = corrected(case.command.words, INSTALLED) or list(case.command.words)
    read = ParsedCommand.parse(words)
    operands = read.program[CALL.start(read.program) :]
    named = ["--model", *operands[:1]] if operands and not read.has("--model") else []
    filled = [PIECE.sub("", word) for word in [*named, *read.words()[len(read.program) :]]]
    return [UNKNOWN.sub("1", word) for word in filled]


def on_the_pair(case: Case) -> list[str] | None:
    """Its speculation, on the shipped pair; None where that cannot be."""
    literals = ParsedCommand.parse(in_practice(case)).literals
    method = literals.get("method")
    if method not in SERVED:
        return None
    keys = literals | SERVED[str(method)]
    if "num_speculative_tokens" in keys:
        keys["num_speculative_tokens"] = min(int(keys["num_speculative_tokens"]), 8)
    keys.pop("draft_tensor_parallel_size", None)  # the pair is on one device
    keys.pop("max_model_len", None)  # and is short
    return given(["--speculative-config", json.dumps(keys)])


@pytest.fixture(scope="module")
def eagle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped head under a path that vLLM takes for EAGLE, whatever the method says."""
    path = tmp_path_factory.mktemp("drafts") / "eagle-head"
    path.symlink_to(HEAD)
    return path


@pytest.fixture(scope="module")
def said(vllm: None, eagle_path: Path) -> dict[str, Any]:
    """vLLM's verdicts on everything that these tests ask, from one process: its imports take long."""
    asked = {
        **{f"good: {name}": rendered(settings) for name, settings in GOOD.items()},
        **{f"refused: {name}": given(words) for name, (words, _) in REFUSED.items()},
        **{f"let through: {name}": given(words) for name, words in LET_THROUGH.items()},
        **{f"accepted: {name}": given(words) for name, words in ACCEPTED.items()},
        "trap": trapped(eagle_path),
        **{f"corrected: {name}": corrected_words(words) for name, (words, _) in REFUSED.items()},
        **{f"practice: {case}": in_practice(case) for case in REAL},
        **{f"on the pair: {case}": words for case in REAL if (words := on_the_pair(case)) is not None},
    }
    answer = inside_vllm(list(asked.values()))
    return {
        "flags": answer["flags"],
        "arities": answer["arities"],
        **dict(zip(asked, answer["verdicts"], strict=True)),
    }


def rendered(settings: dict[str, Any]) -> list[str]:
    pool = VllmPool(engine="vllm", program="vllm", model=TARGET, dtype="float32", **settings)
    return command(pool, port=8000, version=INSTALLED)[1:]


def given(words: list[str]) -> list[str]:
    return ["--model", TARGET, "--dtype", "float32", *words]


def trapped(path: Path) -> list[str]:
    return given(speculating(method="draft_model", model=str(path), **K))


def corrected_words(words: list[str]) -> list[str]:
    return corrected(given(words), INSTALLED) or given(words)


def test_the_table_is_what_the_parser_of_that_version_knows(said) -> None:
    known = table().release(INSTALLED).flags
    positive = {flag for flag in said["flags"] if not flag.startswith("--no-")}
    assert positive - {"-h"} == known - {"--version", "-v"}  # those two are vllm's own, before `serve`
    assert {f"--{flag.removeprefix('--no-')}" for flag in said["flags"] if flag.startswith("--no-")} <= known


def test_the_table_knows_how_many_words_a_flag_takes(said) -> None:
    wrong = {
        flag: (arity, table().arity(flag))
        for flag, arity in said["arities"].items()
        if not flag.startswith(("--no-", "--help", "-h"))
        and table().arity(ParsedCommand._canonical(flag)) != arity
    }
    assert wrong == {}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_vllm_accepts_is_no_error_of_the_lint(said, name) -> None:
    assert said[f"accepted: {name}"]["error"] is None
    assert [found for found in lint(given(ACCEPTED[name]), INSTALLED) if found.level == "error"] == []


@pytest.mark.parametrize("name", GOOD)
def test_what_is_rendered_is_accepted(said, name) -> None:
    method = GOOD[name].get("speculation", {}).get("method")
    assert said[f"good: {name}"] == {"error": None, "method": method, "refused": None}


@pytest.mark.parametrize("name", REFUSED)
def test_what_vllm_refuses_is_an_error_of_the_lint(said, name) -> None:
    words, piece = REFUSED[name]
    assert piece in said[f"refused: {name}"]["error"]
    assert "error" in [finding.level for finding in lint(given(words), INSTALLED)]


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in NOT_OF_MTP])
def test_what_the_lint_mends_wholly_is_accepted(said, name) -> None:
    left = [f for f in lint(corrected_words(REFUSED[name][0]), INSTALLED) if f.level == "error"]
    assert (said[f"corrected: {name}"]["error"] is None) == (not left)


@pytest.mark.parametrize("name", LET_THROUGH)
def test_the_lint_refuses_what_vllm_would_only_find_out_later(said, name) -> None:
    assert said[f"let through: {name}"]["error"] is None
    assert "error" in [finding.level for finding in lint(given(LET_THROUGH[name]), INSTALLED)]


@pytest.mark.parametrize("case", REAL, ids=map(str, REAL))
def test_a_command_from_practice_is_accepted_once_corrected(said, case) -> None:
    """By the parser, whatever the model; by the configuration, where its speculation fits the pair."""
    words = corrected(case.command.words, INSTALLED) or case.command.words
    left = [found.flag for found in lint(words, INSTALLED) if found.level == "error"]
    parsed = said[f"practice: {case}"]
    assert parsed["refused"] != "parser" or left, parsed["error"]
    configured = said.get(f"on the pair: {case}")
    assert configured is None or configured["error"] is None or left, configured["error"]


def test_a_path_outweighs_the_method(said, eagle_path) -> None:
    assert said["trap"] == {"error": None, "method": "eagle", "refused": None}
    findings = lint(trapped(eagle_path), INSTALLED)
    assert [finding.flag for finding in findings if finding.level == "error"] == [
        "--speculative-config model"
    ]


def test_the_program_is_asked_for_its_version() -> None:
    program = list(UNFORKED)
    assert installed(list(FORKED)) == installed(program) == installed(["env", "A=1", *program]) == INSTALLED
    pool = VllmPool(engine="vllm", model=TARGET, program=" ".join(program), version="0.30.0")
    with pytest.raises(ConfigError, match=r"names vLLM 0\.30\.0, and .* is vLLM 0\.32\.0"):
        version_of(pool.version, pool.program)


def test_a_pool_is_started_and_answers(vllm, tmp_path) -> None:
    pool = VllmPool(
        engine="vllm",
        program=shlex.join(UNFORKED),
        model=TARGET,
        served_model_name="pair",
        dtype="float32",
        enforce_eager=True,
        max_num_seqs=4,
        environment=ENVIRONMENT,
        speculation=VllmSpeculation(method="ngram", prompt_lookup_max=4, num_speculative_tokens=3),
    )
    with serving(pool, "ngram", model="", log=tmp_path / "log", progress=SilentProgress()) as server:
        assert server.model == "pair"
        assert complete(server.base_url, "def main(", 8)[1] == 8
        assert counters(server.base_url)["generation_tokens_total"] == 8
