"""GGUF files, read as checkpoints: metadata, tokenizers, sizes, and files that are damaged or not whole."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from specops.assets import asset
from specops.checkpoints import gguf as reading
from specops.checkpoints.draft_kind import kind_of, not_generative
from specops.checkpoints.model_config import config_of
from specops.checkpoints.source import Folder, find, weights_of
from specops.checkpoints.tokenizer import tokenizer_of
from specops.errors import ModelError, UsageError
from specops.phases.verify_draft.pair import ModelFiles, VerifySettings
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress
from specops.results import Result

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import to_gguf

BYTES = [chr(33 + index) for index in range(94)]


def written(
    path: Path, *, arch: str = "llama", tensors: Mapping[str, Any] | None = None, **more: Any
) -> Path:
    """A small file of gguf's own writer."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(more.get("layers", 2))
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(more.get("kv", 2))
    tokens: list[str] = more.get("tokens", ["<s>", "</s>", *BYTES, "ab"])
    writer.add_tokenizer_model(more.get("model", "gpt2"))
    writer.add_tokenizer_pre(more.get("pre", "gpt-2"))
    writer.add_token_list(tokens)
    control = [gguf.TokenType.CONTROL] * 2
    unused = [gguf.TokenType.UNUSED if "[PAD" in token else gguf.TokenType.NORMAL for token in tokens[2:]]
    writer.add_token_types([*control, *unused])
    if more.get("scores"):
        writer.add_token_scores([-float(index) for index in range(len(tokens))])
    writer.add_token_merges(more.get("merges", ["a b"]))
    writer.add_eos_token_id(1)
    writer.add_eot_token_id(0)
    embedding = {"token_embd.weight": np.zeros((len(tokens), 32), np.float32)}
    layers = {f"blk.{n}.attn_q.weight": np.zeros((32, 32), np.float32) for n in range(more.get("layers", 2))}
    for name, values in (tensors or embedding | layers).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def judged(target: Path, draft: Path, engine: str = "llamacpp") -> Result:
    settings = VerifySettings(target=str(target), draft=str(draft), engine=engine)
    return verify(settings, None, SilentProgress())


def finding(result: Result, check: str) -> tuple[str, str]:
    (found,) = [one for one in result.data["findings"] if one["check"] == check]
    return found["verdict"], found["detail"]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "draft.gguf"
    to_gguf.convert(asset("playbooks", "embedded", "draft"), path, "q8_0")
    return path


def test_a_converted_model_is_read_as_the_folder_that_it_was_made_of(shipped) -> None:
    folder = asset("playbooks", "embedded", "draft")
    made, given = find(str(shipped)), Folder(folder)
    ours, theirs = tokenizer_of(made), tokenizer_of(given)
    assert ours is not None
    assert theirs is not None
    assert (ours.tokens, ours.merges(), ours.special) == (theirs.tokens, theirs.merges(), theirs.special)
    assert ours.template == theirs.template
    texts = ["def f(x):\n    return x", "Ünïcödé 漢字 🙂", "<|endoftext|> a  b"]
    assert ours.encode(texts) == theirs.encode(texts)
    raw = json.loads((folder / "config.json").read_text())
    config = config_of(made)
    for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim", "vocab_size"):
        assert config.whole(key) == raw[key]
    assert config.quantization == "Q8_0"


def test_the_tool_writes_what_the_reader_reads(shipped) -> None:
    weights = weights_of(find(str(shipped)))
    assert weights is not None
    assert weights.tensors["model.embed_tokens.weight"].shape == (2048, 256)
    # Rows that are no whole blocks of 32 are float16; norms are float32.
    assert set(weights.dtypes) <= {"Q8_0", "F16", "F32"}
    assert weights.size < shipped.stat().st_size


@pytest.mark.parametrize("name", sorted(kind.name for kind in gguf.GGMLQuantizationType))
def test_types_are_as_ggml_has_them(name) -> None:
    kind = gguf.GGMLQuantizationType[name]
    assert reading.TYPES[kind.value] == (name, *gguf.GGML_QUANT_SIZES[kind])


def test_metadata_becomes_a_config(tmp_path) -> None:
    config = config_of(find(str(written(tmp_path / "m.gguf", arch="qwen3", kv=[2, 0, 2]))))
    assert (config.model_type, config.architectures) == ("qwen3", ["Qwen3ForCausalLM"])
    assert (config.layers, config.hidden_size, config.whole("num_key_value_heads")) == (2, 32, 2)
    cache = config.kv_cache()
    assert cache is not None
    assert cache.bytes_per_token(2) == 2 * 2 * 2 * 8 * 2
    assert ModelFiles(find(str(tmp_path / "m.gguf"))).generation["eos_token_id"] == [1, 0]


BLOCK = ("fc.weight", "enc.output_norm.weight", "output_norm.weight", "blk.0.attn_q.weight")


@pytest.mark.parametrize(
    ("arch", "tensors", "kind"),
    [
        ("llama", ("token_embd.weight", "blk.0.attn_q.weight", "blk.1.attn_q.weight"), "independent"),
        ("eagle3", ("fc.weight", "blk.0.attn_norm_2.weight", "output.weight", "d2t"), "eagle3"),
        ("eagle3", ("fc.weight", "blk.0.attn_norm_2.weight", "enc.output_norm.weight"), "eagle3_1"),
        ("eagle3", ("fc.weight", "blk.0.attn_norm_2.weight", "blk.0.odd_gate.weight", "odd"), "unknown"),
        ("dflash", BLOCK, "dflash"),
        ("dflash", (*BLOCK, "selector_predecessor.weight"), "dflash2"),
        ("dflash", (*BLOCK, "markov_w1.weight", "markov_w2.weight"), "dspark"),
        ("dflash", ("token_embd.weight",), "unknown"),
        ("gemma4-assistant", ("token_embd.weight", "blk.0.nextn.pre_projection.weight"), "unknown"),
        ("gemma4-assistant", ("nextn.pre_projection.weight", "nextn.post_projection.weight"),
         "gemma4_assistant"),
        ("qwen3", ("token_embd.weight", "blk.1.nextn.eh_proj.weight", "blk.1.attn_q.weight"), "mtp"),
        ("llama", ("token_embd.weight", "blk.0.attn_q.weight"), "unknown"),
    ],
)  # fmt: skip
def test_the_kind_of_a_draft_is_read_from_its_tensors(arch, tensors, kind, tmp_path) -> None:
    named = {name: np.zeros((4, 4), np.float32) for name in tensors}
    side = ModelFiles(find(str(written(tmp_path / "m.gguf", arch=arch, tensors=named))))
    assert kind_of(side.config, side.weights, side.generation, is_target=False).kind == kind


@pytest.mark.parametrize(
    ("ids", "verdict"),
    [([2, 5, 9], "compatible"), ([2, 5, 500], "incompatible"), ([2, 5, 5], "incompatible")],
)
def test_the_map_of_a_heads_vocabulary_is_the_targets_ids(ids, verdict, tmp_path) -> None:
    """llama.cpp's converter writes d2t as ids, not as differences."""
    f4 = np.float32
    tensors = {name: np.zeros((32, 32), f4) for name in ("blk.0.attn_q.weight", "blk.0.attn_norm_2.weight")}
    tensors |= {"fc.weight": np.zeros((32, 96), f4), "output.weight": np.zeros((3, 32), f4)}
    head = written(tmp_path / "head.gguf", arch="eagle3", tensors=tensors | {"d2t": np.array(ids, np.int64)})
    result = judged(written(tmp_path / "target.gguf"), head)
    assert finding(result, "reduced vocabulary")[0] == verdict
    assert result.summary["method"] == "draft-eagle3"


def test_an_encoder_is_no_draft(tmp_path) -> None:
    side = ModelFiles(find(str(written(tmp_path / "m.gguf", arch="nomic-bert"))))
    assert not_generative(side.config, []) == "architecture NomicBertEncoder does not generate text"


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "something-new"])
def test_byte_level_tokenizers_encode(pre, tmp_path) -> None:
    tokenizer = tokenizer_of(find(str(written(tmp_path / "m.gguf", pre=pre))))
    assert tokenizer is not None
    ids = tokenizer.encode(["abc"])[0]
    assert [tokenizer.tokens[index] for index in ids] == ["ab", "c"]


@pytest.mark.parametrize("model", ["llama", "t5", "bert"])
def test_other_tokenizers_have_their_tokens(model, tmp_path) -> None:
    tokens = ["<unk>", "</s>", "▁a", "b"]
    tokenizer = tokenizer_of(find(str(written(tmp_path / "m.gguf", model=model, tokens=tokens, scores=True))))
    assert tokenizer is not None
    assert tokenizer.tokens == dict(enumerate(tokens))


def test_a_tokenizer_of_another_kind_is_named(tmp_path) -> None:
    with pytest.raises(ModelError, match="invalid kind 'rwkv': expected gpt2, llama, t5, bert"):
        find(str(written(tmp_path / "m.gguf", model="rwkv")))


def test_a_pair_whose_texts_are_split_otherwise_is_degraded(tmp_path) -> None:
    one, other = written(tmp_path / "a.gguf"), written(tmp_path / "b.gguf", pre="unheard-of")
    assert finding(judged(one, other), "pre-tokeniser")[0] == "degraded"


@pytest.mark.parametrize(
    ("one", "other"), [("llama-bpe", "llama3"), ("qwen2", "deepseek-r1-qwen"), ("gpt-2", "phi-2")]
)
def test_names_that_llama_cpp_takes_for_one_another_split_alike(one, other, tmp_path) -> None:
    both = written(tmp_path / "a.gguf", pre=one), written(tmp_path / "b.gguf", pre=other)
    assert finding(judged(*both), "pre-tokeniser")[0] == "compatible"


def test_tokens_that_differ_are_incompatible(tmp_path) -> None:
    one = written(tmp_path / "a.gguf")
    other = written(tmp_path / "b.gguf", tokens=["<s>", "</s>", *BYTES[:50], "zz", *BYTES[51:], "ab"])
    result = judged(one, other)
    assert result.verdict == "no"
    assert finding(result, "token ids")[0] == "incompatible"


@pytest.mark.parametrize(("spare", "verdict"), [(128, "compatible"), (129, "incompatible")])
def test_llama_cpp_takes_128_tokens_more(spare, verdict, tmp_path) -> None:
    one = written(tmp_path / "a.gguf")
    padded = ["<s>", "</s>", *BYTES, "ab", *(f"[PAD{index}]" for index in range(spare))]
    other = written(tmp_path / "b.gguf", tokens=padded)
    found, detail = finding(judged(one, other), "vocabulary size")
    assert found == verdict
    assert ("serves without speculation" in detail) is (verdict == "incompatible")


def damaged(path: Path, how: str) -> Path:
    data = bytearray(written(path).read_bytes())
    if how == "magic":
        data[:4] = b"GGML"
    elif how == "version":
        data[4:8] = struct.pack("<I", 9)
    elif how == "metadata":
        data = data[:200]
    elif how == "tensors":
        data = data[:-500]
    elif how == "text":
        data[24:32] = struct.pack("<Q", 1 << 60)
    elif how == "empty":
        data = bytearray()
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("magic", "it does not begin with GGUF"),
        ("version", "it is of GGUF version 9, and 2 and 3 are known"),
        ("metadata", "it ends within its metadata|a text in it would be|a list in it would have"),
        ("tensors", r"the file has [\d,]+ bytes, its header describes"),
        ("text", "a text in it would be"),
        ("empty", "it does not begin with GGUF"),
    ],
)
def test_a_damaged_file_is_said_to_be(how, message, tmp_path) -> None:
    path = damaged(tmp_path / "m.gguf", how)
    with pytest.raises(ModelError, match=message):
        find(str(path))


@pytest.mark.parametrize("cut", range(0, 3000, 97))
def test_a_file_that_ends_anywhere_is_refused(cut, tmp_path) -> None:
    path = written(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ModelError, match="could not read"):
        find(str(path))


def test_a_file_that_is_missing_is_said_to_be(tmp_path) -> None:
    first = written(tmp_path / "m-00001-of-00003.gguf")
    written(tmp_path / "m-00003-of-00003.gguf")
    with pytest.raises(ModelError, match=r"2 of 3 files are here, m-00002-of-00003\.gguf is not"):
        find(str(first))
    with pytest.raises(UsageError, match=r"there is no file .*x\.gguf"):
        find(str(tmp_path / "x.gguf"))
    written(tmp_path / "m-00002-of-00003.gguf", tensors={"b.weight": np.zeros((8, 32), np.float16)})
    weights = weights_of(find(str(first)))
    assert weights is not None
    assert {"model.embed_tokens.weight", "b.weight"} <= set(weights.tensors)
