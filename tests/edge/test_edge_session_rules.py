"""Single rules of the service's table; that they work together, in any order, is in test_edge_sessions.py."""

from __future__ import annotations

from specops.edge.asked import Mode, Open, Round
from specops.edge.link import Refused, Turn
from specops.edge.messages import Begin, End, Held, Ruling, SetMode, Stepped
from specops.edge.proposal import Proposal
from specops.edge.session import Effects, Limits
from specops.edge.sessions import Sessions
from specops.engine.request import Sampling

GREEDY = Sampling(max_tokens=12)
RESUME_S = 100.0
LIMITS = Limits(sessions=6, per_client=5, resume_s=RESUME_S)


def opened(*, server_drafts: bool, sessions: int = 1) -> Sessions:
    """Stream 0 with that many sessions under way, whose prompts were read."""
    table = Sessions(LIMITS)
    table.connected(0, "ann", "ann")
    for number in range(sessions):
        table.asked(0, Open(number, bytes([number]) * 16, [1], GREEDY, 0, server_drafts), 0.0)
    table.stepped(stepped(*(Ruling(key, 0, [], [key], False, 0, 0) for key in range(sessions))), 1.0)
    return table


def stepped(*said: Ruling | Held) -> Stepped:
    rulings = [each for each in said if isinstance(each, Ruling)]
    return Stepped(0, 0.001, rulings, [each for each in said if isinstance(each, Held)], 0, 0, 0.0)


def test_what_the_server_drafts_for_waits_while_its_client_is_away_and_is_told_so_once() -> None:
    table = opened(server_drafts=True)
    assert table.asked(0, Mode(0, False), 2.0).commands == [SetMode(0, False)]
    assert table.gone(0, 3.0).commands == []
    table = opened(server_drafts=True)
    assert table.gone(0, 3.0).commands == [SetMode(0, False)]


def test_a_session_that_is_taken_over_while_the_server_drafts_gets_its_turn_between() -> None:
    table = opened(server_drafts=True)
    table.connected(1, "ann", "ann")
    again = table.asked(1, Open(5, bytes(16), [], GREEDY, 0, True), 2.0)
    assert (again.commands, again.answers) == ([SetMode(0, False)], [])
    held = table.stepped(stepped(Ruling(0, 1, [], [7], False, 0, 0), Held(0, 2)), 3.0)
    assert held.answers == [(1, Turn(5, 2, [0, 7], False))]  # the first was on its way when the stream broke
    assert held.commands == [SetMode(0, True)]


def test_a_session_is_forgotten_so_long_after_its_stream_and_no_sooner() -> None:
    table = opened(server_drafts=False)
    table.gone(0, 50.0)
    assert table.expire(49.0 + RESUME_S).commands == []
    assert table.expire(50.0 + RESUME_S).commands == [End(0)]
    assert len(table) == 0


def test_the_limits_are_a_clients_and_all_clients() -> None:
    table = opened(server_drafts=False, sessions=LIMITS.per_client)
    (refused,) = table.asked(0, Open(9, b"k" * 16, [1], GREEDY, 0, False), 2.0).answers
    assert isinstance(refused[1], Refused)
    assert (refused[1].reason, "a client has at most 5" in refused[1].message) == ("busy", True)
    table.connected(1, "bob", "bob")
    assert table.asked(1, Open(1, b"l" * 16, [1], GREEDY, 0, False), 2.0).answers == []
    (refused,) = table.asked(1, Open(2, b"m" * 16, [1], GREEDY, 0, False), 2.0).answers
    assert isinstance(refused[1], Refused)
    assert (refused[1].reason, "all 6 sessions" in refused[1].message) == ("busy", True)


def test_turns_that_are_owed_are_not_counted_up_for_ever() -> None:
    table = Sessions(LIMITS)
    table.connected(0, "ann", "ann")
    table.asked(0, Open(1, bytes(16), [1], GREEDY, 0, False), 0.0)
    told = [table.asked(0, Mode(1, False), 1.0) for _ in range(100)]
    refused = [each.answers[0][1] for each in told if each.answers]
    assert [each.reason for each in refused if isinstance(each, Refused)] == ["nonsense"]
    assert [command for each in told for command in each.commands] == [End(0)]


def test_who_lets_its_turn_pass_gives_its_place_to_others_and_may_come_again() -> None:
    table = opened(server_drafts=False, sessions=2)  # ruled on at 1 s
    table.asked(0, Round(1, 1, Proposal((), ())), 2.0)  # of the second, the answer is the server's to give
    assert table.expire(300.0).answers == []
    silent = table.expire(301.0)
    assert silent.commands == [End(0)]
    ((stream, refused),) = silent.answers
    assert isinstance(refused, Refused)
    assert (stream, refused.session, refused.reason) == (0, 0, "unknown")
    assert table.asked(0, Round(0, 1, Proposal((), ())), 302.0) == Effects()  # was on its way
    assert isinstance(table.asked(0, Open(0, bytes(16), [1, 0], GREEDY, 0, False), 303.0).commands[0], Begin)
