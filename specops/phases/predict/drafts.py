"""The steps of each setting along logged answers: copies from the text alone, a model's by teacher forcing.

What cannot be predicted from a log is named with the command that measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from specops.errors import SpecopsError
from specops.phases.commands import Commands
from specops.phases.predict.acceptance import AnswerCounts, count_steps
from specops.phases.predict.records import How, NotPredicted
from specops.phases.predict.tokens import UNLIMITED, EncodedAnswer
from specops.progress import Progress
from specops.serving import OwnModels, PlaceDrafts, Pool, Steps
from specops.trees import parse_tree

if TYPE_CHECKING:
    from specops.engine.load import Pair

MOST_FORCED = 20_000
"""Tokens of answers along which a draft model is run."""

ONE_SERVER = "one server without other traffic, which answers one request at a time in the order of the log"
FORCED_ARITHMETIC = "the arithmetic of this machine: where two tokens are nearly as likely, another may win"


@dataclass
class SettingCounts:
    """One setting along the answers that it could be predicted for."""

    setting: str
    kind: str
    """The kind of draft by whose costs it is judged."""

    k: int
    how: How
    assumes: str = ""
    counts: list[AnswerCounts] = field(default_factory=list)


@dataclass
class DraftedLog:
    settings: list[SettingCounts]
    not_predicted: list[NotPredicted]


def draft_along(
    answers: Sequence[EncodedAnswer], pool: Pool, ks: Sequence[int], commands: Commands, progress: Progress
) -> DraftedLog:
    """The counts of every setting that can be predicted for `pool`, with drafts of each of `ks` tokens."""
    if pool.own is not None:
        return _embedded(answers, pool.own, ks, commands, progress)
    return _by_rule(answers, pool, ks, commands, progress)


def _by_rule(
    answers: Sequence[EncodedAnswer], pool: Pool, ks: Sequence[int], commands: Commands, progress: Progress
) -> DraftedLog:
    """A pool whose engine copies by a rule that its package has."""
    example = pool.copied_drafts([0], [0], 1)
    if example is None:
        drafts = (
            f"{pool.engine} with method {pool.method}" if pool.method else f"a pool of engine {pool.engine}"
        )
        why = f"what {drafts} drafts does not follow from the text by a rule that is fully known here"
        return DraftedLog(
            [], [NotPredicted(setting=pool.method or pool.engine, why=why, command=commands.sweep())]
        )
    settings = [SettingCounts(f"k={k}", pool.method or "", k, "copied", example.assumes) for k in ks]

    def copy(answer: EncodedAnswer) -> PlaceDrafts | None:
        return pool.copied_drafts(answer.prompt, answer.written, max(ks))

    _walk(answers, settings, copy, progress)
    return DraftedLog(settings, [])


def _embedded(
    answers: Sequence[EncodedAnswer],
    own: OwnModels,
    ks: Sequence[int],
    commands: Commands,
    progress: Progress,
) -> DraftedLog:
    from specops.engine.planner.copied_acceptance import SuffixDrafts, ngram_drafts

    ngrams = [SettingCounts(f"ngram:{k}", "ngram", k, "copied") for k in ks]

    def copy(answer: EncodedAnswer) -> PlaceDrafts:
        return ngram_drafts(answer.prompt, answer.written, max(ks), answer.limit)

    _walk(answers, ngrams, copy, progress)
    trees = SuffixDrafts(ks)
    suffixes = {k: SettingCounts(f"suffix:{k}", "suffix", k, "copied", ONE_SERVER) for k in ks}
    progress.start("suffix trees", len(answers))
    for answer in answers:
        for k, steps in trees.steps(answer.prompt, answer.written, answer.limit).items():
            suffixes[k].counts.append(_counted(answer, steps))
        progress.advance()
    forced, not_predicted = _forced(answers, own, ks, commands, progress)
    return DraftedLog([*ngrams, *suffixes.values(), *forced], not_predicted)


def _walk(
    answers: Sequence[EncodedAnswer],
    settings: Sequence[SettingCounts],
    drafts_of: Callable[[EncodedAnswer], PlaceDrafts | None],
    progress: Progress,
) -> None:
    """Count each K of one pass of drafts along each answer."""
    progress.start("n-grams", len(answers))
    for answer in answers:
        drafts = drafts_of(answer)
        if drafts is not None:
            for setting in settings:
                setting.counts.append(_counted(answer, drafts.steps(setting.k)))
        progress.advance()


def _counted(answer: EncodedAnswer, steps: Steps) -> AnswerCounts:
    return count_steps(
        answer.conversation, answer.traffic_class, len(answer.prompt), len(answer.written), steps
    )


def _forced(
    answers: Sequence[EncodedAnswer],
    own: OwnModels,
    ks: Sequence[int],
    commands: Commands,
    progress: Progress,
) -> tuple[list[SettingCounts], list[NotPredicted]]:
    """The pool's own tree and chains of each K, drafted by its draft model along greedy answers."""
    tree = own.tree or "none"
    spec = parse_tree(tree)
    measure = commands.of("ab --help") if own.tree is None else commands.sweep()
    if not spec.takes_draft:
        return [], []

    def refused(why: str) -> tuple[list[SettingCounts], list[NotPredicted]]:
        return [], [NotPredicted(setting=tree, why=why, command=measure)]

    draft: str | Path | None = own.draft or own.draft_model
    if draft is None:
        return refused("the rollout names no draft")
    from specops.engine.load import Pair

    try:
        pair = Pair(own.target, draft, threads=own.threads)
    except SpecopsError as error:
        return refused(error.message)
    chosen = list(_affordable(answers, pair))
    if not chosen:
        return refused(
            "the log has no greedy answer within the pair's context: a draft is not forced along others"
        )
    trees = {f"chain:{k}": k for k in ks}
    not_predicted: list[NotPredicted] = []
    if spec.kind in ("chain", "expand"):
        trees[tree] = spec.nodes
    else:
        why = f"how a tree {tree} is accepted depends on more than the log: only chains and expansions are"
        not_predicted.append(NotPredicted(setting=tree, why=why, command=measure))
    settings = [
        SettingCounts(name, name, nodes, "forced", FORCED_ARITHMETIC) for name, nodes in trees.items()
    ]
    _force(pair, chosen, settings, progress)
    return settings, not_predicted


def _affordable(answers: Sequence[EncodedAnswer], pair: Pair) -> Iterator[EncodedAnswer]:
    """Greedy answers that fit into the pair's context, spread over the log, up to `MOST_FORCED` tokens."""
    vocabulary = pair.target.shape.vocab
    fitting = [
        answer
        for answer in answers
        if answer.greedy
        and len(answer.prompt) + len(answer.written) <= pair.positions
        and min(answer.prompt + answer.written) >= 0
        and max(answer.prompt + answer.written) < vocabulary
    ]
    total = sum(len(answer.written) for answer in fitting)
    stride = max(1, -(-total // MOST_FORCED))
    yield from fitting[::stride]


def _force(
    pair: Pair, answers: Sequence[EncodedAnswer], settings: Sequence[SettingCounts], progress: Progress
) -> None:
    from specops.engine.planner.offline_acceptance import trace

    specs = [(setting, parse_tree(setting.setting).widths) for setting in settings]
    depth = max(len(widths) for _, widths in specs)
    ranks = max(max(widths) for _, widths in specs)
    progress.start("draft model", len(answers))
    for answer in answers:
        along = trace(pair, answer.prompt, answer.written, 0.0, depth=depth, ranks=ranks, seed=0)
        for setting, widths in specs:
            accepted = along.accepted(widths).sum(1).round().astype(int).tolist()
            left = min(answer.limit, UNLIMITED)
            drafted = [_nodes(widths, left - place - 1) for place in range(len(answer.written))]
            drafts = PlaceDrafts(
                drafted,
                [min(right, left - place - 1) for place, right in enumerate(accepted)],
                opens_bare=along.opens_bare,
            )
            setting.counts.append(_counted(answer, drafts.steps(setting.k)))
        progress.advance()


def _nodes(widths: Sequence[int], depth: int) -> int:
    """Nodes of the expansion <widths>, of its first `depth` levels."""
    total, level = 0, 1
    for width in widths[: max(depth, 0)]:
        level *= width
        total += level
    return total
