"""An offloaded target writes what the one held whole writes, in the memory of two layers."""

from __future__ import annotations

import gc
import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from test_models import in_parts
from tiny_models import LLAMA, SIZES, Pair, clear_prompts, drain, load_reference, tokens_of
from transformers import LlamaConfig, LlamaForCausalLM

from specops.engine import Sampling, load_engine
from specops.engine.models import load_model
from specops.engine.models.offload import PIECE, Offload, Stream, Throttle, places, read
from specops.errors import ModelError, UsageError

COUNT = 12
DISK, HOST = Offload("disk"), Offload("host")


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("family", "offload"),
    [*((family, DISK) for family in ("llama", "llama-tied", "qwen2", "opt", "gpt2")), ("llama-biases", HOST)],
)
def test_token_identical(family: str, offload: Offload, pair_of: Callable[[str], Pair]) -> None:
    pair = pair_of(family)
    expected = clear_prompts(pair.reference, [1, 5, 9, 23], COUNT)
    streamed = replace(pair)
    streamed.__dict__["target_model"] = load_model(pair.target, offload=offload)  # of the cached property
    for tree, batch, chunk in (("none", 1, 256), ("expand:3,2,1", 3, 7), ("dynamic:8:3+ngram:4", 4, 256)):
        engine = streamed.engine(tree, max_batch=batch, prefill_chunk=chunk)
        found = drain(engine, [(prompt, Sampling(max_tokens=COUNT)) for prompt, _ in expected])
        assert [tokens_of(emissions) for emissions in found] == [tokens for _, tokens in expected]


def test_from_load_engine(llama: Pair) -> None:
    [(prompt, tokens)] = clear_prompts(llama.reference, [9], COUNT)
    engine = load_engine(llama.target, llama.draft, tree="chain:2", offload=DISK)
    assert engine.generate(prompt, Sampling(max_tokens=COUNT)).tokens == tokens


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target most of which is its 12 layers, in several files, in bfloat16."""
    folder = tmp_path_factory.mktemp("deep")
    torch.manual_seed(0)
    sizes = {**LLAMA, **SIZES, "hidden_size": 64, "num_hidden_layers": 12, "intermediate_size": 256}
    source = LlamaForCausalLM(LlamaConfig(**sizes)).to(torch.bfloat16)
    source.save_pretrained(folder, max_shard_size="400KB")
    return folder


def test_memory_is_that_of_two_layers(deep: Path) -> None:
    found = places(deep)
    assert len({place.path for place in found.values()}) > 3
    layer = sum(math.prod(p.shape) * 4 for name, p in found.items() if name.startswith("model.layers.0."))
    rest = sum(math.prod(p.shape) * 4 for name, p in found.items() if ".layers." not in name)
    largest = max(place.size for place in found.values())
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "offload":  # of an earlier test's model, whose slots it holds until it has ended
            thread.join(10)
    before = live_bytes()
    model = load_model(deep, offload=DISK)
    held = live_bytes() - before
    more = largest + 8192  # what is read into, rotary frequencies, a probe's features
    assert 2 * layer + rest <= held <= 2 * layer + rest + more
    assert held < 4 * layer + rest < 12 * layer + rest
    del model


def test_float32_arithmetic_on_stored_bfloat16(deep: Path) -> None:
    tokens = list(range(20))
    model = load_model(deep, offload=DISK)
    own = load_reference(deep)(torch.tensor([tokens]), use_cache=False).logits[0]
    assert torch.allclose(in_parts(model, tokens, [7, 13]), own, atol=1e-4)


def live_bytes() -> int:
    """Of all tensors' storages, but for those that were packed for an operator."""
    gc.collect()
    found = [t for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter)]
    storages = [t.untyped_storage() for t in found if t.layout is torch.strided]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(
    rate=st.floats(1e3, 1e9),
    turns=st.lists(st.tuples(st.integers(1, 1 << 20), st.floats(0, 10)), min_size=1, max_size=30),
)
def test_a_throttle_never_lets_more_through(rate: float, turns: list[tuple[int, float]]) -> None:
    """In no span of time, whatever was idle before it."""
    clock = Clock()
    throttle = Throttle(rate, lambda: clock.now, clock.sleep)
    spans = []
    for count, idle in turns:
        clock.now += idle
        begun = clock.now
        throttle(count)
        spans.append((begun, clock.now, count))
    for first in range(len(spans)):
        for last in range(first, len(spans)):
            through = sum(count for *_, count in spans[first : last + 1])
            took = spans[last][1] - spans[first][0]
            assert through / rate <= took + Throttle.SLACK + 1e-6 * took + 1e-9


def test_a_throttle_reaches_its_rate() -> None:
    clock = Clock()
    throttle = Throttle(1e6, lambda: clock.now, lambda seconds: clock.sleep(seconds + 0.001))  # wakes late
    for _ in range(1000):
        throttle(1000)
    assert clock.now == pytest.approx(1.0, abs=0.01)


def test_what_is_read_is_paid_for(deep: Path) -> None:
    paid: list[int] = []
    place = max(places(deep).values(), key=lambda place: place.size)
    tensor = read(place, pay=paid.append)
    assert sum(paid) == place.size
    assert max(paid) <= PIECE
    assert torch.equal(tensor, load_file(place.path)[next(n for n, p in places(deep).items() if p == place)])


class Counting:
    """A slot that tells its layer; `fail_at` a fill, it raises."""

    fills = 0

    def __init__(self, fail_at: int | None = None) -> None:
        self.layer, self.uses, self._fail_at = -1, 0, fail_at

    def fill(self, index: int) -> None:
        if self.fills == self._fail_at:
            raise ModelError("the disk is gone")
        self.fills += 1
        self.layer = index

    def used(self) -> None:
        self.uses += 1


def test_a_stream_goes_round_and_starts_again() -> None:
    stream = Stream(3, [Counting(), Counting()])
    for wanted in (0, 1, 2, 0, 1, 0, 1, 2, 2, 0):  # also after passes that were broken off
        slot = stream.take(wanted)
        assert slot.layer == wanted
        if wanted != 1:
            stream.give_back()


def test_a_layer_in_use_is_not_written_over() -> None:
    slots = [Counting(), Counting()]
    stream = Stream(5, slots)
    held = stream.take(0)
    other = next(slot for slot in slots if slot is not held)
    wait_until(lambda: other.fills == 1)
    time.sleep(0.02)  # in which a thread that does not wait would go on
    assert (held.layer, other.layer) == (0, 1)
    stream.give_back()
    wait_until(lambda: held.layer == 2)


def test_an_error_reaches_whoever_waits_and_stays() -> None:
    stream = Stream(2, [Counting(fail_at=1), Counting(fail_at=1)])
    stream.take(0)
    stream.take(1)
    for _ in range(2):
        with pytest.raises(ModelError, match="the disk is gone"):
            stream.take(0)


def test_the_thread_ends_with_the_model(deep: Path) -> None:
    before = set(threading.enumerate())
    model = load_model(deep, offload=DISK)
    [reader] = [t for t in set(threading.enumerate()) - before if t.name == "offload"]
    assert reader.is_alive()
    del model
    gc.collect()
    reader.join(10)
    assert not reader.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def copied(folder: Path, to: Path, weights: dict[str, torch.Tensor]) -> Path:
    (to / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})
    return to


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.layers.1.mlp.up_proj.weight"), "lack model.layers.1.mlp.up_proj.weight"),
        (lambda w: w.pop("model.norm.weight"), "lack model.norm.weight"),
        (lambda w: w.update({"model.norm.weight": torch.ones(3)}), r"shape \(3,\), but config.json"),
        (lambda w: w.update({"model.norm.weight": torch.ones(32, dtype=torch.int8)}), "its header has"),
    ],
    ids=["matrix", "norm", "shape", "dtype"],
)
def test_wrong_weights(
    change: Callable[[dict[str, torch.Tensor]], object], message: str, llama: Pair, tmp_path: Path
) -> None:
    weights = load_file(llama.target / "model.safetensors")
    change(weights)
    with pytest.raises(ModelError, match=message):
        load_model(copied(llama.target, tmp_path, weights), offload=DISK)


def test_a_file_that_was_cut_off(llama: Pair, tmp_path: Path) -> None:
    folder = copied(llama.target, tmp_path, load_file(llama.target / "model.safetensors"))
    file = folder / "model.safetensors"
    model = load_model(folder, offload=DISK)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"the file has .* its header describes"):
        load_model(folder, offload=DISK)
    with pytest.raises(ModelError, match="has become shorter"):  # in a later pass
        in_parts(model, [1, 2, 3], [1, 1, 1])


def test_no_weights(llama: Pair, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((llama.target / "config.json").read_bytes())
    with pytest.raises(ModelError, match="expected a safetensors file"):
        load_model(tmp_path, offload=HOST)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no such"}))
    with pytest.raises(ModelError, match="could not load a model"):
        load_model(tmp_path, offload=HOST)


def test_wrong_options() -> None:
    with pytest.raises(UsageError, match="cannot be offloaded"):
        Offload("tape")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="bandwidth"):
        Offload("disk", 0.0)
