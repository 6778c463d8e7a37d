"""A model of any architecture whose layers' weights come by: in memory are two layers, and what is no layer.

Transformers would do this through accelerate, which reads a layer when the layer is reached, so that reading
and computing take turns. Here the data of a layer's parameters is a slot of a stream (offload.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specops.engine.offload import Offload, Source, Stream, make_source
from specops.engine.weights import Place, places, read
from specops.errors import ModelError

Layer = dict[str, Place]
"""Where a layer's weights lie, by their names within it."""


class _LayerSlot:
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
    """transformers' model, its layers' weights left where `offload` says. Raises ModelError."""
    from transformers import AutoModelForCausalLM

    # Buffers, such as rotary frequencies, are computed and not stored: they must not be on the meta device.
    hook = nn.modules.module.register_module_parameter_registration_hook(
        _without_data  # type: ignore[arg-type]  # what it returns is taken, whatever torch's type says
    )
    try:
        source = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager")
    finally:
        hook.remove()
    found = places(folder)
    path, modules = _layers(source, config.num_hidden_layers)
    layers = [
        {name: _place(folder, found, f"{path}.{i}.{name}", w) for name, w in module.named_parameters()}
        for i, module in enumerate(modules)
    ]
    tied = set(getattr(source, "all_tied_weights_keys", None) or ())
    for name, weight in list(source.named_parameters(remove_duplicate=False)):
        if not name.startswith(f"{path}.") and name not in tied:
            held = read(_place(folder, found, name, weight)).to(dtype)
            _assign(source, name, nn.Parameter(held, requires_grad=False))
    source.tie_weights()
    if len({tuple((name, place.shape) for name, place in layer.items()) for layer in layers}) > 1:
        raise ModelError(
            f"could not offload {folder}: its layers are not all of one form", hint="load it whole"
        )
    reading = make_source(offload, [place for layer in layers for place in layer.values()], device)
    stream = Stream(len(layers), [_LayerSlot(layers, reading, dtype, device) for _ in range(2)])
    for index, module in enumerate(modules):
        _bind(module, index, stream, dtype, device)
    return source.to(device)


def _bind(
    module: nn.Module, index: int, stream: Stream[_LayerSlot], dtype: torch.dtype, device: torch.device
) -> None:
    """Whenever the layer runs, its parameters are those of the slot that it came in."""
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
    """The list of its decoder layers, and its name."""
    for name, module in source.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return name, list(module)
    raise ModelError(
        f"could not offload {type(source).__name__}: it has no list of {count} layers", hint="load it whole"
    )


def _place(folder: Path, found: dict[str, Place], name: str, weight: Tensor) -> Place:
    """ModelError where a weight is missing, or is not of the shape that config.json tells."""
    if name not in found:
        raise ModelError(
            f"could not load a model from {folder}: its weights lack {name}",
            hint="save it with this version of transformers; config.json must be of the same model",
        )
    if found[name].shape != tuple(weight.shape):
        raise ModelError(
            f"could not load a model from {folder}: {name} is of the shape {found[name].shape}, where "
            f"config.json tells of {tuple(weight.shape)}",
            hint="copy the folder again; config.json and the weights must be of the same model",
        )
    return found[name]


def _assign(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, parameter)


def _without_data(module: nn.Module, name: str, parameter: Tensor) -> nn.Parameter:
    return nn.Parameter(parameter.to("meta"), requires_grad=False)
