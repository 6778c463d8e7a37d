"""Tree specs and early exits as people write them, in a rollout file or as options; read without torch.

chain:K            K tokens in a line, from the draft model
adaptive:K         up to K in a line, which ends where the draft model is unsure
expand:3,1,1       SpecInfer's expansion <3,1,1>, from the draft model
dynamic:N:D        the N best nodes of the draft's most likely continuations, at most D deep
shape:0,0,1        any shape (Sequoia's trees), from the draft model: parents of nodes 1, 2, …; 0 is the root
ngram:K            up to K tokens copied from where the last few tokens occurred before
suffix:N           the N likeliest continuations of every such place, in earlier outputs too (SuffixDecoding)
chain:3+ngram:8    the union of several, drafted side by side
ngram:8/chain:3    copies alone where they are likely to hold, which costs no draft pass; else the other tree
auto:N             what the planner chooses at each step by what it measures, of up to N nodes; auto: 16
none               nothing: autoregressive decoding
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from specops.errors import UsageError
from specops.hints import with_value

FORMS = (
    "chain:3, adaptive:6, expand:3,1,1, dynamic:16:6, shape:0,0,1, ngram:8, suffix:16, chain:3+ngram:8, "
    "ngram:8/chain:3, auto or none"
)
MOST_NODES = 1024
"""A larger tree is a slip of the pen: no verification of it was ever worth its forward pass."""

PLANNED, MOST_PLANNED = 16, 32
"""Nodes of a tree that is planned: unless said otherwise, and at most."""

COPYING = ("ngram", "suffix")
"""Kinds that copy what was observed before: no model runs for them."""

VERIFIERS = ("naive", "mss", "traversal", "ranked")
"""Rules that accept drafted tokens, from the plainest on. Each is a module of specops.engine.verifiers."""

ALSO_CALLED = {"block": "traversal"}
"""Other names of verifiers. On a chain, traversal is block verification (arXiv 2403.10444)."""

VERIFIER_NAMES = (*VERIFIERS, *ALSO_CALLED)

_SIZES = {
    "chain": 1,
    "adaptive": 1,
    "ngram": 1,
    "suffix": 1,
    "dynamic": 2,
    "expand": None,
    "shape": None,
    "auto": 1,
    "none": 0,
}
_LINES = ("chain", "adaptive")
_GROWN = (*_LINES, "expand", "dynamic", "shape")


@dataclass(frozen=True)
class TreeSpec:
    kind: str
    sizes: tuple[int, ...]
    parts: tuple[TreeSpec, ...] = ()
    """Parts of a union (kind "merged"), or of two of which each step takes one (kind "either"): these have no
    sizes of their own."""

    @property
    def needs_draft(self) -> bool:
        """Return whether a draft model grows it, or a part of it."""
        return self.kind in _GROWN or any(part.needs_draft for part in self.parts)

    @property
    def takes_draft(self) -> bool:
        """Return whether the tree can use a draft; a planner works without one."""
        return self.kind == "auto" or self.needs_draft

    @property
    def drafts(self) -> int:
        """Return how many parts a draft model grows, each of which may have a draft of its own."""
        return sum(part.drafts for part in self.parts) if self.parts else int(self.needs_draft)

    @property
    def branches(self) -> bool:
        """Return whether it branches: of what it drafts, most cannot be accepted."""
        if self.kind == "either":
            return any(part.branches for part in self.parts)
        return self.kind in ("expand", "dynamic", "shape", "suffix", "merged", "auto")

    @property
    def parents(self) -> tuple[int, ...]:
        """Return the parent of each node of a shape, the root's being -1."""
        return (-1, *self.sizes)

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the widths of an expansion, level by level; a chain is <1,..,1>."""
        return (1,) * self.sizes[0] if self.kind in _LINES else self.sizes

    @property
    def depth(self) -> int:
        """Tokens that it can draft ahead; 0 of none."""
        if self.parts:
            return max(part.depth for part in self.parts)
        if self.kind == "dynamic":
            return self.sizes[1]
        if self.kind in _LINES:
            return self.sizes[0]
        if self.kind == "shape":
            depth = [0]
            for parent in self.sizes:
                depth.append(depth[parent] + 1)
            return max(depth)
        return len(self.widths) if self.needs_draft else self.nodes

    @property
    def nodes(self) -> int:
        """Return the largest number of nodes, without the root."""
        if self.kind == "either":
            return max(part.nodes for part in self.parts)
        if self.parts:
            return sum(part.nodes for part in self.parts)
        if self.kind == "shape":
            return len(self.sizes)
        if self.kind in ("none", "dynamic", "auto", *_LINES, *COPYING):
            return self.sizes[0] if self.sizes else 0
        total, level = 0, 1
        for width in self.widths:
            level *= width
            total += level
        return total


@lru_cache(maxsize=1024)
def parse_tree(text: str) -> TreeSpec:
    """Return the tree that `text` describes. Raises UsageError for an invalid tree, or one of too many
    nodes."""
    first, slash, second = text.partition("/")
    spec = _union(text, first)
    if slash:
        spec = TreeSpec("either", (), (spec, _union(text, second)))
        if spec.parts[0].kind not in COPYING or not spec.parts[1].needs_draft:
            raise UsageError(
                f"invalid tree {text!r}: expected COPY_TREE/DRAFT_TREE, such as ngram:8/chain:3",
                hint=with_value(text, "ngram:8/chain:3"),
            )
    if spec.nodes > MOST_NODES or spec.depth > MOST_NODES:
        raise UsageError(
            f"invalid tree {text!r}: expected at most {MOST_NODES} nodes", hint=with_value(text, "chain:3")
        )
    return spec


def _union(whole: str, text: str) -> TreeSpec:
    parts = tuple(_parse(whole, part) for part in text.split("+"))
    if len(parts) == 1:
        return parts[0]
    if any(part.kind in ("none", "auto") for part in parts):
        raise UsageError(f"invalid tree {whole!r}: expected {FORMS}", hint=with_value(whole, "chain:3"))
    return TreeSpec("merged", (), parts)


def _parse(whole: str, text: str) -> TreeSpec:
    kind, _, rest = text.partition(":")
    if kind == "auto" and not rest:
        rest = str(PLANNED)
    try:
        sizes = tuple(int(part) for part in rest.replace(":", ",").split(",")) if rest else ()
    except ValueError:
        sizes = (-1,)
    count = _SIZES.get(kind, -1)
    right_count = len(sizes) == count if count is not None else len(sizes) > 0
    if kind not in _SIZES or not right_count or min(sizes, default=1) < (0 if kind == "shape" else 1):
        raise UsageError(f"invalid tree {whole!r}: expected {FORMS}", hint=with_value(whole, "chain:3"))
    if kind == "auto" and sizes[0] > MOST_PLANNED:
        raise UsageError(
            f"invalid tree {whole!r}: expected at most {MOST_PLANNED} nodes, such as auto:{PLANNED}",
            hint=with_value(whole, f"auto:{PLANNED}"),
        )
    if kind == "shape":
        for node, parent in enumerate(sizes, start=1):
            if parent >= node:
                raise UsageError(
                    f"invalid tree {whole!r}: node {node} has the parent {parent}: expected an earlier node, "
                    "from 0, the root",
                    hint=with_value(whole, "shape:0,0,1"),
                )
    return TreeSpec(kind, sizes)


def exit_layers(draft: str) -> int | None:
    """Return after how many layers to exit; None where `draft` names a folder. Raises UsageError where it is
    neither."""
    if not draft.startswith("exit:"):
        return None
    number = re.fullmatch(r"exit:([1-9]\d{0,3})", draft)
    if number is None:
        raise UsageError(
            f"invalid draft {draft!r}: expected exit:LAYERS, such as exit:2",
            hint=with_value(draft, "exit:2"),
        )
    return int(number[1])


def known_verifier(name: str) -> str:
    """Return the name of the verifier called `name`. Raises UsageError for an unknown name."""
    if name not in VERIFIER_NAMES:
        raise UsageError(
            f"invalid verifier {name!r}: expected one of {', '.join(VERIFIER_NAMES)}",
            hint=with_value(name, "naive"),
        )
    return ALSO_CALLED.get(name, name)
