"""What requests would take with a tree: from texts, the costs of steps, and the API's own time. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from specops import stats
from specops.engine.costs import Costs, Sheet
from specops.engine.plan import Option, Rates, levels, ranked
from specops.engine.replay import Trace, copied
from specops.phases.verify_draft.over_http import Overhead
from specops.stats import Interval, Starts
from specops.trees import TreeSpec, parse_tree

NO_DRAFT = "none"


@dataclass(frozen=True)
class Text:
    """What the target wrote after one prompt of the sample."""

    traffic_class: str
    trace: Trace
    length: int
    """Tokens of the whole answer; more than were written where writing was cut short."""

    @property
    def context(self) -> float:
        """Tokens before a step, in the mean over the answer."""
        return len(self.trace.prompt) + self.length / 2


@dataclass(frozen=True)
class Steps:
    """That a tree takes for a text, the one that reads the prompt included."""

    count: float
    """Expected."""

    drafted: tuple[int, ...] = ()
    """Of n-gram drafts: tokens drafted, step by step."""


@dataclass(frozen=True)
class OverHttp:
    """A step as a client sees it."""

    costs: Costs
    chunk: float

    def step(self, levels: Sequence[int], batch: int = 1) -> float:
        return self.costs.step(levels, batch) + self.chunk


@dataclass(frozen=True)
class Machine:
    sheet: Sheet
    overhead: Overhead

    def at(self, context: float) -> OverHttp:
        return OverHttp(self.sheet.at(context), self.overhead.chunk)

    def seconds(self, text: Text, spec: TreeSpec, steps: Steps) -> float:
        """Of one request, alone, from its being sent to its last token."""
        prompt, during = self.sheet.at(len(text.trace.prompt)), self.at(text.context)
        goes_on = text.length / len(text.trace.written)
        if spec.kind == "none":
            return self.overhead.request + prompt.prompt + text.length * during.step(())
        if spec.kind == "ngram":
            if self.sheet.copied is None:
                raise ValueError("no costs of copied drafts were measured")
            taken = sum(self.sheet.copied.at(count) + self.overhead.chunk for count in steps.drafted)
            return self.overhead.request + prompt.prompt + goes_on * taken
        count, first = goes_on * steps.count, prompt.prompt_drafted
        if text.trace.opens_bare:  # all of the first step is in what reading the prompt takes
            count, first = count - 1, first + self.overhead.chunk
        return self.overhead.request + first + count * during.step(levels(spec.widths))


class Predictor:
    def __init__(self, texts: Sequence[Text], machine: Machine, rounds: Sequence[Machine]) -> None:
        """`machine`: by all rounds of measuring together; `rounds`: by each, which shows how sure that is."""
        self.texts = tuple(texts)
        self.machine = machine
        self._rounds = tuple(rounds)
        self._replayed: dict[str, list[Steps]] = {}

    @property
    def copies(self) -> bool:
        """Whether n-gram drafts can be predicted."""
        return self.machine.sheet.copied is not None

    def speedup(self, tree: str, traffic_class: str | None = None) -> tuple[float, Interval | None]:
        """End to end, over autoregressive decoding, of one class or of all texts.

        The interval takes the texts for a sample of their traffic and the rounds for one of the machine's
        moments; None with too few texts for one.
        """
        before, after = self._both(self.machine, tree, traffic_class)
        logs = []
        for machine in self._rounds:
            ours, theirs = self._both(machine, tree, traffic_class)
            logs.append(math.log(sum(ours) / sum(theirs)))
        moments = None
        if len(logs) > 1:
            moments = Starts(statistics.variance(logs) / len(logs), len(logs) - 1)
        return sum(before) / sum(after), stats.paired_ratio(before, after, starts=moments)

    def tokens_per_step(self, tree: str) -> float:
        steps = sum(replayed.count for replayed in self._replay(tree))
        return sum(len(text.trace.written) for text in self.texts) / steps

    def step_seconds(self, tree: str) -> float:
        """In the engine, at the sample's mean context."""
        spec = parse_tree(tree)
        copied = self.machine.sheet.copied
        if spec.kind == "ngram" and copied is not None:
            drafted = [count for steps in self._replay(tree) for count in steps.drafted]
            return statistics.fmean(copied.at(count) for count in drafted)
        costs = self.machine.sheet.at(self._context)
        return costs.step(levels(spec.widths) if spec.needs_draft else ())

    def ranked(self, rates: Rates, most_nodes: int) -> list[Option]:
        """The planner's options over HTTP, at the sample's mean context."""
        return ranked(rates, self.machine.at(self._context), most_nodes=most_nodes)

    @property
    def _context(self) -> float:
        return statistics.fmean(text.context for text in self.texts)

    def _both(
        self, machine: Machine, tree: str, traffic_class: str | None
    ) -> tuple[list[float], list[float]]:
        """Seconds of each text, without a draft and with the tree."""
        before, after = (
            [
                machine.seconds(text, parse_tree(each), steps)
                for text, steps in zip(self.texts, self._replay(each), strict=True)
                if traffic_class in (None, text.traffic_class)
            ]
            for each in (NO_DRAFT, tree)
        )
        return before, after

    def _replay(self, tree: str) -> list[Steps]:
        if tree not in self._replayed:
            self._replayed[tree] = [_steps(text.trace, parse_tree(tree)) for text in self.texts]
        return self._replayed[tree]


def _steps(trace: Trace, spec: TreeSpec) -> Steps:
    if spec.kind == "none":
        return Steps(len(trace.written))
    if spec.kind == "ngram":
        drafted = tuple(copied(trace, spec.nodes))
        return Steps(len(drafted), drafted)
    if spec.kind in ("adaptive", "dynamic", "merged"):
        raise ValueError(f"how a {spec.kind} tree fares does not follow from acceptance by rank")
    return Steps(trace.steps(spec.widths))
