"""Outcomes of rounds: how much of a tree is accepted, and whether drafting ahead continues from there.

Rounds may be draws from a table: the share of trees with L levels that had k nodes accepted, and the share of
those that continued by what pass 1, 2, … ahead had run. Or a stream walks a real text, of which the outcome
of a tree with L levels is known at each token. Easy tokens occur together in a text, so that a tree drafted
ahead and hit is accepted further than a draw would say.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Protocol

from specops.edge.simulation.setting import Heads
from specops.errors import FileError, UsageError
from specops.hints import with_options

ROUNDS_SCHEMA = 1
MEASURE = "specops edge simulate --save-rounds rounds.json  # measures them"
GUESSING: tuple[Heads, ...] = ("one", "many")
Shares = tuple[float, ...]


@dataclass(frozen=True)
class RoundOutcome:
    """Outcome of one round, which the client does not know yet."""

    accepted: int
    run_by: int | None
    """Number of the pass ahead, from 1, that runs the node by which the server continues; None: no pass
    would."""

    def retained(self, ahead: int) -> int:
        """Number of levels below the new root after `ahead` passes: the pass that ran it gave its
        children."""
        return 0 if self.run_by is None or ahead < self.run_by else ahead - self.run_by + 1


@dataclass(frozen=True)
class Text:
    """Outcomes of trees from each token of a text that the target wrote."""

    accepted: tuple[tuple[int, ...], ...]
    """[L - 1][place]: number of accepted nodes of a tree with L levels, rooted there."""

    run_by: Mapping[Heads, tuple[tuple[int, ...], ...]]
    """[L - 1][place]: number of the pass ahead that runs the node by which the text continues; 0: none."""

    @property
    def roots(self) -> int:
        return len(self.accepted[0])

    def fate(self, levels: int, place: int, heads: Heads) -> RoundOutcome:
        run_by = 0 if heads == "none" else self.run_by[heads][levels - 1][place]
        return RoundOutcome(self.accepted[levels - 1][place], run_by or None)


class Stream(Protocol):
    """The outcomes of one client's rounds."""

    def begin(self) -> None:
        """Begin another request."""

    def fate(self, levels: int, heads: Heads) -> RoundOutcome: ...

    def go_on(self, tokens: int) -> None: ...


@dataclass(frozen=True)
class Rounds:
    accepted: tuple[Shares, ...]
    """[L - 1][k]: share of trees with L levels of which k nodes were accepted."""

    hits_by_pass: Mapping[Heads, tuple[tuple[Shares, ...], ...]]
    """[L - 1][k][p - 1]: share of those that continue by what pass p ahead runs."""

    source: str
    """Description of the source, for output."""

    texts: tuple[Text, ...] = ()
    """Texts that streams walk, if there are any; the shares are then theirs."""

    def __post_init__(self) -> None:
        for levels, shares in enumerate(self.accepted, start=1):
            if len(shares) != levels + 1 or abs(sum(shares) - 1) > 1e-6 or min(shares) < 0:
                raise UsageError(
                    f"shares of accepted nodes of trees of {levels} levels are {levels + 1}, add up to 1 and"
                    f" are not negative: {shares}; measure the rounds again",
                    hint=MEASURE,
                )
        for heads, table in self.hits_by_pass.items():
            for by_k in table:
                if any(min(shares, default=0) < 0 or sum(shares) > 1 + 1e-6 for shares in by_k):
                    raise UsageError(
                        f"invalid shares of rounds that continued with {heads} heads: more than 1 in all; "
                        "measure the rounds again",
                        hint=MEASURE,
                    )

    @property
    def levels(self) -> int:
        """Largest number of levels of a tree."""
        return len(self.accepted)

    def tokens(self, levels: int) -> float:
        """Expected tokens of a verification, the bonus included; 1 for a bare root."""
        if levels == 0:
            return 1.0
        shares = self.accepted[min(levels, self.levels) - 1]
        return 1.0 + sum(k * share for k, share in enumerate(shares))

    def reached(self, levels: int) -> float:
        """Probability that a node of the last level is accepted, from which another pass would branch."""
        return self.accepted[levels - 1][-1] if levels else 1.0

    def promised(self, levels: int) -> float:
        """Expected tokens that the passes of a tree with `levels` levels promised by the nodes that they
        ran: more than are accepted, which a client learns."""
        return sum(self.reached(level) for level in range(min(levels, self.levels)))

    def hit_share(self, heads: Heads, levels: int, ahead: int) -> float:
        """Share of hits among rounds with `ahead` passes drafted while they were away."""
        levels = min(levels, self.levels)
        if heads == "none" or levels == 0:
            return 0.0
        by_accepted = self.hits_by_pass[heads][levels - 1]
        return sum(share * sum(by_accepted[k][:ahead]) for k, share in enumerate(self.accepted[levels - 1]))

    def stream(self, chance: random.Random) -> Stream:
        return _Walked(self.texts, chance) if self.texts else _Drawn(self, chance)

    def draw(self, chance: random.Random, levels: int, heads: Heads) -> RoundOutcome:
        if levels == 0:
            return RoundOutcome(0, None)
        levels = min(levels, self.levels)
        cumulated = self._cumulated[levels - 1]
        accepted = min(bisect_right(cumulated, chance.random() * cumulated[-1]), levels)
        if heads == "none":
            return RoundOutcome(accepted, None)
        cumulated_hits = tuple(accumulate(self.hits_by_pass[heads][levels - 1][accepted]))
        run_by = bisect_right(cumulated_hits, chance.random()) + 1
        return RoundOutcome(accepted, run_by if run_by <= len(cumulated_hits) else None)

    @cached_property
    def _cumulated(self) -> tuple[Shares, ...]:
        return tuple(tuple(accumulate(shares)) for shares in self.accepted)

    def to_json(self) -> dict[str, Any]:
        if self.texts:
            texts: list[dict[str, Any]] = [
                {"accepted": text.accepted, "run_by": dict(text.run_by)} for text in self.texts
            ]
            return {"schema": ROUNDS_SCHEMA, "source": self.source, "texts": texts}
        return {
            "schema": ROUNDS_SCHEMA,
            "source": self.source,
            "accepted": self.accepted,
            "found": dict(self.hits_by_pass),
        }

    @staticmethod
    def of_json(text: str, where: str) -> Rounds:
        """The outcomes in `text`, as `to_json` writes them. Raises a FileError that begins with `where`
        for other text."""
        try:
            read = json.loads(text)
            if read["schema"] != ROUNDS_SCHEMA:
                raise ValueError(f"schema {read['schema']}; this specops reads {ROUNDS_SCHEMA}")
            if "texts" in read:
                return of_texts([_text(text_fields) for text_fields in read["texts"]], str(read["source"]))
            accepted = tuple(tuple(map(float, shares)) for shares in read["accepted"])
            hits_by_pass: dict[Heads, tuple[tuple[Shares, ...], ...]] = {}
            for heads in GUESSING:
                hits_by_pass[heads] = tuple(
                    tuple(tuple(map(float, shares)) for shares in by_k) for by_k in read["found"][heads]
                )
                if [len(by_k) for by_k in hits_by_pass[heads]] != [len(shares) for shares in accepted]:
                    raise ValueError(f"{heads} is not of the trees that were accepted")
            return Rounds(accepted, hits_by_pass, str(read["source"]))
        except (ValueError, TypeError, KeyError, IndexError, UsageError) as error:
            missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise FileError(
                f"invalid rounds in {where}: {missing}",
                hint=MEASURE,
            ) from error


def _text(read: Any) -> Text:
    accepted = tuple(tuple(map(int, row)) for row in read["accepted"])
    run_by: dict[Heads, tuple[tuple[int, ...], ...]] = {
        heads: tuple(tuple(map(int, row)) for row in read["run_by"][heads]) for heads in GUESSING
    }
    for table in (accepted, *run_by.values()):
        if len(table) != len(accepted) or {len(row) for row in table} != {len(accepted[0])}:
            raise ValueError("a text's rows are not all of its roots")
    if any(not 0 <= k <= levels for levels, row in enumerate(accepted, start=1) for k in row):
        raise ValueError("more nodes were accepted than a tree has levels")
    return Text(accepted, run_by)


class _Drawn:
    def __init__(self, rounds: Rounds, chance: random.Random) -> None:
        self._rounds, self._chance = rounds, chance

    def begin(self) -> None: ...

    def fate(self, levels: int, heads: Heads) -> RoundOutcome:
        return self._rounds.draw(self._chance, levels, heads)

    def go_on(self, tokens: int) -> None: ...


class _Walked:
    """A stream that walks one text from its beginning, then another."""

    def __init__(self, texts: Sequence[Text], chance: random.Random) -> None:
        self._texts, self._chance = texts, chance
        self.begin()

    def begin(self) -> None:
        self._text, self._place = self._chance.choice(self._texts), 0

    def fate(self, levels: int, heads: Heads) -> RoundOutcome:
        if levels == 0:
            return RoundOutcome(0, None)
        return self._text.fate(min(levels, len(self._text.accepted)), self._place, heads)

    def go_on(self, tokens: int) -> None:
        self._place += tokens
        if self._place >= self._text.roots:
            self.begin()


def of_texts(texts: Sequence[Text], source: str) -> Rounds:
    """The outcomes of rounds in `texts`. Shares are counted over the roots of rounds of equal depth, each at
    the end of the round before.

    Raises UsageError without a text, or for a text without roots.
    """
    if not texts or not all(text.accepted and text.roots for text in texts):
        raise UsageError(
            "no answer is long enough: expected more than one round", hint=with_options({"--tokens": "128"})
        )
    accepted: list[Shares] = []
    hits_by_pass: dict[Heads, list[tuple[Shares, ...]]] = {heads: [] for heads in GUESSING}
    for levels in range(1, min(len(text.accepted) for text in texts) + 1):
        fates = [
            {heads: text.fate(levels, place, heads) for heads in GUESSING}
            for text in texts
            for place in _walk(text, levels)
        ]
        counts = Counter(fate["one"].accepted for fate in fates)
        accepted.append(tuple(counts[k] / len(fates) for k in range(levels + 1)))
        for heads, tables in hits_by_pass.items():
            by = Counter((fate[heads].accepted, fate[heads].run_by) for fate in fates)
            latest = max((run_by for _, run_by in by if run_by is not None), default=0)
            tables.append(
                tuple(
                    tuple(by[k, run_by] / max(counts[k], 1) for run_by in range(1, latest + 1))
                    for k in range(levels + 1)
                )
            )
    return Rounds(
        tuple(accepted),
        {heads: tuple(tables) for heads, tables in hits_by_pass.items()},
        source,
        tuple(texts),
    )


def _walk(text: Text, levels: int) -> Iterator[int]:
    place = 0
    while place < text.roots:
        yield place
        place += text.accepted[levels - 1][place] + 1


def of_rates(rates: Sequence[float], *, hit: float, hit_many: float, source: str) -> Rounds:
    """The outcomes of rounds by acceptance rates.

    rates[j]: probability that a node of level j + 1 is accepted if the level above was, whatever the depth of
    the tree; one entry for each level. hit, hit_many: share of rounds that continue by the one head, or by
    one of the cache's heads, wherever they end. A head below a leaf is run by the second pass, since the
    first must run the leaf.
    """
    if not rates or not all(0 <= rate < 1 for rate in rates):
        shares = ", ".join(f"{rate:g}" for rate in rates) or "nothing"
        raise UsageError(
            f"invalid acceptance {shares}: expected shares from 0 to below 1",
            hint=with_options({"--acceptance": "0.8"}),
        )
    if not 0 <= hit <= hit_many <= 1:
        raise UsageError(
            f"invalid shares of hits: {hit:g} with one head, {hit_many:g} with several: expected "
            "shares from 0 to 1, with several heads at least that of one",
            hint="specops edge simulate --help",
        )
    accepted = []
    for levels in range(1, len(rates) + 1):
        reached = [1.0, *accumulate(rates[:levels], lambda left, right: left * right)]
        ends = [above - below for above, below in pairwise(reached)]
        accepted.append((*ends, reached[-1]))
    one_head = tuple(tuple((0.0, hit) for _ in shares) for shares in accepted)
    many_heads = tuple(tuple((0.0, hit_many) for _ in shares) for shares in accepted)
    return Rounds(tuple(accepted), {"one": one_head, "many": many_heads}, source)
