"""What the models were taught about whole texts: where they end, and how chats are laid out. Pure."""

from __future__ import annotations

from typing import Any

from specops.checkpoints.config import Config
from specops.checkpoints.templates import Message, compiled
from specops.checkpoints.tokenizer import Tokenizer
from specops.phases.verify_draft.findings import Finding

CONVERSATIONS: dict[str, list[Message]] = {
    "a question": [{"role": "user", "content": "Why is the sky blue?"}],
    "with a system message": [
        {"role": "system", "content": "You answer in one sentence."},
        {"role": "user", "content": "서울의 날씨는 어떤가요?"},
    ],
    "three turns": [
        {"role": "user", "content": "def f(n):\n\treturn n  "},
        {"role": "assistant", "content": "It returns its argument.\n"},
        {"role": "user", "content": " {{ and }} this? <|end|> "},
    ],
}


def ends(target: tuple[Config, dict[str, Any]], draft: tuple[Config, dict[str, Any]]) -> Finding:
    """End-of-text ids, each file against its own kind: (config.json, generation_config.json)."""
    for name, ours, theirs in (
        ("config.json", target[0].text, draft[0].text),
        ("generation_config.json", target[1], draft[1]),
    ):
        mine, other = _ids(ours.get("eos_token_id")), _ids(theirs.get("eos_token_id"))
        if mine and other and mine != other:
            witness = f"eos_token_id in {name}: {_both(str(sorted(mine)), str(sorted(other)))}"
            detail = "texts end with other tokens"
            return Finding(check="end of text", verdict="degraded", detail=detail, witness=witness)
    return Finding(check="end of text", verdict="compatible", detail="the same where both say it")


def _ids(value: Any) -> set[int]:
    values = value if isinstance(value, list) else [value]
    return {index for index in values if isinstance(index, int)}


def special_tokens(target: Tokenizer, draft: Tokenizer) -> Finding:
    check = "special tokens"
    differing = [
        key
        for key in sorted(target.special.keys() & draft.special.keys())
        if target.special[key] != draft.special[key]
    ]
    if "eos_token" in differing:
        return Finding(
            check=check,
            verdict="degraded",
            detail="eos_token differs",
            witness=_both(*(repr(side.special["eos_token"]) for side in (target, draft))),
        )
    if differing:
        # A first token that is really put before texts is found by the post-processor and the template.
        return Finding(
            check=check, verdict="compatible", detail=f"{', '.join(differing)} differ, which changes no draft"
        )
    return Finding(check=check, verdict="compatible", detail="the same")


def lengths(target: Config, draft: Config) -> Finding:
    """A draft that is shorter of breath stops drafting there; nothing it says before is worse."""
    ours, theirs = target.max_positions, draft.max_positions
    if ours is None or theirs is None:
        said = "config.json does not say it for both"
    else:
        said = f"{ours:,} positions in the target, {theirs:,} in the draft"
        said += ": beyond the draft's, it drafts badly or not at all" if theirs < ours else ""
    return Finding(check="model max length", verdict="compatible", detail=said)


def template(target: Tokenizer, draft: Tokenizer) -> Finding:
    check = "chat template"
    if target.template is None:
        return Finding(check=check, verdict="compatible", detail="the target has none")
    if draft.template is None:
        detail = "the draft has none: it was not taught the target's chats, if it is a base model"
        return Finding(check=check, verdict="degraded", detail=detail)
    ours, theirs = compiled(target.template, target.special), compiled(draft.template, draft.special)
    for name, messages in CONVERSATIONS.items():
        for prompted in (True, False):
            mine, other = ours(messages, prompted), theirs(messages, prompted)
            if mine != other:
                at = next(
                    (n for n, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b),
                    min(len(mine), len(other)),
                )
                return Finding(
                    check=check,
                    verdict="degraded",
                    detail=f"chats are laid out in another way ({name})",
                    witness=f"character {at}: {_both(_around(mine, at), _around(other, at))}",
                )
    same = "the same" if target.template == draft.template else "written differently, rendered the same"
    return Finding(check=check, verdict="compatible", detail=f"{same}, {len(CONVERSATIONS)} conversations")


def chats(tokenizer: Tokenizer) -> list[str]:
    """The conversations as the target's template renders them: texts whose encodings are worth comparing."""
    if tokenizer.template is None:
        return []
    render = compiled(tokenizer.template, tokenizer.special)
    return [render(messages, prompted) for messages in CONVERSATIONS.values() for prompted in (True, False)]


def _both(ours: str, theirs: str) -> str:
    return f"{ours} in the target, {theirs} in the draft"


def _around(text: str, at: int) -> str:
    return repr(text[max(0, at - 8) : at + 32])
