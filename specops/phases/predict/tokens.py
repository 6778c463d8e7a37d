"""Logged prompts and answers as the tokens of the pool's own tokenizer.

A text can be cut into tokens in several ways, and an answer's own cut is in few logs. An answer is *verified*
where the log has its tokens, or their number is that of the encoded text, and the same holds of its prompt.
One of another number is left out: its tokens are not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specops.checkpoints.source import find
from specops.checkpoints.templates import Render, rendering
from specops.checkpoints.tokenizer import Tokenizer, tokenizer_of
from specops.config import Rollout
from specops.errors import SpecopsError
from specops.phases.predict.log import LoggedAnswer

UNLIMITED = 1 << 20
"""Tokens that an answer without a known limit could have had."""

NO_TOKEN = -1
"""Stands for an end of text that the tokenizer does not name: no draft has it."""


@dataclass(frozen=True)
class EncodedAnswer:
    """An answer in token ids."""

    conversation: str
    traffic_class: str
    prompt: list[int]
    written: list[int]
    """Its end-of-sequence token included, where it ended so."""

    limit: int
    """The most tokens that it could have had."""

    temperature: float | None
    """None: the log does not say."""

    verified: bool

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def pool_tokenizer(rollout: Rollout) -> Tokenizer | str:
    """The tokenizer of the rollout's pools, or why there is none. Only local files are read."""
    reasons = []
    for pool in (rollout.pools.speculative, rollout.pools.standard):
        named = pool.target_folder or next(iter(pool.models.values()), None)
        if named is None:
            continue
        if not Path(named).is_dir():
            reasons.append(f"{named} is not a folder of this machine")
            continue
        try:
            tokenizer = tokenizer_of(find(str(named)))
        except SpecopsError as error:
            reasons.append(error.message)
            continue
        if tokenizer is not None:
            return tokenizer
        reasons.append(f"{named} has no tokenizer")
    return "; ".join(dict.fromkeys(reasons)) or "the rollout file names no model folder"


def encode(
    answers: Sequence[LoggedAnswer], tokenizer: Tokenizer
) -> tuple[list[EncodedAnswer], Mapping[str, int]]:
    """The answers in tokens, and how many were left out, by reason."""
    left_out: Counter[str] = Counter()
    encoded: list[EncodedAnswer] = []
    prompts = _prompt_encoder(tokenizer)
    texts = [answer.text if answer.token_ids is None else "" for answer in answers]
    ends = tokenizer.special.get("eos_token")
    end = tokenizer.encoder.token_to_id(ends) if ends is not None else None
    for answer, ids in zip(answers, tokenizer.encode(texts), strict=True):
        prompt = prompts(answer)
        if isinstance(prompt, str):
            left_out[prompt] += 1
            continue
        if answer.prompt_tokens not in (None, len(prompt)):
            left_out["the server read another prompt than the one that is logged"] += 1
            continue
        written = _written(answer, ids, NO_TOKEN if end is None else end)
        if isinstance(written, str):
            left_out[written] += 1
            continue
        cut = answer.finish_reason == "length"
        encoded.append(
            EncodedAnswer(
                conversation=answer.conversation,
                traffic_class=answer.traffic_class,
                prompt=prompt,
                written=written,
                limit=len(written) if cut else max(answer.max_tokens or UNLIMITED, len(written)),
                temperature=answer.temperature,
                verified=(answer.token_ids is not None or answer.tokens is not None)
                and (answer.prompt_tokens is not None or isinstance(answer.prompt[0], int)),
            )
        )
    return encoded, dict(left_out.most_common())


def _written(answer: LoggedAnswer, ids: list[int], end: int) -> list[int] | str:
    if answer.token_ids is not None:
        return list(answer.token_ids)
    missing = None if answer.tokens is None else answer.tokens - len(ids)
    if missing not in (None, 0, 1):
        return "the tokenizer counts other tokens than the server did: how it was cut is not known"
    if missing == 1 and answer.finish_reason == "length":
        return "the tokenizer counts other tokens than the server did: how it was cut is not known"
    ended = answer.finish_reason != "length" if missing is None else missing == 1
    return [*ids, end] if ended else ids


def _prompt_encoder(tokenizer: Tokenizer) -> Callable[[LoggedAnswer], list[int] | str]:
    """A function from an answer to the tokens of its prompt, as a server encodes it, or to why not."""
    render: Render | None = None
    failure = "the model has no chat template"
    if tokenizer.template is not None:
        try:
            render = rendering(tokenizer.template, tokenizer.special)
        except Exception as error:  # a template is a stranger's program
            failure = f"the model's chat template is wrong: {type(error).__name__}"

    def prompt_tokens(answer: LoggedAnswer) -> list[int] | str:
        match answer.prompt:
            case str(text):
                ids: list[int] = tokenizer.encode([text], special=True)[0]
            case (int(), *_):
                ids = [token for token in answer.prompt if isinstance(token, int)]
            case messages:
                if render is None:
                    return failure
                if any(_beside_text(message) for message in messages if isinstance(message, dict)):
                    return "the prompt has parts that are not text"
                try:
                    text = render([m for m in messages if isinstance(m, dict)], True)
                except Exception:  # it refuses some conversations
                    return "the model's chat template refused the messages"
                ids = tokenizer.encode([text])[0]  # the template has written the special tokens
        return ids or "the prompt has no tokens"

    return prompt_tokens


def _beside_text(message: Mapping[str, object]) -> bool:
    """Return whether a message has a part that is not text, such as an image."""
    parts = message.get("content")
    return isinstance(parts, list) and not all(
        isinstance(part, dict) and part.get("type") == "text" for part in parts
    )
