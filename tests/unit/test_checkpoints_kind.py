"""What a checkpoint's small files say of it: sizes, kind, KV cache, tokenizer; and damage as a sentence."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import made_pairs as made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.checkpoints.draft_kind import kind_of
from specops.checkpoints.model_config import Config, KvCache, config_of
from specops.checkpoints.source import Folder, Tensor, Weights, find, weights_of
from specops.checkpoints.templates import rendered
from specops.checkpoints.tokenizer import tokenizer_of
from specops.errors import ModelError, SpecopsError, UsageError

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2}


def config(**fields: Any) -> Config:
    return Config(fields, fields, "made")


def with_tensors(*names: str) -> Weights:
    return Weights(2, {name: Tensor("BF16", (1,), 2) for name in names})


def speculators(named: str | None, **left_out: None) -> dict[str, Any]:
    section = {"proposal_methods": [{"speculative_tokens": 5}], "verifier": {"name_or_path": "org/target"}}
    told = {"speculators_model_type": named} if named else {}
    layer = {"transformer_layer_config": {"model_type": "llama"}}
    return told | layer | {"architectures": ["LlamaForCausalLM"], "speculators_config": section | left_out}


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        (speculators("eagle3"), "eagle3"),
        (speculators("peagle"), "eagle3"),
        (speculators("dflash"), "dflash"),
        (speculators("dspark"), "dspark"),
        ({"architectures": ["DFlashDraftModel"], "model_type": "qwen3"}, "dflash"),
        ({"architectures": ["Qwen3DSparkModel"], "draft_vocab_size": 9}, "dspark"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "eagle3"),
        ({"architectures": ["Eagle3Qwen3ForCausalLM"]}, "eagle3"),
        ({"architectures": ["PEagleDraftModel"]}, "eagle3"),
        (LLAMA | {"draft_vocab_size": 32000}, "eagle3"),
        (LLAMA | {"eagle_config": {"use_aux_hidden_state": True}}, "eagle3"),
        ({"architectures": ["EagleLlamaForCausalLM"]}, "eagle"),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "eagle"}, "eagle"),
        ({"architectures": ["MedusaModel"], "model_type": "medusa"}, "medusa"),
        ({"medusa_num_heads": 4}, "medusa"),
        ({"model_type": "mlp_speculator", "n_predict": 3}, "mlp_speculator"),
        ({"architectures": ["DeepSeekMTPModel"], "model_type": "deepseek_mtp"}, "mtp"),
        (LLAMA, "independent"),
        (LLAMA | {"num_nextn_predict_layers": 1}, "independent"),  # as somebody else's draft
        ({"architectures": ["Eagle2_5_VLForConditionalGeneration"]}, "independent"),  # a model of that name
    ],
)
def test_the_kind_is_the_configs(fields, kind) -> None:
    found = kind_of(config(**fields), with_tensors("lm_head.weight"), {}, is_target=False)
    assert (found.kind, found.ambiguous) == (kind, False)


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"])
def test_a_target_can_draft_for_itself(key) -> None:
    found = kind_of(config(**LLAMA, **{key: 2}), None, {}, is_target=True)
    assert (found.kind, found.tokens) == ("mtp", 2)
    assert kind_of(config(**LLAMA, **{key: 0}), None, {}, is_target=True).kind == "independent"
    assert kind_of(config(**LLAMA), None, {"assistant_early_exit": 4}, is_target=True).kind == "early_exit"


@pytest.mark.parametrize(
    ("weights", "kind", "ambiguous"),
    [
        (with_tensors("fc.weight", "layers.0.mlp.up_proj.weight"), "eagle", False),
        (with_tensors("model.norm.weight"), "independent", False),
        (None, "independent", True),
        (Weights(2, {}), "independent", True),
    ],
)
def test_eagles_first_heads_are_told_by_their_weights_alone(weights, kind, ambiguous) -> None:
    found = kind_of(config(**LLAMA | {"num_hidden_layers": 1}), weights, {}, is_target=False)
    assert (found.kind, found.ambiguous) == (kind, ambiguous)


def test_what_the_speculators_format_lacks_is_named() -> None:
    whole = kind_of(config(**speculators("eagle3")), None, {}, is_target=False)
    assert (whole.lacks, whole.tokens, whole.verifier, whole.parallel) == ((), 5, "org/target", False)
    broken = config(**speculators(None, proposal_methods=None, verifier=None))
    assert len(kind_of(broken, None, {}, is_target=False).lacks) == 3
    assert kind_of(config(**speculators("peagle")), None, {}, is_target=False).parallel


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
    assert weights_of(Folder(tmp_path)) == Weights(999, {})  # the index alone was downloaded
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
