"""Records of a visit: one arm, one number of clients, one block of prompts. As it is stored."""

from __future__ import annotations

from itertools import pairwise

from pydantic import BaseModel

from specops.section import Frozen


class Answer(Frozen):
    """An answer to one prompt, as its client had it. What arrived together was verified together."""

    prompt: str
    client: int
    sent_s: float
    """Since the visit began."""

    chunks: list[tuple[float, int]]
    """Seconds since it was sent, and how many tokens came; the first is of the step that read the prompt."""

    tokens: list[int]
    error: str | None = None

    @property
    def ttft_s(self) -> float | None:
        return self.chunks[0][0] if self.chunks else None

    @property
    def itl_s(self) -> float | None:
        """Mean seconds from one token to the next, after the first chunk; None where that was all."""
        after = self.after_first
        return (self.chunks[-1][0] - self.chunks[0][0]) / after if after else None

    @property
    def after_first(self) -> int:
        """Return the number of tokens after the first chunk."""
        return sum(count for _, count in self.chunks[1:])

    @property
    def verifications(self) -> int:
        """The number of verifications that had a draft to look at, or could have: all but the one that read
        the prompt."""
        return max(len(self.chunks) - 1, 0)

    def gaps(self) -> list[float]:
        """Return for each token after the first chunk the seconds since the token before it. Tokens that came
        together share the time."""
        return [
            (at - before) / count for (before, _), (at, count) in pairwise(self.chunks) for _ in range(count)
        ]


class ClientEffort(Frozen):
    """The work of all clients together. Where the server drafts, most of it is 0."""

    verdicts: int = 0
    waited_s: float = 0.0
    """Rounds, at the server, for their steps; summed."""

    step_s: float = 0.0
    """The steps of all verdicts, summed."""

    rounds: int = 0
    nodes: int = 0
    """Number of nodes that were sent."""

    hits: int = 0
    """Rounds whose next root the draft had run already: ahead, or, seldom, without sending it."""

    taken: int = 0
    """Rounds that had been sent ahead of the verdict before them: the server went on with them at once."""

    misses: int = 0
    """The other rounds."""

    passes: int = 0
    """Number of passes of the draft."""

    run: int = 0
    """Nodes, in all passes."""

    wasted: int = 0
    """Number of these that were run ahead in vain."""

    draft_s: float = 0.0
    """Seconds from a verdict to the next round."""

    network_s: float = 0.0
    """Seconds from a round to its verdict, beside waiting and the step."""

    up_bytes: int = 0
    down_bytes: int = 0

    @property
    def drafts(self) -> bool:
        return self.nodes > 0


class ServerEffort(Frozen):
    """The work of the server meanwhile."""

    steps: int
    rounds: int
    """Sequences in all of them."""

    busy_s: float
    starved_s: float
    """Seconds with sessions, but none whose round had come."""

    empty_s: float


class Lateness(Frozen):
    """The number of passes with declared times that computed longer than declared."""

    passes: int = 0
    late: int = 0
    over_s: float = 0.0
    declared_s: float = 0.0


class VisitRecord(Frozen):
    arm: str
    clients: int
    block: int
    order: int
    """Its place among the arms that were given this block."""

    seconds: float
    """Seconds from the first prompt that was sent to the last answer's end."""

    answers: list[Answer]
    server: ServerEffort
    effort: ClientEffort
    target_pace: Lateness | None
    draft_pace: Lateness | None

    @property
    def tokens(self) -> int:
        return sum(len(answer.tokens) for answer in self.answers)

    @property
    def failed(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.error is not None]


class Visits(BaseModel):
    """The part of `data` in a result that holds what was measured."""

    visits: tuple[VisitRecord, ...]
