"""SpecInfer's tables 1 to 3 (arXiv 2305.09781) for any pair on disk, beside the paper's.

    python benchmarks/specinfer.py [--count 16] [--tokens 64] [--quick] [--target DIR] [--draft DIR]

The classes of the prompt set are the datasets. Table 1 is how often one of a node's k children is accepted,
computed from the two models' distributions along what the target writes. Tables 2 and 3 are counted: tokens
that a step of the engine yields with the paper's tree <1,1,w,1,1,1,1,1>, its children drawn independently
where the decoding is stochastic. Steps that the end of the output would cut short are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pair_options import PROMPT_TOKENS, encode, pair_parser
from pydantic import PositiveInt

from specops import stats
from specops.engine import Sampling
from specops.engine.load import Pair
from specops.engine.planner import offline_acceptance
from specops.engine.tree import Draw
from specops.engine.verifiers import make_verifier
from specops.load.workload import load_prompts
from specops.render.figures import aligned
from specops.section import Frozen

WIDTHS = range(1, 6)
EVERYTHING = "all"
GREEDY, STOCHASTIC = "greedy", "stochastic"


class Figure(Frozen):
    """A mean over the prompts, with its 95% interval; None where they are too few."""

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
"""Figures by dataset."""


class Tables(Frozen):
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
class PaperFigures:
    """The paper's figures of LLaMA-7B and a draft of 68 million weights, at widths 1 to 5."""

    success: dict[str, tuple[float, ...]]
    tokens: dict[str, tuple[float, ...]]
    naive: float


def _of_paper(*rows: str) -> PaperFigures:
    """Success greedily and stochastically, tokens likewise, and naive sampling's tokens."""
    greedy, stochastic, greedy_tokens, stochastic_tokens, naive = (
        tuple(map(float, row.split())) for row in rows
    )
    return PaperFigures(
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


def pages(tables: Tables) -> list[list[str]]:
    """Return the three tables, the paper's own figures below ours."""
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
        [
            "Table 1. One of k children is accepted, % of positions",
            *aligned([["decoding, dataset", *(f"k = {width}" for width in widths)], *success]),
        ],
        [
            "Table 2. Tokens a step of the tree <1,1,w,1,1,1,1,1>",
            *aligned([["decoding, dataset", *(f"w = {width}" for width in widths)], *tokens]),
        ],
        [
            "Table 3. Tokens a step at w = 5, T = 1, by verification",
            *aligned([["dataset", *(rule.name for rule in RULES), "MSS / naive"], *verifiers]),
        ],
    ]


DEPTH = 8
FEWEST_TOKENS = 2 * DEPTH
"""Number of tokens of a continuation. Steps count while a whole tree still fits; fewer tokens may have
none."""

BATCH = 8

Datasets = dict[str, list[list[int]]]
"""The prompts' tokens, by class."""


class SpecInferSettings(Frozen):
    target: Path
    draft: Path
    prompts: Path
    count: PositiveInt = 16  # prompts of each class, spread over it
    tokens: PositiveInt = 64  # of each continuation
    seed: int = 0


@dataclass(frozen=True)
class TokenCounts:
    tokens: int = 0
    steps: int = 0

    def __add__(self, more: TokenCounts) -> TokenCounts:
        return TokenCounts(self.tokens + more.tokens, self.steps + more.steps)


def measure(settings: SpecInferSettings) -> Tables:
    if settings.tokens < FEWEST_TOKENS:
        raise SystemExit(
            f"invalid --tokens {settings.tokens}: expected {FEWEST_TOKENS} or more, since a tree is "
            f"{DEPTH} deep"
        )
    prompts = load_prompts(settings.prompts)
    pair = Pair(settings.target, settings.draft)
    datasets: Datasets = {
        name: [encode(pair, prompt) for prompt in prompts.select([name]).spread(settings.count)]
        for name in prompts.classes
    }
    return _tables(_Measuring(pair, datasets, settings))


def _tables(measuring: _Measuring) -> Tables:
    success = measuring.success()  # first: it says where prompts and tokens do not fit
    tokens: dict[str, Rows] = {GREEDY: defaultdict(list), STOCHASTIC: defaultdict(list)}
    for width in WIDTHS:
        for decoding, temperature in ((GREEDY, 0.0), (STOCHASTIC, 1.0)):
            for name, figure in measuring.tokens_a_step(width, MSS, temperature).items():
                tokens[decoding][name].append(figure)
    verifiers: dict[str, dict[str, Figure]] = defaultdict(dict)
    for rule in RULES:
        counted = {name: row[-1] for name, row in tokens[STOCHASTIC].items()}
        if rule is not MSS:
            counted = measuring.tokens_a_step(WIDTHS[-1], rule, 1.0)
        for name, figure in counted.items():
            verifiers[name][rule.name] = figure
    return Tables(success=success, tokens=tokens, verifiers=verifiers)


@dataclass(frozen=True)
class _Measuring:
    pair: Pair
    datasets: Datasets
    settings: SpecInferSettings

    def success(self) -> dict[str, Rows]:
        """Return the success rates of the children at the root: table 1."""
        rates: dict[str, list[offline_acceptance.Rates]] = {
            name: [
                offline_acceptance.rates(
                    self.pair, ids, self.settings.tokens, len(WIDTHS), self.settings.seed
                )
                for ids in prompts
            ]
            for name, prompts in self.datasets.items()
        }
        rates[EVERYTHING] = [rate for found in rates.values() for rate in found]
        rules = {GREEDY: offline_acceptance.GREEDY, STOCHASTIC: offline_acceptance.SAMPLED[0]}
        return {
            decoding: {
                name: [_mean(values) for values in zip(*(rate[rule] for rate in found), strict=True)]
                for name, found in rates.items()
            }
            for decoding, rule in rules.items()
        }

    def tokens_a_step(self, width: int, rule: Rule, temperature: float) -> dict[str, Figure]:
        """Return the tokens a step by dataset."""
        counted = {
            name: self._count(prompts, width, rule, temperature) for name, prompts in self.datasets.items()
        }
        counted[EVERYTHING] = [one for found in counted.values() for one in found]
        return {name: _per_step(found) for name, found in counted.items()}

    def _count(
        self, prompts: Sequence[list[int]], width: int, rule: Rule, temperature: float
    ) -> list[TokenCounts]:
        """Return for each prompt what steps with whole trees yielded."""
        settings = self.settings
        tree = f"expand:1,1,{width}" + ",1" * (DEPTH - 3)
        engine = self.pair.engine(
            tree,
            PROMPT_TOKENS + settings.tokens,
            draw=rule.draw,
            verifier=make_verifier(rule.verifier),
            max_batch=BATCH,
        )
        for number, ids in enumerate(prompts):
            sampling = Sampling(
                max_tokens=settings.tokens,
                temperature=temperature,
                seed=settings.seed + number,
                ignore_eos=True,
            )
            engine.submit(ids, sampling)
        # What reads the target's features has none before the first step, which is then without a tree.
        whole = range(DEPTH + 1, settings.tokens + (0 if self.pair.draft.reads_features else 1))
        left: dict[int, int] = defaultdict(lambda: settings.tokens)
        counted: dict[int, TokenCounts] = defaultdict(TokenCounts)
        while not engine.idle:
            for emission in engine.step():
                if left[emission.sequence_id] in whole:
                    counted[emission.sequence_id] += TokenCounts(len(emission.tokens), 1)
                left[emission.sequence_id] -= len(emission.tokens)
        return list(counted.values())


def _mean(values: Sequence[float]) -> Figure:
    found = stats.mean_interval(values)
    if found is None:
        return Figure(value=values[0])
    return Figure(value=found.estimate, low=found.low, high=found.high)


def _per_step(found: Sequence[TokenCounts]) -> Figure:
    tokens, steps = [one.tokens for one in found], [one.steps for one in found]
    ratio = stats.paired_ratio(tokens, steps)
    if ratio is None:
        return Figure(value=sum(tokens) / sum(steps))
    return Figure(value=ratio.estimate, low=ratio.low, high=ratio.high)


def main() -> None:
    parser = pair_parser(__doc__)
    parser.add_argument("--count", type=int, default=16, help="prompts of each class")
    parser.add_argument("--tokens", type=int, default=64, help="of each continuation")
    parser.add_argument("--quick", action="store_true", help="four prompts of each class")
    options = parser.parse_args()
    tables = measure(
        SpecInferSettings(
            target=options.target,
            draft=options.draft,
            prompts=options.prompts,
            count=min(options.count, 4) if options.quick else options.count,
            tokens=options.tokens,
            seed=options.seed,
        )
    )
    for page in pages(tables):
        print(*page, "", sep="\n")
    if options.json is not None:
        options.json.write_text(tables.model_dump_json(indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
