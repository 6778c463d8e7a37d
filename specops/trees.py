"""Tree specs as people write them, in a rollout file or on the command line; read without torch.

chain:K            K tokens in a line, from the draft model
expand:3,1,1       SpecInfer's expansion <3,1,1>, from the draft model
dynamic:N:D        the N best nodes of the draft's most likely continuations, at most D deep
ngram:K            up to K tokens copied from where the last few tokens occurred before
none               nothing: autoregressive decoding
"""

from __future__ import annotations

from dataclasses import dataclass

from specops.errors import UsageError

FORMS = "chain:3, expand:3,1,1, dynamic:16:6, ngram:8 or none"
MOST_NODES = 1024
"""A larger tree is a slip of the pen: no verification of it was ever worth its forward pass."""

_SIZES = {"chain": 1, "ngram": 1, "dynamic": 2, "expand": None, "none": 0}


@dataclass(frozen=True)
class TreeSpec:
    kind: str
    sizes: tuple[int, ...]

    @property
    def needs_draft(self) -> bool:
        """Whether a draft model grows it."""
        return self.kind in ("chain", "expand", "dynamic")

    @property
    def widths(self) -> tuple[int, ...]:
        """Of an expansion, level by level; a chain is <1,..,1>."""
        return (1,) * self.sizes[0] if self.kind == "chain" else self.sizes

    @property
    def nodes(self) -> int:
        """Without the root, at most."""
        if self.kind in ("none", "ngram", "dynamic"):
            return self.sizes[0] if self.sizes else 0
        total, level = 0, 1
        for width in self.widths:
            level *= width
            total += level
        return total


def parse_tree(text: str) -> TreeSpec:
    """UsageError where `text` is no tree, or one of too many nodes."""
    kind, _, rest = text.partition(":")
    try:
        sizes = tuple(int(part) for part in rest.replace(":", ",").split(",")) if rest else ()
    except ValueError:
        sizes = (0,)
    count = _SIZES.get(kind, -1)
    right_count = len(sizes) == count if count is not None else len(sizes) > 0
    if kind not in _SIZES or not right_count or min(sizes, default=1) < 1:
        raise UsageError(f"{text!r} is no tree", hint=f"write a tree like {FORMS}")
    spec = TreeSpec(kind, sizes)
    if max(sizes, default=0) > MOST_NODES or spec.nodes > MOST_NODES:
        raise UsageError(
            f"the tree {text!r} has more than {MOST_NODES} nodes", hint=f"write a tree like {FORMS}"
        )
    return spec
