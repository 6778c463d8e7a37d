"""A tokenizer read straight from its files is the one that transformers makes of them, or is left to it."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from specops.assets import asset
from specops.engine.text import load_tokenizer, read_plain
from specops.errors import ModelError

TEXTS = [
    "",
    "def main(a, b):\n\treturn a  ",
    "서울의 날씨는? 😀 \N{REPLACEMENT CHARACTER}",
    "<|end|> <|endoftext|>x<|end|>",
    "x" * 3000,  # nothing is cut
]
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Why is the sky blue?"}],
    [
        {"role": "system", "content": " {{ and }} <|end|>\n"},
        {"role": "user", "content": "é"},
        {"role": "assistant", "content": "{% raw %}"},
        {"role": "user", "content": ""},
    ],
]
TEMPLATES = [
    "{% for m in messages %}\n  {{ m.role }}: {{ m['content'] }}\n{% endfor %}\n{{ eos_token }}",
    "{{ messages | tojson }}{{ messages | tojson(indent=2) }}{% if add_generation_prompt %}>{% endif %}",
    "{% for m in messages %}{% generation %}{% set x = 1 %}{{ m.role }}{% endgeneration %}{{ x }}{%endfor%}",
    "{% set n = namespace(a=0) %}{% for m in messages %}{% set n.a = n.a + 1 %}{% if n.a == 2 %}{% break %}"
    "{% endif %}{% endfor %}{{ n.a }}{{ dict(a=1) }}{{ bos_token }}{{ tools }}{{ documents is none }}",
    "{{ strftime_now('%Y') }}{{ pad_token|upper }}",
    "{{ raise_exception('alternate, please') }}",
    "{{ messages.append(1) }}",
    "{{ ''.__class__.__mro__ }}",
    "{% set n = namespace(__x=0) %}",
    "{% for message in messages %}",
]


@pytest.fixture
def folder(tiny_pair: tuple[Path, Path], tmp_path: Path) -> Path:
    """Of a tokenizer alone."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tiny_pair[0] / name, tmp_path)
    return tmp_path


def rewrite(path: Path, **changes: Any) -> None:
    said = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in said.items() if value is not None}))


def chat(tokenizer: Any, messages: list[dict[str, Any]], prompted: bool) -> str:
    """The text, or the kind of error."""
    try:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompted)
    except Exception as error:
        return type(error).__name__
    return text


def assert_the_same(plain: Any, theirs: Any) -> None:
    assert plain.get_vocab() == theirs.get_vocab()
    assert plain.special_tokens_map == theirs.special_tokens_map
    assert plain.chat_template == theirs.chat_template
    for text in TEXTS:
        for special in (True, False):
            ids = plain.encode(text, add_special_tokens=special)
            assert ids == theirs.encode(text, add_special_tokens=special)
            assert plain.decode(ids, skip_special_tokens=special) == theirs.decode(
                ids, skip_special_tokens=special
            )
    for messages in (*CHATS, []):
        for prompted in (True, False):
            assert chat(plain, messages, prompted) == chat(theirs, messages, prompted)


@pytest.mark.parametrize("name", ["target", "draft"])
def test_the_shipped_pair(name: str) -> None:
    path = asset("playbooks", "embedded", name)
    plain = read_plain(path)
    assert plain is not None
    assert_the_same(plain, AutoTokenizer.from_pretrained(path))


def test_a_tokenizer_as_transformers_saves_it(folder: Path) -> None:
    plain = read_plain(folder)
    assert plain is not None
    assert_the_same(plain, AutoTokenizer.from_pretrained(folder))
    assert_the_same(pickle.loads(pickle.dumps(plain)), AutoTokenizer.from_pretrained(folder))


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_template_says_what_it_says_under_transformers(template: str, folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(template)
    plain = read_plain(folder)
    assert plain is not None
    assert_the_same(plain, AutoTokenizer.from_pretrained(folder))


def test_a_template_in_the_config_gives_way_to_a_file(folder: Path) -> None:
    rewrite(folder / "tokenizer_config.json", chat_template="of the config", bos_token="<|end|>")
    plain = read_plain(folder)
    assert plain is not None
    assert_the_same(plain, AutoTokenizer.from_pretrained(folder))
    (folder / "chat_template.jinja").unlink()
    plain = read_plain(folder)
    assert plain is not None
    assert plain.chat_template == "of the config"
    assert_the_same(plain, AutoTokenizer.from_pretrained(folder))


CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"
NOT_PLAIN: dict[str, Callable[[Path], object]] = {
    "another class": lambda folder: rewrite(folder / CONFIG, tokenizer_class="LlamaTokenizer"),
    "no class": lambda folder: rewrite(folder / CONFIG, tokenizer_class=None),
    "a token that is to be added": lambda folder: rewrite(folder / CONFIG, bos_token="<|begin|>"),
    "a token with properties": lambda folder: rewrite(
        folder / CONFIG, eos_token={"__type": "AddedToken", "content": "<|end|>", "lstrip": True}
    ),
    "an entry that is not known": lambda folder: rewrite(folder / CONFIG, split_special_tokens=True),
    "text that is cleaned up": lambda folder: rewrite(folder / CONFIG, clean_up_tokenization_spaces=True),
    "several templates": lambda folder: [
        rewrite(folder / CONFIG, chat_template=[{"name": "default", "template": "x"}]),
        (folder / "chat_template.jinja").unlink(),
    ],
    "more templates": lambda folder: (folder / "additional_chat_templates").mkdir(),
    "a map beside it": lambda folder: (folder / "special_tokens_map.json").write_text("{}"),
    "texts that are cut": lambda folder: rewrite(
        folder / TOKENIZER,
        truncation={"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
    ),
    "texts that are padded": lambda folder: rewrite(
        folder / TOKENIZER,
        padding={
            "strategy": {"Fixed": 9},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<|end|>",
        },
    ),
    "no config": lambda folder: (folder / CONFIG).unlink(),
}
DAMAGED: dict[str, Callable[[Path], object]] = {
    "no tokenizer.json": lambda folder: (folder / TOKENIZER).unlink(),
    "a config that is no JSON": lambda folder: (folder / CONFIG).write_text("{"),
}


@pytest.mark.parametrize("change", NOT_PLAIN.values(), ids=NOT_PLAIN.keys())
def test_what_is_not_plain_is_left_to_transformers(change: Callable[[Path], object], folder: Path) -> None:
    change(folder)
    assert read_plain(folder) is None
    assert load_tokenizer(folder).is_fast


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_one_sentence(change: Callable[[Path], object], folder: Path) -> None:
    change(folder)
    with pytest.raises(ModelError, match="could not load a tokenizer from") as caught:
        load_tokenizer(folder)
    assert "\n" not in caught.value.message


IMPORTED = """
import sys
{}
print(*sorted({{"torch", "transformers", "numba", "huggingface_hub", "torch._dynamo"}} & sys.modules.keys()))
"""


def imported_by(program: str) -> set[str]:
    """Which of the slow modules."""
    command = [sys.executable, "-c", IMPORTED.format(program)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_a_tokenizer_and_the_api_are_loaded_without_torch() -> None:
    program = """
from specops.assets import asset
from specops.engine.text import load_tokenizer
from specops.engine import Sampling
import specops.serve.server, specops.serve.engine_worker
load_tokenizer(asset("playbooks", "embedded", "target")).apply_chat_template(
    [{"role": "user", "content": "a"}], tokenize=False
)
"""
    assert imported_by(program) == set()


def test_the_engine_of_the_shipped_pair_is_loaded_without_transformers_and_numba() -> None:
    """As `specops serve` loads it, up to its first tokens. Numba is needed once, where nothing is stored."""
    program = """
from specops.assets import asset
from specops.engine import Sampling, load_engine
engine = load_engine(asset("playbooks", "embedded", "target"), asset("playbooks", "embedded", "draft"))
engine.generate("def main(", Sampling(max_tokens=4, temperature=0.7, seed=1))
"""
    found = imported_by(program)
    if "numba" in found:
        found = imported_by(program)
    assert found == {"torch"}
