"""The requests of OpenAI's API with vLLM's extensions, and which of their parameters the engine supports.

Types are strict (a number in quotes is refused), null stands for the default, and a field that neither
OpenAI nor vLLM gives a meaning here is ignored, as both do.

Load generators and client libraries send many parameters that the embedded engine lacks, at a value that
requests nothing. Such a request is answered. Any other value is refused by the parameter's name: an answer
without the parameter's effect would be measured as if it had it.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from specops.engine.request import LEAST_TEMPERATURE, Sampling
from specops.serve.admission import Refusal

MAX_CHOICES = 128
MAX_LOGPROBS = 20
MAX_STOPS, MAX_STOP_CHARACTERS = 64, 2048
"""Limits of a request's `stop` strings and of their total length. Each new token is matched against all of
them, in the process that computes for all requests."""

MAX_STOP_TOKENS = 1024
_INT64 = 2**63

Request = TypeVar("Request", bound="GenerationRequest")


def _drop_nulls(value: Any) -> Any:
    return (
        {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value
    )


def _few_stops(value: Any) -> Any:
    """Check the limits before each string is validated: a body has room for a million."""
    value = [value] if isinstance(value, str) else value
    if isinstance(value, list):
        characters = sum(len(stop) for stop in value if isinstance(stop, str))
        if len(value) > MAX_STOPS or characters > MAX_STOP_CHARACTERS:
            raise ValueError(
                f"may hold at most {MAX_STOPS} strings with {MAX_STOP_CHARACTERS} characters in all, not "
                f"{len(value)} with {characters}"
            )
    return value


def _joined_text(value: Any) -> str:
    """The text of a message's content: a string, or OpenAI's list of parts, all of them text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("must be a string or a list of text parts")
    texts = []
    for part in value:
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise ValueError('may hold only parts like {"type": "text", "text": "…"}: this model reads text')
        texts.append(part["text"])
    return "\n".join(texts)


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    _nulls_are_defaults = model_validator(mode="before")(_drop_nulls)


class StreamOptions(_Body):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class Message(_Body):
    role: str
    content: Annotated[str, BeforeValidator(_joined_text)] = ""


class GenerationRequest(_Body):
    """The fields that the chat and the completions endpoint share."""

    prompt_field: ClassVar[str]

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(1.0, ge=0.0, le=2.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    top_k: int = Field(0, ge=-1)
    seed: int | None = Field(None, ge=-_INT64, lt=_INT64)
    stop: Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_few_stops)] = Field(
        default_factory=list
    )
    stop_token_ids: list[int] = Field(default_factory=list, max_length=MAX_STOP_TOKENS)
    ignore_eos: bool = False
    return_token_ids: bool = False

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options may be set only together with stream")
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def continuous_usage(self) -> bool:
        # As in vLLM, usage on every chunk comes only with usage at the end.
        return self.include_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    @property
    def token_limit(self) -> int | None:
        """The most tokens of each choice; None if the client set no limit."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    @abstractmethod
    def top_count(self) -> int | None:
        """Number of alternatives beside each token's own log-probability; None: no log-probabilities."""

    def sampling(self, choice: int, max_tokens: int) -> Sampling:
        """Sampling of choice number `choice` of each prompt. Its seed is the request's plus its number."""
        return Sampling(
            temperature=0.0 if self.temperature < LEAST_TEMPERATURE else self.temperature,
            top_k=max(self.top_k, 0),
            top_p=self.top_p,
            seed=None if self.seed is None else (self.seed + choice) % _INT64,
            max_tokens=max_tokens,
            stop=tuple(self.stop),
            stop_token_ids=tuple(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
            logprobs=self.top_count,
        )


class ChatRequest(GenerationRequest):
    prompt_field = "messages"

    messages: list[Message] = Field(min_length=1)
    add_special_tokens: bool = False  # the template writes them
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MAX_LOGPROBS)

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs may be set only together with logprobs")
        return self

    @property
    def top_count(self) -> int | None:
        return self.top_logprobs if self.logprobs else None


class CompletionRequest(GenerationRequest):
    prompt_field = "prompt"

    prompt: Any  # four shapes, which PromptEncoder distinguishes
    add_special_tokens: bool = True
    max_tokens: int | None = Field(16, ge=1)
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)

    @property
    def top_count(self) -> int | None:
        return self.logprobs


def parse(kind: type[Request], body: bytes) -> Request:
    """Read a request body. Raises Refusal (400), with the field's name, for anything wrong with it."""
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False, include_context=False)[0]) from None
    ignores_end = request.ignore_eos and not request.stop and not request.stop_token_ids
    refuse_unsupported(request.model_extra or {}, ignores_end=ignores_end)
    return request


def _refusal(error: ErrorDetails) -> Refusal:
    if error["type"] == "json_invalid":
        return Refusal(400, f"the body is not JSON: {error['msg'].removeprefix('Invalid JSON: ')}")
    where = ".".join(str(part) for part in error["loc"])
    if not where and error["type"] == "model_type":
        return Refusal(400, "the body must be a JSON object")
    reason = error["msg"].removeprefix("Value error, ").replace("Input should be ", "must be ")
    if not where:  # a rule between fields: its text begins with the name of the one that breaks it
        return Refusal(400, reason, param=reason.split(" ", 1)[0])
    return Refusal(400, f"{where}: {reason}", param=str(error["loc"][0]))


# The values of each parameter that request nothing; null always requests nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "allowed_token_ids": ([],),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "documents": ([],),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logits_processors": ([],),
    "min_p": (0,),
    "modalities": (["text"], []),
    "presence_penalty": (0,),
    "prompt_embeds": (),
    "prompt_logprobs": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "structured_outputs": ({},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "web_search_options": (),
}


def refuse_unsupported(extra: Mapping[str, Any], *, ignores_end: bool) -> None:
    """Raise Refusal (400) for the first of the `extra` fields that requests what the engine lacks.

    `min_tokens` requests nothing if the sequence cannot end early anyway (`ignores_end`).
    """
    for name, value in extra.items():
        neutral = _NEUTRAL.get(name)
        if neutral is not None and value is not None and value not in neutral:
            raise _unsupported(name)
    if extra.get("min_tokens") not in (None, 0) and not ignores_end:
        raise _unsupported("min_tokens", " unless ignore_eos is true and stop is empty")


def _unsupported(name: str, except_where: str = "") -> Refusal:
    return Refusal(
        400,
        f"the embedded engine does not support {name}{except_where}",
        param=name,
        code="unsupported_parameter",
    )


LONG_TEXT = 2048  # characters; encoding more than that would hold up every other stream for a millisecond

PIECE = 8
"""Characters for each token of the context in the first piece of a text whose tokens are counted."""

_SHAPES = "prompt must be a string, a list of strings, a list of token ids, or a list of lists of token ids"


def over_context(size: str, max_length: int, field: str) -> Refusal:
    """The refusal of a prompt of such a `size` in words."""
    return Refusal(
        400,
        f"the prompt has {size}; this model's context of {max_length} tokens must hold it and at least one "
        "token of output",
        param=field,
        code="context_length_exceeded",
    )


class PromptEncoder:
    """Encodes prompts with a transformers fast tokenizer. A text that cannot fit into the context is refused
    by its bytes, or by a part of it, since encoding 4 MB takes seconds and 740 MB of memory. A long text is
    encoded in a thread, one at a time, by `encode_batch`, which releases the interpreter's lock, as `encode`
    does not.

    It goes to the Rust tokenizer directly: transformers' own `encode` sets truncation and padding on the
    shared object each time, which fails ("Already borrowed") while the engine's thread decodes with it.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        """max_length: tokens of the context."""
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._backend = tokenizer.backend_tokenizer
        self._longest = max((len(token.encode()) for token in self._backend.get_vocab()), default=1)
        self._thread = ThreadPoolExecutor(1, "encoder")
        self._backend.no_truncation()
        self._backend.no_padding()

    async def completion(self, prompt: Any, add_special_tokens: bool) -> list[list[int]]:
        """Token ids of each prompt in the `prompt` field of /v1/completions, in order.

        Raises Refusal (400) for any other shape.
        """
        if isinstance(prompt, str):
            return [await self._encode(prompt, add_special_tokens, "prompt")]
        if not isinstance(prompt, list) or not prompt:
            raise Refusal(400, _SHAPES, param="prompt")
        if all(isinstance(item, str) for item in prompt):
            return [await self._encode(item, add_special_tokens, "prompt") for item in prompt]
        if _is_token_ids(prompt):
            return [prompt]
        if all(isinstance(item, list) and _is_token_ids(item) for item in prompt):
            return prompt
        raise Refusal(400, _SHAPES, param="prompt")

    async def chat(self, messages: list[Message], add_special_tokens: bool) -> list[int]:
        """Token ids of the conversation in the model's own template, up to the assistant's answer.

        Raises Refusal (400) if the model has no template, or the template refuses the messages.
        """
        if not self._tokenizer.chat_template:
            raise Refusal(400, "this model has no chat template: use /v1/completions", param="messages")
        if len(messages) > self._max_length:  # each is a token at least
            raise over_context(f"{len(messages)} messages", self._max_length, "messages")
        for message in messages:
            self._refuse_by_bytes(message.content, "messages")
        conversation = [message.model_dump() for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template is the model's own program and may fail in any way
            raise Refusal(
                400,
                f"the model's chat template refused the messages: {type(error).__name__}: {error}",
                param="messages",
            ) from error
        return await self._encode(text, add_special_tokens, "messages")

    async def _encode(self, text: str, add_special_tokens: bool, field: str) -> list[int]:
        self._refuse_by_bytes(text, field)
        if len(text) <= LONG_TEXT:
            return self._ids(text, add_special_tokens)
        within = asyncio.get_running_loop().run_in_executor
        # A part of a text has about as many tokens there as alone: the cut changes some of those around it.
        most, reach = self._max_length * 5 // 4 + self._longest, PIECE * self._max_length
        while reach < len(text):
            part = await within(self._thread, self._ids, text[:reach], False)
            if len(part) > most:
                raise over_context(f"more than {self._max_length} tokens", self._max_length, field)
            reach *= 4
        return await within(self._thread, self._ids, text, add_special_tokens)

    def _refuse_by_bytes(self, text: str, field: str) -> None:
        """Raise Refusal (400) for a text that would not fit if all its tokens were the longest one."""
        most = self._max_length * self._longest
        if len(text) > most or (4 * len(text) > most and len(text.encode()) > most):
            raise over_context(f"more than {most} bytes", self._max_length, field)

    def _ids(self, text: str, add_special_tokens: bool) -> list[int]:
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids


def count_prompts(prompt: Any) -> int:
    """Return how many prompts the `prompt` field of /v1/completions holds, judged by the first item only."""
    several = isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list)
    return len(prompt) if several else 1


def _is_token_ids(value: list[Any]) -> bool:
    return bool(value) and all(type(item) is int for item in value)  # not bool, which is an int too
