"""Offloading: layers' weights stay on disk or in host memory, and are read layer after layer for every pass.

Two slots hold a layer each, in the form that runs. While the model computes with one, a thread fills the
other. After the last layer follows the first again, so that reading also goes on while a draft is grown and
verified. A pass then takes about as long as its bytes take to read, for any number of tokens: the offloading
of FlexGen (arXiv 2303.06865) and SpecInfer (arXiv 2305.09781, figure 8), where large trees pay.

transformers would use accelerate, which reads a layer when it is reached, so that reading and computing take
turns.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import prod
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from specops.checkpoints.source import Folder
from specops.engine.models.model import refuse_not_finite
from specops.errors import ModelError, UsageError, reason_of
from specops.hints import listing, with_options

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
PIECE = 1 << 20
"""Bytes that are read, and counted by the throttle, at a time."""


@dataclass(frozen=True)
class TensorLocation:
    """Location of a tensor: row-major, `offset` bytes into a safetensors file."""

    path: Path
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The tensor's size in bytes."""
        return prod(self.shape) * self.dtype.itemsize


def places(folder: Path) -> dict[str, TensorLocation]:
    """The place of each tensor in a folder's safetensors files, by name. Raises ModelError for an unusable
    file."""
    source, locations = Folder(folder), {}
    for name in source.names():
        if not name.endswith(".safetensors"):
            continue
        path = folder / name
        begin = _data(path)
        for tensor, entry in source.header(name).items():
            if tensor == "__metadata__":
                continue
            try:
                dtype, shape = _DTYPES[entry["dtype"]], tuple(map(int, entry["shape"]))
                place = TensorLocation(path, begin + int(entry["data_offsets"][0]), dtype, shape)
                complete = int(entry["data_offsets"][1]) - int(entry["data_offsets"][0]) == place.size
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ModelError(
                    f"could not read {tensor} of {path}: its header has {entry}: expected float32, float16 "
                    "or "
                    "bfloat16",
                    hint=with_options({"--offload": "host"}),
                ) from error
            if not complete or place.offset + place.size > path.stat().st_size:
                raise ModelError(
                    f"could not read {tensor} of {path}: the file is damaged; copy or download it again",
                    hint=listing(path),
                )
            locations[tensor] = place
    if not locations:
        raise ModelError(
            f"could not read weights from {folder}: expected a safetensors file, as transformers writes it",
            hint=listing(folder),
        )
    return locations


def _data(path: Path) -> int:
    """The offset of the tensors: behind 8 bytes, and the header whose length these hold."""
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def read(
    place: TensorLocation, into: Tensor | None = None, pay: Callable[[int], None] | None = None
) -> Tensor:
    """The stored tensor.

    into: uint8 memory of at least its bytes, which the result is then a view of. pay: called with the bytes
    of each piece before it is read; it may wait. Raises ModelError if the file cannot be read.
    """
    raw = torch.empty(place.size, dtype=torch.uint8) if into is None else into[: place.size]
    buffer, done = raw.numpy().data, 0
    try:
        with place.path.open("rb", buffering=0) as file:
            while done < place.size:
                piece = buffer[done : done + PIECE]
                if pay is not None:
                    pay(len(piece))
                count = os.preadv(file.fileno(), [piece], place.offset + done)
                if count == 0:
                    raise OSError("the file has become shorter")
                done += count
    except OSError as error:
        raise ModelError(f"could not read weights from {place.path}: {reason_of(error)}") from error
    return raw.view(place.dtype).view(place.shape)


@dataclass(frozen=True)
class Offload:
    """Location of the layers' weights, and the rate of reading them."""

    source: Literal["disk", "host"]

    bandwidth: float | None = None
    """Bytes a second that reading is limited to; None for no limit. For benchmarks, since a file in the page
    cache is faster than a disk."""

    def __post_init__(self) -> None:
        if self.source not in ("disk", "host"):
            raise UsageError(
                f"weights cannot be offloaded to {self.source!r}: expected disk or host",
                hint=with_options({"--offload": "disk"}),
            )
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise UsageError(f"a bandwidth must be above 0 bytes a second, not {self.bandwidth}")


class Throttle:
    """Limits bytes to a rate. Late wake-ups are made up for, up to `SLACK` seconds; idle time is not
    saved."""

    SLACK = 0.005  # seconds

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._paid = clock()  # until when the bytes so far have taken

    def __call__(self, count: int) -> None:
        """Wait until `count` more bytes are allowed."""
        now = self._clock()
        self._paid = max(self._paid, now - self.SLACK) + count / self._rate
        if self._paid > now:
            self._sleep(self._paid - now)


class Source(Protocol):
    """Reads the stored tensors of layers."""

    def __call__(self, place: TensorLocation) -> Tensor:
        """The stored tensor, valid until the next call."""


def make_source(offload: Offload, streamed: list[TensorLocation], device: torch.device) -> Source:
    """A source of the tensors `streamed`. For a GPU, the memory that it copies from is pinned."""
    pay = None if offload.bandwidth is None else Throttle(offload.bandwidth)
    pinned = device.type == "cuda"
    if offload.source == "host":
        return _Host(streamed, pay, pinned)
    return _Disk(max(place.size for place in streamed), pay, pinned)


class _Disk:
    """Reads each tensor from its file."""

    def __init__(self, largest: int, pay: Callable[[int], None] | None, pinned: bool) -> None:
        self._buffer, self._pay = torch.empty(largest, dtype=torch.uint8, pin_memory=pinned), pay

    def __call__(self, place: TensorLocation) -> Tensor:
        return read(place, self._buffer, self._pay)


class _Host:
    """Holds all tensors in host memory."""

    def __init__(
        self, streamed: list[TensorLocation], pay: Callable[[int], None] | None, pinned: bool
    ) -> None:
        self._pay = pay
        self._held = {
            place: read(place, torch.empty(place.size, dtype=torch.uint8, pin_memory=pinned))
            for place in streamed
        }

    def __call__(self, place: TensorLocation) -> Tensor:
        if self._pay is not None:
            self._pay(place.size)
        return self._held[place]


class Slot(Protocol):
    """Room for one layer."""

    def fill(self, index: int) -> None:
        """Read layer `index` into the slot. It may wait for computation that still uses it."""

    def used(self) -> None:
        """All computation with the layer has been started."""


S = TypeVar("S", bound=Slot)


class Stream(Generic[S]):
    """Gives the layers in turn, 0, 1, …, 0, 1, …, and reads each while the one before is in use."""

    def __init__(self, layers: int, slots: Sequence[S]) -> None:
        """slots: two, or one more for each layer to read further ahead."""
        self._free: queue.SimpleQueue[S | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[tuple[int, S] | Exception] = queue.SimpleQueue()
        self._held: S | None = None
        for slot in slots:
            self._free.put(slot)
        # The thread knows the queues alone, so that it ends when nobody holds the stream any more.
        weakref.finalize(self, self._free.put, None)
        threading.Thread(
            target=_read_on, args=(layers, self._free, self._ready), name="offload", daemon=True
        ).start()

    def take(self, layer: int) -> S:
        """The slot with this layer, until `give_back` or the next `take`. Raises the error of reading."""
        self.give_back()  # of a pass that was broken off
        while True:
            delivered = self._ready.get()
            if isinstance(delivered, Exception):
                self._ready.put(delivered)  # nothing will come after it
                raise delivered
            index, self._held = delivered
            if index == layer:
                return self._held
            self.give_back()

    def give_back(self) -> None:
        """Let the slot in use be filled again."""
        if self._held is not None:
            self._held.used()
            self._free.put(self._held)
            self._held = None


def _read_on(
    layers: int, free: queue.SimpleQueue[S | None], ready: queue.SimpleQueue[tuple[int, S] | Exception]
) -> None:
    for index in cycle(range(layers)):
        slot = free.get()
        if slot is None:
            return
        try:
            slot.fill(index)
        except Exception as error:  # whoever waits for the layer is to hear of it
            ready.put(error)
            return
        ready.put((index, slot))


Layer = dict[str, TensorLocation]
"""The places of a layer's weights, by their names in the layer."""


class _LayerSlot:
    """One layer's weights, on the device that computes."""

    def __init__(self, layers: list[Layer], source: Source, dtype: torch.dtype, device: torch.device) -> None:
        self._layers, self._source = layers, source
        self.data = {
            name: torch.empty(place.shape, dtype=dtype, device=device) for name, place in layers[0].items()
        }
        self._copying = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._computed: torch.cuda.Event | None = None

    def fill(self, index: int) -> None:
        if self._copying is None:
            self._copy(index)
            return
        if self._computed is not None:
            self._computed.synchronize()
        with torch.cuda.stream(self._copying):
            self._copy(index)
        self._copying.synchronize()

    def _copy(self, index: int) -> None:
        for name, place in self._layers[index].items():
            self.data[name].copy_(self._source(place))

    def used(self) -> None:
        if self._copying is not None:
            self._computed = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._computed.record()


def load_streamed(
    folder: Path, config: Any, dtype: torch.dtype, offload: Offload, device: torch.device
) -> Any:
    """transformers' model with its layers' weights left where `offload` says. Raises ModelError."""
    from transformers import AutoModelForCausalLM

    # Buffers, such as rotary frequencies, are computed and not stored: they must not be on the meta device.
    hook = nn.modules.module.register_module_parameter_registration_hook(
        _without_data  # type: ignore[arg-type]  # what it returns is taken, whatever torch's type says
    )
    try:
        source = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager")
    finally:
        hook.remove()
    locations = places(folder)
    path, modules = _layers(source, config.num_hidden_layers)
    layers = [
        {name: _place(folder, locations, f"{path}.{i}.{name}", w) for name, w in module.named_parameters()}
        for i, module in enumerate(modules)
    ]
    tied = set(getattr(source, "all_tied_weights_keys", None) or ())
    for name, weight in list(source.named_parameters(remove_duplicate=False)):
        if not name.startswith(f"{path}.") and name not in tied:
            held = read(_place(folder, locations, name, weight)).to(dtype)
            refuse_not_finite(folder, [(name, held)])
            _assign(source, name, nn.Parameter(held, requires_grad=False))
    source.tie_weights()
    if len({tuple((name, place.shape) for name, place in layer.items()) for layer in layers}) > 1:
        raise ModelError(
            f"could not offload {folder}: its layers are not all of one form",
            hint=with_options({"--offload": None}),
        )
    for i, layer in enumerate(layers):
        stored = ((f"{path}.{i}.{name}", read(place).to(dtype)) for name, place in layer.items())
        refuse_not_finite(folder, stored)
    reading = make_source(offload, [place for layer in layers for place in layer.values()], device)
    stream = Stream(len(layers), [_LayerSlot(layers, reading, dtype, device) for _ in range(2)])
    for index, module in enumerate(modules):
        _bind(module, index, stream, dtype, device)
    return source.to(device)


def _bind(
    module: nn.Module, index: int, stream: Stream[_LayerSlot], dtype: torch.dtype, device: torch.device
) -> None:
    """Give the layer, at each run, the parameters of the slot that it was read into."""
    parameters = {}
    for name, _ in list(module.named_parameters()):
        parameters[name] = nn.Parameter(torch.empty(0, dtype=dtype, device=device), requires_grad=False)
        _assign(module, name, parameters[name])

    def begin(module: nn.Module, inputs: Any) -> None:
        slot = stream.take(index)
        for name, parameter in parameters.items():
            parameter.data = slot.data[name]

    def end(module: nn.Module, inputs: Any, output: Any) -> None:
        stream.give_back()

    module.register_forward_pre_hook(begin)
    module.register_forward_hook(end)


def _layers(source: nn.Module, count: int) -> tuple[str, list[nn.Module]]:
    """The name of the list of decoder layers, and the layers."""
    for name, module in source.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return name, list(module)
    raise ModelError(
        f"could not offload {type(source).__name__}: it has no list of {count} layers",
        hint=with_options({"--offload": None}),
    )


def _place(folder: Path, locations: dict[str, TensorLocation], name: str, weight: Tensor) -> TensorLocation:
    """The place of a weight. Raises ModelError if it is missing, or its shape is not what config.json
    requires."""
    if name not in locations:
        raise ModelError(
            f"could not load a model from {folder}: its weights lack {name}; config.json and the weights "
            "must be of the same model",
            hint=listing(folder),
        )
    if locations[name].shape != tuple(weight.shape):
        raise ModelError(
            f"could not load a model from {folder}: {name} has the shape {locations[name].shape}, but "
            f"config.json requires {tuple(weight.shape)}; config.json and the weights must be of the same "
            "model",
            hint=listing(folder),
        )
    return locations[name]


def _assign(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, parameter)


def _without_data(module: nn.Module, name: str, parameter: Tensor) -> nn.Parameter:
    return nn.Parameter(parameter.to("meta"), requires_grad=False)
