"""verification.proto to and from what the rest works with; what a client sends is read in requests.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from specops.edge import verification_pb2 as pb
from specops.edge.link import Event, Reason, Refused, Served, Turn, Verdict
from specops.edge.messages import Ruling
from specops.edge.proposal import Branch, Drawn, Proposal
from specops.engine.request import Sampling
from specops.engine.tree import Draw
from specops.errors import EndpointError, UsageError

REVISION = 1
"""Of the protocol; within v1 later ones only add."""

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


# --- what a client says -----------------------------------------------------------------------


def open_request(
    session: int,
    key: bytes,
    prompt: list[int],
    sampling: Sampling,
    *,
    known: int = 0,
    server_drafts: bool = False,
) -> pb.Request:
    """UsageError where the protocol has no words for `sampling`."""
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


def _drawn(drawn: Drawn) -> pb.Drawn | None:
    """None: without it an empty one is meant."""
    if drawn == Drawn():
        return None
    return pb.Drawn(nodes=drawn.nodes, sizes=drawn.sizes, tokens=drawn.tokens, weights=drawn.weights)


def mode_request(session: int, *, server_drafts: bool) -> pb.Request:
    return pb.Request(session=session, mode=pb.Mode(server_drafts=server_drafts))


def close_request(session: int) -> pb.Request:
    return pb.Request(session=session, close=pb.Close())


# --- what a server says -----------------------------------------------------------------------


def verdict_response(session: int, ruling: Ruling, step_s: float, taken: int = 0) -> pb.Response:
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


def turn_response(turn: Turn) -> pb.Response:
    said = pb.Turn(number=turn.number, tokens=turn.tokens, ended=turn.ended)
    return pb.Response(session=turn.session, turn=said)


def refusal_response(refused: Refused) -> pb.Response:
    said = pb.Refusal(
        reason=_REASONS[refused.reason],
        message=refused.message,
        retry_ms=math.ceil(refused.retry_s * 1e3),
    )
    return pb.Response(session=refused.session, refusal=said)


def _microseconds(seconds: float) -> int:
    return min(max(round(seconds * 1e6), 0), 2**32 - 1)


def event_of(data: bytes, received: float) -> Event:
    """What a server sent; `received` by time.perf_counter. EndpointError where it is not of the protocol."""
    try:
        response = pb.Response.FromString(data)
    except DecodeError as error:
        raise EndpointError(
            "could not read what the server sent: no Response of verification.proto"
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
        return Turn(session, turn.number, list(turn.tokens), turn.ended)
    if kind == "refusal":
        refusal = response.refusal
        reason = _REASON_OF.get(refusal.reason, "failed")  # a later revision's: whatever it is, it is over
        return Refused(session, reason, refusal.message, refusal.retry_ms / 1e3)
    raise EndpointError("could not read what the server sent: a Response of no kind that is known here")


def description_of(served: Served) -> pb.Description:
    return pb.Description(
        revision=REVISION,
        model=served.model,
        vocabulary=served.vocabulary,
        tokenizer=served.tokenizer,
        eos=sorted(served.eos),
        max_length=served.max_length,
        max_nodes=served.max_nodes,
        max_support=served.max_support,
        max_sessions=served.max_sessions,
        resume_s=served.resume_s,
        own_tree=served.own_tree,
        max_ahead=served.max_ahead,
    )


def served_of(said: pb.Description) -> Served:
    """EndpointError where what this client needs of the protocol is not spoken there."""
    if said.revision < REVISION:
        raise EndpointError(
            f"could not talk to the server: it speaks revision {said.revision} of the protocol, "
            f"and this client {REVISION}"
        )
    return Served(
        model=said.model,
        vocabulary=said.vocabulary,
        tokenizer=said.tokenizer,
        eos=frozenset(said.eos),
        max_length=said.max_length,
        max_nodes=said.max_nodes,
        max_support=said.max_support,
        max_sessions=said.max_sessions,
        resume_s=said.resume_s,
        own_tree=said.own_tree,
        max_ahead=said.max_ahead,
    )
