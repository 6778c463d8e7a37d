"""Parameters of OpenAI's and vLLM's API that the embedded engine does not have.

Load generators and client libraries send many of them at a value that asks for nothing. Such a request is
answered; one that asks for something is refused by the parameter's name, since an answer that silently
leaves it out would be measured as if it had it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specops.serve.refusal import Refusal

# The values of each parameter that ask for nothing; null always does.
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
    """Refuse the first of the `extra` fields that asks for what the engine lacks.

    `min_tokens` asks for nothing where the sequence cannot end early anyway (`ignores_end`).
    """
    for name, value in extra.items():
        neutral = _NEUTRAL.get(name)
        if neutral is not None and value is not None and value not in neutral:
            raise _refusal(name)
    if extra.get("min_tokens") not in (None, 0) and not ignores_end:
        raise _refusal("min_tokens", hint=" unless ignore_eos is true and stop is empty")


def _refusal(name: str, hint: str = "") -> Refusal:
    return Refusal(
        400, f"the embedded engine does not support {name}{hint}", param=name, code="unsupported_parameter"
    )
