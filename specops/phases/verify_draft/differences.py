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
from specops.phases.verify_draft.pair import Finding, Severity, compatible
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
) -> list[Finding]:
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
) -> Finding:
    """The two id -> token maps. An id that a placeholder holds, or nothing, is not in use; nor is one for
    which the target has no row, such as a [PAD] that was added for training.

    In use by both and not the same: incompatible. Named by one of them alone, such as an added token that
    only one family member has: degraded, where the draft has a row for it.
    """
    check = "token ids"
    ours, theirs = target.tokens, draft.tokens
    if target_rows is not None:
        ours = {index: token for index, token in ours.items() if index < target_rows}
    if draft_rows is not None:
        lost = {index for index in theirs if index >= draft_rows and _used(theirs[index])}
        if target_rows is not None:
            lost &= ours.keys()
        theirs = {index: token for index, token in theirs.items() if index < draft_rows or index in lost}
        beyond = sorted(lost)
        if beyond:
            detail = f"the draft's embedding has {draft_rows:,} rows; {len(beyond):,} ids in use have none"
            first = f"id {beyond[0]}: {theirs[beyond[0]]!r}"
            return Finding(check=check, verdict="incompatible", detail=detail, witness=first)
    if ours == theirs:
        return compatible(check, f"all {len(ours):,} ids mean the same token")
    conflicts, alone = [], []
    for index in sorted({index for index, _ in ours.items() ^ theirs.items()}):
        mine, other = _used(ours.get(index)), _used(theirs.get(index))
        if mine == other:
            continue
        without_row = mine is not None and draft_rows is not None and index >= draft_rows
        regular = index not in (target.added if mine is not None else draft.added)
        absent = index not in ours or index not in theirs
        if (mine is not None and other is not None) or without_row or (absent and regular):
            conflicts.append(index)
        else:
            alone.append(index)

    def witness(index: int) -> str:
        return (
            f"id {index}: {_named(ours.get(index))} in the target, {_named(theirs.get(index))} in the draft"
        )

    if conflicts:
        detail = f"{len(conflicts):,} ids in use mean different tokens"
        return Finding(check=check, verdict="incompatible", detail=detail, witness=witness(conflicts[0]))
    if alone:
        detail = f"{len(alone):,} added tokens are known to one of the two alone; the others mean the same"
        return Finding(check=check, verdict="degraded", detail=detail, witness=witness(alone[0]))
    return compatible(check, "all ids in use mean the same token")


def _used(token: str | None) -> str | None:
    return None if token is None or PLACEHOLDER.fullmatch(token) else token


def _named(token: str | None) -> str:
    return "nothing" if token is None else repr(token)


def _merges(target: Tokenizer, draft: Tokenizer) -> Finding:
    if isinstance(target.model["vocab"], list) or isinstance(draft.model["vocab"], list):
        return _scores(target, draft)
    if (target.model.get("merges") or []) == (draft.model.get("merges") or []):
        return compatible("merges", f"all {len(target.model.get('merges') or []):,}, in order")
    ours, theirs = target.merges(), draft.merges()
    if ours == theirs:
        return compatible("merges", f"all {len(ours):,}, in order")
    at = next(
        (rank for rank, (mine, other) in enumerate(zip(ours, theirs, strict=False)) if mine != other),
        min(len(ours), len(theirs)),
    )

    def shown(merges: list[tuple[str, str]]) -> str:
        return " + ".join(map(repr, merges[at])) if at < len(merges) else "nothing"

    apart = len(set(ours) ^ set(theirs))
    where = f"{apart:,} exist in only one of them" if apart else "the same ones in another order"
    if apart == 1:
        where = "1 exists in only one of them"
    detail = f"{len(ours):,} and {len(theirs):,}; {where}"
    message = f"merge {at}: {shown(ours)} in the target, {shown(theirs)} in the draft"
    return Finding(check="merges", verdict="degraded", detail=detail, witness=message)


def _scores(target: Tokenizer, draft: Tokenizer) -> Finding:
    """Compare the scores of a Unigram model, which has no merges. `token_ids` compares the tokens
    themselves."""
    ours, theirs = target.model["vocab"], draft.model["vocab"]
    if not (isinstance(ours, list) and isinstance(theirs, list)):
        return Finding(check="merges", verdict="degraded", detail="one of the two has scores, not merges")
    pairs = enumerate(zip(ours, theirs, strict=False))
    at = next((index for index, (mine, other) in pairs if mine[1] != other[1]), None)
    if at is None:
        return compatible("merges", "none; all scores of the unigram model are equal")
    message = f"id {at}, {ours[at][0]!r}: {ours[at][1]} in the target, {theirs[at][1]} in the draft"
    return Finding(check="merges", verdict="degraded", detail="unigram scores differ", witness=message)


def _model(target: Tokenizer, draft: Tokenizer) -> Finding:
    ours, theirs = _settings(target), _settings(draft)
    return _keys("model", ours, theirs, "degraded", f"{ours.get('type', 'BPE')}, the same settings")


def _settings(tokenizer: Tokenizer) -> dict[str, Any]:
    apart = ("vocab", "merges", "byte_fallback")  # checks of their own
    # Left out, null, false and empty mean the same in tokenizer.json.
    return {key: value for key, value in tokenizer.model.items() if key not in apart and value}


def _byte_fallback(target: Tokenizer, draft: Tokenizer) -> Finding:
    ours, theirs = (bool(tokenizer.model.get("byte_fallback")) for tokenizer in (target, draft))
    words = {True: "on", False: "off"}
    if ours == theirs:
        return compatible("byte fallback", f"{words[ours]} in both")
    detail = f"{words[ours]} in the target, {words[theirs]} in the draft"
    return Finding(check="byte fallback", verdict="degraded", detail=detail)


def _added(target: Tokenizer, draft: Tokenizer) -> Finding:
    """Flags of the added tokens that both have; `token_ids` reports those that only one has."""
    both = sorted(target.added.keys() & draft.added.keys())
    differing = []
    for index in both:
        ours, theirs = target.added[index], draft.added[index]
        if ours["content"] == theirs["content"]:
            differing += [(index, flag) for flag in FLAGS if bool(ours.get(flag)) != bool(theirs.get(flag))]
    if not differing:
        return compatible("added tokens", f"{len(both):,} in both, the same flags")
    index, flag = differing[0]
    return Finding(
        check="added tokens",
        verdict="degraded",
        detail=f"{len({index for index, _ in differing}):,} of {len(both):,} have other flags",
        witness=f"{target.added[index]['content']!r}: {flag} is {bool(target.added[index].get(flag))} in the "
        f"target, {bool(draft.added[index].get(flag))} in the draft",
    )


def _part(check: str, name: str, target: Tokenizer, draft: Tokenizer) -> Finding:
    ours, theirs = (_steps(getattr(tokenizer.encoder, name)) for tokenizer in (target, draft))
    if ours == theirs:
        return compatible(check, ", ".join(step["type"] for step in ours) or "none in both")
    at = next(
        (n for n, (mine, other) in enumerate(zip(ours, theirs, strict=False)) if mine != other),
        min(len(ours), len(theirs)),
    )
    mine, other = (json.dumps(steps[at]) if at < len(steps) else "nothing" for steps in (ours, theirs))
    witness = f"step {at + 1}: {_clipped(mine)} in the target, {_clipped(other)} in the draft"
    if name == "decoder":
        detail = "differs, which changes no id: all text is the target's tokenizer's work"
        return Finding(check=check, verdict="compatible", detail=detail, witness=witness)
    return Finding(check=check, verdict="degraded", detail="text is prepared in another way", witness=witness)


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


def _around(target: Tokenizer, draft: Tokenizer) -> Finding:
    """Compare the post-processors by what they do, since they can be written in many ways."""
    ours, theirs = _affixes(target), _affixes(draft)
    if ours == theirs:
        return compatible("post-processor", "adds the same tokens around a text")

    def shown(tokenizer: Tokenizer, affixes: tuple[list[int], list[int]]) -> str:
        words = [" ".join(tokenizer.tokens.get(index, "?") for index in ids) for ids in affixes]
        return f"{words[0] or 'nothing'} before a text and {words[1] or 'nothing'} behind it"

    return Finding(
        check="post-processor",
        verdict="degraded",
        detail="adds other tokens around a text",
        witness=f"{shown(target, ours)} in the target; {shown(draft, theirs)} in the draft",
    )


def _affixes(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids that come before and behind every text."""
    for plain, whole in zip(tokenizer.encode(PROBES), tokenizer.encode(PROBES, special=True), strict=True):
        for start in range(len(whole) - len(plain) + 1):
            if plain and whole[start : start + len(plain)] == plain:
                return whole[:start], whole[start + len(plain) :]
    return [], []


def _keys(check: str, ours: dict[str, Any], theirs: dict[str, Any], verdict: Severity, same: str) -> Finding:
    differing = [key for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)]
    if not differing:
        return compatible(check, same)
    key = differing[0]
    witness = f"{key}: {ours.get(key)!r} in the target, {theirs.get(key)!r} in the draft"
    return Finding(check=check, verdict=verdict, detail=f"{', '.join(differing)} differ", witness=witness)


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


def ends(target: tuple[Config, dict[str, Any]], draft: tuple[Config, dict[str, Any]]) -> Finding:
    """End-of-text ids, each file against its own kind: (config.json, generation_config.json)."""
    same: list[str] = []
    for name, ours, theirs in (
        ("config.json", target[0].text, draft[0].text),
        ("generation_config.json", target[1], draft[1]),
    ):
        mine, other = _ids(ours.get("eos_token_id")), _ids(theirs.get("eos_token_id"))
        if mine and other and mine != other:
            witness = f"eos_token_id in {name}: {_both(str(sorted(mine)), str(sorted(other)))}"
            detail = "texts end with other tokens"
            return Finding(check="end of text", verdict="degraded", detail=detail, witness=witness)
        same += [name] if mine and mine == other else []
    if not same:
        return Finding(
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


def special_tokens(target: Tokenizer, draft: Tokenizer) -> Finding:
    check = "special tokens"
    if not target.special.keys() & draft.special.keys():
        return Finding(
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
        return Finding(
            check=check,
            verdict="degraded",
            detail="eos_token differs",
            witness=_both(*(repr(side.special["eos_token"]) for side in (target, draft))),
        )
    if differing:
        # A first token that is really put before texts is found by the post-processor and the template.
        return compatible(check, f"{', '.join(differing)} differ, which changes no draft")
    return compatible(check, "the same")


def lengths(target: Config, draft: Config) -> Finding:
    """A draft that is shorter of breath stops drafting there; nothing it says before is worse."""
    check, ours, theirs = "model max length", target.max_positions, draft.max_positions
    if ours is None or theirs is None:
        return Finding(
            check=check,
            verdict="unknown",
            detail="config.json does not give max_position_embeddings for both",
            find_out="send one prompt as long as your longest, and compare its acceptance with a short one's",
            essential=False,
        )
    message = f"{ours:,} positions in the target, {theirs:,} in the draft"
    message += ": beyond the draft's, it drafts badly or not at all" if theirs < ours else ""
    return compatible(check, message)


def template(target: Tokenizer, draft: Tokenizer) -> Finding:
    check = "chat template"
    if target.template is None and draft.template is None:
        return compatible(check, "neither has one")
    if target.template is None:
        return Finding(
            check=check,
            verdict="unknown",
            detail="the target has none, so which one its server uses is not known",
            find_out="put the server's template into the target's folder as chat_template.jinja",
            essential=False,
        )
    if draft.template is None:
        detail = "the draft has none: if it is a base model, it was not trained on the target's chats"
        return Finding(check=check, verdict="degraded", detail=detail)
    if (target.template, target.special) == (draft.template, draft.special):
        return compatible(check, "the same text")
    ours, theirs = _rendered(target), _rendered(draft)
    for name, side in (("target", ours), ("draft", theirs)):
        if side.failure:
            detail = f"the {name}'s could not be rendered: {side.failure}"
            return Finding(check=check, verdict="degraded", detail=detail)
    names = [name for name in CONVERSATIONS for _ in range(2)]
    for name, mine, other in zip(names, ours.texts, theirs.texts, strict=True):
        if mine != other:
            at = next(
                (n for n, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b),
                min(len(mine), len(other)),
            )
            return Finding(
                check=check,
                verdict="degraded",
                detail=f"chats are rendered differently ({name})",
                witness=f"character {at}: {_both(_excerpt(mine, at), _excerpt(other, at))}",
            )
    same = f"written differently, rendered the same in {len(CONVERSATIONS)} conversations"
    return compatible(check, same)


def chats(tokenizer: Tokenizer) -> list[str]:
    """The conversations as the target's template renders them: texts whose encodings are worth comparing."""
    return [] if tokenizer.template is None else list(_rendered(tokenizer).texts)


def _rendered(tokenizer: Tokenizer) -> RenderedTexts:
    special = tuple(sorted(tokenizer.special.items()))
    return rendered(tokenizer.template or "", special, json.dumps(list(CONVERSATIONS.values())))


def _both(ours: str, theirs: str) -> str:
    return f"{ours} in the target, {theirs} in the draft"


def _excerpt(text: str, at: int) -> str:
    return repr(text[max(0, at - 8) : at + 32])


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
    found = [
        *whole,
        *(unicodedata.normalize("NFD", text) for text in whole),
        *(text.upper() for text in whole),
    ]
    found += [f"a{space * run}b{space}" for space in SPACES for run in (1, 2, 3, 4, 7, 16, 33)]
    found += [f"x{control}y {control * 3}" for control in CONTROLS]
    found += ["".join(dice.choices("0123456789", k=run)) for run in range(1, 65)]
    found += [f"{dice.randrange(10**n):,}.{dice.randrange(10**n)}e-{n} −{n}" for n in range(1, 25)]
    for first, last in BLOCKS:
        found += [
            "".join(chr(dice.randint(first, last)) for _ in range(dice.randint(1, 24))) for _ in range(12)
        ]
    while len(found) < FEWEST + 100:  # neighbours that no single text has, cut anywhere
        one, other = dice.sample(whole, 2)
        cut, end = dice.randrange(len(one)), dice.randrange(1, len(other) + 1)
        found.append(one[cut:] + dice.choice(SPACES) + other[:end])
    return tuple(dict.fromkeys(found))


class Encodings(Frozen):
    """The result of encoding the same texts with both tokenizers."""

    count: int
    differing: int
    own: int
    """Number of the user's own prompts among `count`."""

    witness: str | None = None

    def finding(self) -> Finding:
        own = f", {self.own:,} of them your own prompts" if self.own else ""
        if not self.differing:
            detail = f"{self.count:,} texts{own}: all to the same ids"
            return compatible("encodings", detail)
        detail = f"{self.differing:,} of {self.count:,} texts{own} are tokenized differently"
        return Finding(check="encodings", verdict="degraded", detail=detail, witness=self.witness)


def encodings(target: Tokenizer, draft: Tokenizer, own: Sequence[str], chats: Sequence[str]) -> Encodings:
    """Encode `texts()`, the `chats`, and the user's `own` prompts."""
    all_texts = [*own, *chats, *texts()]  # the user's own first: the witness that matters most
    pairs = zip(all_texts, target.encode(all_texts), draft.encode(all_texts), strict=True)
    parted = [(text, ours, theirs) for text, ours, theirs in pairs if ours != theirs]
    witness = _witness(*parted[0], target, draft) if parted else None
    return Encodings(count=len(all_texts), differing=len(parted), own=len(own), witness=witness)


def _witness(text: str, ours: list[int], theirs: list[int], target: Tokenizer, draft: Tokenizer) -> str:
    at = next(
        (n for n, (mine, other) in enumerate(zip(ours, theirs, strict=False)) if mine != other),
        min(len(ours), len(theirs)),
    )

    def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
        pieces = [f"{tokenizer.tokens.get(index, '?')!r} ({index})" for index in ids[at : at + 4]]
        return " ".join(pieces) or "nothing more"

    start = repr(text if len(text) <= 60 else text[:59] + "…")
    return f"{start}, token {at}: {shown(target, ours)} in the target, {shown(draft, theirs)} in the draft"
