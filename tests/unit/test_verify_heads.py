"""Heads, by engine and release: positions, config keys, features, classes, output heads, number formats."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import made_pairs as made
import pytest
from test_verify_unknown import EAGLE3, FC, ROWS, SHAPE, SPECULATORS, head, judged, without

from specops.checkpoints.draft_kind import HEAD_FORMS, WORDS, Draft, Kind
from specops.checkpoints.draft_kind import ROWS as KINDS
from specops.phases.verify_draft.engine_fit import EngineRelease
from specops.phases.verify_draft.pair import PairFinding, VerifySettings
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress
from specops.results import Result
from specops.serving import ENGINES, ServedPair

LONG = {"max_position_embeddings": 8192}
DFLASH = SHAPE | {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 8,
    "dflash_config": {"target_layer_ids": [0, 1]},
}  # fmt: skip
BLOCK = {
    "fc.weight": (64, 128), "hidden_norm.weight": (64,), "norm.weight": (64,),
    "layers.0.self_attn.q_proj.weight": (64, 64),
}  # fmt: skip
EAGLE = SHAPE | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
EAGLE_TENSORS = {
    "fc.weight": (64, 128),
    "embed_tokens.weight": (ROWS, 64),
    "layers.0.mlp.up_proj.weight": (8, 8),
}


def finding(result: Result, check: str) -> PairFinding:
    return next(PairFinding(**found) for found in result.data["findings"] if found["check"] == check)


@pytest.mark.parametrize(
    ("engine", "version", "config", "tensors", "verdict"),
    [
        ("vllm", "0.26.0", EAGLE3, None, "incompatible"),
        ("vllm", "0.27.0", EAGLE3, None, "compatible"),
        ("vllm", "0.32.0", DFLASH, BLOCK, "incompatible"),
        ("vllm", "0.33.0", DFLASH, BLOCK, "compatible"),
        ("sglang", "0.5.2", EAGLE3, None, "incompatible"),
        ("sglang", "0.5.23", EAGLE3, None, "needs_setting"),
        ("sglang", "0.5.23", DFLASH, BLOCK, "needs_setting"),
        ("llamacpp", "b11549", EAGLE3, None, "compatible"),
        ("trtllm", "1.4.0rc1", EAGLE3, None, "unknown"),
        ("vllm", "0.33.0", EAGLE3 | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, None, "unknown"),
    ],
)
def test_a_head_with_fewer_positions_than_its_target(
    tmp_path: Path, engine: str, version: str, config: dict[str, Any], tensors: Any, verdict: str
) -> None:
    tensors = tensors or made.eagle3(ROWS, 64) | FC
    result = judged(tmp_path, config, tensors, target=LONG, engine=engine, engine_version=version)
    found = finding(result, "positions")
    assert found.verdict == verdict, found.detail
    assert "2,048" in found.detail
    assert "8,192" in found.detail


def test_enough_positions_are_ok_everywhere(tmp_path: Path) -> None:
    for number, engine in enumerate(("vllm", "sglang", "llamacpp", "trtllm")):
        (place := tmp_path / str(number)).mkdir()
        assert finding(head(place, EAGLE3, engine=engine), "positions").verdict == "compatible"


INPUT_NORM = {"input_norm.weight": (192,)}
NORMS = {"fc_norm.0.weight": (64,), "fc_norm.1.weight": (64,), "fc_norm.2.weight": (64,)}


@pytest.mark.parametrize(
    ("engine", "version", "config", "more", "verdict", "words"),
    [
        # the loader of vLLM reads them since 0.22, its reader of the speculators format since 0.25
        ("vllm", "0.21.0", EAGLE3 | {"norm_output": True}, {}, "degraded", "norm_output (read since 0.22.0)"),
        ("vllm", "0.22.0", EAGLE3 | {"norm_output": True}, {}, "compatible", ""),
        ("vllm", "0.24.0", SPECULATORS | {"norm_output": True}, {}, "degraded", "read since 0.25.0"),
        ("vllm", "0.25.0", SPECULATORS | {"norm_output": True}, {}, "compatible", ""),
        ("vllm", "0.21.0", EAGLE3 | {"fc_norm": True}, NORMS, "incompatible", "no place for their tensors"),
        ("sglang", "0.5.16", EAGLE3 | {"norm_before_fc": True}, INPUT_NORM, "degraded",
         "read since 0.5.17"),
        ("sglang", "0.5.17", EAGLE3 | {"norm_before_fc": True}, INPUT_NORM, "compatible", ""),
        ("llamacpp", "b11549", EAGLE3 | {"norm_output": True}, {}, "unknown", "norm_output"),
        ("vllm", "0.33.0", EAGLE3 | {"a_new_switch": 2}, {}, "unknown", "a_new_switch"),
        # a tensor shows the switch where the config does not name it
        ("vllm", "0.21.0", EAGLE3, NORMS, "incompatible", "fc_norm"),
    ],
)  # fmt: skip
def test_a_switch_that_the_release_does_not_read(
    tmp_path: Path, engine: str, version: str, config: Any, more: Any, verdict: str, words: str
) -> None:
    found = finding(head(tmp_path, config, more, engine=engine, engine_version=version), "config keys")
    assert found.verdict == verdict, found.detail
    assert words in found.detail


FOUR = {"fc.weight": (64, 256)}
IDS = [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("engine", "config", "verdict"),
    [
        ("vllm", EAGLE3 | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": IDS}}, "compatible"),
        (
            "vllm",
            EAGLE3 | {"num_aux_hidden_states": 4, "eagle_aux_hidden_state_layer_ids": IDS},
            "compatible",
        ),
        ("vllm", EAGLE3 | {"eagle_aux_hidden_state_layer_ids": IDS}, "incompatible"),
        ("vllm", SPECULATORS | {"eagle_aux_hidden_state_layer_ids": IDS}, "incompatible"),
        ("sglang", EAGLE3 | {"eagle_aux_hidden_state_layer_ids": IDS}, "incompatible"),
        ("sglang", EAGLE3 | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": IDS}}, "compatible"),
        ("llamacpp", EAGLE3 | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": IDS}}, "incompatible"),
        ("trtllm", EAGLE3 | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": IDS}}, "unknown"),
    ],
)
def test_the_number_of_features_is_read_where_the_release_reads_it(
    tmp_path: Path, engine: str, config: dict[str, Any], verdict: str
) -> None:
    found = finding(head(tmp_path, config, FOUR, engine=engine), "features")
    assert found.verdict == verdict, found.detail


@pytest.mark.parametrize(
    ("engine", "version", "config", "tensors", "verdict"),
    [
        ("vllm", "0.33.0", EAGLE, EAGLE_TENSORS, "compatible"),  # becomes EagleLlamaForCausalLM
        ("sglang", "0.5.23", EAGLE, EAGLE_TENSORS, "incompatible"),  # stays a model's class
        (
            "sglang",
            "0.5.23",
            EAGLE | {"architectures": ["LlamaForCausalLMEagle"]},
            EAGLE_TENSORS,
            "compatible",
        ),
        ("vllm", "0.33.0", EAGLE | {"architectures": ["MambaForCausalLM"]}, EAGLE_TENSORS, "incompatible"),
        ("sglang", "0.5.10", DFLASH, BLOCK, "incompatible"),
        ("vllm", "0.34.0", EAGLE | {"architectures": ["MambaForCausalLM"]}, EAGLE_TENSORS, "unknown"),
    ],
)
def test_the_class_of_a_head(
    tmp_path: Path, engine: str, version: str, config: Any, tensors: Any, verdict: str
) -> None:
    result = judged(tmp_path, config, tensors, engine=engine, engine_version=version)
    assert finding(result, "architecture").verdict == verdict


@pytest.mark.parametrize(
    ("engine", "config", "verdict"),
    [
        ("vllm", EAGLE3 | {"draft_vocab_size": ROWS}, "compatible"),
        ("sglang", EAGLE3 | {"draft_vocab_size": ROWS}, "incompatible"),  # its own head stays random
        ("sglang", EAGLE3, "compatible"),
        ("trtllm", EAGLE3, "unknown"),
        ("vllm", EAGLE3 | {"draft_vocab_size": 200}, "incompatible"),  # no part of the target's fits
    ],
)
def test_a_head_without_an_output_head(tmp_path: Path, engine: str, config: Any, verdict: str) -> None:
    tensors = without(made.eagle3(ROWS, 64) | FC, "lm_head.weight")
    found = finding(judged(tmp_path, config, tensors, engine=engine), "output head")
    assert found.verdict == verdict, found.detail


PACKED = {"fc.weight_packed": ("I32", (64, 24)), "fc.weight_scale": (64, 6)}
INT4 = {"quantization_config": {"quant_method": "compressed-tensors"}}
FP8 = {"quantization_config": {"quant_method": "fp8"}}


@pytest.mark.parametrize(
    ("engine", "config", "more", "target", "verdict"),
    [
        ("vllm", EAGLE3 | INT4, PACKED, {}, "compatible"),
        ("sglang", EAGLE3 | INT4, PACKED, {}, "incompatible"),  # skipped without a word
        ("vllm", EAGLE3, PACKED, {}, "incompatible"),  # nothing says how to read them
        ("vllm", EAGLE3, FC, FP8, "compatible"),  # the head has its own quantisation, or none
        ("trtllm", EAGLE3, FC, FP8, "unknown"),
    ],
)
def test_number_formats(
    tmp_path: Path, engine: str, config: Any, more: Any, target: Any, verdict: str
) -> None:
    tensors = made.eagle3(ROWS, 64) | more
    result = judged(tmp_path, config, tensors, target=target, engine=engine)
    found = finding(result, "number format")
    assert found.verdict == verdict, found.detail


@pytest.mark.parametrize("where", ["config.json", "hf_quant_config.json"])
@pytest.mark.parametrize(
    ("excludes", "scales", "verdict"),
    [([], False, "unknown"), (["mtp*"], False, "compatible"), ([], True, "compatible")],
)
def test_layers_for_drafts_inside_a_quantised_target(
    tmp_path: Path, where: str, excludes: list[str], scales: bool, verdict: str
) -> None:
    target = made.made(random.Random(1))
    target.config |= {"mtp_num_hidden_layers": 1}
    folder = target.write(tmp_path / "target")
    settings: dict[str, Any] = {"quant_method": "fp8", "ignore": excludes}
    if where == "config.json":
        target.config |= {"quantization_config": settings}
        target.write(tmp_path / "target")
    else:
        settings = {"quantization": {"quant_algo": "FP8", "exclude_modules": excludes}}
        (folder / where).write_text(json.dumps(settings))
    layers: dict[str, Any] = {"mtp.fc.weight": (64, 128), "mtp.layers.0.mlp.up_proj.weight": (64, 64)}
    layers |= {"mtp.layers.0.mlp.up_proj.weight_scale": ("F32", (1,))} if scales else {}
    made.write_header(folder / "model.safetensors", made.model_tensors(target.config, 64) | layers)
    asked = VerifySettings(target=str(folder), draft=str(folder))
    result = verify(asked, None, SilentProgress())
    assert finding(result, "number format").verdict == verdict
    assert (result.summary["kind"], result.summary["method"]) == ("mtp", "mtp")


def test_a_block_of_8_drafts_7_tokens_and_the_command_says_so(tmp_path: Path) -> None:
    result = judged(tmp_path, DFLASH, BLOCK)
    assert result.data["kind"]["tokens"] == 7
    support = ENGINES["sglang"].drafts
    assert support is not None
    line = support.describe_serving(ServedPair("t", "d", "DFLASH", 7, {}))
    assert "--speculative-num-draft-tokens 8," in line  # SGLang counts the known token, too


def table_rows(page: str, first: str) -> dict[str, list[str]]:
    """Cells of the table whose head begins with `first`, by the first cell."""
    lines = page.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(first))
    found = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found[cells[0]] = cells[1:]
    return found


def test_the_guides_table_of_kinds_is_the_codes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "draft.md").read_text(encoding="utf-8")
    rows = table_rows(page, "| kind | tensors that tell it |")
    only_here = {kind for kind, form in HEAD_FORMS.items() if form.embedded_only} | {"early_exit"}
    kinds: set[Kind] = {row.kind for row in KINDS} | {"independent", "pard"}
    assert set(rows) == {WORDS[kind] for kind in kinds - only_here}
    for kind in kinds - only_here:
        for engine, cell in zip(
            ("vllm", "sglang", "llamacpp", "trtllm"), rows[WORDS[kind]][1:5], strict=True
        ):
            treatment = EngineRelease.at_version(engine, None).treats(Draft(kind, "made"))
            words = {"refused": "no", "unknown": "unknown"}.get(treatment.does, f"`{treatment.method}`")
            assert cell == words, (kind, engine)
    assert not re.search(r"has to be trained", page)
