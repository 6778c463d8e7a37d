"""Pairs of a target and a draft, made from a seed, that differ in one known way."""

from __future__ import annotations

import json
import math
import random
import string
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


@dataclass
class Made:
    """A checkpoint without weights, as the contents of its files."""

    tokenizer: dict[str, Any]
    config: dict[str, Any]
    tokenizer_config: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    layers_of: int = 64

    @property
    def model(self) -> dict[str, Any]:
        model: dict[str, Any] = self.tokenizer["model"]
        return model

    def token(self, content: str) -> dict[str, Any]:
        """An added token."""
        return next(token for token in self.tokenizer["added_tokens"] if token["content"] == content)

    def write(self, folder: Path, layers_of: int | None = None) -> Path:
        """`layers_of`: width of the layers, which makes the weights of a draft smaller than the target's."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (
            ("tokenizer.json", self.tokenizer),
            ("config.json", self.config),
            ("tokenizer_config.json", self.tokenizer_config),
            ("generation_config.json", self.generation),
        ):
            (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        write_header(folder / "model.safetensors", model_tensors(self.config, layers_of or self.layers_of))
        return folder


BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "U8": 1, "BOOL": 1, "F8_E4M3": 1}


def write_header(path: Path, tensors: Mapping[str, Any]) -> Path:
    """A safetensors file with a header, and zeros that take no room. A tensor: a shape, or (dtype, shape)."""
    header: dict[str, Any] = {}
    end = 0
    for name, described in tensors.items():
        dtype, shape = described if described and isinstance(described[0], str) else ("BF16", described)
        size = BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return path


def model_tensors(config: Mapping[str, Any], width: int) -> dict[str, Sequence[int]]:
    """The tensors of a decoder of that config, `width` wide."""
    rows = config.get("vocab_size") or 8
    tensors: dict[str, Sequence[int]] = {"model.embed_tokens.weight": (rows, width)}
    for number in range(config.get("num_hidden_layers") or 1):
        place = f"model.layers.{number}."
        tensors |= {place + "self_attn.q_proj.weight": (width, width)}
        tensors |= {place + "mlp.up_proj.weight": (width, width), place + "input_layernorm.weight": (width,)}
    return tensors | {"model.norm.weight": (width,), "lm_head.weight": (rows, width)}


def eagle3(rows: int, width: int, **more: Sequence[int]) -> dict[str, Any]:
    """The tensors of an EAGLE-3 head with `rows` to draft from, without fc; `more` by name, _ for a point."""
    place = "midlayer."
    return {
        place + "hidden_norm.weight": (width,),
        place + "input_layernorm.weight": (width,),
        place + "self_attn.q_proj.weight": (width, 2 * width),
        place + "mlp.up_proj.weight": (width, width),
        "norm.weight": (width,),
        "lm_head.weight": (rows, width),
        **more,
    }


def added(index: int, content: str, **flags: bool) -> dict[str, Any]:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": index, "content": content} | dict.fromkeys(names, False) | {"special": True} | flags


def made(dice: random.Random, size: int = 420) -> Made:
    """A byte-level BPE as Llama 3's and Qwen's, or one with byte fallback as Llama 2's and Mistral's."""
    if dice.random() < 0.5:
        tokens, merges = grown(dice, sorted(pre_tokenizers.ByteLevel.alphabet()), size)
        tokenizer: dict[str, Any] = {
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": BYTE_LEVEL,
            "decoder": BYTE_LEVEL,
        }
        settings: dict[str, Any] = {"byte_fallback": False}
    else:
        bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
        tokens, merges = grown(dice, ["▁", *string.printable[:94], *"éñ서울日本"], size - 256)
        tokens = ["<unk>", *bytes_, *tokens]
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        tokenizer = {
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]},
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"String": "▁"},
                "behavior": "MergedWithNext",
                "invert": False,
            },
            "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        }
        settings = {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    names = [
        "<|begin|>",
        "<|end|>",
        "<|pad|>",
        "<|user|>",
        "<|reserved_special_token_0|>",
        "<|reserved_special_token_1|>",
    ]
    special = [added(len(tokens) + n, name) for n, name in enumerate(names)]
    vocab = {token: index for index, token in enumerate(tokens)}
    rows = len(tokens) + len(special)
    return Made(
        tokenizer={"version": "1.0", "added_tokens": special}
        | tokenizer
        | {"model": {"type": "BPE", "vocab": vocab, "merges": merges} | settings},
        config={
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": rows,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 2048,
            "eos_token_id": rows - 5,
            "dtype": "bfloat16",
        },
        tokenizer_config={
            "eos_token": "<|end|>",
            "pad_token": "<|pad|>",
            "model_max_length": 2048,
            "chat_template": TEMPLATE,
        },
        generation={"eos_token_id": [rows - 5]},
    )


def grown(dice: random.Random, tokens: list[str], size: int) -> tuple[list[str], list[list[str]]]:
    known, merges = set(tokens), []
    while len(tokens) < size:
        first, second = dice.choices(tokens, k=2)
        if first + second not in known and len(first + second) < 8:
            known.add(first + second)
            tokens.append(first + second)
            merges.append([first, second])
    return tokens, merges


Change = Callable[[random.Random, Made, Made], None]
"""Changes (target, draft), which are alike before it."""


def alike(dice: random.Random, target: Made, draft: Made) -> None:
    draft.config |= {"num_hidden_layers": 1 + dice.randrange(1, 4), "hidden_size": 32}


def old_merges(dice: random.Random, target: Made, draft: Made) -> None:
    draft.model["merges"] = [" ".join(merge) for merge in draft.model["merges"]]


def pad_token(dice: random.Random, target: Made, draft: Made) -> None:
    draft.tokenizer_config["pad_token"] = dice.choice(["<|end|>", "<|reserved_special_token_1|>", None])


def max_length(dice: random.Random, target: Made, draft: Made) -> None:
    length = dice.choice([128, 512, 131072])
    draft.config["max_position_embeddings"] = draft.tokenizer_config["model_max_length"] = length


def padding_rows(dice: random.Random, target: Made, draft: Made) -> None:
    rows = target.config["vocab_size"] + dice.randrange(1, 200)
    target.config["vocab_size"] = draft.config["vocab_size"] = rows


def placeholders(dice: random.Random, target: Made, draft: Made) -> None:
    name = dice.choice(
        ["<|reserved_special_token_7|>", "<unused3>", "[control_12]", "<SPECIAL_4>", "<|dummy_0|>"]
    )
    draft.token("<|reserved_special_token_1|>")["content"] = name


def decoder(dice: random.Random, target: Made, draft: Made) -> None:
    draft.tokenizer["decoder"] = dice.choice(
        [{"type": "Fuse"}, {"type": "WordPiece", "prefix": "##", "cleanup": True}]
    )


def wrapped(dice: random.Random, target: Made, draft: Made) -> None:
    step = draft.tokenizer["pre_tokenizer"]
    draft.tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step]}


def defaults_written_out(dice: random.Random, target: Made, draft: Made) -> None:
    """Newer tokenizers write settings that older ones leave out."""
    name, nothing = dice.choice([("fuse_unk", False), ("dropout", None), ("end_of_word_suffix", "")])
    target.model.pop(name, None)
    draft.model[name] = nothing


def trimmed_offsets(dice: random.Random, target: Made, draft: Made) -> None:
    """Where a token lies in a text; it changes no id."""
    if draft.tokenizer["pre_tokenizer"]["type"] == "ByteLevel":
        draft.tokenizer["pre_tokenizer"] = BYTE_LEVEL | {"trim_offsets": False}


def config_size(dice: random.Random, target: Made, draft: Made) -> None:
    larger = dice.choice([target, draft])
    larger.config["vocab_size"] += dice.choice([1, 58, 128])


def dropped_merge(dice: random.Random, target: Made, draft: Made) -> None:
    merges = draft.model["merges"]
    del merges[dice.randrange(len(merges))]


def swapped_merges(dice: random.Random, target: Made, draft: Made) -> None:
    merges = draft.model["merges"]
    one, other = dice.sample(range(len(merges)), 2)
    merges[one], merges[other] = merges[other], merges[one]


def pre_tokeniser(dice: random.Random, target: Made, draft: Made) -> None:
    digits = {"type": "Digits", "individual_digits": dice.random() < 0.5}
    steps = [digits, draft.tokenizer["pre_tokenizer"]]
    draft.tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}


def normaliser(dice: random.Random, target: Made, draft: Made) -> None:
    first = {"type": dice.choice(["Lowercase", "NFKC", "StripAccents"])}
    steps = [first, draft.tokenizer["normalizer"]]
    draft.tokenizer["normalizer"] = {"type": "Sequence", "normalizers": steps}


def byte_fallback(dice: random.Random, target: Made, draft: Made) -> None:
    draft.model["byte_fallback"] = not draft.model["byte_fallback"]


def flags(dice: random.Random, target: Made, draft: Made) -> None:
    token = draft.token(dice.choice(["<|user|>", "<|pad|>"]))
    flag = dice.choice(["special", "lstrip", "rstrip", "normalized", "single_word"])
    token[flag] = not token[flag]


def eos(dice: random.Random, target: Made, draft: Made) -> None:
    other = draft.token("<|user|>")
    where = dice.choice(["config", "generation", "tokenizer"])
    if where == "tokenizer":
        draft.tokenizer_config["eos_token"] = other["content"]
    elif where == "config":
        draft.config["eos_token_id"] = other["id"]
    else:
        draft.generation["eos_token_id"] = [other["id"], *draft.generation["eos_token_id"]]


def template(dice: random.Random, target: Made, draft: Made) -> None:
    draft.tokenizer_config["chat_template"] = dice.choice(
        [
            TEMPLATE.replace("\n", ""),
            TEMPLATE.replace("<|assistant|>", "<|bot|>"),
            None,
            "{{ raise_exception('no') }}",
        ]
    )


def around(of: Made, *before: str, behind: Sequence[str] = ()) -> dict[str, Any]:
    """A post-processor that adds these tokens around a text."""
    text, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    first, last = (
        [{"SpecialToken": {"id": name, "type_id": 0}} for name in names] for names in (before, behind)
    )
    return {
        "type": "TemplateProcessing",
        "single": [*first, text, *last],
        "pair": [text, other],
        "special_tokens": {
            name: {"id": name, "ids": [of.token(name)["id"]], "tokens": [name]} for name in (*before, *behind)
        },
    }


def post_processor(dice: random.Random, target: Made, draft: Made) -> None:
    draft.tokenizer["post_processor"] = around(draft, "<|begin|>")


def one_more_behind(dice: random.Random, target: Made, draft: Made) -> None:
    target.tokenizer["post_processor"] = around(target, "<|begin|>")
    draft.tokenizer["post_processor"] = around(draft, "<|begin|>", behind=["<|end|>"])


def template_of_another_token(dice: random.Random, target: Made, draft: Made) -> None:
    """The same text, in which a special token is another one."""
    for side, first in ((target, "<|begin|>"), (draft, "<|user|>")):
        side.tokenizer_config["chat_template"] = "{{ bos_token }}" + TEMPLATE
        side.tokenizer_config["bos_token"] = first


def added_alone(dice: random.Random, target: Made, draft: Made) -> None:
    """As Qwen 3 has tokens that Qwen 2.5 has padding rows for."""
    padding_rows(dice, target, draft)
    one = dice.choice([target, draft])
    one.tokenizer["added_tokens"].append(added(len(one.model["vocab"]) + 6, "<tool_call>"))


def swapped_ids(dice: random.Random, target: Made, draft: Made) -> None:
    vocab = draft.model["vocab"]
    one, other = dice.sample([token for token in vocab if token != "<unk>"], 2)
    vocab[one], vocab[other] = vocab[other], vocab[one]


def renamed(dice: random.Random, target: Made, draft: Made) -> None:
    draft.token(dice.choice(["<|user|>", "<|end|>"]))["content"] = "<|somebody|>"


def shifted(dice: random.Random, target: Made, draft: Made) -> None:
    """Another token in front, as where one family adds its special tokens first."""
    by = dice.randrange(1, 4)
    draft.tokenizer["added_tokens"] = [
        token | {"id": token["id"] + by} for token in draft.tokenizer["added_tokens"]
    ]
    draft.model["vocab"] = {token: index + by for token, index in draft.model["vocab"].items()}
    target.config["vocab_size"] = draft.config["vocab_size"] = target.config["vocab_size"] + 4


def another(dice: random.Random, target: Made, draft: Made) -> None:
    other = made(random.Random(dice.random()))
    draft.tokenizer, draft.config["vocab_size"] = other.tokenizer, target.config["vocab_size"]


def pair(seed: int, change: Change) -> tuple[Made, Made]:
    dice = random.Random(f"{change.__name__} {seed}")
    target = made(dice)
    draft = deepcopy(target)
    draft.layers_of = 16
    change(dice, target, draft)
    return target, draft
