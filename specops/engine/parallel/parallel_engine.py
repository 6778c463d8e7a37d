"""One engine on several devices: every rank steps the same engine.

Ranks schedule alike, since they schedule from the same data. Rank 0 broadcasts what could differ: new and
cancelled sequences, and verdicts. So a follower needs neither logits nor randomness.

  engine = load_engine(target, draft, tree="chain:3", parallel=Parallel("tensor", 2))

starts the other ranks on this machine. `close` ends them, and so does the end of the process.

Drafting is data parallel (SpecInfer, arXiv 2305.09781). Every rank holds the whole draft, and drafts for its
share of the sequences. A sequence stays with one rank, whose draft's cache has read it. Distributions go to
rank 0 only, which verifies. Drafts have their own random source: if drafting elsewhere and verification
shared a seed's numbers, acceptance would depend on the token that was drawn.
"""

from __future__ import annotations

import copyreg
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Sequence as Batch
from contextlib import suppress
from dataclasses import replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from torch import Tensor

from specops.engine.draft import Drafter
from specops.engine.parallel.process_group import PATIENCE, Parallel, Ranks, meeting
from specops.engine.request import Emission, Sampling, TokenLogprob
from specops.engine.rng import Chance, Dice
from specops.engine.sequence import Sequence
from specops.engine.step import Engine
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers.verifier import Verified
from specops.errors import EnvironmentFailure, NotFinite, UsageError
from specops.hints import with_value
from specops.trees import parse_tree

TreeVerdicts = list[tuple[Sequence, TokenTree, Verified | NotFinite, list[TokenLogprob]]]


class ParallelEngine(Engine):
    """An engine on several devices; on ranks other than 0 it follows."""

    def __init__(self, ranks: Ranks, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.followers: Followers | None = None  # of rank 0
        self._ranks = ranks
        self._news: list[tuple[list[int], Sampling] | int] = []  # sequences to come, and ids to cancel

    def submit(self, prompt: list[int], sampling: Sampling) -> int:
        number = super().submit(prompt, sampling)
        self._news.append((prompt, sampling))
        return number

    def cancel(self, sequence_id: int) -> None:
        super().cancel(sequence_id)
        self._news.append(sequence_id)

    def step(self) -> list[Emission]:
        """Step as `Engine.step` does. Raises EnvironmentFailure if a rank has ended or does not answer; the
        engine is then lost."""
        if self.idle:  # cancellations go out with the next work
            return []
        news, self._news = self._news, []
        self._ranks.broadcast_work(news)
        return super().step()

    def _verify(self, pairs: list[tuple[Sequence, TokenTree]], logits: Tensor) -> TreeVerdicts:
        if self._ranks.first:
            decided = super()._verify(pairs, logits)
            self._ranks.broadcast([verified for _, _, verified, _ in decided])
            return decided
        verdicts: list[Verified | NotFinite] = self._ranks.broadcast()
        return [(s, t, verified, []) for (s, t), verified in zip(pairs, verdicts, strict=True)]

    def close(self) -> None:
        """End the other ranks. Nothing can be decoded after it."""
        if self.followers is not None:
            self.followers.end()
            self.followers = None

    def follow(self) -> None:
        """Repeat what rank 0 does, until it closes. Raises EnvironmentFailure if it ends otherwise."""
        while (news := self._ranks.broadcast_work()) is not None:
            for new in news:
                if isinstance(new, int):
                    super().cancel(new)
                else:
                    super().submit(*new)
            super().step()


def start(
    parallel: Parallel, arguments: dict[str, Any], load_engine: Callable[..., Engine]
) -> ParallelEngine:
    """Start the other ranks and return rank 0's engine.

    arguments: of `load_engine`, as JSON can hold them: every rank calls it with them. Raises UsageError for
    a tree or device that cannot be divided, EnvironmentFailure if a rank does not start.
    """
    if arguments["speculate"] and parse_tree(arguments["tree"]).kind == "auto":
        raise UsageError(
            "the tree auto is unsupported on several devices: each would choose its own; name "
            "a tree, such as chain:3",
            hint=with_value("auto", "chain:3"),
        )
    if arguments["device"] not in ("cpu", "cuda"):
        raise UsageError(
            f"a target on several devices cannot all lie on {arguments['device']!r}: expected cpu, or cuda "
            "without a number",
            hint=with_value(arguments["device"], "cuda"),
        )
    followers = Followers(parallel, arguments)
    try:
        engine = load_engine(**arguments, ranks=followers.ranks)
        followers.await_loaded()
    except BaseException:
        followers.end()
        raise
    assert isinstance(engine, ParallelEngine)
    engine.followers = followers
    return engine


JOIN = 120.0
"""Timeout of a follower's start, in seconds; most of it goes into importing torch."""
GOODBYE = 10.0
"""Timeout of a follower's end, in seconds."""


class Followers:
    """The processes of the other ranks, started by rank 0 on its machine; they end when it does."""

    def __init__(self, parallel: Parallel, arguments: dict[str, Any]) -> None:
        """Raises EnvironmentFailure if they do not start."""
        self._folder = Path(tempfile.mkdtemp(prefix="specops-ranks-"))
        self._store = meeting(self._folder, parallel.ranks)
        self._processes = [
            self._start({"folder": str(self._folder), "rank": rank, **vars(parallel)}, arguments)
            for rank in range(1, parallel.ranks)
        ]
        self.ranks: Ranks | None = None
        # multiprocessing's: atexit is the main process's alone, and a server's engine is in another one.
        self._at_exit = Finalize(None, self.end, exitpriority=0)
        try:
            self._await("here", JOIN)
            self.ranks = Ranks(parallel, 0, self._store)
        except BaseException:
            self.end()
            raise

    def _start(self, place: dict[str, Any], arguments: dict[str, Any]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "specops.engine.parallel", json.dumps({**place, "load": arguments})]
        # A session of its own: Ctrl-C is rank 0's to answer, which may have sequences to finish first.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def await_loaded(self) -> None:
        """Wait until every rank has loaded its part. Raises EnvironmentFailure if one has not, before the
        first step."""
        self._await("loaded", PATIENCE.total_seconds())

    def _await(self, word: str, patience: float) -> None:
        deadline = time.monotonic() + patience
        keys = [f"{word}/{rank}" for rank in range(1, len(self._processes) + 1)]
        while not self._store.check(keys):
            ended = [process.returncode for process in self._processes if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise EnvironmentFailure(
                    "could not start an engine on several devices: a rank "
                    + (f"ended with code {ended[0]}" if ended else f"did not come up in {patience:.0f} s"),
                    hint="free -h  # the last output of the rank is above",
                )
            time.sleep(0.05)

    def end(self) -> None:
        """Ask the followers to end, and kill those that have not after `GOODBYE`."""
        self._at_exit.cancel()
        deadline = time.monotonic()
        if self.ranks is not None:
            deadline += GOODBYE
            with suppress(EnvironmentFailure):  # one of them is gone already
                self.ranks.broadcast_work(None)
        for process in self._processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.ranks is not None:
            self.ranks.leave()
        shutil.rmtree(self._folder, ignore_errors=True)


_OTHER = 1 << 64
"""Added to a request's seed for its draft, above all seeds of requests."""

# A shape is one object in a process, and its masks are not to travel.
copyreg.pickle(Topology, lambda topology: (Topology.from_parents, (topology.parents,)))


class DataParallel:
    """A drafter that drafts for this rank's share of the sequences."""

    caches = ()

    def __init__(self, drafter: Drafter, ranks: Ranks) -> None:
        self._drafter, self._ranks = drafter, ranks
        self.draws, self.reads_features = drafter.draws, drafter.reads_features
        self.nodes, self.depth = drafter.nodes, drafter.depth
        self._owner: dict[int, int] = {}  # by sequence: the same on all ranks
        self._chance: dict[int, Chance] = {}  # by sequence, of those that are drafted for here

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        for sequence in sequences:
            if sequence.id not in self._owner:
                owned = list(self._owner.values())
                self._owner[sequence.id] = min(range(self._ranks.size), key=owned.count)
                if self._owns(sequence):
                    seed = sequence.sampling.seed
                    self._chance[sequence.id] = Dice(None if seed is None else _OTHER + seed)
        own = [sequence for sequence in sequences if self._owns(sequence)]
        drafted = self._drafted(own) if own else []
        plain = [replace(tree, q=None, merged=None) for tree in drafted]
        trees = self._in_turn(self._ranks.all_gather(plain), sequences)
        drawn = self.draws is not Draw.DETERMINISTIC and not all(sequence.greedy for sequence in sequences)
        if not drawn:
            return trees
        whole = self._ranks.gather([(tree.q, tree.merged) for tree in drafted])
        if not self._ranks.first:
            return trees
        parts = self._in_turn(whole, sequences)
        return [replace(tree, q=q, merged=m) for tree, (q, m) in zip(trees, parts, strict=True)]

    def _drafted(self, own: Batch[Sequence]) -> list[TokenTree]:
        verifying = [sequence.chance for sequence in own]
        for sequence in own:
            sequence.chance = self._chance[sequence.id]
        try:
            return self._drafter.draft(own)
        finally:
            for sequence, chance in zip(own, verifying, strict=True):
                sequence.chance = chance

    def _in_turn(self, shares: list[list[Any]], sequences: Batch[Sequence]) -> list[Any]:
        """The items of all ranks' shares, in the order of `sequences`."""
        rest = [iter(share) for share in shares]
        return [next(rest[self._owner[sequence.id]]) for sequence in sequences]

    def _owns(self, sequence: Sequence) -> bool:
        return self._owner.get(sequence.id) == self._ranks.rank

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        if self._owns(sequence):
            self._drafter.commit(sequence, path, features)

    def move(self, sequence: Sequence, row: int) -> None:
        if self._owns(sequence):
            self._drafter.move(sequence, row)

    def release(self, sequence: Sequence) -> None:
        if self._owns(sequence):
            self._drafter.release(sequence)
        self._owner.pop(sequence.id, None)
        self._chance.pop(sequence.id, None)
