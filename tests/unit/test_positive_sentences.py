"""Each sentence of `launch lint`, `launch render` and `init` that says that something is right: no unknown
input reaches it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import specops
from specops.cli.app import app
from specops.errors import UsageError
from specops.load.counters import Observed
from specops.load.settings import BaselineSettings
from specops.phases import init
from specops.phases.launch import lint_words
from specops.phases.monitor.check import fitting
from specops.serving import USUAL
from specops.serving.llamacpp import builds
from specops.serving.llamacpp import lint as llamacpp
from specops.serving.sglang import lint as sglang
from specops.serving.sglang import releases
from specops.serving.vllm import lint as vllm
from specops.serving.vllm import versions

SOURCES = ("cli/launch.py", "phases/launch/__init__.py", "phases/init.py")
WORDS = (
    "clean",
    "no finding",
    "carries the peak alone",
    "corrected:",
    "verified",
    "without speculation",
    "the same, with",
)
SENTENCES = {
    # a piece of each positive sentence: the test that an unknown input does not reach it
    "  clean    no finding for ": "test_lint_is_not_clean",
    "clean": "test_lint_is_not_clean",
    "corrected:": "test_lint_has_not_corrected_all",
    "partly corrected:": "says itself that something is left",
    "the standard pool carries the peak alone": "test_render_does_not_say_that_its_pools_are_right",
    "it verified no drafts": "test_init_names_no_server_idle",
    "it verified drafts while it answered": "test_init_names_no_server_idle",
    "neither endpoint verified a draft": "test_init_takes_neither_for_idle",
    "without speculation": "a pool that specops starts so, by its settings",
    "the same, with ": "test_init_writes_no_pair_that_is_not_known_to_fit",
    "; one must serve ": "not positive: it refuses",
}


def test_every_positive_sentence_is_here() -> None:
    """A new sentence with one of these words needs its line above, and its test."""
    pieces = set()
    for source in SOURCES:
        tree = ast.parse((Path(specops.__file__).parent / source).read_text(encoding="utf-8"))
        docs = {id(node.body[0].value) for node in ast.walk(tree)
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
        pieces |= {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
            if any(word in node.value for word in WORDS) and "\n" not in node.value.strip("\n")
        }
    missing = [
        p
        for p in pieces
        if p not in SENTENCES and not any(p.endswith(s) or p.startswith(s) for s in SENTENCES)
    ]
    assert missing == []


UNKNOWN = (
    ["vllm", "serve", "org/m", "--config", "gone.yaml"],
    ["vllm", "serve", "org/m", "$EXTRA"],
    ["vllm", "serve", "org/m", "--speculative-config", "$SPEC"],
    ["vllm", "serve", "org/m", "--omni"],
    ["python", "-m", "sglang.launch_server", "--model-path", "m", "--config", "gone.yaml"],
    ["python", "-m", "sglang.launch_server", "--model-path", "m", "--speculative-algorithm", "$A"],
    ["llama-server", "-m", "m.gguf", "--metrics", "-np", "2", "--spec-type", "$T"],
    ["llama-server", "--models-preset", "gone.ini", "--metrics", "-np", "2"],
    ["docker", "run", "-e", "LLAMA_ARG_SPEC_TYPE", "ghcr.io/ggml-org/llama.cpp:server-b11549", "-m", "m"],
    ["trtllm-serve", "m", "--config", "gone.yaml"],
    ["trtllm-serve", "disaggregated", "-c", "d.yaml"],
    [
        "docker",
        "run",
        "-v",
        "$PWD:/c",
        "nvcr.io/nvidia/tensorrt-llm/release:1.0.0",
        "trtllm-serve",
        "m",
        "--config",
        "/c/gone.yaml",
    ],
)


@pytest.mark.parametrize("words", UNKNOWN, ids=" ".join)
def test_lint_is_not_clean(words) -> None:
    done = CliRunner().invoke(app, ["launch", "lint", "--", *words])
    assert done.exit_code == 4
    assert "clean" not in done.stdout
    judged, result = lint_words(words)
    assert result.verdict == "undecided"
    assert result.summary["unknown"] == len(judged[0].unknown) > 0
    assert all(entry.how for entry in judged[0].unknown)


@pytest.mark.parametrize("words", UNKNOWN, ids=" ".join)
def test_lint_has_not_corrected_all(words) -> None:
    wrong = [*words, *(["--num-lookahead-slots", "2"] if words[0] == "vllm" else ["--no-such-flag"])]
    page = CliRunner().invoke(app, ["launch", "lint", "--", *wrong]).stdout
    assert "\ncorrected:" not in page


ROLLOUT = """\
rollout: x
prompts: p.json
pools:
  standard: {engine: vllm, model: org/m, version: 0.32.0, arguments: [--config, gone.yaml]}
  speculative:
    engine: vllm
    model: org/m
    version: 0.32.0
    arguments: [--config, gone.yaml]
    speculation: {method: ngram, num_speculative_tokens: 3}
"""


def test_render_does_not_say_that_its_pools_are_right(tmp_path) -> None:
    (tmp_path / "rollout.yaml").write_text(ROLLOUT)
    (tmp_path / "p.json").write_text('[{"id": "a", "prompt": "b", "class": "c"}]')
    done = CliRunner().invoke(app, ["launch", "render", str(tmp_path / "rollout.yaml")])
    assert done.exit_code == 4
    assert re.search(r"^ *speculative  unknown +gone\.yaml", done.stdout, re.MULTILINE)
    assert "the standard pool carries the peak alone" not in done.stdout
    assert "kubectl apply" not in done.stdout


def at(port: int) -> BaselineSettings:
    return BaselineSettings.model_validate({"base_url": f"http://127.0.0.1:{port}/v1", "model": "m"})


def test_init_names_no_server_idle() -> None:
    """A server without counters did not verify no drafts."""
    pair = init._ordered([at(1), at(2)], [Observed(None, None), Observed(5.0, None)])
    assert "no drafts" not in pair.why[0]
    assert "taken as such" in pair.why[0]
    assert (
        init._ordered([at(1), at(2)], [Observed(0.0, None), Observed(5.0, None)]).why[0]
        == "it verified no drafts"
    )


@pytest.mark.parametrize("drafts", [(None, None), (0.0, None), (None, 0.0)])
def test_init_takes_neither_for_idle(drafts) -> None:
    pair = init._ordered([at(1), at(2)], [Observed(count, None) for count in drafts])
    assert all("verified" not in why for why in pair.why)
    assert all("not known" in why for why in pair.why)


@pytest.mark.parametrize("exposed", [[], ["process_cpu_seconds_total", "tgi_request_count"]])
def test_init_names_no_engine_that_no_metric_supports(exposed) -> None:
    assert fitting(USUAL, "speculative", exposed) is None
    assert fitting(USUAL, "standard", exposed) is None


def test_init_writes_no_pair_that_is_not_known_to_fit(tmp_path, monkeypatch) -> None:
    class Found:
        verdict, reason = "undecided", "the kind of the draft is not known"
        data = {"engine": {"method": "eagle3", "settings": {}}}  # noqa: RUF012

    monkeypatch.setattr(init, "verify", lambda *_: Found)
    with pytest.raises(UsageError, match="not known whether"):
        init.write_pools(tmp_path / "r", "vllm", "org/m", "org/d", None)
    assert not (tmp_path / "r" / "rollout.yaml").exists()


VALUES = ("1", "2", "8", "0", "true", "draft", "{}", "TREE_ATTN", "trtllm_mha", "decode")
SPECULATION = '{"method":"eagle3","model":"d","num_speculative_tokens":3,"draft_tensor_parallel_size":4}'
HEADS = [
    "python",
    "-m",
    "sglang.launch_server",
    "--model-path",
    "m",
    "--speculative-algorithm",
    "EAGLE3",
    "--page-size",
    "16",
    "--speculative-draft-model-path",
    "d",
    "--speculative-num-steps",
    "3",
    "--speculative-eagle-topk",
    "4",
    "--speculative-num-draft-tokens",
    "8",
]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_only_a_flag_that_decides_has_an_error_in_its_value(engine) -> None:
    """A value that is not known leaves a yes only where no rule finds an error by it."""
    build = builds.table().build(builds.table().newest)
    base, flags, decides, check = {
        "vllm": (
            ["vllm", "serve", "m", "--tensor-parallel-size", "4", "--speculative-config", SPECULATION],
            [
                f
                for f in versions.table().release().flags
                if versions.table().arity(f) == "one" and f[1] == "-"
            ],
            vllm.DECIDING,
            lambda words: vllm.lint(words, None),
        ),
        "sglang": (HEADS, list(releases.table().newest.flags), sglang.DECIDING, sglang.lint),
        "llamacpp": (
            ["llama-server", "-m", "m", "-md", "d", "--spec-type", "draft-simple"],
            list(build.flags),
            llamacpp.DECIDING,
            lambda words: llamacpp.lint(words, build),
        ),
    }[engine]
    for flag in flags:
        if flag.startswith(decides):
            continue
        pages = [
            {f.flag for f in check([*base, flag, value]) if f.level == "error" and "number" not in f.why}
            for value in VALUES
        ]
        assert all(page == pages[0] for page in pages), flag
