"""Lossless at temperature > 0, exactly: what a session is given has the target's own distribution.

The whole way through the server's loop, under every answer that chance can give to its verifiers and to the
client that draws: prompts, rounds, evictions, other sessions' trees. The server has draft distributions in
float32, to the last bit what was drawn from, but renormalises them in it after a rejection; so that nothing
hides in that rounding, they are float64 here, but for one test.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from drawn_nodes import parted, put_together
from enumeration import Script, distribution_of, total_variation
from joint import Joint, after_cuts, continuations
from scripted_clients import Clients, Session, verifying_engine
from tables import VOCABULARY, Prefix, Table, TableModel, random_table
from tokenizers import Tokenizer, models

from specops.edge import quantisation
from specops.edge.link import Proposal
from specops.edge.quantisation import Quantised, joined, laid_out, quantise
from specops.engine import sequence as sequence_module
from specops.engine.drafters import make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.request import Sampling
from specops.engine.tree import Draw
from specops.engine.verifiers import ByDraw, make_verifier

EXACT = 1e-12
LENGTH, NODES = 12, 6
PROMPT: Prefix = (0, 1, 0, 1)
SAMPLING = Sampling(temperature=0.9, top_p=0.95, max_tokens=3)
TOKENIZER = SimpleNamespace(
    backend_tokenizer=Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
)
Weights = tuple[int, ...]
"""Of one distribution."""


def drawn_tree(
    q: Table, chance: Script, prefix: Prefix, widths: tuple[int, ...], draw: Draw, support: int
) -> Proposal:
    """Level by level, each node's children drawn from its distribution in whole numbers."""
    tokens: list[int] = []
    parents: list[int] = []
    drawn: dict[int, Quantised] = {}
    level: list[tuple[int, Prefix]] = [(0, prefix)]
    for width in widths:
        below = []
        for node, path in level:
            (weights,) = quantise(q(path)[None], support)
            if draw is Draw.WITHOUT_REPLACEMENT:
                children = weights.draw(chance, width)
            else:
                values = torch.tensor(weights.weights, dtype=torch.float64)
                children = [weights.tokens[place] for place in chance.draw(values, width, replace=True)]
            drawn[node] = weights
            for token in children:
                tokens.append(token)
                parents.append(node)
                below.append((len(tokens), (*path, token)))
        level = below
    return Proposal(tuple(tokens), tuple(parents), draw, joined(drawn))


def likeliest_tree(q: Table, prefix: Prefix) -> Proposal:
    """A function of what is there: the two best tokens, and the best after the first."""
    first, second = q(prefix).topk(2).indices.tolist()
    below = int(q((*prefix, first)).argmax())
    return Proposal((first, second, below), (0, 0, 1))


def given(
    session: Callable[[Script], Session],
    monkeypatch: pytest.MonkeyPatch,
    *,
    others: Callable[[], list[Session]] = list,
    rows: int = 2,
    chunk: int = 4,
    tree: str = "none",
    verifier: str | None = None,
    rounded: bool = False,
) -> Joint:
    """The distribution of the tokens that a session gets; others are greedy, and ask for no chance."""

    if not rounded:
        monkeypatch.setattr(quantisation, "laid_out", lambda *each: laid_out(*each).double())

    def run(chance: Script) -> Prefix:
        monkeypatch.setattr(sequence_module, "Dice", lambda seed: chance)
        grower = partial(ModelGrower, TableModel(random_table(1)))
        own = make_drafter(tree, Draw.WITHOUT_REPLACEMENT, [grower], rows, LENGTH)
        engine = verifying_engine(
            TableModel(random_table(0), max_positions=LENGTH + NODES),
            own,
            TOKENIZER,
            rows=rows,
            max_length=LENGTH,
            nodes=NODES,
            chunk=chunk,
            verifier=ByDraw(None if verifier is None else make_verifier(verifier)),
        )
        asked = session(chance)
        before, *after = others() or [None]
        Clients([*filter(None, [before]), asked, *after]).run(engine, max_batch=1)
        evictions.append(engine.counters.evictions)
        return tuple(asked.output)

    evictions: list[int] = []
    found = distribution_of(run)
    assert any(evictions) or not others()
    return found


def expected() -> Joint:
    return continuations(after_cuts(random_table(0), SAMPLING), PROMPT, SAMPLING.max_tokens)


def asking(
    draw: Draw,
    widths: tuple[int, ...] = (2,),
    *,
    support: int = VOCABULARY,
    sends: Callable[[Weights], Weights] = lambda weights: weights,
    client: int = 0,
) -> Callable[[Script], Session]:
    q = random_table(1)

    def session(chance: Script) -> Session:
        def proposes(output: list[int]) -> Proposal:
            prefix, depth = (*PROMPT, *output), SAMPLING.max_tokens - len(output) - 1
            if not depth:  # the last token is the target's own, whatever is proposed
                return Proposal((), ())
            if draw is Draw.DETERMINISTIC:
                return likeliest_tree(q, prefix)
            tree = drawn_tree(q, chance, prefix, widths[:depth], draw, support)
            nodes = parted(tree.drawn).items()
            sent = {node: (tokens, sends(weights)) for node, (tokens, weights) in nodes}
            return Proposal(tree.tokens, tree.parents, draw, put_together(sent))

        return Session(0, list(PROMPT), SAMPLING, proposes, client)

    return session


@pytest.mark.parametrize("verifier", [None, "naive", "mss"])
@pytest.mark.parametrize("draw", list(Draw))
def test_every_draw(draw: Draw, verifier: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = given(asking(draw), monkeypatch, verifier=verifier)
    assert sum(found.values()) == pytest.approx(1.0, abs=EXACT)
    assert total_variation(found, expected()) < EXACT


@pytest.mark.parametrize("draw", [Draw.WITHOUT_REPLACEMENT, Draw.IID])
@pytest.mark.parametrize(("widths", "support"), [((1,), 1), ((2,), 2), ((3,), 2)])
def test_truncated_distributions(
    widths: tuple[int, ...], support: int, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a truncation leaves out is only ever the target's to give."""
    found = given(asking(draw, widths, support=support), monkeypatch)
    assert total_variation(found, expected()) < EXACT


@pytest.mark.parametrize("factor", [1, 3])
def test_in_float32_and_for_weights_of_any_sum(factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def sends(weights: Weights) -> Weights:
        return tuple(factor * weight for weight in weights)

    found = given(asking(Draw.WITHOUT_REPLACEMENT, sends=sends), monkeypatch, rounded=True)
    assert total_variation(found, expected()) < 1e-6


def test_another_distribution_than_the_one_drawn_from_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: an error of this kind would be seen."""

    def sends(weights: Weights) -> Weights:
        return weights[1:] + weights[:1]

    found = given(asking(Draw.WITHOUT_REPLACEMENT, sends=sends), monkeypatch)
    assert total_variation(found, expected()) > 0.01


def test_a_drawn_tree_that_says_it_is_deterministic_costs_nothing_but_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def session(chance: Script) -> Session:
        asked = asking(Draw.WITHOUT_REPLACEMENT)(chance)
        drawn = asked.proposes

        def proposes(output: list[int]) -> Proposal:
            tree = drawn(output)
            return Proposal(tree.tokens, tree.parents)

        asked.proposes = proposes
        return asked

    assert total_variation(given(session, monkeypatch), expected()) < EXACT


def neighbours() -> list[Session]:
    """Greedy, with trees of garbage, one of them too deep to end well; more of them than there are rows."""
    deep = Proposal((2, 2, 1, 1, 0, 0), (0, 1, 2, 3, 4, 5))
    bushy = Proposal((0, 1, 2, 0, 1, 2), (0, 0, 0, 1, 1, 1))
    return [
        Session(key, prompt, Sampling(max_tokens=7), lambda output, tree=tree: tree, client=key % 2)
        for key, (prompt, tree) in enumerate(
            [([1, 2], deep), ([2, 2, 2, 2, 0], bushy), ([0, 1, 0, 1], deep)], start=1
        )
    ]


@pytest.mark.quick(2)
@pytest.mark.parametrize("chunk", [2, 4])
@pytest.mark.parametrize("draw", list(Draw))
def test_what_one_is_given_does_not_depend_on_the_others(
    draw: Draw, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evicted and read again in between, beside trees of nonsense: the very same distribution. The table
    refuses a prefix that is not the session's own, so that another's token would be an error at once."""
    alone = given(asking(draw), monkeypatch, chunk=chunk)
    among = given(asking(draw), monkeypatch, chunk=chunk, others=neighbours)
    assert total_variation(alone, among) < EXACT
    assert total_variation(among, expected()) < EXACT


@pytest.mark.parametrize("tree", ["none", "expand:2", "ngram:2"])
@pytest.mark.parametrize("switches", [[0], [1]])
def test_a_server_that_takes_over_and_hands_back(
    tree: str, switches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def session(chance: Script) -> Session:
        asked = asking(Draw.WITHOUT_REPLACEMENT, (2,))(chance)
        asked.switches = switches
        asked.server_drafts = switches == [1]
        return asked

    assert total_variation(given(session, monkeypatch, tree=tree), expected()) < EXACT
