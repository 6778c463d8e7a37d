"""Differences between two tokenizers, and between the ends and templates of their texts: one finding for each
check. Pure.

Each part is compared whole.

Draft and target exchange ids at run time, and all text is the target's tokenizer's work. So the draft's
tokenizer never runs: it shows which ids the draft was taught, for which pieces of text. Another map makes
every id mean something else; another way of cutting text up makes the draft a worse guesser, no more.

Sampling encodings does not stand in for comparing merges: of 60 pairs with one merge of 30,000 dropped,
1,000 encodings missed 48. Encodings give the witness.
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from specops.checkpoints.model_config import Config
from specops.checkpoints.templates import Message, RenderedTexts, rendered
from specops.checkpoints.tokenizer import Tokenizer
from specops.phases.verify_draft.pair import PairFinding, Severity, compatible
from specops.section import Frozen

PLACEHOLDER = re.compile(
    r"[<\[]\|?(reserved_special_token|reserved|unused|extra|placeholder|special|control|dummy)_?\d+\|?[>\]]",
    re.IGNORECASE,
)
"""How families name ids that they keep for later: no text has them."""

FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
SEQUENCES = ("normalizers", "pretokenizers", "decoders", "processors")
PROBES = ("word", " two words", "한국어")
"""What the post-processor adds to these, it adds to any text."""


def compare(
    target: Tokenizer, draft: Tokenizer, draft_rows: int | None, target_rows: int | None = None
) -> list[PairFinding]:
    """Compare both tokenizers. `draft_rows`, `target_rows`: the rows of their embeddings, config.json's
    vocab_size."""
    return [
        token_ids(target, draft, draft_rows, target_rows),
        _merges(target, draft),
        _model(target, draft),
        _byte_fallback(target, draft),
        _added(target, draft),
        _part("normaliser", "normalizer", target, draft),
        _part("pre-tokeniser", "pre_tokenizer", target, draft),
        _part("decoder", "decoder", target, draft),
        _around(target, draft),
    ]


def token_ids(
    target: Tokenizer, draft: Tokenizer, draft_rows: int | None, target_rows: int | None = None
) -> PairFinding:
    """The two id -> token maps. An id that a placeholder holds, or nothing, is not in use; nor is one for
    which the target has no row, such as a [PAD] that was added for training.

    In use by both and not the same: incompatible. Named by one of them alone, such as an added token that
    only one family member has: degraded, where the draft has a row for it.
    """
    check = "token ids"
    target_tokens, draft_tokens = target.tokens, draft.tokens
    if target_rows is not None:
        target_tokens = {index: token for index, token in target_tokens.items() if index < target_rows}
    if draft_rows is not None:
        lost = {index for index in draft_tokens if index >= draft_rows and _used(draft_tokens[index])}
        if target_rows is not None:
            lost &= target_tokens.keys()
        draft_tokens = {
            index: token for index, token in draft_tokens.items() if index < draft_rows or index in lost
        }
        beyond = sorted(lost)
        if beyond:
            detail = f"the draft's embedding has {draft_rows:,} rows; {len(beyond):,} ids in use have none"
            first = f"id {beyond[0]}: {draft_tokens[beyond[0]]!r}"
            return PairFinding(check=check, verdict="incompatible", detail=detail, witness=first)
    if target_tokens == draft_tokens:
        return compatible(check, f"all {len(target_tokens):,} ids mean the same token")
    conflicts, alone = [], []
    for index in sorted({index for index, _ in target_tokens.items() ^ draft_tokens.items()}):
        target_token, draft_token = _used(target_tokens.get(index)), _used(draft_tokens.get(index))
        if target_token == draft_token:
            continue
        without_row = target_token is not None and draft_rows is not None and index >= draft_rows
        regular = index not in (target.added if target_token is not None else draft.added)
        absent = index not in target_tokens or index not in draft_tokens
        if (target_token is not None and draft_token is not None) or without_row or (absent and regular):
            conflicts.append(index)
        else:
            alone.append(index)

    def witness(index: int) -> str:
        return f"id {index}: {_contrast(_named(target_tokens.get(index)), _named(draft_tokens.get(index)))}"

    if conflicts:
        detail = f"{len(conflicts):,} ids in use mean different tokens"
        return PairFinding(check=check, verdict="incompatible", detail=detail, witness=witness(conflicts[0]))
    if alone:
        detail = f"{len(alone):,} added tokens are known to one of the two alone; the others mean the same"
        return PairFinding(check=check, verdict="degraded", detail=detail, witness=witness(alone[0]))
    return compatible(check, "all ids in use mean the same token")


def _used(token: str | None) -> str | None:
    return None if token is None or PLACEHOLDER.fullmatch(token) else token


def _named(token: str | None) -> str:
    return "nothing" if token is None else repr(token)


def _merges(target: Tokenizer, draft: Tokenizer) -> PairFinding:
    if isinstance(target.model["vocab"], list) or isinstance(draft.model["vocab"], list):
        return _scores(target, draft)
    if (target.model.get("merges") or []) == (draft.model.get("merges") or []):
        return compatible("merges", f"all {len(target.model.get('merges') or []):,}, in order")
    target_merges, draft_merges = target.merges(), draft.merges()
    if target_merges == draft_merges:
        return compatible("merges", f"all {len(target_merges):,}, in order")
    index = _first_difference(target_merges, draft_merges)

    def describe_merge(merges: list[tuple[str, str]]) -> str:
        return " + ".join(map(repr, merges[index])) if index < len(merges) else "nothing"

    unshared = len(set(target_merges) ^ set(draft_merges))
    where = f"{unshared:,} exist in only one of them" if unshared else "the same ones in another order"
    if unshared == 1:
        where = "1 exists in only one of them"
    detail = f"{len(target_merges):,} and {len(draft_merges):,}; {where}"
    message = f"merge {index}: {_contrast(describe_merge(target_merges), describe_merge(draft_merges))}"
    return PairFinding(check="merges", verdict="degraded", detail=detail, witness=message)


def _scores(target: Tokenizer, draft: Tokenizer) -> PairFinding:
    """Compare the scores of a Unigram model, which has no merges. `token_ids` compares the tokens
    themselves."""
    target_vocabulary, draft_vocabulary = target.model["vocab"], draft.model["vocab"]
    if not (isinstance(target_vocabulary, list) and isinstance(draft_vocabulary, list)):
        return PairFinding(check="merges", verdict="degraded", detail="one of the two has scores, not merges")
    pairs = enumerate(zip(target_vocabulary, draft_vocabulary, strict=False))
    position = next((index for index, (left, right) in pairs if left[1] != right[1]), None)
    if position is None:
        return compatible("merges", "none; all scores of the unigram model are equal")
    (token, score), (_, draft_score) = target_vocabulary[position], draft_vocabulary[position]
    message = f"id {position}, {token!r}: {_contrast(str(score), str(draft_score))}"
    return PairFinding(check="merges", verdict="degraded", detail="unigram scores differ", witness=message)


def _model(target: Tokenizer, draft: Tokenizer) -> PairFinding:
    target_settings, draft_settings = _settings(target), _settings(draft)
    return _keys(
        "model",
        target_settings,
        draft_settings,
        "degraded",
        f"{target_settings.get('type', 'BPE')}, the same settings",
    )


def _settings(tokenizer: Tokenizer) -> dict[str, Any]:
    own_checks = ("vocab", "merges", "byte_fallback")  # checks of their own
    # Left out, null, false and empty mean the same in tokenizer.json.
    return {key: value for key, value in tokenizer.model.items() if key not in own_checks and value}


def _byte_fallback(target: Tokenizer, draft: Tokenizer) -> PairFinding:
    in_target, in_draft = (bool(tokenizer.model.get("byte_fallback")) for tokenizer in (target, draft))
    words = {True: "on", False: "off"}
    if in_target == in_draft:
        return compatible("byte fallback", f"{words[in_target]} in both")
    detail = _contrast(words[in_target], words[in_draft])
    return PairFinding(check="byte fallback", verdict="degraded", detail=detail)


def _added(target: Tokenizer, draft: Tokenizer) -> PairFinding:
    """Flags of the added tokens that both have; `token_ids` reports those that only one has."""
    shared = sorted(target.added.keys() & draft.added.keys())
    differing = []
    for index in shared:
        target_token, draft_token = target.added[index], draft.added[index]
        if target_token["content"] == draft_token["content"]:
            differing += [
                (index, flag) for flag in FLAGS if bool(target_token.get(flag)) != bool(draft_token.get(flag))
            ]
    if not differing:
        return compatible("added tokens", f"{len(shared):,} in both, the same flags")
    index, flag = differing[0]
    return PairFinding(
        check="added tokens",
        verdict="degraded",
        detail=f"{len({index for index, _ in differing}):,} of {len(shared):,} have other flags",
        witness=f"{target.added[index]['content']!r}: {flag} is {bool(target.added[index].get(flag))} in the "
        f"target, {bool(draft.added[index].get(flag))} in the draft",
    )


def _part(check: str, name: str, target: Tokenizer, draft: Tokenizer) -> PairFinding:
    target_steps, draft_steps = (_steps(getattr(tokenizer.encoder, name)) for tokenizer in (target, draft))
    if target_steps == draft_steps:
        return compatible(check, ", ".join(step["type"] for step in target_steps) or "none in both")
    position = _first_difference(target_steps, draft_steps)
    target_step, draft_step = (
        json.dumps(steps[position]) if position < len(steps) else "nothing"
        for steps in (target_steps, draft_steps)
    )
    witness = f"step {position + 1}: {_contrast(_clipped(target_step), _clipped(draft_step))}"
    if name == "decoder":
        detail = "differs, which changes no id: all text is the target's tokenizer's work"
        return PairFinding(check=check, verdict="compatible", detail=detail, witness=witness)
    return PairFinding(
        check=check, verdict="degraded", detail="text is prepared in another way", witness=witness
    )


def _steps(component: Any) -> list[dict[str, Any]]:
    """Return the steps as `tokenizers` itself writes them, with every default in its place, and sequences
    laid flat."""
    if component is None:
        return []
    return list(_flat(json.loads(component.__getstate__())))


def _flat(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    inner = next((step[name] for name in SEQUENCES if name in step), None)
    if step.get("type") == "Sequence" and inner is not None:
        for part in inner:
            yield from _flat(part)
    else:
        yield {key: value for key, value in step.items() if key != "trim_offsets"}  # changes no id


def _around(target: Tokenizer, draft: Tokenizer) -> PairFinding:
    """Compare the post-processors by what they do, since they can be written in many ways."""
    target_affixes, draft_affixes = _affixes(target), _affixes(draft)
    if target_affixes == draft_affixes:
        return compatible("post-processor", "adds the same tokens around a text")

    def describe_affixes(tokenizer: Tokenizer, affixes: tuple[list[int], list[int]]) -> str:
        words = [" ".join(tokenizer.tokens.get(index, "?") for index in ids) for ids in affixes]
        return f"{words[0] or 'nothing'} before a text and {words[1] or 'nothing'} behind it"

    return PairFinding(
        check="post-processor",
        verdict="degraded",
        detail="adds other tokens around a text",
        witness=f"{describe_affixes(target, target_affixes)} in the target; "
        f"{describe_affixes(draft, draft_affixes)} in the draft",
    )


def _affixes(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids that come before and behind every text."""
    for plain, whole in zip(tokenizer.encode(PROBES), tokenizer.encode(PROBES, special=True), strict=True):
        for start in range(len(whole) - len(plain) + 1):
            if plain and whole[start : start + len(plain)] == plain:
                return whole[:start], whole[start + len(plain) :]
    return [], []


def _keys(
    check: str, target: dict[str, Any], draft: dict[str, Any], verdict: Severity, same: str
) -> PairFinding:
    differing = [key for key in sorted(target.keys() | draft.keys()) if target.get(key) != draft.get(key)]
    if not differing:
        return compatible(check, same)
    key = differing[0]
    witness = f"{key}: {_contrast(repr(target.get(key)), repr(draft.get(key)))}"
    return PairFinding(check=check, verdict=verdict, detail=f"{', '.join(differing)} differ", witness=witness)


def _clipped(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


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


def ends(target: tuple[Config, dict[str, Any]], draft: tuple[Config, dict[str, Any]]) -> PairFinding:
    """End-of-text ids, each file against its own kind: (config.json, generation_config.json)."""
    same: list[str] = []
    for name, target_config, draft_config in (
        ("config.json", target[0].text, draft[0].text),
        ("generation_config.json", target[1], draft[1]),
    ):
        target_ids, draft_ids = (
            _ids(target_config.get("eos_token_id")),
            _ids(draft_config.get("eos_token_id")),
        )
        if target_ids and draft_ids and target_ids != draft_ids:
            witness = f"eos_token_id in {name}: {_contrast(str(sorted(target_ids)), str(sorted(draft_ids)))}"
            detail = "texts end with other tokens"
            return PairFinding(check="end of text", verdict="degraded", detail=detail, witness=witness)
        same += [name] if target_ids and target_ids == draft_ids else []
    if not same:
        return PairFinding(
            check="end of text",
            verdict="unknown",
            detail="no file of both gives eos_token_id",
            find_out="compare where answers end with and without speculation: specops canary",
            essential=False,
        )
    return compatible("end of text", f"the same in {' and '.join(same)}")


def _ids(value: Any) -> set[int]:
    values = value if isinstance(value, list) else [value]
    return {index for index in values if isinstance(index, int)}


def special_tokens(target: Tokenizer, draft: Tokenizer) -> PairFinding:
    check = "special tokens"
    if not target.special.keys() & draft.special.keys():
        return PairFinding(
            check=check,
            verdict="unknown",
            detail="no special token is named in both",
            find_out="compare eos_token of both tokenizers' model cards",
            essential=False,
        )
    differing = [
        key
        for key in sorted(target.special.keys() & draft.special.keys())
        if target.special[key] != draft.special[key]
    ]
    if "eos_token" in differing:
        return PairFinding(
            check=check,
            verdict="degraded",
            detail="eos_token differs",
            witness=_contrast(*(repr(side.special["eos_token"]) for side in (target, draft))),
        )
    if differing:
        # A first token that is really put before texts is found by the post-processor and the template.
        return compatible(check, f"{', '.join(differing)} differ, which changes no draft")
    return compatible(check, "the same")


def lengths(target: Config, draft: Config) -> PairFinding:
    """A draft that is shorter of breath stops drafting there; nothing it says before is worse."""
    check, target_positions, draft_positions = "model max length", target.max_positions, draft.max_positions
    if target_positions is None or draft_positions is None:
        return PairFinding(
            check=check,
            verdict="unknown",
            detail="config.json does not give max_position_embeddings for both",
            find_out="send one prompt as long as your longest, and compare its acceptance with a short one's",
            essential=False,
        )
    message = f"{target_positions:,} positions in the target, {draft_positions:,} in the draft"
    message += (
        ": beyond the draft's, it drafts badly or not at all" if draft_positions < target_positions else ""
    )
    return compatible(check, message)


def template(target: Tokenizer, draft: Tokenizer) -> PairFinding:
    check = "chat template"
    if target.template is None and draft.template is None:
        return compatible(check, "neither has one")
    if target.template is None:
        return PairFinding(
            check=check,
            verdict="unknown",
            detail="the target has none, so which one its server uses is not known",
            find_out="put the server's template into the target's folder as chat_template.jinja",
            essential=False,
        )
    if draft.template is None:
        detail = "the draft has none: if it is a base model, it was not trained on the target's chats"
        return PairFinding(check=check, verdict="degraded", detail=detail)
    if (target.template, target.special) == (draft.template, draft.special):
        return compatible(check, "the same text")
    target_chats, draft_chats = _rendered(target), _rendered(draft)
    for name, side in (("target", target_chats), ("draft", draft_chats)):
        if side.failure:
            detail = f"the {name}'s could not be rendered: {side.failure}"
            return PairFinding(check=check, verdict="degraded", detail=detail)
    names = [name for name in CONVERSATIONS for _ in range(2)]
    for name, target_text, draft_text in zip(names, target_chats.texts, draft_chats.texts, strict=True):
        if target_text != draft_text:
            position = _first_difference(target_text, draft_text)
            around = slice(max(0, position - 8), position + 32)
            excerpts = (repr(text[around]) for text in (target_text, draft_text))
            return PairFinding(
                check=check,
                verdict="degraded",
                detail=f"chats are rendered differently ({name})",
                witness=f"character {position}: {_contrast(*excerpts)}",
            )
    same = f"written differently, rendered the same in {len(CONVERSATIONS)} conversations"
    return compatible(check, same)


def chats(tokenizer: Tokenizer) -> list[str]:
    """The conversations as the target's template renders them: texts whose encodings are worth comparing."""
    return [] if tokenizer.template is None else list(_rendered(tokenizer).texts)


def _rendered(tokenizer: Tokenizer) -> RenderedTexts:
    special = tuple(sorted(tokenizer.special.items()))
    return rendered(tokenizer.template or "", special, json.dumps(list(CONVERSATIONS.values())))


def _contrast(target: str, draft: str) -> str:
    return f"{target} in the target, {draft} in the draft"


def _first_difference(target: Sequence[object], draft: Sequence[object]) -> int:
    """Return the first index at which the two differ; the shorter's length where it begins the other."""
    differing = (n for n, (left, right) in enumerate(zip(target, draft, strict=False)) if left != right)
    return next(differing, min(len(target), len(draft)))


SENTENCES = (
    "The quick brown fox jumps over the lazy dog, doesn't it? I'LL say: we've seen 3.14159 of them.",
    "서울의 날씨는 어떤가요? 오늘은 맑고, 내일은 비가 올 것 같습니다. 뷁뛟",
    "東京の天気はどうですか。今日は晴れ、明日は雨でしょう。ｶﾀｶﾅとカタカナ",
    "北京今天的天氣怎麼樣?今天晴，明天可能會下雨。鑷龘",
    "كيف حال الطقس في القاهرة؟ الجوّ صحوٌ اليوم، وغدًا قد تمطر. ١٢٣",
    "दिल्ली का मौसम कैसा है? आज धूप है, कल बारिश हो सकती है। क्ष ज्ञ १२३",
    "Какая погода в Москве? Сегодня ясно, а завтра, возможно, дождь. Ёж",
    "Πώς είναι ο καιρός στην Αθήνα; Σήμερα έχει ήλιο, αύριο ίσως βρέξει.",
    "מה מזג האוויר בתל אביב? היום בהיר, מחר אולי יֵרֵד גשם.",
    "อากาศที่กรุงเทพเป็นอย่างไร วันนี้แดดออก พรุ่งนี้ฝนอาจตก",
    "ঢাকার আবহাওয়া কেমন? আজ রোদ, কাল বৃষ্টি হতে পারে।",
    "சென்னையில் வானிலை எப்படி? இன்று வெயில், நாளை மழை பெய்யலாம்.",
    "როგორი ამინდია თბილისში? დღეს მზეა, ხვალ შეიძლება იწვიმოს.",
    "Thời tiết ở Hà Nội thế nào? Hôm nay nắng, ngày mai có thể mưa.",
    "Straße, naïve façade, Übergröße, žluťoučký kůň, İstanbul’da ığdır, łódź, ﬁne ﬂow",
    "የአዲስ አበባ አየር ሁኔታ እንዴት ነው? ዛሬ ፀሐያማ ነው።",
)
EMOJI = (
    "👩‍👩‍👧‍👦 👨🏽‍💻 🏳️‍🌈 🇰🇷🇯🇵 👍🏿 ❤️ ❤ ☃️ 1️⃣ 🫠",
    "so good 😀😃😄 ok 🙈🙉🙊 … 🧑‍🚀🚀✨",
)
CODE = (
    "def fibonacci(n: int) -> int:\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i] * b[i];  // dot\n\t}\r\n",
    "SELECT u.id, COUNT(*) FROM users AS u WHERE u.name LIKE '%o''k%' GROUP BY 1 HAVING COUNT(*) >= 10;",
    '{"name": "speculative", "k": [3, 4, 5], "nested": {"null": null, "escaped": "\\u00e9\\n"}}',
    "<div class=\"row\" data-x='1'><!-- <|im_end|> --></div>&nbsp;&lt;/s&gt;",
    "λ f → ∀x∈ℝ: ∫₀^∞ e^{-x²} dx = √π/2 ≤ ½·10⁻⁹ ≠ \\frac{a}{b}",
    "https://user@example.com:8080/a/b_c-d.html?q=%EC%84%9C%EC%9A%B8&n=0x1F#frag",
    'let x: Vec<&\'static str> = vec![r#"raw"#]; println!("{x:?}");',
)
SPACES = (
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r\n",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u200b",
    "\ufeff",
    "\u2028",
    "\u0085",
)
CONTROLS = tuple(map(chr, (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F, 0x80, 0x9F)))
BLOCKS = (
    (0x0021, 0x007E),
    (0x00A1, 0x024F),
    (0x0300, 0x036F),
    (0x0370, 0x052F),
    (0x0591, 0x06FF),
    (0x0900, 0x0DFF),
    (0x0E00, 0x0FFF),
    (0x1000, 0x10FF),
    (0x1100, 0x11FF),
    (0x1E00, 0x1FFF),
    (0x2010, 0x2BFF),
    (0x3041, 0x30FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xE000, 0xE0FF),
    (0xFE20, 0xFE2F),
    (0xFF01, 0xFF9F),
    (0x10330, 0x1034A),
    (0x1D400, 0x1D7FF),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x203FF),
)
"""First and last code point: scripts, combining marks, symbols, private use, planes above the first."""

FEWEST = 1000


@cache
def texts() -> tuple[str, ...]:
    """Return at least `FEWEST` different texts, the same at every call."""
    dice = random.Random(20)
    whole = [*SENTENCES, *EMOJI, *CODE]
    samples = [
        *whole,
        *(unicodedata.normalize("NFD", text) for text in whole),
        *(text.upper() for text in whole),
    ]
    samples += [f"a{space * run}b{space}" for space in SPACES for run in (1, 2, 3, 4, 7, 16, 33)]
    samples += [f"x{control}y {control * 3}" for control in CONTROLS]
    samples += ["".join(dice.choices("0123456789", k=run)) for run in range(1, 65)]
    samples += [f"{dice.randrange(10**n):,}.{dice.randrange(10**n)}e-{n} −{n}" for n in range(1, 25)]
    for first, last in BLOCKS:
        samples += [
            "".join(chr(dice.randint(first, last)) for _ in range(dice.randint(1, 24))) for _ in range(12)
        ]
    while len(samples) < FEWEST + 100:  # neighbours that no single text has, cut anywhere
        first_text, second_text = dice.sample(whole, 2)
        cut, end = dice.randrange(len(first_text)), dice.randrange(1, len(second_text) + 1)
        samples.append(first_text[cut:] + dice.choice(SPACES) + second_text[:end])
    return tuple(dict.fromkeys(samples))


class Encodings(Frozen):
    """The result of encoding the same texts with both tokenizers."""

    count: int
    differing: int
    own: int
    """Number of the user's own prompts among `count`."""

    witness: str | None = None

    def finding(self) -> PairFinding:
        own = f", {self.own:,} of them your own prompts" if self.own else ""
        if not self.differing:
            detail = f"{self.count:,} texts{own}: all to the same ids"
            return compatible("encodings", detail)
        detail = f"{self.differing:,} of {self.count:,} texts{own} are tokenized differently"
        return PairFinding(check="encodings", verdict="degraded", detail=detail, witness=self.witness)


def encodings(target: Tokenizer, draft: Tokenizer, own: Sequence[str], chats: Sequence[str]) -> Encodings:
    """Encode `texts()`, the `chats`, and the user's `own` prompts."""
    all_texts = [*own, *chats, *texts()]  # the user's own first: the witness that matters most
    pairs = zip(all_texts, target.encode(all_texts), draft.encode(all_texts), strict=True)
    parted = [
        (text, target_ids, draft_ids) for text, target_ids, draft_ids in pairs if target_ids != draft_ids
    ]
    witness = _witness(*parted[0], target, draft) if parted else None
    return Encodings(count=len(all_texts), differing=len(parted), own=len(own), witness=witness)


def _witness(
    text: str, target_ids: list[int], draft_ids: list[int], target: Tokenizer, draft: Tokenizer
) -> str:
    position = _first_difference(target_ids, draft_ids)

    def describe_ids(tokenizer: Tokenizer, ids: list[int]) -> str:
        pieces = [f"{tokenizer.tokens.get(index, '?')!r} ({index})" for index in ids[position : position + 4]]
        return " ".join(pieces) or "nothing more"

    start = repr(text if len(text) <= 60 else text[:59] + "…")
    words = _contrast(describe_ids(target, target_ids), describe_ids(draft, draft_ids))
    return f"{start}, token {position}: {words}"
