"""Models: the lean forward for the Llama family, and any other decoder of transformers over the engine's
cache.

  model.py    what the engine needs of a model
  llama.py    the Llama family's files, and its lean forward pass on a CPU
  linear.py   matrices in the form that reads fastest
  generic.py  any decoder of transformers; its limits are probed on loading
  offload.py  layers' weights on disk or in host memory, read for every pass
  graphs.py   small passes on a GPU as CUDA graphs
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError

from specops.engine.attention import CPU
from specops.engine.models.model import FeatureModel, refuse_not_finite
from specops.engine.models.offload import Offload
from specops.engine.parallel.process_group import Ranks
from specops.errors import ModelError
from specops.hints import listing


def load_model(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    *,
    device: torch.device = CPU,
    kernel: bool = False,
    offload: Offload | None = None,
    ranks: Ranks | None = None,
) -> FeatureModel:
    """Load a decoder-only model from a local folder in transformers' format.

    device: where it runs; the lean forward is for CPUs only. kernel: attention by the Triton kernel, which
    needs a GPU, or Triton's interpreter. offload: leave its layers on disk or in host memory, and read them
    for every pass.
    ranks: hold the part of this process only. Raises ModelError for a folder or an architecture that cannot
    be used.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"could not load a model from {folder}: there is no config.json: expected a folder in "
            "transformers' format, with config.json, weights and tokenizer",
            hint=listing(folder),
        )
    if offload is not None:
        return _offloaded(folder, dtype, device, kernel, offload)

    from specops.engine.models.llama import LeanLlama, checked_config, read_family

    if ranks is None and not kernel and device.type == "cpu" and dtype == torch.float32:
        read = read_family(folder)
        if read is not None:
            refuse_not_finite(folder, read[1].items())
            return LeanLlama(*read)

    from transformers import AutoModelForCausalLM  # seconds of imports, needed only here
    from transformers.utils import logging

    from specops.engine.models.generic import GenericModel

    logging.disable_progress_bar()
    try:
        with checked_config():
            source, loading = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation="eager",
                trust_remote_code=False,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"could not load a model from {folder}: {first_reason(error)}") from error
    missing = sorted(loading["missing_keys"])
    if missing:  # transformers would go on with random ones
        raise ModelError(
            f"could not load a model from {folder}: {len(missing)} weights are missing, {missing[0]} first; "
            "config.json and the weights must be of the same model",
            hint=listing(folder),
        )
    source.eval().requires_grad_(False)
    refuse_not_finite(folder, source.named_parameters())
    return GenericModel(source, device, kernel=kernel, ranks=ranks)


def _offloaded(
    folder: Path, dtype: torch.dtype, device: torch.device, kernel: bool, offload: Offload
) -> FeatureModel:
    from transformers import AutoConfig

    from specops.engine.models.generic import GenericModel
    from specops.engine.models.llama import checked_config
    from specops.engine.models.offload import load_streamed

    try:
        with checked_config():
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config()
            source = load_streamed(folder, config, dtype, offload, device)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(f"could not load a model from {folder}: {first_reason(error)}") from error
    return GenericModel(source.eval().requires_grad_(False), device, kernel=kernel)


def first_reason(error: Exception) -> str:
    """An error's text in one line: the first that is not a heading of those below it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if not line.endswith(":")), lines[0])


def eos_token_ids(folder: Path) -> frozenset[int]:
    """Token ids that end a sequence: from generation_config.json, else from config.json."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if path.is_file():
            try:
                value = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
            except (ValueError, AttributeError) as error:
                raise ModelError(f"could not load {path}: it is not a JSON object") from error
            if value is not None:
                return frozenset(value if isinstance(value, list) else [value])
    return frozenset()
