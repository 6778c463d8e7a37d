"""Single rules of the service's table; that they work together, in any order, is in test_edge_sessions.py."""

from __future__ import annotations

import pytest

from specops.edge.link import Branch, ClientTurn, Proposal, SessionRefused
from specops.edge.messages import Begin, DraftingStopped, End, Propose, SequenceVerdict, SetMode, StepResults
from specops.edge.sessions import Answer, Effects, Limits, RoundVerdict, Sessions
from specops.edge.wire import Ahead, Mode, Open, Round
from specops.engine.request import Sampling

GREEDY = Sampling(max_tokens=12)
RESUME_S = 100.0
LIMITS = Limits(sessions=6, per_client=5, resume_s=RESUME_S)


def opened(*, server_drafts: bool, sessions: int = 1) -> Sessions:
    """Stream 0 with that many sessions under way, whose prompts were read."""
    table = Sessions(LIMITS)
    table.connected(0, "ann", "ann")
    for number in range(sessions):
        table.request(0, Open(number, bytes([number]) * 16, [1], GREEDY, 0, server_drafts), 0.0)
    table.stepped(stepped(*(SequenceVerdict(key, 0, [], [key], False, 0, 0) for key in range(sessions))), 1.0)
    return table


def stepped(*said: SequenceVerdict | DraftingStopped) -> StepResults:
    rulings = [each for each in said if isinstance(each, SequenceVerdict)]
    return StepResults(
        0, 0.001, rulings, [each for each in said if isinstance(each, DraftingStopped)], 0, 0, 0.0
    )


def test_what_the_server_drafts_for_waits_while_its_client_is_away_and_is_told_so_once() -> None:
    table = opened(server_drafts=True)
    assert table.request(0, Mode(0, False), 2.0).commands == [SetMode(0, False)]
    assert table.gone(0, 3.0).commands == []
    table = opened(server_drafts=True)
    assert table.gone(0, 3.0).commands == [SetMode(0, False)]


def test_a_session_that_is_taken_over_while_the_server_drafts_gets_its_turn_between() -> None:
    table = opened(server_drafts=True)
    table.connected(1, "ann", "ann")
    again = table.request(1, Open(5, bytes(16), [], GREEDY, 0, True), 2.0)
    assert (again.commands, again.answers) == ([SetMode(0, False)], [])
    held = table.stepped(stepped(SequenceVerdict(0, 1, [], [7], False, 0, 0), DraftingStopped(0, 2)), 3.0)
    assert held.answers == [
        (1, ClientTurn(5, 2, [0, 7], False))
    ]  # the first was on its way when the stream broke
    assert held.commands == [SetMode(0, True)]


@pytest.mark.parametrize("server_drafts", [False, True])
def test_a_session_whose_client_vanishes_ends_before_its_prompt_is_read(server_drafts: bool) -> None:
    table = Sessions(LIMITS)
    table.connected(0, "ann", "ann")
    for number in range(LIMITS.per_client):
        table.request(0, Open(number, bytes([number]) * 16, [1], GREEDY, 0, server_drafts), 0.0)
    table.stepped(stepped(SequenceVerdict(2, 0, [], [7], False, 0, 0)), 1.0)  # one was read
    commands = table.gone(0, 2.0).commands
    assert [said.key for said in commands if isinstance(said, End)] == [0, 1, 3, 4]
    assert (len(table), table.parked) == (1, 1)
    assert (
        table.stepped(stepped(SequenceVerdict(0, 0, [], [9], False, 0, 0)), 2.1) == Effects()
    )  # was in the step
    # Their places are free at once, and what takes one up again finds that it is unknown and begins anew.
    table.connected(1, "ann", "ann")
    (refused,) = table.request(1, Open(0, bytes(16), [], GREEDY, 0, False), 2.2).answers
    assert refused == (
        1,
        SessionRefused(0, "unknown", "unknown session: it was never opened here, or has ended", 0.0),
    )
    again = table.request(1, Open(0, bytes(16), [1], GREEDY, 0, False), 2.3)
    assert [type(said) for said in again.commands] == [Begin]
    again = table.request(1, Open(2, bytes([2]) * 16, [], GREEDY, 0, False), 2.4)
    assert [answer for _, answer in again.answers] == (
        [] if server_drafts else [ClientTurn(2, 1, [7], False)]
    )


def test_a_session_is_forgotten_so_long_after_its_stream_and_no_sooner() -> None:
    table = opened(server_drafts=False)
    table.gone(0, 50.0)
    assert table.expire(49.0 + RESUME_S).commands == []
    assert table.expire(50.0 + RESUME_S).commands == [End(0)]
    assert len(table) == 0


def test_the_limits_are_a_clients_and_all_clients() -> None:
    table = opened(server_drafts=False, sessions=LIMITS.per_client)
    (refused,) = table.request(0, Open(9, b"k" * 16, [1], GREEDY, 0, False), 2.0).answers
    assert isinstance(refused[1], SessionRefused)
    assert (refused[1].reason, "a client has at most 5" in refused[1].message) == ("busy", True)
    table.connected(1, "bob", "bob")
    assert table.request(1, Open(1, b"l" * 16, [1], GREEDY, 0, False), 2.0).answers == []
    (refused,) = table.request(1, Open(2, b"m" * 16, [1], GREEDY, 0, False), 2.0).answers
    assert isinstance(refused[1], SessionRefused)
    assert (refused[1].reason, "all 6 sessions" in refused[1].message) == ("busy", True)


def test_turns_that_are_owed_are_not_counted_up_for_ever() -> None:
    table = Sessions(LIMITS)
    table.connected(0, "ann", "ann")
    table.request(0, Open(1, bytes(16), [1], GREEDY, 0, False), 0.0)
    told = [table.request(0, Mode(1, False), 1.0) for _ in range(100)]
    refused = [each.answers[0][1] for each in told if each.answers]
    assert [each.reason for each in refused if isinstance(each, SessionRefused)] == ["nonsense"]
    assert [command for each in told for command in each.commands] == [End(0)]


def test_who_lets_its_turn_pass_gives_its_place_to_others_and_may_come_again() -> None:
    table = opened(server_drafts=False, sessions=2)  # ruled on at 1 s
    table.request(0, Round(1, 1, Proposal((), ())), 2.0)  # of the second, the answer is the server's to give
    assert table.expire(300.0).answers == []
    silent = table.expire(301.0)
    assert silent.commands == [End(0)]
    ((stream, refused),) = silent.answers
    assert isinstance(refused, SessionRefused)
    assert (stream, refused.session, refused.reason) == (0, 0, "unknown")
    assert table.request(0, Round(0, 1, Proposal((), ())), 302.0) == Effects()  # was on its way
    reopened = table.request(0, Open(0, bytes(16), [1, 0], GREEDY, 0, False), 303.0)
    assert isinstance(reopened.commands[0], Begin)


# --- rounds sent ahead ------------------------------------------------------------------------

EMPTY, TREE, OTHER = Proposal((), ()), Proposal((5,), (0,)), Proposal((6,), (0,))


def ahead(number: int, version: int = 1, *, of: tuple[int, int] = (2, 8), tree: Proposal = TREE) -> Ahead:
    """A tree for the path that ends at node of[0], with of[1] behind it; and one for the root and 9."""
    return Ahead(0, number, version, (Branch(*of, tree), Branch(0, 9, OTHER)))


def with_round_1_out() -> Sessions:
    table = opened(server_drafts=False)
    table.request(0, Round(0, 1, Proposal((3, 4), (0, 1))), 2.0)
    return table


def ruled(table: Sessions, *, path: tuple[int, ...] = (1, 2), bonus: int = 8, ended: bool = False) -> Effects:
    """Round 1 is; its first node said 3, its second 4."""
    tokens = [(3, 4)[node - 1] for node in path]
    return table.stepped(
        stepped(SequenceVerdict(0, 1, list(path), [*tokens, bonus], ended, 0, evicted=7)), 3.0
    )


def taken_of(effects: Effects) -> list[int]:
    """By each answer that is a verdict."""
    return [answer.version for _, answer in effects.answers if isinstance(answer, RoundVerdict)]


def reason_of(effects: Effects) -> str:
    answers: list[Answer] = [answer for _, answer in effects.answers]
    assert len(answers) == 1
    assert isinstance(answers[0], SessionRefused)
    assert effects.commands == [End(0)]
    return answers[0].reason


@pytest.mark.parametrize(
    ("path", "bonus", "proposal"),
    [((1, 2), 8, TREE), ((), 9, OTHER), ((1, 2), 9, None), ((1,), 8, None), ((), 8, None)],
)
def test_a_round_goes_on_with_what_was_sent_ahead_for_its_outcome(
    path: tuple[int, ...], bonus: int, proposal: Proposal | None
) -> None:
    table = with_round_1_out()
    assert table.request(0, ahead(1), 2.5) == Effects()
    effects = ruled(table, path=path, bonus=bonus)
    if proposal is None:
        assert (effects.commands, taken_of(effects), table.used_ahead) == ([], [0], 0)
        assert table.request(0, Round(0, 2, EMPTY), 4.0).commands == [Propose(0, 2, EMPTY, 4.0)]
        return
    assert (effects.commands, taken_of(effects), table.used_ahead) == ([Propose(0, 2, proposal, 3.0)], [1], 1)
    # It is out like any other: it is ruled on, one ahead of it is taken, and a round beside it is nonsense.
    table.request(0, ahead(2, of=(0, 30)), 3.5)
    again = table.stepped(stepped(SequenceVerdict(0, 2, [], [30], False, 0, 0)), 4.0)
    assert (again.commands, taken_of(again)) == ([Propose(0, 3, TREE, 4.0)], [1])
    assert reason_of(table.request(0, Round(0, 3, EMPTY), 5.0)) == "nonsense"


def test_a_prompt_has_an_outcome_too() -> None:
    table = Sessions(LIMITS)
    table.connected(0, "ann", "ann")
    table.request(0, Open(0, bytes(16), [1], GREEDY, 0, False), 0.0)
    table.request(0, ahead(0, 4, of=(0, 8)), 0.5)
    effects = table.stepped(stepped(SequenceVerdict(0, 0, [], [8], False, 0, 0)), 1.0)
    assert (effects.commands, taken_of(effects)) == ([Propose(0, 1, TREE, 1.0)], [4])


def test_of_versions_the_last_counts_and_counts_whole() -> None:
    table = with_round_1_out()
    table.request(0, ahead(1, 1), 2.1)
    table.request(0, ahead(1, 3, tree=OTHER), 2.2)
    effects = ruled(table)
    assert (effects.commands, taken_of(effects)) == ([Propose(0, 2, OTHER, 3.0)], [3])
    table.request(0, ahead(2, 1, of=(0, 30)), 3.1)  # of another round: versions begin anew
    table.request(0, Ahead(0, 2, 2, ()), 3.2)
    effects = table.stepped(stepped(SequenceVerdict(0, 2, [], [30], False, 0, 0)), 4.0)
    assert (effects.commands, taken_of(effects)) == ([], [0])


@pytest.mark.parametrize("version", [1, 2])
def test_a_version_that_does_not_rise_is_nonsense(version: int) -> None:
    table = with_round_1_out()
    table.request(0, ahead(1, 2), 2.1)
    assert reason_of(table.request(0, ahead(1, version), 2.2)) == "nonsense"


def test_what_its_verdict_has_crossed_means_nothing() -> None:
    table = with_round_1_out()
    ruled(table)
    assert table.request(0, ahead(1), 3.1) == Effects()  # it is the client's turn
    table.request(0, Round(0, 2, EMPTY), 3.2)
    assert table.request(0, ahead(1, 2), 3.3) == Effects()  # and now the next is out
    effects = table.stepped(stepped(SequenceVerdict(0, 2, [], [9], False, 0, 0)), 4.0)
    assert (effects.commands, taken_of(effects)) == ([], [0])
    table = with_round_1_out()
    ruled(table, ended=True)
    assert table.request(0, ahead(1), 3.1) == Effects()


def test_ahead_of_a_round_that_is_not_out_is_nonsense() -> None:
    assert reason_of(with_round_1_out().request(0, ahead(2), 2.5)) == "nonsense"
    assert reason_of(opened(server_drafts=False).request(0, ahead(1), 2.5)) == "nonsense"
    assert reason_of(opened(server_drafts=True).request(0, ahead(2), 2.5)) == "nonsense"


def test_nothing_is_taken_for_a_session_that_has_ended() -> None:
    table = with_round_1_out()
    table.request(0, ahead(1), 2.5)
    effects = ruled(table, ended=True)
    assert (effects.commands, taken_of(effects)) == ([], [0])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_where_the_server_is_to_draft_what_was_sent_ahead_is_dropped(after: bool) -> None:
    """Whether it came before the client changed its mind or after."""
    table = with_round_1_out()
    said = [ahead(1), Mode(0, True)]
    for asked in reversed(said) if after else said:
        assert table.request(0, asked, 2.5) == Effects()
    effects = ruled(table)
    assert (effects.commands, taken_of(effects)) == ([SetMode(0, True)], [0])
    assert table.request(0, ahead(2), 3.5) == Effects()
    assert table.request(0, Mode(0, False), 3.6).commands == [SetMode(0, False)]
    assert table.request(0, ahead(2, of=(0, 30)), 3.7) == Effects()  # it drafts still, and a Turn is owed
    drafted = table.stepped(stepped(SequenceVerdict(0, 2, [], [30], False, 0, 0), DraftingStopped(0, 3)), 4.0)
    assert (drafted.commands, drafted.answers) == ([], [(0, ClientTurn(0, 3, [30], False))])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_where_a_turn_is_owed_what_was_sent_ahead_is_dropped(after: bool) -> None:
    table = with_round_1_out()
    said = [ahead(1), Mode(0, False)]
    for asked in reversed(said) if after else said:
        assert table.request(0, asked, 2.5) == Effects()
    effects = ruled(table)
    assert (effects.commands, effects.answers) == ([], [(0, ClientTurn(0, 2, [3, 4, 8], False))])


def test_what_was_sent_ahead_does_not_outlive_its_stream() -> None:
    """Its round does; on the next stream the client does not know what is out, and asks for its turn."""
    table = with_round_1_out()
    table.request(0, ahead(1), 2.1)
    table.gone(0, 2.2)
    assert ruled(table) == Effects()
    table = with_round_1_out()
    table.request(0, ahead(1), 2.1)
    table.connected(1, "ann", "ann")
    assert table.request(1, Open(5, bytes(16), [], GREEDY, 1, False), 2.2) == Effects()
    assert table.request(0, ahead(1, 2), 2.3) == Effects()  # was on its way there
    effects = ruled(table)
    assert (effects.commands, effects.answers) == ([], [(1, ClientTurn(5, 2, [3, 4, 8], False))])


def test_a_round_taken_ahead_whose_stream_breaks_is_told_by_the_turn() -> None:
    table = with_round_1_out()
    table.request(0, ahead(1), 2.1)
    ruled(table)
    table.gone(0, 3.1)  # with the verdict, perhaps
    table.connected(1, "ann", "ann")
    assert table.request(1, Open(5, bytes(16), [], GREEDY, 1, False), 3.2) == Effects()
    effects = table.stepped(stepped(SequenceVerdict(0, 2, [1], [5, 6], False, 0, 0)), 4.0)
    assert (effects.commands, effects.answers) == ([], [(1, ClientTurn(5, 3, [3, 4, 8, 5, 6], False))])
