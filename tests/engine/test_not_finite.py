"""A NaN or an infinity, in weights, logits or distributions, never becomes a token.

Comparisons let a NaN pass: min(1.0, nan) is 1.0, so a broken draft was accepted always.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_models import Pair, drain, tokens_of
from torch import Tensor

from specops.assets import asset
from specops.engine import Sampling
from specops.engine.attention import Layout
from specops.engine.cpu import reference
from specops.engine.draft import Draft
from specops.engine.heads import open_draft
from specops.engine.load import Pair as Loaded
from specops.engine.models import load_model
from specops.engine.models.offload import Offload
from specops.engine.request import Emission
from specops.engine.rng import Dice, Distributions, all_finite, are_distributions
from specops.engine.step import Engine
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers import VERIFIERS
from specops.errors import ModelError, NotFinite, ServerError

EMBEDDED = asset("playbooks", "embedded")
DRAFTS = sorted({path.parent.name for path in EMBEDDED.glob("*/model.safetensors")} - {"target"})
VALUES = [math.nan, math.inf, -math.inf]
PROMPT = list(range(40, 60))


def spoilt(folder: Path, copy: Path, name: str, value: float, *, whole: bool) -> Path:
    """A copy of a model's folder with one weight, or a `whole` tensor of weights, of that value."""
    copy.mkdir(parents=True)
    for file in folder.iterdir():
        if file.suffix == ".json":
            shutil.copy(file, copy)
    weights = load_file(folder / "model.safetensors")
    flat = weights[name].view(-1)
    flat[slice(None) if whole else len(flat) // 3] = value
    save_file(weights, copy / "model.safetensors")
    return copy


def names_of(folder: Path) -> list[str]:
    return list(load_file(folder / "model.safetensors"))


@pytest.fixture(scope="module")
def target() -> Loaded:
    return Loaded(EMBEDDED / "target", EMBEDDED / "draft", threads=1)


def test_all_shipped_drafts_are_tried() -> None:
    assert set(DRAFTS) == {"boosted-2", "boosted-3", "draft", "exit", "head", "medusa", "recurrent"}


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("value", VALUES)
def test_a_draft_with_such_a_weight_is_refused(
    value: float, draft: str, target: Loaded, tmp_path: Path
) -> None:
    for number, name in enumerate(names_of(EMBEDDED / draft)):
        folder = spoilt(EMBEDDED / draft, tmp_path / str(number), name, value, whole=False)
        with pytest.raises(ModelError) as refused:
            open_draft(folder, EMBEDDED / "target", target.target)
        assert name in refused.value.message
        assert refused.value.hint


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("kind", ["lean", "transformers", "disk", "host"])
def test_a_target_with_such_a_weight_is_refused(kind: str, value: float, llama: Pair, tmp_path: Path) -> None:
    for number, name in enumerate(names_of(llama.target)):
        folder = spoilt(llama.target, tmp_path / str(number), name, value, whole=False)
        offload = Offload(kind) if kind in ("disk", "host") else None  # type: ignore[arg-type]
        dtype = torch.float32 if kind == "lean" else torch.bfloat16
        with pytest.raises(ModelError) as refused:
            load_model(folder, dtype, offload=offload)
        assert name in refused.value.message


def test_finite_weights_whose_sum_overflows_are_finite() -> None:
    assert all_finite(torch.full((4,), 3e38))
    assert all_finite(torch.full((4,), 6e4).half())
    assert all_finite(torch.empty(0, 7))
    for value in VALUES:
        assert not all_finite(torch.tensor([3e38, 3e38, value]))
    assert not all_finite(torch.tensor([math.inf, -math.inf]))


@given(
    rows=st.lists(
        st.lists(
            st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 3e38]),
            min_size=33,
            max_size=33,
        ),
        max_size=3,
    )
)
def test_logits_are_checked_as_defined(rows: list[list[float]]) -> None:
    for dtype in (torch.float32, torch.float64):
        logits = torch.tensor(rows, dtype=dtype).view(-1, 33)
        assert all_finite(logits) == reference.all_finite(logits)
        assert are_distributions(logits) == reference.are_distributions(logits.double())


# --- what only shows while it runs ---------------------------------------------------------------


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are not looked at on loading, as if the arithmetic made what they have."""
    monkeypatch.setattr("specops.engine.draft.refuse_not_finite", lambda *_: None)
    monkeypatch.setattr("specops.engine.models.refuse_not_finite", lambda *_: None)


def run(engine: Engine, temperature: float, streams: int) -> list[list[Emission]]:
    sampling = Sampling(temperature=temperature, max_tokens=16, seed=1)
    return drain(engine, [(PROMPT[: 8 + i], sampling) for i in range(streams)])


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("tree", ["chain:3", "adaptive:4", "expand:2,2", "dynamic:6:3", "chain:2+ngram:3"])
@pytest.mark.usefixtures("unchecked")
@pytest.mark.slow
def test_a_draft_that_computes_them_fails_its_requests(
    tree: str, draft: str, target: Loaded, tmp_path: Path
) -> None:
    """Whole tensors of them: no draft that was computed is finite."""
    for number, name in enumerate(names_of(EMBEDDED / draft)):
        value = VALUES[number % 3]
        folder = spoilt(EMBEDDED / draft, tmp_path / str(number), name, value, whole=True)
        broken = open_draft(folder, EMBEDDED / "target", target.target)
        computed = draft != "medusa" or name.startswith("medusa_head.0.")
        for streams in (1, 2):
            for temperature in (0.0, 1.0):
                check_fails(broken, tree, temperature, streams, target, computed=computed)


def check_fails(
    broken: Draft, tree: str, temperature: float, streams: int, target: Loaded, *, computed: bool
) -> None:
    """computed: whether every draft needs the broken weights. Medusa's deeper heads are not always needed."""
    target.draft = broken
    engine = target.engine(tree, 128, max_batch=streams)
    plain = run(target.engine("none", 128, max_batch=streams), temperature, streams)
    outputs = run(engine, temperature, streams)
    for emissions, alone in zip(outputs, plain, strict=True):
        last = emissions[-1]
        assert temperature > 0 or tokens_of(emissions) == tokens_of(alone)[: len(tokens_of(emissions))]
        if not computed and last.finish_reason == "length":
            continue
        assert (last.finish_reason, last.tokens, last.text, last.logprobs) == ("error", [], "", [])
        assert last.error == "the draft's logits are not finite"
        # A head has no features to draft from before the first token.
        assert len(tokens_of(emissions)) <= 1 or not computed
    failed = [emissions[-1].finish_reason == "error" for emissions in outputs]
    assert engine.counters.not_finite == sum(failed)
    assert not computed or all(failed)
    assert not computed or engine.counters.accepted_tokens == 0


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.usefixtures("unchecked")
def test_one_such_weight_fails_requests_or_changes_no_answer(
    draft: str, target: Loaded, tmp_path: Path
) -> None:
    plain = run(target.engine("none", 128, max_batch=2), 0.0, 2)
    expected = [tokens_of(emissions) for emissions in plain]
    failures = 0
    for number, name in enumerate(names_of(EMBEDDED / draft)):
        folder = spoilt(EMBEDDED / draft, tmp_path / str(number), name, VALUES[number % 3], whole=False)
        target.draft = open_draft(folder, EMBEDDED / "target", target.target)
        for streams in (1, 2):
            engine = target.engine("chain:3", 128, max_batch=streams)
            for emissions, answer in zip(run(engine, 0.0, streams), expected, strict=False):
                written = tokens_of(emissions)
                failed = emissions[-1].finish_reason == "error"
                failures += failed
                assert written == answer[: len(written)]
                assert failed or len(written) == len(answer)
    assert failures > 0


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("tree", ["none", "chain:3", "expand:2,2", "dynamic:6:3", "ngram:4"])
def test_a_target_whose_logits_are_not_finite_fails_one_request(
    tree: str, value: float, llama: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token that gives such logits is in its prompt alone. Others, beside it and after it, in the same
    rows, get what they get without it."""
    bad, sampling = 77, Sampling(max_tokens=20)
    prompts = [[11, 90, 3, 207], [5, 6, 7, 8, 9], [12] * 50]

    def answers(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
        return [
            tokens_of(emissions) for emissions in drain(engine, [(prompt, sampling) for prompt in prompts])
        ]

    sound = answers(llama.engine(tree, max_batch=2), prompts)
    engine = llama.engine(tree, max_batch=2)
    forward = engine.target.forward

    def with_fault(tokens: Tensor, layout: Layout, some: Tensor | None = None) -> Tensor:
        logits, first = forward(tokens, layout, some), 0
        for span in layout.spans:
            rows = range(first, first := first + span.count)
            if span.start == 0 and tokens[rows[1]] == bad:
                layout.cache.data[:, span.row, : span.stop] = value
                places = rows if some is None else [i for i, at in enumerate(some.tolist()) if at in rows]
                logits[list(places), 5] = value
        return logits

    monkeypatch.setattr(engine.target, "forward", with_fault)
    failed, *fine = drain(engine, [([4, bad, 9], sampling), *((prompt, sampling) for prompt in prompts)])
    assert [emission.finish_reason for emission in failed] == ["error"]
    assert failed[0].error == "the target's logits are not finite"
    assert failed[0].tokens == []
    assert [tokens_of(emissions) for emissions in fine] == sound
    assert engine.counters.not_finite == 1
    assert answers(engine, prompts) == sound


def test_a_temperature_that_takes_finite_logits_out_of_range_fails(
    llama: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = llama.engine("none")
    forward = engine.target.forward
    monkeypatch.setattr(engine.target, "forward", lambda *given: forward(*given) * 1e36)
    (emissions,) = drain(engine, [([1, 2, 3], Sampling(temperature=1e-5, seed=0, max_tokens=3))])
    assert [emission.finish_reason for emission in emissions] == ["error"]


def test_generate_raises(llama: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = llama.engine("none")
    forward = engine.target.forward
    monkeypatch.setattr(engine.target, "forward", lambda *given: forward(*given) * math.nan)
    with pytest.raises(ServerError, match="the target's logits are not finite"):
        engine.generate([1, 2, 3], Sampling())


# --- each verifier, each way of drawing ------------------------------------------------------------


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("replace", [True, False])
def test_nothing_is_drawn_from_them(replace: bool, dtype: torch.dtype, value: float) -> None:
    for count in (1, 3):
        for place in range(5):
            weights = torch.full((5,), 0.2, dtype=dtype)
            weights[place] = value
            with pytest.raises(NotFinite):
                Dice(place).draw(weights, count, replace=replace)
    with pytest.raises(NotFinite):
        Dice(0).sample(torch.zeros(4, dtype=dtype))
    with pytest.raises(NotFinite):
        Dice(0).accept(math.nan)


@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT])
@pytest.mark.parametrize("value", VALUES)
def test_no_verifier_uses_a_draft_distribution_of_them(value: float, draw: Draw, name: str) -> None:
    """A child drawn from such a distribution is neither accepted nor rejected."""
    if name == "naive":
        return  # it reads no distribution of the draft
    topology = Topology.expansion((2, 1))
    p = torch.randn(len(topology), 6, generator=torch.Generator().manual_seed(3)).softmax(-1)
    for broken in (torch.full((6,), value), p[0].index_fill(0, torch.tensor([1, 2]), value)):
        tree = TokenTree(topology, [0, 1, 2, 3, 4], draw, ((broken,), (p[1],), (p[2],), (), ()))
        for seed in range(20):
            with pytest.raises(NotFinite):
                VERIFIERS[name].verify(tree, p, Dice(seed))
            with pytest.raises(NotFinite):
                VERIFIERS[name].expected(tree, p)


@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_verifier_uses_a_target_distribution_of_them(value: float, draw: Draw, name: str) -> None:
    topology = Topology.expansion((2, 1))
    logits = torch.randn(len(topology), 6, generator=torch.Generator().manual_seed(3))
    q = tuple((row,) for row in (logits / 2).softmax(-1))
    tree = TokenTree(topology, [0, 1, 2, 3, 4], draw, q)
    for node in (0, 1, 2):
        broken = logits.clone()
        broken[node, 5] = value
        p = Distributions(broken, Sampling(temperature=1.0))
        refused = 0
        for seed in range(100):
            try:
                path = VERIFIERS[name].verify(tree, p, Dice(seed)).path
            except NotFinite:
                refused += 1
            else:
                assert node not in (0, *path)
        assert refused > 0 or node == 2  # its sibling is always accepted
