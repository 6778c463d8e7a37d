"""Which families of transformers the engine runs: docs/engine.md says so, and each is tried.

Tiny random models, read in pieces over 48 tokens and a tree, where every limit of their attention is 8
tokens, and then 24: what is loaded has the logits of transformers' own pass, and the rest is refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from architectures import LIMIT, SIZES, has_limits, tiny, verdict
from tiny_models import LLAMA, load_reference, perturb, reference_logits
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    masking_utils,
)

from specops.engine.attention import Layout, Limit, Span, causal
from specops.engine.models import generic, load_model
from specops.engine.models.generic import GenericModel
from specops.errors import ModelError

PAGE = (Path(__file__).parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")
QUICK = ["mixtral", "gpt_neox", "gemma2", "gpt_oss", "deepseek_v3"]


def listed(heading: str) -> list[str]:
    """The families that docs/engine.md names in the paragraph which begins with **heading**."""
    (paragraph,) = re.findall(rf"^\*\*{heading}\*\*.*?(?=\n\n)", PAGE, re.DOTALL | re.MULTILINE)
    return re.findall(r"`([\w-]+)`", paragraph)


RUN, WITHOUT, REFUSED = listed("Identical"), listed("Identical without"), listed("Refused")
slow = [pytest.param(family, marks=pytest.mark.slow) for family in RUN if family not in QUICK]


def test_the_page_lists_families() -> None:
    assert len(RUN) >= 85
    assert len(WITHOUT) >= 7
    assert len(REFUSED) >= 40
    assert not set(RUN) & set(WITHOUT) | set(WITHOUT) & set(REFUSED) | set(RUN) & set(REFUSED)


@pytest.mark.parametrize("family", [*QUICK, *slow])
def test_a_family_that_runs(family: str, tmp_path: Path) -> None:
    """With limits that a probe on loading reaches, and with longer ones."""
    assert verdict(family, tmp_path / "short", limited=True) == "identical"
    if has_limits(family):
        assert verdict(family, tmp_path / "long", limited=True, limit=24) == "identical"


@pytest.mark.slow
@pytest.mark.parametrize("family", WITHOUT)
def test_a_family_that_runs_without_its_limits(family: str, tmp_path: Path) -> None:
    assert verdict(family, tmp_path / "limited", limited=True) != "identical"
    assert verdict(family, tmp_path / "unlimited", limited=False) == "identical"


@pytest.mark.slow
@pytest.mark.parametrize("family", REFUSED)
def test_a_family_that_is_refused(family: str, tmp_path: Path) -> None:
    assert verdict(family, tmp_path, limited=True) != "identical"


def refusal(model: Any, folder: Path) -> str:
    model.save_pretrained(folder)
    with pytest.raises(ModelError) as caught:
        load_model(folder)
    assert "\n" not in caught.value.message
    assert "vLLM serves others" in caught.value.message
    return caught.value.message


def llama4(**settings: Any) -> Any:
    kind = CONFIG_MAPPING["llama4_text"]
    given = {name: value for name, value in SIZES.items() if hasattr(kind(), name)} | settings
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(kind(**given), attn_implementation="eager")
    perturb(model, 0.2)
    return model.eval()


@pytest.mark.parametrize("size", [17, 64])
def test_a_chunk_is_longer_than_any_probe(size: int, tmp_path: Path) -> None:
    llama4(attention_chunk_size=size).save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert isinstance(model, GenericModel)
    assert set(model.limits.values()) == {Limit("chunk", size)}


def test_a_mask_that_is_no_window_and_no_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hides one token, far behind a probe's last."""
    rule = masking_utils.causal_mask_function

    def hiding(batch: int, head: int, token: Any, other: Any) -> Any:
        return rule(batch, head, token, other) & ((token < 63) | (other != 31))

    monkeypatch.setattr(masking_utils, "causal_mask_function", hiding)
    assert "its token 63 does not see token 31" in refusal(tiny("mixtral", limited=True), tmp_path)


def test_a_scale_that_grows_with_the_position(tmp_path: Path) -> None:
    """Llama 4 counts places in the pass, so that a token would be scaled wrongly behind the cache's."""
    llama4(attention_chunk_size=96, floor_scale=5).save_pretrained(tmp_path)
    model, reference, n = load_model(tmp_path), load_reference(tmp_path), 96
    tokens = torch.randint(60, (n,), generator=torch.Generator().manual_seed(1))
    cache, found = model.shape.cache(1, n), []
    with torch.inference_mode():
        for start in range(0, n, 8):
            span = Span(0, start, 8, torch.arange(start, start + 8), causal(8))
            layout = Layout([span], cache, model.shape.tile)
            found.append(model.forward(tokens[start : start + 8], layout))
    own = reference_logits(reference, tokens.tolist())
    assert torch.allclose(torch.cat(found), own, rtol=0, atol=1e-3 * float(own.abs().max()))


def test_sparse_blocks_that_are_chosen_by_an_indexer(tmp_path: Path) -> None:
    """All blocks are chosen up to 2,048 tokens: no probe shows it."""
    kind = CONFIG_MAPPING["minimax_m3_vl_text"]
    given = {name: value for name, value in SIZES.items() if hasattr(kind(), name)}
    config = kind(**given, layer_types=["full_attention", "minimax_m3_sparse"] * 2)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    assert "its attention takes block_indices" in refusal(model, tmp_path)


def test_frequencies_that_change_with_the_length_are_found_by_what_they_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever their name is: those with a known name end a model's positions."""
    monkeypatch.setattr(generic, "_steady_positions", lambda config: config.max_position_embeddings)
    rope: dict[str, Any] = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4, "original_max_position_embeddings": 40}
    model = LlamaForCausalLM(LlamaConfig(**LLAMA, rope_parameters=rope, attn_implementation="eager")).eval()
    with torch.inference_mode(), pytest.raises(ModelError, match="position of a later token"):
        GenericModel(model)


def test_limits_are_put_back_and_masks_no_longer_watched() -> None:
    model = tiny("llama4_text", limited=True)
    with torch.inference_mode():
        GenericModel(model)
    assert model.config.attention_chunk_size == model.config.floor_scale == LIMIT
    assert all(layer.self_attn.floor_scale == LIMIT for layer in model.model.layers)
    assert not masking_utils.ALL_MASK_ATTENTION_FUNCTIONS._local_mapping
    assert not any(layer.self_attn._forward_pre_hooks for layer in model.model.layers)
