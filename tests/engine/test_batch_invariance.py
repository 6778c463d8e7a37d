"""With a seed, an answer does not depend on what is decoded beside it: for every drafter, and every draft."""

from __future__ import annotations

from functools import cache

import pytest
from tiny_models import drain

from specops.assets import asset
from specops.engine import Sampling
from specops.engine.heads import open_draft
from specops.engine.load import Pair
from specops.engine.request import Emission, TokenLogprob
from specops.engine.step import Engine

EMBEDDED = asset("playbooks", "embedded")
TEXTS = (
    "def read(path: str) -> bytes:\n    with open(path, 'rb') as file:\n        return",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self",
    "import os\nimport sys\n\n\ndef main(argv=None):\n    parser =",
    "for i in range(10):\n    print(i)\nfor i in range(10):\n    print(",
    "try:\n    import json\nexcept ImportError:",
    "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return",
)
NOISE = "# other work that is done at the same time, some of it longer than one chunk of a prompt\n"
SAMPLINGS = [
    Sampling(temperature=1.0, seed=7, max_tokens=20, logprobs=1),
    Sampling(max_tokens=20, logprobs=1),
]


@cache
def pair(draft: str) -> Pair:
    loaded = Pair(EMBEDDED / "target", EMBEDDED / "draft", threads=1)
    loaded.draft = open_draft(EMBEDDED / draft, EMBEDDED / "target", loaded.target)
    return loaded


def engine_of(draft: str, tree: str) -> Engine:
    return pair(draft).engine(tree, 512, max_batch=8)


def differing(draft: str, tree: str) -> list[tuple[str, float]]:
    """The texts whose answer changes beside other requests, with their temperature: a token, or the last bit
    of a log-probability."""
    engine = engine_of(draft, tree)
    encode = engine.tokenizer.encode
    asked = [(encode(text), sampling) for sampling in SAMPLINGS for text in TEXTS]
    alone = [logprobs_of(drain(engine_of(draft, tree), [request])[0]) for request in asked]
    noise = [
        (encode(NOISE)[:40], Sampling(max_tokens=9)),
        (encode(NOISE * 3)[:31], Sampling(temperature=0.8, top_p=0.9, seed=3, max_tokens=60)),
    ]
    crowd = drain(engine, [*noise, *asked])[len(noise) :]
    return [
        (TEXTS[i % len(TEXTS)], asked[i][1].temperature)
        for i, emissions in enumerate(crowd)
        if logprobs_of(emissions) != alone[i]
    ]


def logprobs_of(emissions: list[Emission]) -> list[TokenLogprob]:
    return [entry for emission in emissions for entry in emission.logprobs]


GROWN = ["chain:3", "adaptive:4", "expand:2,2", "dynamic:6:3", "chain:2+ngram:3", "ngram:4/chain:3"]


@pytest.mark.parametrize("tree", ["none", "ngram:4"])
def test_without_a_draft(tree: str) -> None:
    assert differing("draft", tree) == []


def test_the_trees_of_suffix_depend_on_the_others_and_its_tokens_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TokenLogprob, "__eq__", lambda self, other: self.token == other.token)
    assert differing("draft", "suffix:8") == []


@pytest.mark.parametrize("draft", ["head", "recurrent"])
def test_heads_whose_passes_are_one_call(draft: str) -> None:
    """Alone they drafted in int8, and in a batch in float16."""
    assert differing(draft, "chain:3") == []


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["boosted-2", "draft", "exit", "head", "medusa", "recurrent"])
@pytest.mark.parametrize("tree", GROWN)
def test_every_drafter_with_every_draft(tree: str, draft: str) -> None:
    assert differing(draft, tree) == []
