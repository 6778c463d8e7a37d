"""verification.proto as plain data: encoding and decoding the messages of clients and servers.

A client's messages are validated strictly, once and in full (`read_request`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from itertools import count
from operator import lt
from typing import TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from msgspec import Struct

from specops.edge import verification_pb2 as pb
from specops.edge.link import (
    DRAWN_AHEAD,
    TOKEN,
    WEIGHT,
    Branch,
    ClientTurn,
    DrawDistributions,
    Event,
    Proposal,
    Reason,
    ServerLimits,
    SessionRefused,
    Verdict,
)
from specops.edge.messages import SequenceVerdict
from specops.engine.cpu.ops import draws_are_sound
from specops.engine.request import LEAST_TEMPERATURE, Sampling
from specops.engine.tree import Draw
from specops.errors import EndpointError, UsageError

REVISION = 1
"""Revision of the protocol; within v1 later revisions only add."""

SERVICE = "specops.edge.v1.Verification"

DRAWS = {
    Draw.DETERMINISTIC: pb.DETERMINISTIC,
    Draw.WITHOUT_REPLACEMENT: pb.WITHOUT_REPLACEMENT,
    Draw.IID: pb.IID,
}
_REASONS: dict[Reason, pb.Refusal.Reason] = {
    "nonsense": pb.Refusal.NONSENSE,
    "too large": pb.Refusal.TOO_LARGE,
    "busy": pb.Refusal.BUSY,
    "unknown": pb.Refusal.UNKNOWN,
    "draining": pb.Refusal.DRAINING,
    "failed": pb.Refusal.FAILED,
}
_REASON_OF = {int(number): reason for reason, number in _REASONS.items()}


# --- messages of a client ---------------------------------------------------------------------


def open_request(
    session: int,
    key: bytes,
    prompt: list[int],
    sampling: Sampling,
    *,
    known: int = 0,
    server_drafts: bool = False,
) -> pb.Request:
    """The message that opens a session. Raises UsageError for a sampling that the protocol does not
    support."""
    if sampling.seed is not None and not 0 <= sampling.seed < 2**64:
        raise UsageError(f"a seed must be from 0 to 2**64 - 1 to be sent to a server, not {sampling.seed}")
    said = pb.Sampling(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=sampling.seed,
        max_tokens=sampling.max_tokens,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
    )
    begun = pb.Open(key=key, prompt=prompt, sampling=said, known=known, server_drafts=server_drafts)
    return pb.Request(session=session, open=begun)


def round_request(session: int, number: int, proposal: Proposal) -> pb.Request:
    said = pb.Round(
        number=number,
        tokens=proposal.tokens,
        parents=proposal.parents,
        draw=DRAWS[proposal.draw],
        drawn=_drawn(proposal.drawn),
    )
    return pb.Request(session=session, round=said)


def ahead_request(session: int, number: int, version: int, branches: Sequence[Branch]) -> pb.Request:
    said = [
        pb.Branch(
            end=branch.end,
            bonus=branch.bonus,
            tokens=branch.proposal.tokens,
            parents=branch.proposal.parents,
            draw=DRAWS[branch.proposal.draw],
            drawn=_drawn(branch.proposal.drawn),
        )
        for branch in branches
    ]
    return pb.Request(session=session, ahead=pb.Ahead(number=number, version=version, branches=said))


def _drawn(drawn: DrawDistributions) -> pb.Drawn | None:
    """The distributions as a message; None for empty ones, which is the protocol's default."""
    if drawn == DrawDistributions():
        return None
    return pb.Drawn(nodes=drawn.nodes, sizes=drawn.sizes, tokens=drawn.tokens, weights=drawn.weights)


def mode_request(session: int, *, server_drafts: bool) -> pb.Request:
    return pb.Request(session=session, mode=pb.Mode(server_drafts=server_drafts))


def close_request(session: int) -> pb.Request:
    return pb.Request(session=session, close=pb.Close())


# --- messages of a server ---------------------------------------------------------------------


def verdict_response(session: int, ruling: SequenceVerdict, step_s: float, taken: int = 0) -> pb.Response:
    said = pb.Verdict(
        number=ruling.number,
        path=ruling.path,
        tokens=ruling.tokens,
        ended=ruling.ended,
        waited_us=_microseconds(ruling.waited_s),
        step_us=_microseconds(step_s),
        evicted=ruling.evicted,
        taken=taken,
    )
    return pb.Response(session=session, verdict=said)


def turn_response(turn: ClientTurn) -> pb.Response:
    said = pb.Turn(number=turn.number, tokens=turn.tokens, ended=turn.ended)
    return pb.Response(session=turn.session, turn=said)


def refusal_response(refused: SessionRefused) -> pb.Response:
    said = pb.Refusal(
        reason=_REASONS[refused.reason],
        message=refused.message,
        retry_ms=math.ceil(refused.retry_s * 1e3),
    )
    return pb.Response(session=refused.session, refusal=said)


def _microseconds(seconds: float) -> int:
    return min(max(round(seconds * 1e6), 0), 2**32 - 1)


def event_of(data: bytes, received: float) -> Event:
    """The event in a server's message. received: from time.perf_counter, in seconds. Raises EndpointError
    for a message that is not of the protocol."""
    try:
        response = pb.Response.FromString(data)
    except DecodeError as error:
        raise EndpointError(
            "invalid message from the server: expected a Response of verification.proto"
        ) from error
    session, kind = response.session, response.WhichOneof("kind")
    if kind == "verdict":
        verdict = response.verdict
        return Verdict(
            session,
            verdict.number,
            list(verdict.path),
            list(verdict.tokens),
            verdict.ended,
            verdict.waited_us / 1e6,
            verdict.step_us / 1e6,
            verdict.evicted,
            received,
            verdict.taken,
        )
    if kind == "turn":
        turn = response.turn
        return ClientTurn(session, turn.number, list(turn.tokens), turn.ended)
    if kind == "refusal":
        refusal = response.refusal
        reason = _REASON_OF.get(refusal.reason, "failed")  # a later revision's: whatever it is, it is over
        return SessionRefused(session, reason, refusal.message, refusal.retry_ms / 1e3)
    raise EndpointError("invalid message from the server: unknown kind of Response")


_LIMITS = [limit.name for limit in fields(ServerLimits) if limit.name != "eos"]
"""Fields that Description has under the same names."""


def description_of(served: ServerLimits) -> pb.Description:
    limits = {name: getattr(served, name) for name in _LIMITS}
    return pb.Description(revision=REVISION, eos=sorted(served.eos), **limits)


def served_of(said: pb.Description) -> ServerLimits:
    """The properties of a server. Raises EndpointError if the server lacks a part of the protocol that
    this client needs."""
    if said.revision < REVISION:
        raise EndpointError(
            f"could not talk to the server: it speaks revision {said.revision} of the protocol, "
            f"and this client {REVISION}"
        )
    return ServerLimits(eos=frozenset(said.eos), **{name: getattr(said, name) for name in _LIMITS})


# --- strict parsing of a client's messages -----------------------------------------------------

KEY = 16  # bytes
MAX_STOPS = 64  # stop token ids of a session

_DRAW_OF = {int(number): draw for draw, number in DRAWS.items()}


class WireError(Exception):
    """An invalid message; `session` is its session, if it names one."""

    def __init__(self, message: str, reason: Reason = "nonsense", session: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.session = session


class Open(Struct, frozen=True):
    session: int  # the client's number for it
    key: bytes
    prompt: list[int]
    sampling: Sampling
    known: int
    server_drafts: bool


class Round(Struct, frozen=True):
    session: int
    number: int
    proposal: Proposal


class Ahead(Struct, frozen=True):
    session: int
    number: int  # of the round that is out
    version: int
    branches: tuple[Branch, ...]  # each for another outcome


class Mode(Struct, frozen=True):
    session: int
    server_drafts: bool


class Close(Struct, frozen=True):
    session: int


ClientRequest: TypeAlias = Open | Round | Ahead | Mode | Close


def read_request(data: bytes, served: ServerLimits) -> ClientRequest:
    """The request in a client's message, validated against what is `served`. Raises WireError."""
    try:
        request = pb.Request.FromString(data)
    except DecodeError as error:
        raise WireError("invalid message: expected a Request of verification.proto") from error
    kind = request.WhichOneof("kind")
    try:
        if kind == "round":
            return Round(request.session, request.round.number, proposal_of(request.round, served))
        if kind == "ahead":
            return _ahead(request.session, request.ahead, served)
        if kind == "open":
            return _open(request.session, request.open, served)
        if kind == "mode":
            return Mode(request.session, request.mode.server_drafts)
        if kind == "close":
            return Close(request.session)
        raise WireError("unknown kind of message")
    except WireError as error:
        error.session = request.session
        raise


def _open(session: int, said: pb.Open, served: ServerLimits) -> Open:
    prompt = list(said.prompt)
    if len(said.key) != KEY:
        raise WireError(f"a session's key has {KEY} bytes, not {len(said.key)}")
    if len(prompt) >= served.max_length:
        raise WireError(
            f"a prompt of {len(prompt)} tokens leaves no room: a session holds {served.max_length}",
            "too large",
        )
    if prompt and max(prompt) >= served.vocabulary:
        raise WireError(f"a prompt's tokens must be below {served.vocabulary}, not {max(prompt)}")
    return Open(session, said.key, prompt, _sampling(said.sampling, served), said.known, said.server_drafts)


def _sampling(said: pb.Sampling, served: ServerLimits) -> Sampling:
    stops = tuple(said.stop_token_ids)
    if not (said.temperature == 0 or LEAST_TEMPERATURE <= said.temperature < math.inf):
        raise WireError(f"a temperature must be 0 or at least {LEAST_TEMPERATURE}, not {said.temperature}")
    if not 0 < said.top_p <= 1:
        raise WireError(f"top_p must be above 0 and at most 1, not {said.top_p}")
    if said.max_tokens < 1:
        raise WireError("max_tokens must be at least 1")
    if len(stops) > MAX_STOPS:
        raise WireError(f"a session has at most {MAX_STOPS} stop tokens, not {len(stops)}", "too large")
    if stops and max(stops) >= served.vocabulary:
        raise WireError(f"stop tokens must be below {served.vocabulary}, not {max(stops)}")
    return Sampling(
        temperature=said.temperature,
        top_k=said.top_k,
        top_p=said.top_p,
        seed=said.seed if said.HasField("seed") else None,
        max_tokens=said.max_tokens,
        stop_token_ids=stops,
        ignore_eos=said.ignore_eos,
    )


def _ahead(session: int, said: pb.Ahead, served: ServerLimits) -> Ahead:
    if said.version < 1:
        raise WireError("versions of trees sent ahead begin with 1")
    if len(said.branches) > served.max_ahead:
        raise WireError(
            f"{len(said.branches)} branches sent ahead is over the limit of {served.max_ahead}", "too large"
        )
    drawn = sum(each.draw != pb.DETERMINISTIC for each in said.branches)
    if drawn > DRAWN_AHEAD:
        raise WireError(f"{drawn} drawn branches sent ahead is over the limit of {DRAWN_AHEAD}", "too large")
    branches = tuple(_branch(each, served) for each in said.branches)
    if len({(each.end, each.bonus) for each in branches}) < len(branches):
        raise WireError("two branches are for the same outcome")
    return Ahead(session, said.number, said.version, branches)


def _branch(said: pb.Branch, served: ServerLimits) -> Branch:
    if said.end > served.max_nodes:
        raise WireError(f"no path ends at node {said.end}: a round has at most {served.max_nodes}")
    if said.bonus >= served.vocabulary:
        raise WireError(f"the token after a path must be below {served.vocabulary}, not {said.bonus}")
    return Branch(said.end, said.bonus, proposal_of(said, served))


def proposal_of(said: pb.Round | pb.Branch, served: ServerLimits) -> Proposal:
    """The tree of a round or a branch. Raises WireError for an invalid tree, or one that does not fit its
    distributions."""
    tokens, parents = tuple(said.tokens[:]), tuple(said.parents[:])  # the slice is a copy in one go
    if len(tokens) > served.max_nodes:
        raise WireError(f"a tree of {len(tokens)} nodes is over the limit of {served.max_nodes}", "too large")
    if len(parents) != len(tokens):
        raise WireError(f"{len(tokens)} nodes cannot have {len(parents)} parents")
    if max(tokens, default=0) >= served.vocabulary:
        raise WireError(f"a node's token must be below {served.vocabulary}, not {max(tokens)}")
    if not all(map(lt, parents, count(1))):
        node, parent = next((n, p) for n, p in enumerate(parents, start=1) if p >= n)
        raise WireError(f"node {node} cannot follow node {parent}")
    draw = _DRAW_OF.get(said.draw)
    if draw is None:
        raise WireError(f"unknown draw {said.draw} of a tree")
    if draw is not Draw.IID and _twice(tokens) and _twice(tuple(zip(parents, tokens, strict=True))):
        raise WireError("a node is followed by the same token twice")
    if draw is not Draw.DETERMINISTIC:
        return Proposal(tokens, parents, draw, _read_drawn(said.drawn, tokens, parents, served))
    if said.HasField("drawn"):
        raise WireError("a tree that was not drawn has no distributions")
    return Proposal(tokens, parents, draw)


def _twice(things: tuple[object, ...]) -> bool:
    return len(set(things)) < len(things)


def _read_drawn(
    said: pb.Drawn, tokens: tuple[int, ...], parents: tuple[int, ...], served: ServerLimits
) -> DrawDistributions:
    drawn = DrawDistributions(tuple(said.nodes[:]), tuple(said.sizes[:]), said.tokens, said.weights)
    if not draws_are_sound(
        *(drawn.nodes, drawn.sizes, drawn.tokens, drawn.weights, tokens, parents),
        vocabulary=served.vocabulary,
        most=served.max_support,
    ):  # NumPy says what is wrong; of the CPU of a drawn round it would take a fifth
        _check(drawn, tokens, parents, served)
    return drawn


def _check(
    drawn: DrawDistributions, tokens: tuple[int, ...], parents: tuple[int, ...], served: ServerLimits
) -> None:
    """Validate the distributions of the nodes `tokens` after `parents`. Raises WireError if they are
    invalid."""
    nodes, sizes = set(drawn.nodes), drawn.sizes
    if len(nodes) < len(drawn.nodes) or nodes != set(parents):
        raise WireError("a drawn tree has one distribution for every node that others follow")
    if len(sizes) != len(nodes):
        raise WireError(f"{len(nodes)} distributions cannot have {len(sizes)} sizes")
    if max(sizes, default=0) > served.max_support:
        raise WireError(
            f"a distribution over {max(sizes)} tokens is over the limit of {served.max_support}", "too large"
        )
    if 0 in sizes:
        raise WireError(f"the distribution of node {drawn.nodes[sizes.index(0)]} is over no tokens")
    total = sum(sizes)
    for what, values, kind in (("tokens", drawn.tokens, TOKEN), ("weights", drawn.weights, WEIGHT)):
        if len(values) != total * kind.itemsize:
            raise WireError(f"{total} {what} take {total * kind.itemsize} bytes, not {len(values)}")
    if total:
        _check_values(drawn, tokens, parents, served)


def _check_values(
    drawn: DrawDistributions, tokens: tuple[int, ...], parents: tuple[int, ...], served: ServerLimits
) -> None:
    """Validate all distributions at once, if there are as many values as their sizes say.

    A token of the n-th distribution is distinguished from the same token of another by n in the bits above
    its own 32.
    """
    support, weights = np.frombuffer(drawn.tokens, TOKEN), np.frombuffer(drawn.weights, WEIGHT)
    if support.max() >= served.vocabulary:
        raise WireError(f"a distribution's tokens must be below {served.vocabulary}, not {support.max()}")
    if not weights.all():
        raise WireError("weights must be at least 1")
    own = np.arange(0, len(drawn.nodes) << 32, 1 << 32)
    drawable = own.repeat(drawn.sizes) | support
    descends = drawable[1:] <= drawable[:-1]
    if descends.any():
        node = drawn.nodes[drawable[descends.argmax()] >> 32]
        raise WireError(f"the tokens of node {node}'s distribution do not ascend")
    own_of = dict(zip(drawn.nodes, own.tolist(), strict=True))
    children = np.array([own_of[node] | token for node, token in zip(parents, tokens, strict=True)])
    missing = drawable.take(drawable.searchsorted(children), mode="clip") != children
    if missing.any():
        node = parents[missing.argmax()]
        raise WireError(f"a token after node {node} cannot have been drawn: its weight is 0")
