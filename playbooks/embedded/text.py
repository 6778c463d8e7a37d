"""What the pair learns from: the standard library, edit documents made of it, and their tokenizer."""

from __future__ import annotations

import ast
import hashlib
import keyword
import random
import re
import sysconfig
import textwrap
from pathlib import Path

import numpy as np
import torch
from llama import CONTEXT, VOCAB
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

SEED = 20261120
BATCH = 8
END = "<|endoftext|>"
HEADER = "\n# the same, with {old} renamed to {new}:\n"  # what separates the halves of an edit document
SKIPPED = {"test", "tests", "idle_test", "encodings", "pydoc_data", "site-packages", "lib2to3"}


def corpus() -> tuple[list[str], list[str]]:
    """Source files of the standard library as (train, held out); one in twenty is held out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    train, held = [], []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if SKIPPED & set(name.parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        chosen = int.from_bytes(hashlib.sha256(name.as_posix().encode()).digest()[:4], "big") % 20 == 0
        (held if chosen else train).append(text)
    return train, held


def functions(texts: list[str]) -> list[str]:
    """Every function of 150 to 500 characters, dedented: the material of edit documents."""
    found = []
    for text in texts:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                source = ast.get_source_segment(text, node, padded=True) or ""
                if 150 <= len(source) <= 500:
                    found.append(textwrap.dedent(source).rstrip())
    return found


def names_in(source: str) -> list[str]:
    words = re.findall(r"\b[a-z_][a-z0-9_]{2,}\b", source)
    return sorted({w for w in words if words.count(w) > 1 and not keyword.iskeyword(w) and w != "self"})


def edit_document(rng: random.Random, pool: list[str]) -> tuple[str, str]:
    """A function with a request to rename one of its names, and the renamed function."""
    while True:
        source, other = rng.choice(pool), rng.choice(pool)
        olds, news = names_in(source), names_in(other)
        if olds and news:
            old, new = rng.choice(olds), rng.choice(news)
            if old != new:
                renamed = re.sub(rf"\b{old}\b", new, source)
                return source + HEADER.format(old=old, new=new), renamed + "\n"


def train_tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


class Text:
    """The tokenised corpus, and rows of it for any step."""

    def __init__(self, work: Path) -> None:
        self.train, self.held = corpus()
        path = work / "tokenizer.json"
        if not path.exists():
            train_tokenizer(self.train).save(str(path))
        self.tokenizer = Tokenizer.from_file(str(path))
        self.end = self.tokenizer.token_to_id(END)
        self.files = [e.ids for e in self.tokenizer.encode_batch(self.train)]
        self.held_rows = self._rows([e.ids for e in self.tokenizer.encode_batch(self.held)])
        self.functions = functions(self.train)
        self._epoch: tuple[int, np.ndarray] | None = None

    def _rows(self, documents: list[list[int]]) -> np.ndarray:
        flat = np.fromiter((t for d in documents for t in (*d, self.end)), dtype=np.int64)
        count = (len(flat) - 1) // CONTEXT
        return np.lib.stride_tricks.sliding_window_view(flat, CONTEXT + 1)[: count * CONTEXT : CONTEXT]

    def epoch(self, number: int) -> np.ndarray:
        """All files in a fresh order among fresh edit documents, cut in rows, the rows shuffled."""
        if self._epoch is None or self._epoch[0] != number:
            rng = random.Random(f"{SEED}/epoch/{number}")
            edits = ["".join(edit_document(rng, self.functions)) for _ in range(2400)]
            documents = self.files + [e.ids for e in self.tokenizer.encode_batch(edits)]
            rng.shuffle(documents)
            rows = self._rows(documents)
            self._epoch = number, rows[np.random.default_rng(rng.getrandbits(64)).permutation(len(rows))]
        return self._epoch[1]

    def batch(self, step: int, batch: int = BATCH) -> Tensor:
        per_epoch = len(self.epoch(0)) // batch - 4  # epochs differ by a few rows of edits
        rows = self.epoch(step // per_epoch)
        start = (step % per_epoch) * batch
        return torch.from_numpy(rows[start : start + batch].copy())  # [batch, CONTEXT + 1]
