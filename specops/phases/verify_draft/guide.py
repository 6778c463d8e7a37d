"""`--guide`: drafts by family of the target and a comparison of draft kinds, as advice, each with its source.

Where configs or engines say otherwise, a note does. `verify-draft TARGET DRAFT` decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from specops.checkpoints.draft_kind import WORDS, Draft, Kind
from specops.defaults import ACCEPTANCE_GATE
from specops.phases.verify_draft.engine_fit import EngineRelease
from specops.phases.verify_draft.pair import ServingEngine
from specops.section import Frozen

RULE_OF_THUMB = "rule of thumb, no source"


class Advice(Frozen):
    draft: str
    why: str
    source: str


class KindAdvice(Frozen):
    """Advice on one kind of draft. None where no rule of thumb exists."""

    kind: str
    technique: str
    accepted: str | None
    """Share of drafted tokens."""

    memory: str | None
    training: str | None
    serving: str
    """What the serving engine does with it."""

    source: str | None
    """Source of the figures."""

    paper: str | None


class Guide(Frozen):
    target: str
    family: str | None
    engine: str
    drafts: list[Advice]
    kinds: list[KindAdvice]
    notes: list[str]


@dataclass(frozen=True)
class Family:
    name: str
    pattern: re.Pattern[str]
    drafts: tuple[Advice, ...]
    notes: tuple[str, ...] = ()


def _named(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


FAMILIES = (
    Family(
        "Llama 3.1",
        _named(r"llama[-_ ]?3\.1"),
        (
            Advice(draft="Llama 3.1 8B", why="same family, same vocabulary", source=RULE_OF_THUMB),
            Advice(draft="an EAGLE-3 head", why="the fastest", source=RULE_OF_THUMB),
        ),
    ),
    Family(
        "Mistral Large",
        _named(r"mistral[-_ ]?large"),
        (Advice(draft="Mistral 7B", why="same tokenizer", source=RULE_OF_THUMB),),
        (
            "Mistral 7B has 32,000 tokens up to v0.2 and 32,768 in v0.3 (config.json): not every version has "
            "the target's tokenizer",
        ),
    ),
    Family(
        "Qwen 2.5",
        _named(r"qwen[-_ ]?2\.5"),
        (
            Advice(draft="Qwen 2.5 1.5B", why="same family, the cheapest of the two", source=RULE_OF_THUMB),
            Advice(draft="Qwen 2.5 7B", why="same family, accepted more often", source=RULE_OF_THUMB),
        ),
        (
            "config.json says 152,064 tokens of 7B and up, 151,936 of smaller ones, the tokenizer being the "
            "same: vLLM takes the 1.5B for a 72B only with use_heterogeneous_vocab, from 0.25 (vllm#10913)",
        ),
    ),
)
UNKNOWN = (
    Advice(draft="a small model with the same tokenizer", why="nothing to train", source=RULE_OF_THUMB),
    Advice(draft="a Medusa or EAGLE head", why="made for this very target", source=RULE_OF_THUMB),
)

SPECULATORS = "README of vllm-project/speculators, 2026-11"
LLAMA_CPP = "docs/speculative.md of llama.cpp b11549"
EAGLE_AUTHORS = "huggingface.co/yuhuili, by EAGLE's authors"


@dataclass(frozen=True)
class PublicHead:
    """A head that others published for a target, on the hub."""

    target: re.Pattern[str]
    head: str
    kind: Kind
    source: str
    alike: re.Pattern[str] | None = None
    """Further targets with the shape and the vocabulary of the one it was trained for."""

    def advice(self, target: str) -> Advice | None:
        """Return why it suits a target of this name; None: it does not."""
        if self.target.search(target):
            why = f"a public {WORDS[self.kind]} for a target of this name"
        elif self.alike is not None and self.alike.search(target):
            why = f"a public {WORDS[self.kind]} of a sibling: it fits, and fewer drafts may be accepted"
        else:
            return None
        return Advice(draft=self.head, why=why, source=self.source)


def _published(
    target: str, head: str, kind: Kind, source: str = SPECULATORS, *, alike: str | None = None
) -> PublicHead:
    return PublicHead(_named(target), head, kind, source, _named(alike) if alike else None)


_SIBLING_70B = r"llama[-_ ]?3\.1[-_ ]?70b"
"""Llama 3.3 70B has its config, and its weights trained further."""


PUBLIC = (
    _published(r"llama[-_ ]?3\.1[-_ ]?8b", "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3", "eagle3"),
    _published(r"llama[-_ ]?3\.1[-_ ]?8b", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "eagle3", LLAMA_CPP),
    _published(
        r"llama[-_ ]?3\.3[-_ ]?70b",
        "RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3",
        "eagle3",
        alike=_SIBLING_70B,
    ),
    _published(
        r"llama[-_ ]?3\.3[-_ ]?70b",
        "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B",
        "eagle3",
        LLAMA_CPP,
        alike=_SIBLING_70B,
    ),
    _published(r"llama[-_ ]?3[-_ ]8b", "yuhuili/EAGLE-LLaMA3-Instruct-8B", "eagle", EAGLE_AUTHORS),
    _published(r"llama[-_ ]?3[-_ ]70b", "yuhuili/EAGLE-LLaMA3-Instruct-70B", "eagle", EAGLE_AUTHORS),
    _published(
        r"deepseek[-_ ]?r1[-_ ]?distill[-_ ]?llama[-_ ]?8b",
        "yuhuili/EAGLE3-DeepSeek-R1-Distill-LLaMA-8B",
        "eagle3",
        EAGLE_AUTHORS,
    ),
    _published(r"vicuna[-_ ]?13b", "yuhuili/EAGLE3-Vicuna1.3-13B", "eagle3", EAGLE_AUTHORS),
    _published(r"qwen[-_ ]?2[-_ ]7b", "yuhuili/EAGLE-Qwen2-7B-Instruct", "eagle", EAGLE_AUTHORS),
    _published(r"qwen[-_ ]?2[-_ ]72b", "yuhuili/EAGLE-Qwen2-72B-Instruct", "eagle", EAGLE_AUTHORS),
    _published(r"mixtral[-_ ]?8x7b", "yuhuili/EAGLE-mixtral-instruct-8x7B", "eagle", EAGLE_AUTHORS),
    _published(r"qwen[-_ ]?3[-_ ]?1\.7b", "AngelSlim/Qwen3-1.7B_eagle3", "eagle3", LLAMA_CPP),
    _published(r"qwen[-_ ]?3[-_ ]?4b", "AngelSlim/Qwen3-4B_eagle3", "eagle3", LLAMA_CPP),
    _published(r"qwen[-_ ]?3[-_ ]?8b", "RedHatAI/Qwen3-8B-speculator.eagle3", "eagle3"),
    _published(r"qwen[-_ ]?3[-_ ]?8b", "RedHatAI/Qwen3-8B-speculator.dflash", "dflash"),
    _published(r"qwen[-_ ]?3[-_ ]?8b", "RedHatAI/Qwen3-8B-speculator.peagle", "p_eagle"),
    _published(r"qwen[-_ ]?3[-_ ]?14b", "RedHatAI/Qwen3-14B-speculator.eagle3", "eagle3"),
    _published(r"qwen[-_ ]?3[-_ ]?32b", "RedHatAI/Qwen3-32B-speculator.eagle3", "eagle3"),
    _published(r"gpt[-_ ]?oss[-_ ]?20b", "RedHatAI/gpt-oss-20b-speculator.eagle3", "eagle3"),
    _published(r"gpt[-_ ]?oss[-_ ]?120b", "RedHatAI/gpt-oss-120b-speculator.eagle3", "eagle3"),
    _published(r"gemma[-_ ]?4[-_ ]?31b", "RedHatAI/gemma-4-31B-it-speculator.eagle3", "eagle3"),
    _published(r"gemma[-_ ]?4[-_ ]?31b", "RedHatAI/gemma-4-31B-it-speculator.dflash", "dflash"),
    _published(r"glm[-_ ]?5\.2", "RedHatAI/GLM-5.2-speculator.dspark", "dspark"),
    _published(r"kimi[-_ ]?k3", "RedHatAI/Kimi-K3-speculator.dspark", "dspark"),
)
"""Heads that their authors list for the targets they were trained for. Others exist: the hub has more."""


IN_NAMES: tuple[tuple[str, Kind], ...] = (
    ("eagle[-_ ]?3", "eagle3"),
    ("p[-_ ]?eagle", "p_eagle"),
    ("eagle", "eagle"),
    ("medusa", "medusa"),
    ("dflash", "dflash"),
    ("dspark", "dspark"),
)
"""Words in the names of drafts, by which their authors name the kind."""


def kind_by_name(draft: str) -> Kind:
    """Return the kind of a draft whose files cannot be read: that of a public head, else by its name; without
    such a word in it, an independent model."""
    public = [head.kind for head in PUBLIC if head.head == draft]
    named = [kind for word, kind in IN_NAMES if _named(word).search(draft)]
    return next(iter([*public, *named]), "independent")


NOTES = (f"below {ACCEPTANCE_GATE:g} accepted, look for another draft",)


SEARCH = (
    "this list names no public head for the target, and others may exist: search the hub for its name with "
    "eagle3, dflash or dspark before you train one"
)


@dataclass(frozen=True)
class DraftRow:
    """A row of the comparison; None where no figure exists."""

    kind: Kind
    technique: str
    accepted: str | None
    memory: str | None
    training: str | None
    paper: str | None


KINDS = (
    DraftRow("independent", "a small model", "0.5–0.7", "the model's size", "none", "arXiv:2211.17192"),
    DraftRow("medusa", "Medusa", "0.6–0.75", "some hundred MB", "light", "arXiv:2401.10774"),
    DraftRow(
        "eagle", "EAGLE 1, 2", "0.7–0.85", "about 1–2 GB", "needed, or a public head", "arXiv:2401.15077"
    ),
    DraftRow("eagle3", "EAGLE 3", "0.7–0.85", "about 1–2 GB", "needed, or a public head", "arXiv:2503.01840"),
    DraftRow("early_exit", "LayerSkip", "0.4–0.6", "none", "none", "arXiv:2404.16710"),
    DraftRow("ngram", "prompt look-up", "0.3–0.6", "none", "none", None),
    DraftRow("suffix", "SuffixDecoding", None, None, None, "arXiv:2411.04975"),
    DraftRow("mtp", "the target's own layers", None, None, None, "arXiv:2412.19437"),
    DraftRow("dflash", "drafts a block at once", None, None, None, None),
    DraftRow("dspark", "drafts a block, token by token", None, None, None, None),
    DraftRow("p_eagle", "drafts in one pass", None, None, None, "arXiv:2602.01469"),
)


def advise(target: str, engine: ServingEngine, version: str | None) -> Guide:
    """Return advice by the target's name, which need not be on this disk. Raises UsageError for an invalid
    version."""
    serving = EngineRelease.at_version(engine, version)
    family = next((family for family in FAMILIES if family.pattern.search(target)), None)
    own_first = sorted(PUBLIC, key=lambda head: head.target.search(target) is None)
    published = {head: advice for head in own_first if (advice := head.advice(target)) is not None}
    public_kinds = {head.kind for head in published}
    return Guide(
        target=target,
        family=family.name if family else None,
        engine=serving.words,
        drafts=[*published.values(), *(family.drafts if family else UNKNOWN)],
        kinds=[_advise_kind(row, serving, public=row.kind in public_kinds) for row in KINDS],
        notes=[*(family.notes if family else ()), *NOTES, *(() if published else (SEARCH,))],
    )


def _advise_kind(row: DraftRow, serving: EngineRelease, *, public: bool) -> KindAdvice:
    treatment = serving.treats(Draft(row.kind, "as advice"))
    return KindAdvice(
        kind=WORDS[row.kind],
        technique=row.technique,
        accepted=row.accepted,
        memory=row.memory,
        training="none: a public head is above" if public else row.training,
        serving=treatment.method
        or f"{'no' if treatment.does == 'refused' else 'unknown'}: {treatment.message}",
        source=RULE_OF_THUMB if row.accepted else None,
        paper=row.paper,
    )
