"""Lossless, exactly, over several rounds: whatever the client draws, guesses, splices and drops, the joint
distribution of the output is the target's. The client's own code runs under every answer of chance.
"""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from enumeration import Script, distribution_of, total_variation
from joint import Joint, after_cuts, continuations
from local_link import LocalLink, served
from tables import Prefix, TableModel, random_table
from tokenizers import Tokenizer, models

from specops.edge import client
from specops.edge.client import EdgeEngine
from specops.edge.growth import Growth
from specops.edge.quantisation import Quantised
from specops.edge.settings import Drafting, Included
from specops.engine.request import Sampling

EXACT = 1e-12

P, Q, EOS, PROMPT = random_table(0), random_table(1), 2, (0, 1)
HOT = Sampling(temperature=1.7, top_p=0.95, max_tokens=4)
FLAT = torch.ones(3)
TOKENIZER = SimpleNamespace(
    backend_tokenizer=Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
)


class Session:
    """One client and its server, whose every chance is a script's."""

    def __init__(self, settings: Drafting, sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
        self._script = Script([])
        monkeypatch.setattr(client, "Dice", lambda seed: self._script)
        self.link = LocalLink(
            lambda prefix: P(prefix).log(),
            served(3, max_length=12, eos=frozenset({EOS})),
            chance=lambda sampling: self._script,
        )
        self.engine = EdgeEngine(self.link, TOKENIZER, TableModel(Q), settings, clock=self.link.clock)  # type: ignore[arg-type]
        self._sampling = sampling

        self.cut_after: int | None = None  # rounds after which the link breaks, once
        self.arrives, self.forgets = True, False
        self.run(Script([]))  # now the pace is known, and all runs are alike

    def run(self, script: Script) -> Prefix:
        self._script = script
        self.link.proposals.clear()
        tokens: list[int] = []
        sequence = self.engine.submit(list(PROMPT), self._sampling)
        whole = self.cut_after is None
        while not self.engine.idle:
            if not whole and len(self.link.proposals) == self.cut_after:
                self.link.cut(arrived=self.arrives, forget=self.forgets)
                whole = True
            for emission in self.engine.step():
                assert emission.sequence_id == sequence
                assert emission.error is None
                tokens += emission.tokens
        return tuple(tokens)


def target(sampling: Sampling) -> Joint:
    expected: Joint = {}
    for tokens, weight in continuations(after_cuts(P, sampling), PROMPT, sampling.max_tokens).items():
        ended = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
        expected[ended] = expected.get(ended, 0.0) + weight
    return expected


def distance(session: Session, sampling: Sampling) -> float:
    found = distribution_of(session.run)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-9)
    return total_variation(found, target(sampling))


def drafting(*, room: int, **settings: int) -> Drafting:
    """With so little room ahead that every way can be gone."""

    class Small(Drafting):
        room = property(lambda self: wanted)  # type: ignore[assignment]

    wanted = room
    return Small(depth=Included(settings.pop("depth", 1)), **settings)


CASES = [
    pytest.param(drafting(nodes=2, beams=1, width=2, heads=0, room=8), 4, id="none"),
    pytest.param(drafting(nodes=2, beams=1, width=2, heads=1, room=2, support=2), 4, id="one head"),
    pytest.param(drafting(nodes=2, beams=2, width=2, heads=2, room=2), 3, id="two heads"),
    pytest.param(drafting(nodes=2, beams=1, width=1, heads=3, room=3, support=2, depth=2), 4, id="chains"),
    pytest.param(drafting(nodes=1, beams=1, width=1, heads=1, room=3, support=2), 4, id="more than fits"),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("settings", "length"), CASES)
def test_the_output_has_the_targets_distribution(
    settings: Drafting, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = Sampling(temperature=0.9, max_tokens=length)
    session = Session(settings, sampling, monkeypatch)
    assert distance(session, sampling) < EXACT
    assert (session.engine.own.spliced > 0) == (settings.heads > 0)  # in all the runs


@pytest.mark.quick(1)
@pytest.mark.parametrize(("cut_after", "arrives"), [(None, True), *product((1, 2), (True, False))])
def test_what_is_sent_ahead(cut_after: int | None, arrives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = drafting(nodes=2, beams=1, width=1, heads=3, room=4, support=2)
    session = Session(settings, HOT, monkeypatch)
    session.cut_after, session.arrives = cut_after, arrives
    assert distance(session, HOT) < EXACT
    assert session.engine.own.taken > 0


@pytest.mark.parametrize("sampling", [Sampling(temperature=1.0, top_k=2, max_tokens=4), HOT])
def test_cuts_and_temperature(sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = drafting(nodes=2, beams=1, width=2, heads=1, room=2, support=2)
    assert distance(Session(settings, sampling, monkeypatch), sampling) < EXACT


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("rounds", "arrived"),
    [(0, True), *product((1, 2), (True, False))],  # before the first round there is none to arrive
)
@pytest.mark.parametrize("ahead", [0, 2])
def test_a_broken_link(rounds: int, arrived: bool, ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn for a round may have been verified or not, and so may what was sent ahead of it: only
    the server knows."""
    settings = drafting(nodes=2, beams=1, width=2, heads=2, room=2, support=2, ahead=ahead)
    session = Session(settings, HOT, monkeypatch)
    session.cut_after, session.arrives = rounds, arrived
    assert distance(session, HOT) < EXACT
    assert session.engine.own.downs > 0


def test_a_server_that_forgot(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn at the root for a round that was never verified is a guess from now on."""
    session = Session(drafting(nodes=2, beams=1, width=2, heads=2, room=3, support=2), HOT, monkeypatch)
    session.cut_after, session.arrives, session.forgets = 1, False, True
    assert distance(session, HOT) < EXACT
    assert session.engine.own.reopened > 0


# --- the same harness on rules that are wrong ---------------------------------------------------


def test_dropping_what_was_drawn_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that looks unlikely is left out, its siblings are sent."""
    whole = Growth._whole

    def pruned(growth: Growth, nodes: int, root: int = 0) -> list[int]:
        return [node for node in whole(growth, nodes, root) if growth.tokens[node] != 0]

    monkeypatch.setattr(Growth, "_whole", pruned)
    session = Session(drafting(nodes=2, beams=1, width=2, heads=0, room=8), HOT, monkeypatch)
    assert distance(session, HOT) > 100 * EXACT


def test_sending_only_what_looks_likely_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draws at a node are sent whole, but for what they are."""
    whole = Growth._whole

    def chosen(growth: Growth, nodes: int, root: int = 0) -> list[int]:
        order = whole(growth, nodes, root)
        return order if order and growth.tokens[order[0]] == 1 else []

    monkeypatch.setattr(Growth, "_whole", chosen)
    session = Session(drafting(nodes=2, beams=1, width=1, heads=0, room=8), HOT, monkeypatch)
    assert distance(session, HOT) > 100 * EXACT


def test_sending_another_distribution_than_was_drawn_from_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        Quantised, "draw", lambda q, chance, count: [q.tokens[chance.sample(FLAT[: len(q.tokens)])]]
    )
    session = Session(drafting(nodes=1, beams=1, width=1, heads=0, room=8), HOT, monkeypatch)
    assert distance(session, HOT) > 100 * EXACT
