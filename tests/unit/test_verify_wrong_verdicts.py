"""Pairs whose verdict was wrong once: heads of other targets, embedding models, damaged downloads."""

from __future__ import annotations

import json
import pickle
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import made_pairs as made
import numpy as np
import pytest
from safetensors.numpy import save_file

from specops.checkpoints import templates, tokenizer
from specops.errors import ModelError
from specops.phases.verify_draft.pair import PairFinding, VerifySettings
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress
from specops.results import Result

WIDTH = 64
EMBEDDING = "model.embed_tokens.weight"
EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": WIDTH}


def judge(tmp_path: Path, **settings: Any) -> Result:
    asked = VerifySettings(target=str(tmp_path / "target"), draft=str(tmp_path / "draft"), **settings)
    return verify(asked, None, SilentProgress())


def finding(result: Result, check: str) -> PairFinding:
    return next(PairFinding(**found) for found in result.data["findings"] if found["check"] == check)


def save(folder: Path, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    save_file(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, folder / "model.safetensors"
    )


def zeros(shapes: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.zeros(shape, "f2") for name, shape in shapes.items()}


def model(rows: int, width: int = 4, **config: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The weights of a small model of two layers."""
    return zeros(made.model_tensors({"vocab_size": rows, "num_hidden_layers": 2} | config, width))


@pytest.fixture
def target(tmp_path: Path) -> made.Made:
    """A model of width 64 with its weights, in tmp_path/target."""
    found = made.made(random.Random(1))
    found.config |= {"hidden_size": WIDTH}
    found.write(tmp_path / "target")
    found.layers_of = 4  # of drafts that are written from it
    return found


def head(tmp_path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    """A head with the tensors of its architecture beside `tensors`; without any, where it is empty."""
    folder = tmp_path / "draft"
    folder.mkdir()
    config = {"max_position_embeddings": 2048, "dtype": "bfloat16"} | config
    (folder / "config.json").write_text(json.dumps(config))
    if tensors:
        rows = config.get("draft_vocab_size") or config.get("vocab_size") or 8
        named = str(config.get("architectures"))
        form: dict[str, np.ndarray[Any, Any]] = {}
        if "Eagle3" in named:
            form = zeros(made.eagle3(rows, WIDTH))
        if "DFlash" in named:
            form = zeros({"hidden_norm.weight": (WIDTH,), "norm.weight": (WIDTH,)})
        save(folder, form | tensors)


def reduced(rows: int, ids: list[int], covered: int | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """An EAGLE-3 head that drafts from `ids` of a target with `rows`."""
    marks = np.zeros(rows if covered is None else covered, bool)
    marks[[index for index in ids if index < len(marks)]] = True
    return {
        "fc.weight": np.zeros((WIDTH, 3 * WIDTH), "f2"),
        "d2t": np.array(ids, "i8") - np.arange(len(ids)),
        "t2d": marks,
    }


def test_an_eagle3_head_of_this_target_fits(tmp_path: Path, target: made.Made) -> None:
    rows = target.config["vocab_size"]
    head(tmp_path, EAGLE3 | {"vocab_size": rows, "draft_vocab_size": 4}, reduced(rows, [1, 5, 9, rows - 1]))
    result = judge(tmp_path)
    assert (result.verdict, finding(result, "reduced vocabulary").verdict) == ("yes", "compatible")


@pytest.mark.parametrize(
    ("ids", "covered", "words"),
    [
        ([1, 5, 9, 12], 5000, "t2d covers 5,000 ids"),
        ([1, 5, 9, 100_000], None, "ids up to 100,000"),
        ([1, 5, 5, 12], None, "several of them to one id"),
    ],
)
def test_an_eagle3_head_of_another_vocabulary_does_not(
    tmp_path: Path, target: made.Made, ids: list[int], covered: int | None, words: str
) -> None:
    rows = target.config["vocab_size"]
    head(tmp_path, EAGLE3 | {"vocab_size": rows, "draft_vocab_size": 4}, reduced(rows, ids, covered))
    result = judge(tmp_path)
    assert result.verdict == "no"
    assert words in finding(result, "reduced vocabulary").detail


def test_t2d_that_marks_other_ids_is_found(tmp_path: Path, target: made.Made) -> None:
    rows = target.config["vocab_size"]
    tensors = reduced(rows, [1, 5, 9, 12])
    tensors["t2d"] = np.roll(tensors["t2d"], 1)
    head(tmp_path, EAGLE3 | {"vocab_size": rows, "draft_vocab_size": 4}, tensors)
    assert "marks other ids" in finding(judge(tmp_path), "reduced vocabulary").detail


def test_a_head_whose_vocabulary_is_larger_is_another_targets(tmp_path: Path, target: made.Made) -> None:
    rows = target.config["vocab_size"]
    head(tmp_path, EAGLE3 | {"vocab_size": rows + 1000}, {"fc.weight": np.zeros((WIDTH, 3 * WIDTH), "f2")})
    result = judge(tmp_path)
    assert (result.verdict, finding(result, "rows").verdict) == ("no", "incompatible")


@pytest.mark.parametrize(
    ("layers", "config", "verdict"),
    [
        (3, {}, "compatible"),
        (6, {}, "incompatible"),  # 3 layers of a target that is twice as wide
        (1, {}, "incompatible"),
        (4, {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2, 2]}}, "compatible"),
        (3, {"eagle_aux_hidden_state_layer_ids": [1, 2]}, "incompatible"),
    ],
)
def test_a_width_that_divides_by_chance_is_found(
    tmp_path: Path, target: made.Made, layers: int, config: dict[str, Any], verdict: str
) -> None:
    fields = EAGLE3 | {"vocab_size": target.config["vocab_size"]} | config
    head(tmp_path, fields, {"fc.weight": np.zeros((WIDTH, layers * WIDTH), "f2")})
    assert finding(judge(tmp_path), "features").verdict == verdict


def speculators(rows: int, trained_for: str, width: int = WIDTH) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": rows,
        "transformer_layer_config": {
            "model_type": "llama",
            "hidden_size": width,
            "vocab_size": rows,
            "max_position_embeddings": 2048,
        },
        "speculators_config": {
            "proposal_methods": [{"speculative_tokens": 5}],
            "verifier": {"name_or_path": "org/target", "architectures": [trained_for]},
        },
    }


@pytest.mark.parametrize(
    ("architecture", "verdict"),
    [
        ("LlamaForCausalLM", "compatible"),
        ("Qwen3ForCausalLM", "incompatible"),
        ("Qwen3VLForConditionalGeneration", "degraded"),
    ],
)
def test_the_speculators_format_names_its_target(
    tmp_path: Path, target: made.Made, architecture: str, verdict: str
) -> None:
    assert target.config["architectures"] == ["LlamaForCausalLM"]
    rows = target.config["vocab_size"]
    head(tmp_path, speculators(rows, architecture), {"fc.weight": np.zeros((WIDTH, 3 * WIDTH), "f2")})
    assert finding(judge(tmp_path), "trained for").verdict == verdict


def test_the_speculators_formats_own_sizes_are_read(tmp_path: Path, target: made.Made) -> None:
    few = speculators(9, "LlamaForCausalLM")
    head(tmp_path, few, {"fc.weight": np.zeros((WIDTH, 3 * WIDTH), "f2")})
    assert finding(judge(tmp_path), "rows").verdict == "incompatible"
    without = {key: value for key, value in few.items() if key != "transformer_layer_config"}
    (tmp_path / "draft" / "config.json").write_text(json.dumps(without))
    assert "requires transformer_layer_config" in finding(judge(tmp_path), "format").detail


@pytest.mark.parametrize(("width", "verdict"), [(WIDTH, "yes"), (2 * WIDTH, "no")])
def test_a_converted_eagle_head_nests_its_config(
    tmp_path: Path, target: made.Made, width: int, verdict: str
) -> None:
    inner = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width}
    inner |= {"vocab_size": target.config["vocab_size"], "num_hidden_layers": 1}
    inner |= {"max_position_embeddings": 2048}
    eagle = zeros({"fc.weight": (width, 2 * width), "embed_tokens.weight": (inner["vocab_size"], width)})
    named = {"model_type": "eagle", "architectures": ["EagleLlamaForCausalLM"], "model": inner}
    head(tmp_path, named, eagle)
    assert judge(tmp_path).verdict == verdict


EAGLE1 = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1}


def test_eagle1_is_read_from_pytorchs_own_file(tmp_path: Path, target: made.Made) -> None:
    import torch

    rows = target.config["vocab_size"]
    head(tmp_path, EAGLE1 | {"hidden_size": WIDTH, "vocab_size": rows}, {})
    names = {"fc.weight": (WIDTH, 2 * WIDTH), "embed_tokens.weight": (rows, WIDTH)}
    names |= {"layers.0.self_attn.q_proj.weight": (WIDTH, WIDTH)}
    weights = {name: torch.zeros(shape, dtype=torch.float16) for name, shape in names.items()}
    torch.save(weights, tmp_path / "draft" / "pytorch_model.bin")
    result = judge(tmp_path)
    assert (result.verdict, result.summary["kind"], result.summary["method"]) == ("yes", "eagle", "eagle")


def test_a_pickle_that_calls_anything_else_is_not_run(tmp_path: Path, target: made.Made) -> None:
    """Its kind is then unknown, and the pair undecided."""
    ran = tmp_path / "ran"

    class Call:
        def __reduce__(self) -> Any:
            return Path.touch, (ran,)

    head(tmp_path, EAGLE1 | {"hidden_size": WIDTH, "vocab_size": target.config["vocab_size"]}, {})
    with zipfile.ZipFile(tmp_path / "draft" / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"fc.weight": Call()}))
    result = judge(tmp_path)
    assert not ran.exists()
    assert (result.verdict, int(result.exit_code), result.summary["kind"]) == ("undecided", 4, "unknown")
    assert finding(result, "kind").answer == "unknown"


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10**12 }}",
        "{% for a in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
        "{{ ('%' ~ '9' * 10 ~ 'd') | format(1) }}",
    ],
)
def test_a_template_without_end_is_a_finding(
    tmp_path: Path, target: made.Made, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "SECONDS", 1)
    target.tokenizer_config["chat_template"] = made.TEMPLATE
    target.write(tmp_path / "target")
    target.tokenizer_config["chat_template"] = template
    target.write(tmp_path / "draft")
    found = finding(judge(tmp_path), "chat template")
    assert found.verdict == "degraded"


@pytest.mark.parametrize(
    ("fields", "files"),
    [
        ({"architectures": ["BertModel"]}, ()),
        ({"architectures": ["Qwen2Model"]}, ()),
        ({"architectures": ["LlamaForSequenceClassification"]}, ()),
        ({"architectures": ["RobertaForMaskedLM"]}, ()),
        ({"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}, ()),
        ({"architectures": ["Qwen3ForCausalLM"]}, ("modules.json", "config_sentence_transformers.json")),
    ],
)
def test_what_does_not_generate_text_is_no_draft(
    tmp_path: Path, target: made.Made, fields: dict[str, Any], files: tuple[str, ...]
) -> None:
    target.config |= fields
    target.write(tmp_path / "draft")
    for name in files:
        (tmp_path / "draft" / name).write_text("{}")
    result = judge(tmp_path)
    assert (result.verdict, finding(result, "text generation").verdict) == ("no", "incompatible")


@pytest.mark.parametrize(
    "architecture", ["GPT2LMHeadModel", "ChatGLMModel", "OPTForCausalLM", "BloomForCausalLM"]
)
def test_what_generates_text_is(tmp_path: Path, target: made.Made, architecture: str) -> None:
    target.config["architectures"] = [architecture]
    target.write(tmp_path / "draft")
    assert judge(tmp_path).verdict == "yes"


def test_a_partial_download_is_refused(tmp_path: Path, target: made.Made) -> None:
    draft = target.write(tmp_path / "draft")
    (draft / "model.safetensors").unlink()
    shards = [f"model-{n}-of-3.safetensors" for n in (1, 2, 3)]
    names = made.model_tensors(target.config, 4)
    index = {"metadata": {"total_size": 24}, "weight_map": dict.fromkeys(names, shards[0])}
    index["weight_map"] |= dict(zip(list(names)[:2], shards[1:], strict=True))
    (draft / "model.safetensors.index.json").write_text(json.dumps(index))
    assert judge(tmp_path).verdict == "yes"  # the names in the index are enough for the kind
    save_file({"a": np.zeros(4, "f2")}, draft / shards[0])
    with pytest.raises(ModelError, match="1 of 3 shards are here"):
        judge(tmp_path)


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, target: made.Made) -> None:
    draft = target.write(tmp_path / "draft")
    save(draft, {"a.weight": np.zeros((8, 8), "f2")})
    whole = (draft / "model.safetensors").read_bytes()
    (draft / "model.safetensors").write_bytes(whole[:-1])
    with pytest.raises(ModelError, match="its header describes"):
        judge(tmp_path)
    (draft / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(ModelError, match="Git LFS pointer"):
        judge(tmp_path)


@pytest.mark.parametrize("offsets", [[0, 100], [64, 0], [-2, 126], "0-128", None])
def test_offsets_that_cannot_be_are_refused(tmp_path: Path, target: made.Made, offsets: Any) -> None:
    draft = target.write(tmp_path / "draft")
    text = json.dumps({"a": {"dtype": "F16", "shape": [8, 8], "data_offsets": offsets}}).encode()
    (draft / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(128))
    with pytest.raises(ModelError, match="draft"):
        judge(tmp_path)


@pytest.mark.parametrize("by", ["config", "weights"])
def test_a_draft_with_fewer_rows_than_ids_in_use_is_incompatible(
    tmp_path: Path, target: made.Made, by: str
) -> None:
    rows = target.config["vocab_size"]
    if by == "config":
        target.config["vocab_size"] = 300
    draft = target.write(tmp_path / "draft")
    save(draft, model(300 if by == "weights" else rows))
    result = judge(tmp_path)
    assert (result.verdict, finding(result, "token ids").verdict) == ("no", "incompatible")
    assert "300 rows" in finding(result, "token ids").detail


def test_gemma4s_assistant_is_mtp_and_reads_the_targets_width(tmp_path: Path, target: made.Made) -> None:
    config = {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant"}
    inner = {"hidden_size": 16, "num_hidden_layers": 4, "vocab_size": target.config["vocab_size"]}
    config |= {"backbone_hidden_size": WIDTH, "text_config": inner | {"max_position_embeddings": 2048}}
    head(tmp_path, config, zeros({"pre_projection.weight": (16, 128), "post_projection.weight": (64, 16)}))
    result = judge(tmp_path)
    summary = result.summary
    assert (result.verdict, summary["kind"], summary["method"]) == ("yes", "gemma4_assistant", "mtp")
    assert judge(tmp_path, engine_version="0.20.0").verdict == "no"
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config | {"backbone_hidden_size": 128}))
    assert finding(judge(tmp_path), "features").verdict == "incompatible"


def test_sentencepiece_without_its_package_names_it(
    tmp_path: Path, target: made.Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = target.write(tmp_path / "draft")
    (draft / "tokenizer.json").unlink()
    (draft / "tokenizer.model").write_bytes(b"\n\x00")
    monkeypatch.setattr(tokenizer, "find_spec", lambda name: None)
    with pytest.raises(ModelError) as raised:
        judge(tmp_path)
    assert raised.value.hint == "pip install sentencepiece"


@pytest.mark.parametrize(("width", "verdict"), [(32, None), (64, "degraded"), (128, "degraded")])
def test_a_draft_larger_than_its_target_never_pays(
    tmp_path: Path, target: made.Made, width: int, verdict: str | None
) -> None:
    draft = target.write(tmp_path / "draft")
    save(draft, model(target.config["vocab_size"], width))
    result = judge(tmp_path)
    found = [entry["verdict"] for entry in result.data["findings"] if entry["check"] == "cost"]
    assert found == ([verdict] if verdict else [])
    if verdict:
        assert "brings at most 6 tokens" in finding(result, "cost").detail


def test_experts_are_not_judged_by_their_bytes(tmp_path: Path, target: made.Made) -> None:
    target.config["num_experts"] = 8
    draft = target.write(tmp_path / "draft")
    save(draft, model(target.config["vocab_size"], 2 * WIDTH))
    assert not [entry for entry in judge(tmp_path).data["findings"] if entry["check"] == "cost"]


def itself(tmp_path: Path, config: dict[str, Any], names: list[str]) -> Result:
    """The target drafts for itself; its weights have `names`."""
    folder = tmp_path / "target"
    own = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(own | config))
    save(folder, model(own["vocab_size"]) | {name: np.zeros(2, "f2") for name in names})
    return verify(VerifySettings(target=str(folder), draft=str(folder)), None, SilentProgress())


LAYERS = [f"model.layers.{number}.mlp.weight" for number in range(2)]


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"num_nextn_predict_layers": 1}, [*LAYERS, "model.layers.2.eh_proj.weight"]),  # DeepSeek, GLM, MiMo
        ({"mtp_num_hidden_layers": 1}, [*LAYERS, "mtp.fc.weight"]),  # Qwen3.5
        ({}, [*LAYERS, "mtp.fc.weight", "mtp.layers.0.mlp.weight"]),  # Qwen3-Next does not count them
        ({}, [*LAYERS, "model.mtp_layers.0.input_proj.weight"]),  # MiMo
        ({"num_nextn_predict_layers": 1}, [*LAYERS, "model.mtp_linear_proj.0.weight"]),  # ERNIE 4.5
    ],
)
def test_mtp_layers_within_the_target_are_found(
    tmp_path: Path, target: made.Made, config: dict[str, Any], names: list[str]
) -> None:
    result = itself(tmp_path, config, names)
    assert (result.verdict, result.summary["kind"], result.summary["method"]) == ("yes", "mtp", "mtp")
    assert finding(result, "own layers").verdict == "compatible"


def test_mtp_layers_that_an_export_dropped_are_missed(tmp_path: Path, target: made.Made) -> None:
    result = itself(tmp_path, {"num_nextn_predict_layers": 1}, LAYERS)
    assert result.verdict == "no"
    assert "the export dropped them" in finding(result, "own layers").detail
    save_file({"x": np.zeros(2, "f2")}, tmp_path / "target" / "mtp.safetensors")  # some exports' own file
    assert itself(tmp_path, {}, LAYERS).verdict == "yes"


def test_a_model_without_mtp_layers_drafts_as_itself(tmp_path: Path, target: made.Made) -> None:
    result = itself(tmp_path, {}, LAYERS)
    assert (result.summary["kind"], result.verdict) == (
        "independent",
        "no",
    )  # a step costs as much as it saves


DFLASH = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": WIDTH}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_target_layers": 2, "dflash_config": {"target_layer_ids": [0, 1]}}, None),
        (
            {"num_target_layers": 64, "dflash_config": {"target_layer_ids": [0, 1]}},
            "64 layers, this one has 2",
        ),
        ({"dflash_config": {"target_layer_ids": [1, 61]}}, "layer 61, the target has 2"),
    ],
)
def test_a_head_of_a_deeper_target_of_the_same_width_is_found(
    tmp_path: Path, target: made.Made, config: dict[str, Any], words: str | None
) -> None:
    """Qwen3-14B and Qwen3-32B are equally wide and have one vocabulary."""
    rows = target.config["vocab_size"]
    fuse = {"fc.weight": np.zeros((WIDTH, 2 * WIDTH), "f2")}
    head(tmp_path, DFLASH | {"vocab_size": rows} | config, fuse)
    found = finding(judge(tmp_path), "features")
    assert found.verdict == ("incompatible" if words else "compatible")
    assert words is None or words in found.detail


@pytest.mark.parametrize(("columns", "verdict"), [(3 * WIDTH // 2, "compatible"), (WIDTH, "incompatible")])
def test_a_head_with_packed_4_bit_weights_is_read(
    tmp_path: Path, target: made.Made, columns: int, verdict: str
) -> None:
    rows = target.config["vocab_size"]
    packed = {
        "fc.weight": np.zeros((WIDTH, columns), "u1"),
        "fc.weight_scale": np.zeros((WIDTH, columns // 8), "u1"),
    }
    quantised = {"quantization_config": {"quant_method": "modelopt"}}
    head(tmp_path, EAGLE3 | {"vocab_size": rows} | quantised, packed)
    assert finding(judge(tmp_path), "features").verdict == verdict


@pytest.mark.parametrize("key", ["pard_token", "ptd_token_id"])
def test_a_pard_model_is_served_in_one_pass(tmp_path: Path, target: made.Made, key: str) -> None:
    target.config[key] = 3
    target.write(tmp_path / "draft")
    result = judge(tmp_path)
    assert (result.verdict, result.summary["kind"]) == ("yes", "pard")
    assert result.summary["settings"] == {"parallel_drafting": True}
    assert judge(tmp_path, engine_version="0.15.0").summary["settings"] == {}  # as any draft model
    assert judge(tmp_path, engine="trtllm").summary["method"] == "PARD"


def test_a_token_for_which_neither_has_a_row_is_not_in_use(tmp_path: Path, target: made.Made) -> None:
    """Fine-tuned Llama 2 has [PAD] at 32000, and 32,000 rows."""
    rows = target.config["vocab_size"]
    target.tokenizer["added_tokens"].append(made.added(rows, "[PAD]"))
    target.write(tmp_path / "target")
    draft = target.write(tmp_path / "draft")
    assert finding(judge(tmp_path), "token ids").verdict == "compatible"
    own = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(
        json.dumps(own | {"vocab_size": rows - 3})
    )  # the target has these rows
    assert finding(judge(tmp_path), "token ids").verdict == "incompatible"


def test_a_head_needs_no_row_for_it_either(tmp_path: Path, target: made.Made) -> None:
    rows = target.config["vocab_size"]
    target.tokenizer["added_tokens"].append(made.added(rows, "[PAD]"))
    target.write(tmp_path / "target")
    head(tmp_path, EAGLE3 | {"vocab_size": rows}, {"fc.weight": np.zeros((WIDTH, 3 * WIDTH), "f2")})
    assert finding(judge(tmp_path), "rows").verdict == "compatible"


def test_shards_without_an_index_are_counted(tmp_path: Path, target: made.Made) -> None:
    draft = target.write(tmp_path / "draft")
    (draft / "model.safetensors").unlink()
    whole = list(model(target.config["vocab_size"]).items())
    for number in (1, 2, 3):
        save_file(dict(whole[number - 1 :: 3]), draft / f"model-{number:05}-of-00003.safetensors")
    assert judge(tmp_path).verdict == "yes"
    (draft / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match="2 of 3 shards are here, model-00002-of-00003"):
        judge(tmp_path)


def test_an_adapter_is_named_as_one(tmp_path: Path, target: made.Made) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base", "r": 8}))
    save_file({"lora_A.weight": np.zeros((8, 8), "f2")}, draft / "adapter_model.safetensors")
    with pytest.raises(ModelError, match=r"an adapter \(LoRA\) for org/base") as raised:
        judge(tmp_path)
    assert "expected a folder with the merged model" in raised.value.message


def in_the_cache(tmp_path: Path, files: Path) -> Path:
    """`files` as the hub's cache stores them: a snapshot of links to blobs."""
    model = tmp_path / "models--org--m"
    snapshot = model / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    for number, path in enumerate(sorted(files.iterdir())):
        path.rename(model / "blobs" / str(number))
        (snapshot / path.name).symlink_to(Path("../../blobs") / str(number))
    return snapshot


def test_a_snapshot_of_links_is_read_and_one_without_blobs_is_named(
    tmp_path: Path, target: made.Made
) -> None:
    draft = target.write(tmp_path / "files")
    snapshot = in_the_cache(tmp_path, draft)
    (tmp_path / "draft").symlink_to(snapshot)
    assert judge(tmp_path).verdict == "yes"
    (tmp_path / "draft").unlink()
    (tmp_path / "draft").symlink_to(snapshot.parents[1])
    with pytest.raises(ModelError, match="folder in the hub's cache") as raised:
        judge(tmp_path)
    assert "snapshots/c0ffee" in str(raised.value.hint)
    (tmp_path / "draft").unlink()
    (tmp_path / "draft").mkdir()
    for link in snapshot.iterdir():  # as `cp -r` copies it elsewhere
        (tmp_path / "draft" / link.name).symlink_to(link.readlink())
    with pytest.raises(ModelError, match=r"is a link to \.\./\.\./blobs/\d, which does not exist"):
        judge(tmp_path)


def test_tied_embeddings_and_fp8_scales_change_no_verdict(tmp_path: Path, target: made.Made) -> None:
    import torch
    from safetensors.torch import save_file as save_torch

    target.config["tie_word_embeddings"] = True
    target.config["quantization_config"] = {"quant_method": "fp8"}
    draft = target.write(tmp_path / "draft")
    shapes = made.model_tensors(target.config, 16)
    tensors = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    tensors |= {
        "model.layers.0.mlp.up_proj.weight": torch.zeros((16, 16)).to(torch.float8_e4m3fn),
        "model.layers.0.mlp.up_proj.weight_scale_inv": torch.ones((1, 1)),
    }
    save_torch(tensors, draft / "model.safetensors")
    result = judge(tmp_path)
    assert (result.verdict, result.summary["kind"]) == ("yes", "independent")


def test_a_tokenizer_file_of_an_older_form_with_the_same_ids_is_the_same(
    tmp_path: Path, target: made.Made
) -> None:
    """Merges as texts, keys left out, no version: as tokenizers before 0.20 wrote it."""
    older = json.loads(json.dumps(target.tokenizer))
    older["model"]["merges"] = [" ".join(merge) for merge in older["model"]["merges"]]
    older["model"] |= {"dropout": None, "end_of_word_suffix": None, "ignore_merges": False}
    older |= {"truncation": None, "padding": None, "version": "1.0"}
    target.tokenizer = older
    target.write(tmp_path / "draft")
    result = judge(tmp_path)
    differing = [one["check"] for one in result.data["findings"] if one["verdict"] != "compatible"]
    assert (result.verdict, differing) == ("yes", [])
