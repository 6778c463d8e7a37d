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
    acknowledged: int = 0,
    server_drafts: bool = False,
) -> pb.Request:
    """The message that opens a session. Raises UsageError for a sampling that the protocol does not
    support."""
    if sampling.seed is not None and not 0 <= sampling.seed < 2**64:
        raise UsageError(f"a seed must be from 0 to 2**64 - 1 to be sent to a server, not {sampling.seed}")
    settings = pb.Sampling(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=sampling.seed,
        max_tokens=sampling.max_tokens,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
    )
    begun = pb.Open(
        key=key, prompt=prompt, sampling=settings, known=acknowledged, server_drafts=server_drafts
    )
    return pb.Request(session=session, open=begun)


def round_request(session: int, number: int, proposal: Proposal) -> pb.Request:
    message = pb.Round(
        number=number,
        tokens=proposal.tokens,
        parents=proposal.parents,
        draw=DRAWS[proposal.draw],
        drawn=_drawn(proposal.drawn),
    )
    return pb.Request(session=session, round=message)


def ahead_request(session: int, number: int, version: int, branches: Sequence[Branch]) -> pb.Request:
    messages = [
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
    return pb.Request(session=session, ahead=pb.Ahead(number=number, version=version, branches=messages))


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


def verdict_response(session: int, ruling: SequenceVerdict, step_s: float, version: int = 0) -> pb.Response:
    message = pb.Verdict(
        number=ruling.number,
        path=ruling.path,
        tokens=ruling.tokens,
        ended=ruling.ended,
        waited_us=_microseconds(ruling.waited_s),
        step_us=_microseconds(step_s),
        evicted=ruling.evicted,
        taken=version,
    )
    return pb.Response(session=session, verdict=message)


def turn_response(turn: ClientTurn) -> pb.Response:
    message = pb.Turn(number=turn.number, tokens=turn.tokens, ended=turn.ended)
    return pb.Response(session=turn.session, turn=message)


def refusal_response(refused: SessionRefused) -> pb.Response:
    message = pb.Refusal(
        reason=_REASONS[refused.reason],
        message=refused.message,
        retry_ms=math.ceil(refused.retry_s * 1e3),
    )
    return pb.Response(session=refused.session, refusal=message)


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


def description_of(server_limits: ServerLimits) -> pb.Description:
    limits = {name: getattr(server_limits, name) for name in _LIMITS}
    return pb.Description(revision=REVISION, eos=sorted(server_limits.eos), **limits)


def limits_of(description: pb.Description) -> ServerLimits:
    """The properties of a server. Raises EndpointError if the server lacks a part of the protocol that
    this client needs."""
    if description.revision < REVISION:
        raise EndpointError(
            f"could not talk to the server: it speaks revision {description.revision} of the protocol, "
            f"and this client {REVISION}"
        )
    return ServerLimits(
        eos=frozenset(description.eos), **{name: getattr(description, name) for name in _LIMITS}
    )


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
    acknowledged: int
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


def read_request(data: bytes, limits: ServerLimits) -> ClientRequest:
    """The request in a client's message, validated against the server's limits. Raises WireError."""
    try:
        request = pb.Request.FromString(data)
    except DecodeError as error:
        raise WireError("invalid message: expected a Request of verification.proto") from error
    kind = request.WhichOneof("kind")
    try:
        if kind == "round":
            return Round(request.session, request.round.number, proposal_of(request.round, limits))
        if kind == "ahead":
            return _ahead(request.session, request.ahead, limits)
        if kind == "open":
            return _open(request.session, request.open, limits)
        if kind == "mode":
            return Mode(request.session, request.mode.server_drafts)
        if kind == "close":
            return Close(request.session)
        raise WireError("unknown kind of message")
    except WireError as error:
        error.session = request.session
        raise


def _open(session: int, message: pb.Open, limits: ServerLimits) -> Open:
    prompt = list(message.prompt)
    if len(message.key) != KEY:
        raise WireError(f"a session's key has {KEY} bytes, not {len(message.key)}")
    if len(prompt) >= limits.max_length:
        raise WireError(
            f"a prompt of {len(prompt)} tokens leaves no room: a session holds {limits.max_length}",
            "too large",
        )
    if prompt and max(prompt) >= limits.vocabulary:
        raise WireError(f"a prompt's tokens must be below {limits.vocabulary}, not {max(prompt)}")
    return Open(
        session,
        message.key,
        prompt,
        _sampling(message.sampling, limits),
        message.known,
        message.server_drafts,
    )


def _sampling(message: pb.Sampling, limits: ServerLimits) -> Sampling:
    stops = tuple(message.stop_token_ids)
    if not (message.temperature == 0 or LEAST_TEMPERATURE <= message.temperature < math.inf):
        raise WireError(f"a temperature must be 0 or at least {LEAST_TEMPERATURE}, not {message.temperature}")
    if not 0 < message.top_p <= 1:
        raise WireError(f"top_p must be above 0 and at most 1, not {message.top_p}")
    if message.max_tokens < 1:
        raise WireError("max_tokens must be at least 1")
    if len(stops) > MAX_STOPS:
        raise WireError(f"a session has at most {MAX_STOPS} stop tokens, not {len(stops)}", "too large")
    if stops and max(stops) >= limits.vocabulary:
        raise WireError(f"stop tokens must be below {limits.vocabulary}, not {max(stops)}")
    return Sampling(
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p,
        seed=message.seed if message.HasField("seed") else None,
        max_tokens=message.max_tokens,
        stop_token_ids=stops,
        ignore_eos=message.ignore_eos,
    )


def _ahead(session: int, message: pb.Ahead, limits: ServerLimits) -> Ahead:
    if message.version < 1:
        raise WireError("versions of trees sent ahead begin with 1")
    if len(message.branches) > limits.max_ahead:
        raise WireError(
            f"{len(message.branches)} branches sent ahead is over the limit of {limits.max_ahead}",
            "too large",
        )
    drawn = sum(branch.draw != pb.DETERMINISTIC for branch in message.branches)
    if drawn > DRAWN_AHEAD:
        raise WireError(f"{drawn} drawn branches sent ahead is over the limit of {DRAWN_AHEAD}", "too large")
    branches = tuple(_branch(branch, limits) for branch in message.branches)
    if len({(branch.end, branch.bonus) for branch in branches}) < len(branches):
        raise WireError("two branches are for the same outcome")
    return Ahead(session, message.number, message.version, branches)


def _branch(message: pb.Branch, limits: ServerLimits) -> Branch:
    if message.end > limits.max_nodes:
        raise WireError(f"no path ends at node {message.end}: a round has at most {limits.max_nodes}")
    if message.bonus >= limits.vocabulary:
        raise WireError(f"the token after a path must be below {limits.vocabulary}, not {message.bonus}")
    return Branch(message.end, message.bonus, proposal_of(message, limits))


def proposal_of(message: pb.Round | pb.Branch, limits: ServerLimits) -> Proposal:
    """The tree of a round or a branch. Raises WireError for an invalid tree, or one that does not fit its
    distributions."""
    tokens, parents = tuple(message.tokens[:]), tuple(message.parents[:])  # the slice is a copy in one go
    if len(tokens) > limits.max_nodes:
        raise WireError(f"a tree of {len(tokens)} nodes is over the limit of {limits.max_nodes}", "too large")
    if len(parents) != len(tokens):
        raise WireError(f"{len(tokens)} nodes cannot have {len(parents)} parents")
    if max(tokens, default=0) >= limits.vocabulary:
        raise WireError(f"a node's token must be below {limits.vocabulary}, not {max(tokens)}")
    if not all(map(lt, parents, count(1))):
        node, parent = next((n, p) for n, p in enumerate(parents, start=1) if p >= n)
        raise WireError(f"node {node} cannot follow node {parent}")
    draw = _DRAW_OF.get(message.draw)
    if draw is None:
        raise WireError(f"unknown draw {message.draw} of a tree")
    if draw is not Draw.IID and _twice(tokens) and _twice(tuple(zip(parents, tokens, strict=True))):
        raise WireError("a node is followed by the same token twice")
    if draw is not Draw.DETERMINISTIC:
        return Proposal(tokens, parents, draw, _read_drawn(message.drawn, tokens, parents, limits))
    if message.HasField("drawn"):
        raise WireError("a tree that was not drawn has no distributions")
    return Proposal(tokens, parents, draw)


def _twice(values: tuple[object, ...]) -> bool:
    return len(set(values)) < len(values)


def _read_drawn(
    message: pb.Drawn, tokens: tuple[int, ...], parents: tuple[int, ...], limits: ServerLimits
) -> DrawDistributions:
    drawn = DrawDistributions(
        tuple(message.nodes[:]), tuple(message.sizes[:]), message.tokens, message.weights
    )
    if not draws_are_sound(
        *(drawn.nodes, drawn.sizes, drawn.tokens, drawn.weights, tokens, parents),
        vocabulary=limits.vocabulary,
        most=limits.max_support,
    ):  # NumPy says what is wrong; of the CPU of a drawn round it would take a fifth
        _check(drawn, tokens, parents, limits)
    return drawn


def _check(
    drawn: DrawDistributions, tokens: tuple[int, ...], parents: tuple[int, ...], limits: ServerLimits
) -> None:
    """Validate the distributions of the nodes `tokens` after `parents`. Raises WireError if they are
    invalid."""
    nodes, sizes = set(drawn.nodes), drawn.sizes
    if len(nodes) < len(drawn.nodes) or nodes != set(parents):
        raise WireError("a drawn tree has one distribution for every node that others follow")
    if len(sizes) != len(nodes):
        raise WireError(f"{len(nodes)} distributions cannot have {len(sizes)} sizes")
    if max(sizes, default=0) > limits.max_support:
        raise WireError(
            f"a distribution over {max(sizes)} tokens is over the limit of {limits.max_support}", "too large"
        )
    if 0 in sizes:
        raise WireError(f"the distribution of node {drawn.nodes[sizes.index(0)]} is over no tokens")
    total = sum(sizes)
    for values_name, values, kind in (("tokens", drawn.tokens, TOKEN), ("weights", drawn.weights, WEIGHT)):
        if len(values) != total * kind.itemsize:
            raise WireError(f"{total} {values_name} take {total * kind.itemsize} bytes, not {len(values)}")
    if total:
        _check_values(drawn, tokens, parents, limits)


def _check_values(
    drawn: DrawDistributions, tokens: tuple[int, ...], parents: tuple[int, ...], limits: ServerLimits
) -> None:
    """Validate all distributions at once, if there are as many values as their sizes say.

    A token of the n-th distribution is distinguished from the same token of another by n in the bits above
    its own 32.
    """
    support, weights = np.frombuffer(drawn.tokens, TOKEN), np.frombuffer(drawn.weights, WEIGHT)
    if support.max() >= limits.vocabulary:
        raise WireError(f"a distribution's tokens must be below {limits.vocabulary}, not {support.max()}")
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
