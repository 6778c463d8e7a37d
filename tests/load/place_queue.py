"""A stub that serves requests in a fixed number of places, so that its capacity follows from a formula."""

from __future__ import annotations

import heapq
import json
import random
import time

from stub import Body, Reply, Stub, stream

TOKENS = 40
"""Of an answer of length 1; the lengths follow from the prompt, so two stubs have the same."""


def give_places(stub: Stub, places: int, mean_s: float, *, usage: bool = True) -> None:
    """A request waits for a place, first come, first served, and holds it for `mean_s` times its length."""
    free = [0.0] * places

    def answer(body: Body) -> Reply:
        now = time.perf_counter()
        if stub.in_flight == 1:  # the client gave up the others
            free[:] = [0.0] * places
        length = min(4.0, random.Random(json.dumps(body["messages"])).expovariate(1.0))
        start = max(heapq.heappop(free), now)
        heapq.heappush(free, start + length * mean_s)
        chunks = [("word ", max(1, round(TOKENS * length / 4)))] * 4
        events = stream(body, chunks, usage=usage)
        return Reply(events, first_s=start - now, gap_s=length * mean_s / len(events))

    stub.answer = answer
