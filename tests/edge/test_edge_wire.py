"""The wire: what is sent arrives as it was, and whatever else arrives is refused with a sentence."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from drawn_nodes import put_together
from hypothesis import given
from hypothesis import strategies as some
from msgspec import structs

from specops.edge import verification_pb2 as pb
from specops.edge.link import (
    DRAWN_AHEAD,
    Branch,
    ClientTurn,
    DrawDistributions,
    Proposal,
    ServerLimits,
    SessionRefused,
    Verdict,
    tokenizer_digest,
)
from specops.edge.messages import SequenceVerdict
from specops.edge.server import message_limit
from specops.edge.wire import (
    Ahead,
    ClientRequest,
    Close,
    Mode,
    Open,
    Round,
    WireError,
    ahead_request,
    close_request,
    description_of,
    event_of,
    limits_of,
    mode_request,
    open_request,
    read_request,
    refusal_response,
    round_request,
    turn_response,
    verdict_response,
)
from specops.engine.request import LEAST_TEMPERATURE, Sampling
from specops.engine.tree import Draw
from specops.errors import EndpointError, UsageError

SERVED = ServerLimits(
    model="a model",
    vocabulary=50_000,
    tokenizer=b"d" * 32,
    eos=frozenset({0, 7}),
    max_length=512,
    max_nodes=32,
    max_support=8,
    max_sessions=4,
    resume_s=0.1,
    own_tree="chain:3",
    max_ahead=4,
)
TOKEN = some.integers(0, SERVED.vocabulary - 1)


@some.composite
def proposals(draw: Any) -> Proposal:
    """Any tree that may be sent, whatever it was drawn from."""
    how = draw(some.sampled_from(Draw))
    count = draw(some.integers(1, SERVED.max_nodes))
    supports: dict[int, list[int]] = {}
    children: dict[int, list[int]] = {}
    tokens, parents = [], []
    for node in range(1, count + 1):
        parent = draw(some.integers(0, node - 1))
        if parent not in supports:
            size = SERVED.max_support
            supports[parent] = sorted(draw(some.sets(TOKEN, min_size=1, max_size=size)))
        taken = () if how is Draw.IID else children.get(parent, ())
        free = [token for token in supports[parent] if token not in taken]
        if not free:
            break
        tokens.append(draw(some.sampled_from(free)))
        parents.append(parent)
        children.setdefault(parent, []).append(tokens[-1])
    if how is Draw.DETERMINISTIC:
        return Proposal(tuple(tokens), tuple(parents))
    weight = some.integers(1, 2**16 - 1)
    drawn = {
        node: (tuple(supports[node]), tuple(draw(weight) for _ in supports[node]))
        for node in draw(some.permutations(sorted(children)))
    }
    return Proposal(tuple(tokens), tuple(parents), how, put_together(drawn))


def read_round(message: pb.Round) -> Proposal:
    asked = read_request(pb.Request(session=3, round=message).SerializeToString(), SERVED)
    assert isinstance(asked, Round)
    return asked.proposal


@given(proposals(), some.integers(0, 2**32 - 1), some.integers(0, 2**32 - 1))
def test_a_round_arrives_as_it_was_sent(proposal: Proposal, session: int, number: int) -> None:
    sent = round_request(session, number, proposal).SerializeToString()
    assert read_request(sent, SERVED) == Round(session, number, proposal)


@some.composite
def ways(draw: Any) -> list[Branch]:
    """Branches that may be sent ahead; of trees that are empty, too."""
    outcome = some.tuples(some.integers(0, SERVED.max_nodes), TOKEN)
    outcomes = draw(some.lists(outcome, max_size=SERVED.max_ahead, unique=True))
    tree = some.just(Proposal((), ())) | proposals()
    return [Branch(end, bonus, draw(tree)) for end, bonus in outcomes]


@given(ways(), some.integers(0, 2**32 - 1), some.integers(0, 2**32 - 1), some.integers(1, 2**32 - 1))
def test_what_is_sent_ahead_arrives_as_it_was(
    branches: list[Branch], session: int, number: int, version: int
) -> None:
    sent = ahead_request(session, number, version, branches).SerializeToString()
    assert read_request(sent, SERVED) == Ahead(session, number, version, tuple(branches))


@given(
    some.binary(min_size=16, max_size=16),
    some.lists(TOKEN, min_size=1, max_size=100),
    some.builds(
        Sampling,
        temperature=some.just(0.0) | some.floats(LEAST_TEMPERATURE, 1e6),
        top_k=some.integers(0, 2**32 - 1),
        top_p=some.floats(0, 1, exclude_min=True),
        seed=some.none() | some.integers(0, 2**64 - 1),
        max_tokens=some.integers(1, 2**32 - 1),
        stop_token_ids=some.lists(TOKEN, max_size=64).map(tuple),
        ignore_eos=some.booleans(),
    ),
    some.integers(0, 2**32 - 1),
    some.booleans(),
)
def test_a_session_is_opened_as_it_was_asked_for(
    key: bytes, prompt: list[int], sampling: Sampling, known: int, server_drafts: bool
) -> None:
    sent = open_request(5, key, prompt, sampling, acknowledged=known, server_drafts=server_drafts)
    asked = read_request(sent.SerializeToString(), SERVED)
    assert asked == Open(5, key, prompt, sampling, known, server_drafts)


def test_a_seed_that_cannot_be_sent_is_said_at_once() -> None:
    with pytest.raises(UsageError, match="a seed must be from 0"):
        open_request(1, b"k" * 16, [1], Sampling(seed=-1))


@pytest.mark.parametrize("server_drafts", [False, True])
def test_mode_and_close_arrive(server_drafts: bool) -> None:
    sent = mode_request(7, server_drafts=server_drafts).SerializeToString()
    assert read_request(sent, SERVED) == Mode(7, server_drafts)
    assert read_request(close_request(7).SerializeToString(), SERVED) == Close(7)


def test_a_greedy_round_of_32_nodes_takes_far_less_than_a_kilobyte() -> None:
    tokens = tuple(range(150_000, 150_032))  # of a large vocabulary: three bytes each
    for parents in (tuple(range(32)), (0,) * 32):
        sent = round_request(200, 100_000, Proposal(tokens, parents)).SerializeToString()
        assert len(sent) <= 160


@pytest.mark.parametrize("how", [Draw.DETERMINISTIC, Draw.WITHOUT_REPLACEMENT])
@pytest.mark.parametrize(("nodes", "support", "ahead"), [(32, 32, 32), (64, 64, 32), (1, 1, 1), (8, 4, 0)])
def test_the_largest_message_fits_into_the_limit(nodes: int, support: int, ahead: int, how: Draw) -> None:
    """Of the largest vocabulary that there can be."""
    served = replace(
        SERVED, vocabulary=2**32 - 1, max_nodes=nodes, max_support=support, max_ahead=ahead, max_length=1
    )
    last = served.vocabulary - 1
    tokens, parents = tuple(range(last - nodes + 1, last + 1)), tuple(range(nodes))
    drawn = DrawDistributions()
    if how is not Draw.DETERMINISTIC:
        others = tuple(range(last - nodes - support + 2, last - nodes + 1))
        weights = (2**16 - 1,) * support
        drawn = put_together({node: ((*others, token), weights) for node, token in enumerate(tokens)})
    tree = Proposal(tokens, parents, how, drawn)
    bare = Proposal(tokens, parents)
    branches = [Branch(nodes, last - each, tree if each < DRAWN_AHEAD else bare) for each in range(ahead)]
    most = 2**32 - 1
    for sent in (ahead_request(most, most, most, branches), round_request(most, most, tree)):
        data = sent.SerializeToString()
        assert len(data) <= message_limit(served)
        assert read_request(data, served)


def spoiled(**changes: Any) -> pb.Round:
    """A good round at temperature > 0, but for `changes`: `first` to the distribution of node 0, `drawn` to
    how all of them are sent."""
    first = {"tokens": (3, 5, 9), "weights": (1, 2, 3), **changes.pop("first", {})}
    drawn = structs.asdict(put_together({0: (first["tokens"], first["weights"]), 1: ((4,), (1,))}))
    drawn |= changes.pop("drawn", {})
    fields = {"tokens": [5, 9, 4], "parents": [0, 0, 1], "draw": pb.WITHOUT_REPLACEMENT, **changes}
    return pb.Round(number=1, drawn=pb.Drawn(**drawn), **fields)


def test_the_round_that_is_spoiled_below_is_good() -> None:
    assert len(read_round(spoiled()).tokens) == 3


SPOILED: list[tuple[dict[str, Any], str]] = [
    ({"tokens": [5, 9]}, "2 nodes cannot have 3 parents"),
    ({"tokens": list(range(33)), "parents": [0] * 33}, "33 nodes is over the limit of 32"),
    ({"tokens": [5, 9, 50_000]}, "must be below 50000, not 50000"),
    ({"parents": [0, 0, 3]}, "node 3 cannot follow node 3"),
    ({"parents": [0, 9, 0]}, "node 2 cannot follow node 9"),
    ({"draw": 3}, "unknown draw 3"),
    ({"draw": -1}, "unknown draw -1"),
    ({"draw": pb.DETERMINISTIC}, "was not drawn"),
    ({"tokens": [5, 5, 4]}, "a node is followed by the same token twice"),
    ({"parents": [0, 0, 0]}, "one distribution for every node"),
    ({"parents": [0, 0, 2]}, "one distribution for every node"),
    ({"drawn": {"nodes": (1, 1)}}, "one distribution for every node"),
    ({"drawn": {"nodes": (0, 1, 1)}}, "one distribution for every node"),
    ({"drawn": {"sizes": (3, 1, 1)}}, "2 distributions cannot have 3 sizes"),
    ({"drawn": {"sizes": (4, 0)}}, "the distribution of node 1 is over no tokens"),
    ({"drawn": {"sizes": (2, 1)}}, "3 tokens take 12 bytes, not 16"),
    ({"drawn": {"sizes": (2, 2)}}, "the tokens of node 1's distribution do not ascend"),
    ({"first": {"tokens": (5, 3, 9)}}, "the tokens of node 0's distribution do not ascend"),
    ({"first": {"tokens": (5, 9, 9)}}, "do not ascend"),
    ({"first": {"tokens": (3, 5, 8)}}, "a token after node 0 cannot have been drawn: its weight is 0"),
    ({"tokens": [5, 9, 49_999]}, "a token after node 1 cannot have been drawn: its weight is 0"),
    ({"first": {"tokens": (5, 9, 50_000)}}, "must be below 50000, not 50000"),
    ({"first": {"weights": (1, 2)}}, "4 weights take 8 bytes, not 6"),
    ({"first": {"weights": (1, 2, 0)}}, "at least 1"),
    ({"first": {"tokens": range(5, 14), "weights": [1] * 9}}, "9 tokens is over the limit of 8"),
    *(
        ({"drawn": {blob: cut}}, f"4 {blob} take {whole} bytes, not {len(cut)}")
        for blob, whole in (("tokens", 16), ("weights", 8))
        for cut in (b"", bytes(whole - 1), bytes(whole + 1))
    ),
]


@pytest.mark.parametrize(("changes", "said"), SPOILED)
def test_a_spoiled_round_is_refused_by_what_is_wrong_with_it(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(WireError, match=said) as caught:
        read_round(spoiled(**changes))
    assert caught.value.session == 3
    assert caught.value.reason == ("too large" if "over the limit" in said else "nonsense")


def with_branch(**changes: Any) -> pb.Request:
    """Two branches, the second of a good round's tree, but for `changes` to it and to the whole."""
    version, more = changes.pop("version", 1), changes.pop("more", 0)
    tree = spoiled(**{name: changes[name] for name in changes.keys() - {"end", "bonus"}})
    second = pb.Branch(end=changes.get("end", 2), bonus=changes.get("bonus", 8), draw=tree.draw)
    second.tokens.extend(tree.tokens)
    second.parents.extend(tree.parents)
    second.drawn.CopyFrom(tree.drawn)
    others = [pb.Branch(end=0, bonus=bonus) for bonus in range(8, 9 + more)]
    return pb.Request(session=3, ahead=pb.Ahead(number=1, version=version, branches=[*others, second]))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 0}, "begin with 1"),
        ({"more": 3}, "5 branches sent ahead is over the limit of 4"),
        ({"end": 0}, "two branches are for the same outcome"),
        ({"end": 33}, "no path ends at node 33: a round has at most 32"),
        ({"bonus": 50_000}, "must be below 50000, not 50000"),
        *SPOILED,
    ],
)
def test_a_spoiled_branch_is_refused_by_what_is_wrong_with_it(changes: dict[str, Any], said: str) -> None:
    """The tree of a branch by whatever a round's is refused."""
    with pytest.raises(WireError, match=said) as caught:
        read_request(with_branch(**changes).SerializeToString(), SERVED)
    assert caught.value.session == 3
    assert caught.value.reason == ("too large" if "over the limit" in said else "nonsense")


def test_the_branches_that_are_spoiled_above_are_good() -> None:
    asked = read_request(with_branch(more=2).SerializeToString(), SERVED)
    assert isinstance(asked, Ahead)
    assert len(asked.branches) == SERVED.max_ahead
    assert asked.branches[-1].proposal == read_round(spoiled())


def test_few_branches_were_drawn() -> None:
    drawn = read_round(spoiled())
    for count in (DRAWN_AHEAD, DRAWN_AHEAD + 1):
        branches = [Branch(0, bonus, drawn) for bonus in range(count)]
        sent = ahead_request(3, 1, 1, [*branches, Branch(1, 1, Proposal((), ()))]).SerializeToString()
        if count > DRAWN_AHEAD:
            with pytest.raises(WireError, match="5 drawn branches sent ahead is over the limit of 4"):
                read_request(sent, replace(SERVED, max_ahead=8))
        else:
            assert read_request(sent, replace(SERVED, max_ahead=8))


def test_a_server_that_takes_nothing_ahead_takes_no_branch() -> None:
    with pytest.raises(WireError, match="1 branches sent ahead is over the limit of 0"):
        read_request(
            ahead_request(3, 1, 1, [Branch(0, 1, Proposal((), ()))]).SerializeToString(),
            replace(SERVED, max_ahead=0),
        )


def test_independent_draws_may_repeat() -> None:
    proposal = read_round(spoiled(draw=pb.IID, tokens=[5, 5, 4]))
    assert proposal.tokens == (5, 5, 4)


@given(proposals(), some.data())
def test_a_round_with_anything_changed_is_good_or_refused(proposal: Proposal, data: some.DataObject) -> None:
    message = round_request(3, 1, proposal).round
    number = some.integers(0, 60) | some.integers(0, 2**32 - 1)
    fields: list[Any] = [message.tokens, message.parents]
    if message.HasField("drawn"):
        fields += [message.drawn.nodes, message.drawn.sizes]
        for name in ("tokens", "weights"):
            setattr(message.drawn, name, changed(getattr(message.drawn, name), data))
    for _ in range(data.draw(some.integers(1, 3))):
        field = data.draw(some.sampled_from(fields))
        at = data.draw(some.integers(0, len(field)))
        kind = data.draw(some.sampled_from(["change", "drop", "add"]))
        if kind == "add" or at == len(field):
            field.insert(at, data.draw(number))
        elif kind == "drop":
            del field[at]
        else:
            field[at] = data.draw(number)
    message.draw = data.draw(some.sampled_from([message.draw, 0, 1, 2]))
    sent = pb.Request(session=3, round=message).SerializeToString()
    read = read_or_refusal(sent)
    assert read
    if isinstance(read, Round):
        assert round_request(3, 1, read.proposal).round == message  # what was taken is what was sent


@given(ways(), some.data())
def test_what_is_sent_ahead_with_anything_changed_is_good_or_refused(
    branches: list[Branch], data: some.DataObject
) -> None:
    """Bytes of it, since the trees' fields are changed one by one above."""
    sent = bytearray(ahead_request(3, 1, 1, branches).SerializeToString())
    for _ in range(data.draw(some.integers(1, 3))):
        sent[data.draw(some.integers(0, len(sent) - 1))] = data.draw(some.integers(0, 255))
    read = read_or_refusal(bytes(sent))
    assert read
    if isinstance(read, Ahead):
        again = ahead_request(read.session, read.number, read.version, read.branches)
        assert read_or_refusal(again.SerializeToString()) == read


@given(some.binary(max_size=200), some.booleans())
def test_any_bytes_are_a_message_or_refused(data: bytes, named: bool) -> None:
    if named:  # a whole message with rubbish behind it
        data = round_request(3, 1, Proposal((1,), (0,))).SerializeToString() + data
    assert read_or_refusal(data)
    with suppress(EndpointError):
        event_of(data, 0.0)


def changed(values: bytes, data: some.DataObject) -> bytes:
    """With another byte, one more or one less; or as they were."""
    at, byte = data.draw(some.integers(0, len(values))), data.draw(some.binary(max_size=1))
    return values[:at] + byte + values[at + data.draw(some.integers(0, 1)) :]


def read_or_refusal(data: bytes) -> ClientRequest | str:
    """What the bytes say, or why they say nothing. Any exception but WireError fails the test."""
    try:
        return read_request(data, SERVED)
    except WireError as error:
        return error.message


def test_a_verdict_a_turn_and_a_refusal_arrive() -> None:
    ruling = SequenceVerdict(11, 4, [1, 3], [8, 9, 10], True, 0.0015, 77)
    verdict = event_of(verdict_response(2, ruling, 0.02).SerializeToString(), 5.0)
    assert verdict == Verdict(2, 4, [1, 3], [8, 9, 10], True, 0.0015, 0.02, 77, 5.0)
    assert event_of(verdict_response(2, ruling, 0.02, 3).SerializeToString(), 5.0) == replace(
        verdict, version=3
    )
    turn = ClientTurn(2, 5, [1, 2], False)
    assert event_of(turn_response(turn).SerializeToString(), 5.0) == turn
    for reason in ("nonsense", "too large", "busy", "unknown", "draining", "failed"):
        refused = SessionRefused(2, reason, "because", 0.25)  # type: ignore[arg-type]
        assert event_of(refusal_response(refused).SerializeToString(), 5.0) == refused
    later = pb.Response(session=2, refusal=pb.Refusal(reason=99))  # type: ignore[arg-type]
    assert event_of(later.SerializeToString(), 5.0) == SessionRefused(2, "failed", "", 0.0)
    with pytest.raises(EndpointError, match="unknown kind"):
        event_of(b"", 5.0)


def test_what_is_served_is_told_whole_and_revisions_before_the_first_are_not_spoken() -> None:
    said = description_of(SERVED)
    assert limits_of(said) == SERVED
    said.ClearField("max_ahead")  # none is taken
    assert limits_of(said) == replace(SERVED, max_ahead=0)
    said.revision = 0
    with pytest.raises(EndpointError, match="revision 0"):
        limits_of(said)


def test_the_digest_of_a_tokenizer_is_of_its_tokens_and_their_numbers() -> None:
    class Some:
        def __init__(self, **vocabulary: int) -> None:
            self.get_vocab = lambda: vocabulary

    assert tokenizer_digest(Some(a=0, b=1)) == tokenizer_digest(Some(b=1, a=0))
    different = (Some(a=0, b=1), Some(a=1, b=0), Some(a=0), Some(ab=0))
    assert len({tokenizer_digest(each) for each in different}) == 4
