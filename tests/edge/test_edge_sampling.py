"""Sampled output at the edge, with nothing replaced: the target's distribution, by a chi-square test.

The exact tests (test_edge_lossless_*.py) put a scripted source of chance and float64 in the place of the real
ones. A fault of what runs only with real dice and float32 passes them.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random

import pytest
import torch
from chi_square import p_value
from live_verifier import LiveVerifier
from local_link import logits_of
from scripted_clients import Clients, Session, verifying_engine
from test_edge_lossless_server import drawn_tree
from test_sampling import target_distribution
from tiny_models import Pair, drain, tokens_of

from specops.edge.client import open_client
from specops.edge.connection import Destination
from specops.edge.link import Proposal
from specops.edge.settings import Drafting, Included
from specops.engine.drafters import Autoregressive
from specops.engine.request import Sampling
from specops.engine.rng import Dice
from specops.engine.tree import Draw
from specops.engine.verifiers import ByDraw, make_verifier

PROMPT = (17, 4, 250, 17, 4)
SAMPLING = Sampling(temperature=1.0, top_k=3, max_tokens=4)
HOTTER = Sampling(temperature=1.25, top_k=3, max_tokens=4)
SAMPLES = 20_000
FEWER = 6_000
"""For each draw under each verifier, where the client over gRPC has `SAMPLES` of the default ones."""
BATCH = 64
"""Rounds that a step of the server verifies, and streams of its client."""

DRAWN = [Draw.WITHOUT_REPLACEMENT, Draw.IID]
VERIFIERS = ["traversal", "mss", "ranked", "naive"]


@pytest.mark.parametrize("verifier", ["traversal", "mss"])
def test_small_trees_of_several_distributions(verifier: str, llama: Pair) -> None:
    """400 seeded samples through the server's loop. With another node's draft distribution in the place of a
    node's own, p is below 1e-12."""
    counts = through_the_loop(llama, Draw.WITHOUT_REPLACEMENT, verifier, count=400)
    assert p_value(counts, target_distribution(llama, list(PROMPT), SAMPLING)) > 1e-3


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.name.lower())
def test_small_trees_under_every_verifier(draw: Draw, verifier: str, llama: Pair) -> None:
    """Enough samples to tell a temperature that is a fifth off, too."""
    counts = through_the_loop(llama, draw, verifier, count=FEWER)
    assert p_value(counts, target_distribution(llama, list(PROMPT), SAMPLING)) > 1e-3
    assert p_value(counts, target_distribution(llama, list(PROMPT), HOTTER)) < 1e-6


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("nodes", [4, 8])
def test_a_client_over_grpc(nodes: int, llama: Pair) -> None:
    """`--nodes` of so few, rounds sent ahead included. Chance is not seeded over a network: a correct server
    has such a p-value once in 100,000 runs."""
    server = LiveVerifier(llama.target, max_batch=BATCH)
    try:
        server.start()
        drafting = Drafting(nodes=nodes, beams=4, depth=Included(2), streams=BATCH)
        client = open_client(Destination(f"127.0.0.1:{server.port}"), llama.draft, drafting)
        try:
            outputs = drain(client, [(list(PROMPT), SAMPLING)] * SAMPLES)  # type: ignore[arg-type]
            accepted, drafted = client.counters.accepted_tokens, client.counters.draft_tokens
        finally:
            client.close()
    finally:
        server.stop()
        server.close()
    assert 0.02 < accepted / drafted < 0.95  # both outcomes are common
    counts = Counter(tuple(tokens_of(emissions)) for emissions in outputs)
    assert p_value(counts, target_distribution(llama, list(PROMPT), SAMPLING)) > 1e-5
    assert p_value(counts, target_distribution(llama, list(PROMPT), HOTTER)) < 1e-9


def through_the_loop(pair: Pair, draw: Draw, verifier: str, count: int) -> Counter[tuple[int, ...]]:
    """Sessions whose trees, of 5 nodes, are drawn from three distributions near the target's."""
    target = logits_of(pair.reference)

    @cache
    def draft(prefix: tuple[int, ...]) -> torch.Tensor:
        noise = torch.randn(len(target(prefix)), generator=torch.Generator().manual_seed(sum(prefix)))
        return (target(prefix) + noise).softmax(-1)

    def session(key: int) -> Session:
        dice = Dice(10**6 + key)

        def proposes(output: list[int]) -> Proposal:
            widths = (2, 1)[: SAMPLING.max_tokens - len(output) - 1]
            return drawn_tree(draft, dice, (*PROMPT, *output), widths, draw, support=8)  # type: ignore[arg-type]

        sampling = Sampling(**{**vars(SAMPLING), "seed": key})
        return Session(key, list(PROMPT), sampling, proposes, client=key)

    engine = verifying_engine(
        pair.target_model,
        Autoregressive(),
        pair.tokenizer,
        rows=4 * BATCH,  # as load_verifier has them: prompts are read in batches, too
        max_length=16,
        verifier=ByDraw(make_verifier(verifier)),
    )
    sessions = [session(key) for key in range(count)]
    Clients(sessions, Random(0)).run(engine, max_batch=BATCH)
    return Counter(tuple(each.output) for each in sessions)
