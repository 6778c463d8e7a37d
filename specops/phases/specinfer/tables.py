"""SpecInfer's tables 1 to 3 as data, the paper's own figures, and how both look beside each other."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from specops.engine.tree import Draw

WIDTHS = range(1, 6)
EVERYTHING = "all"
GREEDY, STOCHASTIC = "greedy", "stochastic"


class Figure(BaseModel):
    """With its 95% interval, over the prompts; None where they are too few."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ± {(self.high - self.low) / 2:.2f}"

    @property
    def percent(self) -> str:
        if self.low is None or self.high is None:
            return f"{100 * self.value:.0f}"
        return f"{100 * self.value:.0f} ± {50 * (self.high - self.low):.0f}"


Rows = dict[str, list[Figure]]
"""By dataset."""


class Tables(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    success: dict[str, Rows]
    """Table 1, by decoding: at widths 1 to 5."""

    tokens: dict[str, Rows]
    """Table 2, by decoding: tokens a step at widths 1 to 5."""

    verifiers: dict[str, dict[str, Figure]]
    """Table 3, by dataset and rule: tokens a step at width 5, T = 1."""


@dataclass(frozen=True)
class Rule:
    """A column of table 3."""

    name: str
    verifier: str
    draw: Draw


NAIVE = Rule("naive", "naive", Draw.IID)
MSS = Rule("MSS", "mss", Draw.IID)
RULES = (
    NAIVE,
    MSS,
    Rule("naive, draft's top k", "naive", Draw.DETERMINISTIC),
    Rule("MSS, no replacement", "mss", Draw.WITHOUT_REPLACEMENT),
    Rule("traversal, the same", "traversal", Draw.WITHOUT_REPLACEMENT),
    Rule("ranked, the same", "ranked", Draw.WITHOUT_REPLACEMENT),
)
"""The paper's two, then what it does not have: of the tree's children, and of verifiers."""


@dataclass(frozen=True)
class OfPaper:
    """What the paper reports of LLaMA-7B and a draft of 68 million weights, at widths 1 to 5."""

    success: dict[str, tuple[float, ...]]
    tokens: dict[str, tuple[float, ...]]
    naive: float


def _of_paper(*rows: str) -> OfPaper:
    """Success greedily and stochastically, tokens likewise, and naive sampling's tokens."""
    greedy, stochastic, greedy_tokens, stochastic_tokens, naive = (
        tuple(map(float, row.split())) for row in rows
    )
    return OfPaper(
        {GREEDY: greedy, STOCHASTIC: stochastic},
        {GREEDY: greedy_tokens, STOCHASTIC: stochastic_tokens},
        naive[0],
    )


PAPER = {
    "Alpaca": _of_paper(
        "68 77 81 84 85", "54 81 91 95 97", "2.95 3.07 3.21 3.33 3.43", "1.79 2.11 2.26 2.32 2.38", "1.87"
    ),
    "CP": _of_paper(
        "69 79 83 86 87", "56 82 92 95 97", "2.58 3.24 3.46 3.59 3.69", "1.69 1.99 2.15 2.23 2.28", "1.80"
    ),
    "WebQA": _of_paper(
        "62 72 77 80 82", "52 80 90 94 96", "2.27 2.69 2.86 2.98 3.07", "1.64 1.93 2.08 2.15 2.21", "1.73"
    ),
    "CIP": _of_paper(
        "70 81 85 88 89", "57 84 92 95 97", "2.73 3.40 3.62 3.79 3.91", "1.72 2.05 2.19 2.28 2.29", "1.79"
    ),
    "PIQA": _of_paper(
        "63 75 79 83 85", "55 82 91 95 97", "2.18 2.80 2.97 3.10 3.21", "1.67 1.93 2.08 2.15 2.21", "1.73"
    ),
}


def pages(tables: Tables) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, columns and rows of each table, for people; the paper's own figures below ours."""
    widths = [str(width) for width in WIDTHS]
    success, tokens, verifiers = [], [], []
    for decoding in (GREEDY, STOCHASTIC):
        for name, figures in tables.success[decoding].items():
            success.append([f"{decoding}, {name}", *(figure.percent for figure in figures)])
        for name, figures in tables.tokens[decoding].items():
            tokens.append([f"{decoding}, {name}", *map(str, figures)])
        for name, paper in PAPER.items():
            quoted = f"{decoding}, paper's {name}"
            success.append([quoted, *(f"{value:.0f}" for value in paper.success[decoding])])
            tokens.append([quoted, *(f"{value:.2f}" for value in paper.tokens[decoding])])
    for name, found in tables.verifiers.items():
        ratio = f"{found[MSS.name].value / found[NAIVE.name].value:.2f}×"
        verifiers.append([name, *(str(found[rule.name]) for rule in RULES), ratio])
    for name, paper in PAPER.items():
        mss, unknown = paper.tokens[STOCHASTIC][-1], [""] * (len(RULES) - 2)
        ratio = f"{mss / paper.naive:.2f}×"
        verifiers.append([f"paper's {name}", f"{paper.naive:.2f}", f"{mss:.2f}", *unknown, ratio])
    return [
        (
            "Table 1. One of k children is accepted, % of positions",
            ["decoding, dataset", *(f"k = {width}" for width in widths)],
            success,
        ),
        (
            "Table 2. Tokens a step of the tree <1,1,w,1,1,1,1,1>",
            ["decoding, dataset", *(f"w = {width}" for width in widths)],
            tokens,
        ),
        (
            "Table 3. Tokens a step at w = 5, T = 1, by verification",
            ["dataset", *(rule.name for rule in RULES), "MSS / naive"],
            verifiers,
        ),
    ]
