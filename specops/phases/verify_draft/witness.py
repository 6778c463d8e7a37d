"""Texts to encode with both tokenizers, so that a difference can be shown and not only named.

The same texts every time: many scripts, as sentences and as rare characters, emoji, combining marks, code,
runs of white space, control characters, long digits; then the chats and the user's own prompts.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Sequence
from functools import cache

from pydantic import BaseModel, ConfigDict

from specops.checkpoints.tokenizer import Tokenizer
from specops.phases.verify_draft.findings import Finding

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
    """At least `FEWEST` different texts, the same at every call."""
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


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


class Encodings(BaseModel):
    """What encoding the same texts with both tokenizers came to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int
    differing: int
    own: int
    """Of `count`, the user's own prompts."""

    witness: str | None = None

    def finding(self) -> Finding:
        own = f", {self.own:,} of them your own prompts" if self.own else ""
        if not self.differing:
            detail = f"{self.count:,} texts{own}: all to the same ids"
            return Finding(check="encodings", verdict="compatible", detail=detail)
        detail = f"{self.differing:,} of {self.count:,} texts{own} are cut up in another way"
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
