"""Encodes the prompts and conversations that clients send to token ids."""

from __future__ import annotations

import asyncio
from typing import Any

from specops.serve.admission import Refusal
from specops.serve.protocol import Message

LONG_TEXT = 32_768  # characters; encoding more than that would hold up every other stream for milliseconds

_SHAPES = "prompt must be a string, a list of strings, a list of token ids, or a list of lists of token ids"


class PromptEncoder:
    """Encodes prompts with a transformers fast tokenizer.

    It goes to the Rust tokenizer directly: transformers' own `encode` sets truncation and padding on the
    shared object each time, which fails ("Already borrowed") while the engine's thread decodes with it.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()

    async def completion(self, prompt: Any, add_special_tokens: bool) -> list[list[int]]:
        """Token ids of each prompt in the `prompt` field of /v1/completions, in order.

        Raises Refusal (400) for any other shape.
        """
        if isinstance(prompt, str):
            return [await self._encode(prompt, add_special_tokens)]
        if not isinstance(prompt, list) or not prompt:
            raise Refusal(400, _SHAPES, param="prompt")
        if all(isinstance(item, str) for item in prompt):
            return [await self._encode(item, add_special_tokens) for item in prompt]
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
        return await self._encode(text, add_special_tokens)

    async def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if len(text) <= LONG_TEXT:
            return self._ids(text, add_special_tokens)
        return await asyncio.to_thread(self._ids, text, add_special_tokens)

    def _ids(self, text: str, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        return ids


def count_prompts(prompt: Any) -> int:
    """How many prompts the `prompt` field of /v1/completions holds, judged by the first item only."""
    several = isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list)
    return len(prompt) if several else 1


def _is_token_ids(value: list[Any]) -> bool:
    return bool(value) and all(type(item) is int for item in value)  # not bool, which is an int too
