"""What a checkpoint's small files say of it: sizes, kind, KV cache, tokenizer; and damage as a sentence."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import made_pairs as made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.checkpoints.draft_kind import ROWS, WORDS, Draft, kind_of
from specops.checkpoints.model_config import Config, KvCache, config_of
from specops.checkpoints.source import Folder, Tensor, Weights, find, weights_of
from specops.checkpoints.templates import rendered
from specops.checkpoints.tokenizer import tokenizer_of
from specops.errors import ModelError, SpecopsError, UsageError

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2}


def config(**fields: Any) -> Config:
    return Config(fields, fields, "made")


def with_tensors(names: Iterable[str]) -> Weights:
    return Weights(2, {name: Tensor("BF16", (1,), 2) for name in names})


def kind(fields: dict[str, Any], names: Iterable[str], *, is_target: bool = False) -> Draft:
    return kind_of(config(**fields), with_tensors(names), {}, is_target=is_target)


def speculators(named: str | None, **left_out: None) -> dict[str, Any]:
    section = {"proposal_methods": [{"speculative_tokens": 5}], "verifier": {"name_or_path": "org/target"}}
    told = {"speculators_model_type": named} if named else {}
    layer = {"transformer_layer_config": {"model_type": "llama"}}
    return told | layer | {"architectures": ["LlamaForCausalLM"], "speculators_config": section | left_out}


LAYER = ("layers.0.self_attn.q_proj.weight", "layers.0.mlp.up_proj.weight", "layers.0.input_layernorm.weight")
MODEL = tuple(made.model_tensors(LLAMA | {"vocab_size": 8}, 4))
EAGLE = ("fc.weight", "embed_tokens.weight", *LAYER)
EAGLE3 = tuple(made.eagle3(8, 4, **{"fc.weight": (4, 12)}))
DFLASH = ("fc.weight", "hidden_norm.weight", "norm.weight", *LAYER)
DSPARK = (
    *DFLASH,
    "markov_head.markov_w1.weight",
    "markov_head.markov_w2.weight",
    "confidence_head.proj.weight",
)
STAGES = (
    "mtp.0.main_norm.weight",
    "mtp.0.main_proj.weight",
    "mtp.2.markov_head.weight",
    "mtp.0.attn.wq.weight",
)
MEDUSA = ("0.0.linear.weight", "0.0.linear.bias", "0.1.weight", "1.0.linear.weight", "1.1.weight")
SPECULATOR = (
    "speculator.emb.0.weight",
    "speculator.proj.0.weight",
    "speculator.head.0.weight",
    "speculator.ln.0.bias",
)
ASSISTANT = ("pre_projection.weight", "post_projection.weight", "model.layers.0.self_attn.q_proj.weight")
NEXTN = ("token_embd.weight", "blk.2.nextn.eh_proj.weight", "blk.2.nextn.enorm.weight", "blk.2.attn_q.weight")
MTP = (
    "mtp.fc.weight",
    "mtp.pre_fc_norm_hidden.weight",
    "mtp.layers.0.self_attn.q_proj.weight",
    "mtp.norm.weight",
)
TOLD: list[tuple[str, dict[str, Any], tuple[str, ...], str, int | None]] = [
    ("a model", LLAMA, MODEL, "independent", None),
    ("PARD", LLAMA | {"pard_token": 5}, MODEL, "pard", None),
    ("EAGLE, named as a model", LLAMA, EAGLE, "eagle", None),
    ("EAGLE-3", {"architectures": ["LlamaForCausalLMEagle3"]}, EAGLE3, "eagle3", None),
    ("EAGLE-3, named as a model", LLAMA, EAGLE3, "eagle3", None),
    ("EAGLE-3.1", {}, (*EAGLE3, "fc_norm.0.weight", "fc_norm.1.weight"), "eagle3_1", None),
    ("EAGLE-3.1 by a switch", {"norm_output": True}, EAGLE3, "eagle3_1", None),
    ("P-EAGLE", speculators("peagle"), (*EAGLE3, "mask_hidden"), "p_eagle", 5),
    ("DFlash", {"block_size": 16, "architectures": ["DFlashDraftModel"]}, DFLASH, "dflash", 15),
    ("DFlash, its block inside", {"dflash_config": {"block_size": 8}}, DFLASH, "dflash", 7),
    ("DFlash2", {"block_size": 8}, (*DFLASH, "candidate_selector.predecessor_codebook"), "dflash2", 7),
    ("Domino", {"block_size": 8}, (*DFLASH, "prefix_gru.weight_ih_l0", "embed_proj.0.weight"), "domino", 7),
    ("DSpark", {"block_size": 7}, DSPARK, "dspark", 7),
    ("DSpark without its anchor", {"block_size": 8, "sample_from_anchor": False}, DSPARK, "dspark", 7),
    ("Medusa", {}, MEDUSA, "medusa", 2),
    ("Medusa, vLLM's names", {}, ("blocks.0.layers.0.weight", "lm_heads.0.weight"), "medusa", 1),
    ("Hydra", {}, ("hydra_mlp.0.0.linear.weight", "hydra_lm_head.0.weight"), "hydra", 1),
    ("MLP speculator", {"n_predict": 3}, SPECULATOR, "mlp_speculator", 3),
    ("Gemma 4's assistant", {"model_type": "gemma4_assistant"}, ASSISTANT, "gemma4_assistant", None),
    ("MTP in a file of its own", {"num_nextn_predict_layers": 1}, NEXTN, "mtp", 1),
    ("MTP, Qwen's", {"mtp_num_hidden_layers": 1}, MTP, "mtp", 1),
    ("a recurrent head", {}, ("recurrent.weight", "token.weight", "down.weight"), "recurrent", None),
]


@pytest.mark.parametrize(
    ("fields", "names", "expected", "tokens"), [row[1:] for row in TOLD], ids=[r[0] for r in TOLD]
)
def test_the_kind_is_its_tensors(fields, names, expected, tokens) -> None:
    draft = kind(fields, names)
    assert (draft.kind, draft.tokens, draft.doubt) == (expected, tokens, None)
    quantised = [name + "_packed" if name.endswith(".weight") else name for name in names]
    assert kind(fields, quantised).kind == expected


def test_every_kind_with_tensors_of_its_own_has_a_row() -> None:
    rows = {row.kind for row in ROWS}
    assert rows | {"independent", "pard", "ngram", "suffix", "unknown"} == set(WORDS)
    assert rows - {"early_exit"} <= {expected for _, _, _, expected, _ in TOLD}


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        (LLAMA, ("odd.weight", "another.weight")),
        (LLAMA, tuple(name for name in MODEL if "layers.1." not in name)),
        (LLAMA | {"num_hidden_layers": 3}, MODEL),
        (LLAMA, (*MODEL, "gate_head.weight")),  # a module that no model has
        (LLAMA, (*MODEL, "blk.2.nextn.eh_proj.weight")),  # a model, and layers for its own drafts
        (LLAMA, (*EAGLE3, "prefix_mixer.weight")),
        ({"architectures": ["DFlashDraftModel"]}, EAGLE3),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, DFLASH),
        ({"architectures": ["LlamaForCausalLMEagle3"]} | {"num_hidden_layers": 2}, MODEL),
        ({"dflash_config": {"selector_rank": 64}, "architectures": ["DFlash2DraftModel"]}, DFLASH),
        ({}, ("fc.weight",)),
        ({}, (*MEDUSA, "hydra_mlp.0.weight")),
    ],
)
def test_what_fits_no_row_or_two_is_unknown_with_its_tensors(fields, names) -> None:
    draft = kind(fields, names)
    assert draft.kind == "unknown"
    assert draft.doubt
    assert draft.find_out
    assert any(part in draft.evidence for name in names for part in name.split(".") if len(part) > 1)


@given(st.sampled_from(TOLD), st.text("abcdefgh", min_size=3, max_size=9))
def test_a_module_that_nobody_named_makes_any_head_unknown(row, module) -> None:
    _, fields, names, expected, _ = row
    draft = kind(fields, (*names, f"{module}_mixer.down.weight"))
    assert draft.kind in ("unknown", *(("recurrent",) if expected == "recurrent" else ()))


@pytest.mark.parametrize("names", [None, ()])
def test_what_was_not_read_is_never_proven(names) -> None:
    for fields in ({"architectures": ["LlamaForCausalLMEagle3"]}, LLAMA, speculators("dflash")):
        weights = None if names is None else with_tensors(names)
        draft = kind_of(config(**fields), weights, {}, is_target=False)
        assert draft.doubt is not None
        assert draft.kind == ("unknown" if fields is LLAMA else draft.kind)


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"])
def test_a_target_can_draft_for_itself(key) -> None:
    found = kind(LLAMA | {key: 2}, (*MODEL, *MTP), is_target=True)
    assert (found.kind, found.tokens) == ("mtp", 2)
    assert kind(LLAMA | {key: 0}, MODEL, is_target=True).kind == "independent"
    early = kind_of(config(**LLAMA), with_tensors(MODEL), {"assistant_early_exit": 4}, is_target=True)
    assert early.kind == "early_exit"


def test_stages_of_dspark_in_a_target_are_not_its_mtp_layers() -> None:
    fields = LLAMA | {"num_nextn_predict_layers": 3, "dspark_block_size": 5}
    draft = kind(fields, (*MODEL, *STAGES), is_target=True)
    assert (draft.kind, draft.tokens) == ("dspark", 5)
    del fields["dspark_block_size"]
    assert kind(fields, (*MODEL, *STAGES), is_target=True).kind == "dspark"


def test_what_the_speculators_format_lacks_is_named() -> None:
    whole = kind(speculators("eagle3"), EAGLE3)
    assert (whole.lacks, whole.tokens, whole.verifier) == ((), 5, "org/target")
    broken = speculators(None, proposal_methods=None, verifier=None)
    assert len(kind(broken, EAGLE3).lacks) == 3


HEADS = {"num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 6}
LLAMA_8B = HEADS | {"num_hidden_layers": 32, "num_key_value_heads": 8}
LLAMA_70B = LLAMA_8B | {"num_hidden_layers": 80, "num_attention_heads": 64, "hidden_size": 8192}
DEEPSEEK_V3 = HEADS | {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
FEW_HEADS = HEADS | {"num_key_value_heads": 2, "head_dim": 64}
WINDOWED = HEADS | {"sliding_window": 512}
MIXED = WINDOWED | {"layer_types": ["linear_attention", "full_attention", "sliding_attention"]}


@pytest.mark.parametrize(
    ("fields", "cache", "on_one", "on_eight"),
    [
        # 2 * heads * head_dim * layers * 2 bytes, heads divided by the GPUs
        (LLAMA_8B, (32, 0, None, 8, 256), 131_072, 16_384),
        (LLAMA_70B, (80, 0, None, 8, 256), 327_680, 40_960),
        (DEEPSEEK_V3, (61, 0, None, None, 576), 70_272, 70_272),  # (512 + 64) * 61 * 2, on every GPU
        (FEW_HEADS, (6, 0, None, 2, 128), 3_072, 1_536),  # no GPU can keep less than a head
        (WINDOWED, (6, 6, 512, 32, 256), 98_304, 12_288),
        (WINDOWED | {"use_sliding_window": False}, (6, 0, None, 32, 256), 98_304, 12_288),
        (WINDOWED | {"sliding_window_pattern": 6}, (6, 5, 512, 32, 256), 98_304, 12_288),
        (MIXED, (2, 1, 512, 32, 256), 32_768, 4_096),
    ],
)
def test_the_kv_cache(fields, cache, on_one, on_eight) -> None:
    found = config(**fields).kv_cache()
    assert found == KvCache(*cache)
    assert (found.bytes_per_token(2), found.bytes_per_token(2, 8)) == (on_one, on_eight)


def test_a_multimodal_config_is_its_text_models(tmp_path: Path) -> None:
    inner = {"vocab_size": 11, "num_hidden_layers": 3, "torch_dtype": "bfloat16"}
    outer = {"architectures": ["QwenVL"], "thinker_config": {"text_config": inner}}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    found = config_of(Folder(tmp_path))
    assert (found.vocab_size, found.layers, found.dtype, found.architectures) == (
        11,
        3,
        "bfloat16",
        ["QwenVL"],
    )


def write_weights(path: Path, header: object) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(24))


def test_weights_are_added_up_from_headers(tmp_path: Path) -> None:
    assert weights_of(Folder(tmp_path)) is None
    tensor = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}
    index = {"metadata": {"total_size": 999}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert weights_of(Folder(tmp_path)) == Weights(999, {}, ("a", "b"))  # the index alone was downloaded
    write_weights(tmp_path / "one.safetensors", {"__metadata__": {"format": "pt"}, "a": tensor})
    write_weights(tmp_path / "two.safetensors", {"b": tensor | {"dtype": "F32", "data_offsets": [0, 24]}})
    found = weights_of(Folder(tmp_path))
    assert found is not None
    assert (found.size, found.dtypes) == (36, {"F32": 24, "BF16": 12})
    assert found.ends_with("a") == Tensor("BF16", (2, 3), 12, "one.safetensors", (0, 12))


@pytest.mark.parametrize("content", [b"", b"\x02", b"\xff" * 16, (2).to_bytes(8, "little") + b"[]"])
def test_a_damaged_header_is_told_by_its_files_name(tmp_path: Path, content) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        weights_of(Folder(tmp_path))


def test_what_is_neither_a_folder_nor_an_id(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in (str(tmp_path / "absent"), "./absent", "a/b/c", str(tmp_path / "file")):
        with pytest.raises(UsageError):
            find(name)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(
    [*LLAMA, *HEADS, "speculators_config", "speculators_model_type", "eagle_config", "draft_vocab_size",
     "text_config", "layer_types", "sliding_window", "sliding_window_pattern", "kv_lora_rank", "dtype",
     "qk_rope_head_dim", "num_nextn_predict_layers", "quantization_config", "head_dim", "vocab_size"]
)  # fmt: skip


@given(st.dictionaries(KEYS, json_values))
def test_no_config_brings_anything_but_an_answer_or_an_error_of_ours(fields) -> None:
    with suppress(SpecopsError):
        found = config(**fields)
        kind_of(found, None, {}, is_target=True)
        cache = found.kv_cache()
        assert cache is None or cache.bytes_per_token(2) >= 0
        assert found.dtype is None or isinstance(found.dtype, str)


@given(KEYS, json_values)
def test_no_tokenizer_does_either(tmp_path_factory, key, value) -> None:
    folder = tmp_path_factory.mktemp("odd")
    whole = made.made(random.Random(0), size=300)
    whole.tokenizer_config |= {"added_tokens_decoder": value, "chat_template": value, "eos_token": value}
    whole.tokenizer |= {"added_tokens": value}
    whole.write(folder)
    with suppress(SpecopsError):
        found = tokenizer_of(Folder(folder))
        assert found is not None
        assert found.encode(["text"])
        assert all(isinstance(token, str) for token in found.tokens.values())


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ bos_token }}{% for m in messages %}{{ m['content'] | tojson }}{% endfor %}", '<s>"é"'),
        ("{{ strftime_now('%Y') }}{{ 'x' if add_generation_prompt }}", "2026x"),
        ("{% generation %}kept{% endgeneration %}", "kept"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}no{% endfor %}", ""),
        ("{{ raise_exception('no system role') }}", "<TemplateError: no system role>"),
        (
            "{{ messages.append(1) }}",
            "<SecurityError: access to attribute 'append' of 'list' object is unsafe.>",
        ),
        (
            "{{ ''.__class__.__mro__ }}",
            "<SecurityError: access to attribute '__class__' of 'str' object is unsafe.>",
        ),
        ("{% for %}", "<TemplateSyntaxError: Expected an expression, got 'end of statement block'>"),
    ],
)
def test_a_chat_template_is_rendered_as_transformers_does(template, text) -> None:
    conversations = json.dumps([[{"role": "user", "content": "é"}]])
    assert rendered(template, (("bos_token", "<s>"),), conversations).texts[0] == text
