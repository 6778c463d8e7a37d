"""The settings of a pool of llama.cpp's server, in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from specops.section import Arguments, Program, Section
from specops.serving.configured_pool import ConfiguredPool, Size

SpecType = Literal[
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]


def _beside(value: str, info: ValidationInfo) -> str:
    """A file beside the rollout file by its whole path: a relative one would mean another in another working
    directory. Any other text stands as it is: a hub id, or a file that only the server's machine has."""
    folder: Path = (info.context or {}).get("folder", Path())
    path = folder / Path(value).expanduser()
    return str(path.absolute()) if path.is_file() else value


ModelFile = Annotated[str, Field(min_length=1), AfterValidator(_beside)]
Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class LlamacppSpeculation(Section):
    """llama-server's --spec-* flags."""

    type: SpecType = Field(description="Always named: since b9873 a draft without --spec-type is not used.")
    model: ModelFile | None = Field(
        default=None, description="GGUF file of the draft, or hub id USER/REPO[:QUANT]; n-grams have none."
    )
    n_max: Size = Field(
        default=5, description="Tokens drafted ahead at most; of n-grams, the length that is looked up."
    )
    n_min: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Drafts shorter than this are not used; of draft-* and ngram-mod."
    )
    p_min: Share | None = Field(
        default=None, description="Drafting ends at a token less probable than this; of draft-*."
    )
    sampling: Literal["greedy", "probabilistic"] | None = Field(
        default=None, description="How draft-* is drawn at a temperature above 0; since b11549."
    )
    size_n: Size | None = Field(default=None, description="Length of the n-gram that is looked for.")
    arguments: Arguments = Field(default=[], description="Further words, such as -ngld 99.")

    @model_validator(mode="after")
    def _a_draft_where_one_is_needed(self) -> LlamacppSpeculation:
        problem = hint = None
        drafts = self.type.startswith("draft-")
        if drafts and self.model is None and self.type != "draft-mtp":
            problem, hint = f"{self.type} has no draft", "add model: its GGUF file"
        elif not drafts and self.model is not None:
            problem, hint = f"{self.type} drafts from the text itself", "remove model"
        elif drafts and self.size_n is not None:
            problem, hint = f"size_n is of n-grams, and the type is {self.type}", "remove size_n"
        elif not drafts and (self.p_min is not None or self.sampling is not None):
            problem, hint = f"p_min and sampling are of draft-*, and the type is {self.type}", "remove them"
        if problem:
            raise PydanticCustomError("speculation", "{message}", {"message": problem, "hint": hint})
        return self


class LlamacppSettings(ConfiguredPool):
    """The fields of a pool of llama.cpp; LlamacppPool (pool.py) answers with them."""

    TARGET: ClassVar[str] = "model"
    DRAFT: ClassVar[str] = "model"
    METHOD: ClassVar[str] = "type"
    SIDE_BY_SIDE: ClassVar[Mapping[str, Any]] = {"cache_prompt": False}

    engine: Literal["llamacpp"]
    model: ModelFile = Field(description="GGUF file of the target, or hub id USER/REPO[:QUANT].")
    version: str | None = Field(
        default=None,
        pattern=r"^b?\d{3,6}$",
        description="The build, such as b11549; left out: the one that `program` says it has.",
    )
    program: Program = Field(
        default="llama-server",
        description="How it is called, with what comes before; xllamacpp: the server inside that package.",
    )
    alias: Text | None = Field(default=None, description="What clients call the model; left out: its file.")
    parallel: Size = Field(
        default=4, description="Requests at a time. Always given: left out, the build chooses."
    )
    ctx_size: Size | None = Field(
        default=None,
        description="Tokens of all `parallel` requests together; left out: the model's.",
    )
    threads: Size | None = Field(default=None, description="CPU threads of a step; left out: all cores.")
    threads_batch: Size | None = Field(default=None, description="CPU threads of a prompt.")
    batch_size: Size | None = Field(default=None, description="Tokens of a prompt in one call.")
    ubatch_size: Size | None = Field(default=None, description="Tokens of one forward pass.")
    gpu_count: int = Field(
        default=0, ge=0, description="GPUs that a container gets; a server takes all that it finds."
    )
    n_gpu_layers: Annotated[int, Field(ge=0)] | Literal["auto", "all"] | None = Field(
        default=None, description="Layers on the GPU; left out: what fits."
    )
    flash_attn: Literal["on", "off", "auto"] | None = None
    cache_type_k: CacheType | None = Field(default=None, description="Of the KV cache's keys.")
    cache_type_v: CacheType | None = Field(default=None, description="Of its values.")
    cache_prompt: bool | None = Field(default=None, description="false: repeated prompts are not faster.")
    speculation: LlamacppSpeculation | None = Field(default=None, description="Left out: one token a step.")
