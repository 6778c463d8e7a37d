"""What a client asks, read and checked once and in full.

Beyond this point a round is a tree that the engine can verify, and a session one that it can hold. Whatever
is wrong with a message is a WireError with one sentence, never anything else.
"""

from __future__ import annotations

import math
from itertools import count
from operator import lt
from typing import TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from msgspec import Struct

from specops.edge import verification_pb2 as pb
from specops.edge.link import DRAWN_AHEAD, Reason, Served
from specops.edge.proposal import TOKEN, WEIGHT, Branch, Drawn, Proposal
from specops.edge.wire import DRAWS
from specops.engine.cpu.ops import draws_are_sound
from specops.engine.request import LEAST_TEMPERATURE, Sampling
from specops.engine.tree import Draw

KEY = 16  # bytes
MAX_STOPS = 64  # stop token ids of a session

_DRAW_OF = {int(number): draw for draw, number in DRAWS.items()}


class WireError(Exception):
    """A message that cannot be taken; `session` where it names one."""

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


def read_request(data: bytes, served: Served) -> ClientRequest:
    """What a client sent, checked against what is `served`. Raises WireError."""
    try:
        request = pb.Request.FromString(data)
    except DecodeError as error:
        raise WireError("the message is no Request of verification.proto") from error
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
        raise WireError("the message says nothing that this server knows")
    except WireError as error:
        error.session = request.session
        raise


def _open(session: int, said: pb.Open, served: Served) -> Open:
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


def _sampling(said: pb.Sampling, served: Served) -> Sampling:
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


def _ahead(session: int, said: pb.Ahead, served: Served) -> Ahead:
    if said.version < 1:
        raise WireError("the versions of what is sent ahead begin with 1")
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


def _branch(said: pb.Branch, served: Served) -> Branch:
    if said.end > served.max_nodes:
        raise WireError(f"no path ends at node {said.end}: a round has at most {served.max_nodes}")
    if said.bonus >= served.vocabulary:
        raise WireError(f"the token after a path must be below {served.vocabulary}, not {said.bonus}")
    return Branch(said.end, said.bonus, proposal_of(said, served))


def proposal_of(said: pb.Round | pb.Branch, served: Served) -> Proposal:
    """The tree of a round or a branch. Raises WireError where it is none, or not drawn as it says."""
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
        raise WireError(f"a tree cannot be drawn in the way numbered {said.draw}")
    if draw is not Draw.IID and _twice(tokens) and _twice(tuple(zip(parents, tokens, strict=True))):
        raise WireError("a node is followed by the same token twice")
    if draw is not Draw.DETERMINISTIC:
        return Proposal(tokens, parents, draw, _drawn(said.drawn, tokens, parents, served))
    if said.HasField("drawn"):
        raise WireError("a tree that was not drawn has no distributions")
    return Proposal(tokens, parents, draw)


def _twice(things: tuple[object, ...]) -> bool:
    return len(set(things)) < len(things)


def _drawn(said: pb.Drawn, tokens: tuple[int, ...], parents: tuple[int, ...], served: Served) -> Drawn:
    drawn = Drawn(tuple(said.nodes[:]), tuple(said.sizes[:]), said.tokens, said.weights)
    if not draws_are_sound(
        *(drawn.nodes, drawn.sizes, drawn.tokens, drawn.weights, tokens, parents),
        vocabulary=served.vocabulary,
        most=served.max_support,
    ):  # NumPy says what is wrong; of the CPU of a drawn round it would take a fifth
        _check(drawn, tokens, parents, served)
    return drawn


def _check(drawn: Drawn, tokens: tuple[int, ...], parents: tuple[int, ...], served: Served) -> None:
    """What the nodes of a tree, `tokens` after `parents`, were drawn from. Raises WireError of what is not
    sound."""
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


def _check_values(drawn: Drawn, tokens: tuple[int, ...], parents: tuple[int, ...], served: Served) -> None:
    """Of all distributions at once, where there are as many values as their sizes say.

    A token of the n-th distribution is told from the same of another by n in the bits above its own 32.
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
