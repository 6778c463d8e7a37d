"""Loading from disk: what cannot be loaded or paired is refused in one sentence, with the right type."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import FAMILIES, LLAMA, SIZES, Pair
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from specops.engine import Sampling, load_engine
from specops.engine.models import eos_token_ids, load_model
from specops.engine.models.llama import LeanLlama
from specops.engine.text import load_tokenizer
from specops.engine.tree import Draw
from specops.errors import ModelError, SpecopsError, UsageError
from specops.trees import parse_tree

Spoil = Callable[[Path], None]
WINDOWED = {"use_sliding_window": True, "sliding_window": 16}


def assert_a_sentence(error: SpecopsError) -> None:
    assert "\n" not in error.message
    assert "Traceback" not in error.message
    assert len(error.message) < 400


@pytest.fixture
def copy(llama: Pair, tmp_path: Path) -> Path:
    """A target's folder, to be spoilt."""
    shutil.copytree(llama.target, tmp_path / "model")
    return tmp_path / "model"


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def truncated_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def damaged_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(b"\xff" * 64 + path.read_bytes()[64:])


def empty_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def weights_of_another_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["intermediate_size"] += 8
    (folder / "config.json").write_text(json.dumps(config))


def one_more_layer(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] += 1
    (folder / "config.json").write_text(json.dumps(config))


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "lla')


def config_that_contradicts_itself(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["num_attention_heads"] += 3
    (folder / "config.json").write_text(json.dumps(config))


def unknown_architecture(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "no-such-model"}')


def broken_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": ')


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def broken_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": ')


@pytest.mark.parametrize(
    "spoil",
    [
        no_weights,
        truncated_weights,
        damaged_header,
        empty_weights,
        weights_of_another_shape,
        one_more_layer,
        no_config,
        broken_config,
        config_that_contradicts_itself,
        unknown_architecture,
        broken_generation_config,
        no_tokenizer,
        broken_tokenizer,
    ],
)
def test_a_spoilt_folder(spoil: Spoil, copy: Path) -> None:
    spoil(copy)
    with pytest.raises(ModelError, match="could not load") as caught:
        load_engine(copy, speculate=False)
    assert str(copy) in caught.value.message
    assert_a_sentence(caught.value)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no config\.json") as caught:
        load_engine(tmp_path / "nowhere")
    assert caught.value.hint is not None


def test_a_missing_draft(llama: Pair, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        load_engine(llama.target, tmp_path / "nowhere")


def test_a_wrong_tree_is_answered_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="invalid tree"):
        load_engine(tmp_path / "nowhere", tree="chian:4")


@pytest.mark.parametrize(
    ("make", "lean"),
    [
        (lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=None)), True),
        (lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA, use_sliding_window=False, sliding_window=16)), True),
        (lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=16)), False),
        (lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA, **WINDOWED, max_window_layers=1)), False),
    ],
    ids=["mistral", "qwen2", "mistral with a window", "qwen2 with a window"],
)
def test_only_a_window_that_is_used_is_left_to_transformers(
    make: Callable[[], Any], lean: bool, tmp_path: Path
) -> None:
    make().save_pretrained(tmp_path)
    assert isinstance(load_model(tmp_path), LeanLlama) is lean


def mamba() -> Any:
    return MambaForCausalLM(MambaConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, state_size=4))


def gpt_neo() -> Any:
    """Every second layer sees only the last four tokens; no setting that others have says so."""
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "window_size": 4}
    return GPTNeoForCausalLM(GPTNeoConfig(**sizes, attention_types=[[["global", "local"], 1]]))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "not causal": (lambda: BertForMaskedLM(BertConfig(**SIZES, intermediate_size=8)), "a later token"),
    "no attention": (mamba, "does not take its attention from transformers' interface"),
    "unnamed window": (gpt_neo, "does not take its attention from transformers' interface"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_attention_that_the_engine_would_get_wrong_is_refused(kind: str, tmp_path: Path) -> None:
    """Loaded as it is, each of these would decode, plausibly and wrongly."""
    make, reason = REFUSED[kind]
    torch.manual_seed(0)
    source = make()
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    source.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=reason) as caught:
        load_model(tmp_path)
    assert_a_sentence(caught.value)
    assert caught.value.hint is not None or "vLLM serves others" in caught.value.message


def test_vocabularies_that_differ(llama: Pair, tmp_path: Path) -> None:
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**{**LLAMA, "vocab_size": 308})).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="vocabularies have 300 and 308 entries") as caught:
        load_engine(llama.target, tmp_path)
    assert caught.value.hint is not None


@pytest.mark.parametrize("tree", ["chain:3", "expand:2,1", "dynamic:8:3"])
def test_a_tree_that_needs_a_draft(tree: str, llama: Pair) -> None:
    with pytest.raises(UsageError, match="needs a draft model"):
        load_engine(llama.target, tree=tree)


@pytest.mark.parametrize(
    "tree",
    [
        "",
        "chain",
        "chain:",
        "chain:0",
        "chain:-1",
        "chain:2,2",
        "chain:x",
        "chain:1.5",
        "expand:",
        "expand:3,0",
        "expand:3,,1",
        "dynamic:8",
        "dynamic:8:3:1",
        "ngram:",
        "none:3",
        "tree:3",
        "CHAIN:3",
    ],
)
def test_nonsense_for_a_tree(tree: str, llama: Pair) -> None:
    with pytest.raises(UsageError, match="invalid tree") as caught:
        load_engine(llama.target, llama.draft, tree=tree)
    assert "chain:3" in str(caught.value.hint)


def test_an_unknown_verifier_is_answered_with_the_known_ones(llama: Pair) -> None:
    with pytest.raises(UsageError, match="invalid verifier 'best'") as caught:
        load_engine(llama.target, llama.draft, verifier="best")
    assert "naive, mss" in caught.value.message
    assert "naive" in str(caught.value.hint)


@pytest.mark.parametrize(
    "settings", [{"max_batch": 0}, {"prefill_chunk": 0}, {"max_length": 1}, {"max_length": 161}]
)
def test_impossible_sizes(settings: dict[str, int], llama: Pair) -> None:
    (name,) = settings
    with pytest.raises(UsageError, match=name):
        load_engine(llama.target, llama.draft, **settings)  # type: ignore[arg-type]


def test_a_tree_wider_than_the_vocabulary(llama: Pair) -> None:
    """More children than there are tokens: as many as there are."""
    engine = load_engine(llama.target, llama.draft, tree="expand:400", max_batch=1)
    plain = load_engine(llama.target, speculate=False)
    sampling = Sampling(max_tokens=6, ignore_eos=True)
    assert engine.generate([1, 2, 3], sampling).tokens == plain.generate([1, 2, 3], sampling).tokens


@pytest.mark.parametrize(
    ("verifier", "expected"),
    [(None, Draw.WITHOUT_REPLACEMENT), ("mss", Draw.WITHOUT_REPLACEMENT), ("naive", Draw.DETERMINISTIC)],
)
def test_a_drafter_draws_as_the_verifier_prefers(verifier: str | None, expected: Draw, llama: Pair) -> None:
    engine = load_engine(llama.target, llama.draft, tree="expand:2,1", verifier=verifier)
    assert engine._drafter.draws is expected


def test_no_speculation_needs_no_draft(llama: Pair) -> None:
    engine = load_engine(llama.target, llama.draft, speculate=False)
    engine.generate([1, 2, 3], Sampling(max_tokens=4, ignore_eos=True))
    assert engine.counters.drafts == 0


def test_any_verifier_goes_without_speculation(llama: Pair) -> None:
    """One rollout file serves both arms, with and without a draft."""
    engine = load_engine(llama.target, verifier="mss", speculate=False)
    sampling = Sampling(temperature=1.0, seed=1, max_tokens=4, ignore_eos=True)
    assert len(engine.generate([1, 2, 3], sampling).tokens) == 4


def test_max_length_is_the_models_unless_given(llama: Pair) -> None:
    assert load_engine(llama.target, speculate=False).max_length == 160
    assert load_engine(llama.target, speculate=False, max_length=50).max_length == 50


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"config.json": {"eos_token_id": 3}}, {3}),
        ({"config.json": {"eos_token_id": 3}, "generation_config.json": {"eos_token_id": [5, 7]}}, {5, 7}),
        ({"config.json": {"eos_token_id": 0}, "generation_config.json": {}}, {0}),
        ({"config.json": {"eos_token_id": None}}, set()),
        ({}, set()),
    ],
)
def test_eos_ids(files: dict[str, Any], expected: set[int], tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert eos_token_ids(tmp_path) == expected


def test_every_family_loads_as_a_pair(pair_of: Callable[[str], Pair]) -> None:
    for family in FAMILIES:
        pair = pair_of(family)
        engine = load_engine(pair.target, pair.draft, tree="chain:2", max_batch=1)
        assert len(engine.generate("hello", Sampling(max_tokens=3, ignore_eos=True)).tokens) == 3


@pytest.mark.parametrize("tree", ["expand:50,50,50", "chain:1000000000000", "dynamic:5000:3"])
def test_a_tree_of_too_many_nodes_is_refused(tree: str) -> None:
    with pytest.raises(UsageError, match="expected at most 1024 nodes"):
        parse_tree(tree)


def test_a_tree_that_needs_no_draft_does_not_load_one(llama: Pair, tmp_path: Path) -> None:
    engine = load_engine(llama.target, tmp_path / "nowhere", tree="ngram:4")
    assert engine.generate([1, 2, 3], Sampling(max_tokens=2, ignore_eos=True)).tokens


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "TokenizersBackend", "LlamaTokenizer", None])
def test_a_tokenizer_by_any_name(name: str | None, copy: Path) -> None:
    """Where its own file says little, transformers looks up what it may be."""
    path = copy / "tokenizer_config.json"
    told = {**json.loads(path.read_text()), "tokenizer_class": name}
    path.write_text(json.dumps({key: value for key, value in told.items() if value is not None}))
    found = load_tokenizer(copy)
    assert found.backend_tokenizer.get_vocab_size() > 256
    assert found.decode(found.encode("def main(a, b):", add_special_tokens=False)) == "def main(a, b):"
