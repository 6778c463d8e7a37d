"""The tree of questions: each is always answered, and to see more is never to know less."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from specops.phases.diagnose import CHECKS, Diagnosis, diagnose, findings
from specops.phases.diagnose.finding import Finding
from specops.phases.diagnose.observations import (
    AbFigures,
    Baseline,
    Canary,
    CanaryCheck,
    ClassVerdict,
    Drafts,
    EarlierAcceptance,
    Fallbacks,
    Gpu,
    Lint,
    LintFinding,
    Live,
    Load,
    MissingNames,
    Observations,
    RoutedShare,
    SpeedupInterval,
    Stream,
    SweepFigures,
    VocabularyLogLines,
)

SHARE = st.floats(0, 1)
MS = st.floats(0.01, 1e5)
MAYBE_SHARE, MAYBE_MS = st.none() | SHARE, st.none() | MS
WORDS = st.sampled_from(["yes", "no", "undecided", "compatible", "degraded", "incompatible", "pass", "fail"])
ENDS = st.builds(
    lambda low, more, most: SpeedupInterval(estimate=low + more, low=low, high=low + more + most),
    st.floats(0.1, 3),
    st.floats(0, 2),
    st.floats(0, 2),
)
LOADS = st.lists(
    st.builds(Load, concurrency=st.integers(1, 64), ttft_ms=MAYBE_MS, tpot_ms=MAYBE_MS, token_ms=MAYBE_MS),
    max_size=4,
    unique_by=lambda load: load.concurrency,
).map(tuple)
SOURCE = st.just("made up")
CURVE = st.lists(SHARE, max_size=5).map(lambda shares: tuple(sorted(shares, reverse=True)))
SERVERS = st.sampled_from([(), ("a:1",)])
LIVE = st.builds(
        Live, source=SOURCE, over=st.just("5m"),
        answers=st.none() | st.floats(0, 1e4),
        drafted=st.none() | st.floats(0, 1e6), acceptance=MAYBE_SHARE,
        per_position=CURVE, ttft_ms=MAYBE_MS, tpot_ms=MAYBE_MS, e2e_ms=MAYBE_MS,
        answer_tokens=st.none() | st.floats(1, 4096), load=st.none() | st.floats(1, 64),
        kv_usage=MAYBE_SHARE, preemptions_per_s=st.none() | st.floats(0, 10),
        aborted=MAYBE_SHARE, not_drafting=SERVERS, stuck=SERVERS,
    )  # fmt: skip
PARTS: dict[str, st.SearchStrategy[Any]] = {
    "live": LIVE,
    "standard": LIVE,
    "routed_share": st.builds(RoutedShare, source=SOURCE, percent=st.sampled_from([0.0, 25.0, 100.0])),
    "earlier": st.builds(EarlierAcceptance, source=SOURCE, week=MAYBE_SHARE, after_start=MAYBE_SHARE),
    "baseline": st.builds(Baseline, source=SOURCE, loads=LOADS),
    "compared": st.builds(
        AbFigures, source=SOURCE, e2e=st.none() | ENDS, ttft=st.none() | ENDS,
        streams=st.none() | st.just(1), up_to=st.none() | st.integers(0, 8),
        ttft_change_ms=st.none() | st.floats(-1e3, 1e3), acceptance=MAYBE_SHARE, drafts=st.floats(0, 1e5),
        classes=st.dictionaries(
            st.sampled_from(["code", "chat"]),
            st.builds(ClassVerdict, verdict=WORDS, reason=SOURCE, e2e=st.none() | ENDS),
        ),
        equal=st.none() | st.integers(0, 8), compared=st.none() | st.just(8), control=MAYBE_SHARE,
    ),
    "sweep": st.builds(
        SweepFigures, source=SOURCE, setting=st.none(), k=st.none(), break_even=MAYBE_SHARE,
        draft_ms=MAYBE_MS, target_ms=MAYBE_MS, per_position=CURVE, on_max=st.none() | st.integers(1, 8),
        off_min=st.none() | st.integers(9, 64),
        by_length=st.dictionaries(st.sampled_from(["short", "long"]), SHARE),
        by_temperature=st.dictionaries(st.sampled_from([0.0, 0.7, 1.0]), SHARE),
        classes_off=st.dictionaries(st.sampled_from(["code", "chat"]), SOURCE),
    ),
    "drafts": st.builds(Drafts, source=SOURCE, verdict=WORDS, reason=SOURCE, wrong=st.just(("x: y",))),
    "canary": st.builds(
        Canary, source=SOURCE,
        checks=st.lists(
            st.builds(CanaryCheck, name=SOURCE, status=WORDS, message=SOURCE), max_size=3
        ).map(tuple),
    ),
    "lint": st.builds(
        Lint, source=SOURCE,
        findings=st.lists(
            st.builds(
                LintFinding, level=st.sampled_from(["error", "warning", "note"]), flag=SOURCE, why=SOURCE,
                replacement=st.none() | SOURCE,
            ),
            max_size=2,
        ).map(tuple),
    ),
    "names": st.builds(
        MissingNames, source=SOURCE, requested=st.just(9), lacking=st.lists(SOURCE, max_size=2).map(tuple),
        fixes=st.just(()),
    ),
    "vocabulary_log": st.builds(VocabularyLogLines, source=SOURCE, files=st.just(1),
        lines=st.lists(SOURCE, max_size=1).map(tuple)),
    "gpu": st.builds(Gpu, source=SOURCE, used_gib=st.floats(0, 80), total_gib=st.just(80.0)),
    "stream": st.builds(
        Stream, source=SOURCE, requests=st.just(3), chunks=st.just(9), tokens_per_chunk=st.floats(1, 9),
        tokens_per_chunk_p95=st.none() | st.floats(1, 9), gap_p50_ms=MAYBE_MS, gap_p95_ms=MAYBE_MS,
        tokens_per_s=st.floats(1, 1e4), buffer_ms=MAYBE_MS,
    ),
    "fallbacks": st.builds(Fallbacks, source=SOURCE, week=st.integers(0, 20), last=st.none()),
}  # fmt: skip
SEEN = st.builds(
    Observations, rollout=st.just("made"), branches=st.booleans(),
    **{name: st.none() | part for name, part in PARTS.items()},
)  # fmt: skip


def by_id(seen: Observations) -> dict[str, Finding]:
    return {one.id: one for one in findings(seen)}


@settings(max_examples=100, deadline=None)
@given(SEEN)
def test_every_question_has_an_answer_with_what_to_do_whatever_was_seen(seen: Observations) -> None:
    found = by_id(seen)
    assert len(found) == len(CHECKS)
    for one in found.values():
        assert one.message
        if one.severity in ("cause", "contributing"):
            assert one.cause
            assert one.fix
            assert one.evidence
        if one.severity == "unknown":
            assert one.fix
    data = diagnose(seen).data
    assert Diagnosis.model_validate(data).model_dump(mode="json") == data


@settings(max_examples=100, deadline=None)
@given(SEEN, st.data())
def test_seeing_more_never_makes_an_answer_unknown(seen: Observations, data: st.DataObject) -> None:
    hidden = data.draw(st.sets(st.sampled_from(sorted(PARTS))))
    less = seen.model_copy(update=dict.fromkeys(hidden))
    before, after = by_id(less), by_id(seen)
    for name, one in before.items():
        if one.severity != "unknown":
            assert after[name].severity != "unknown", f"{one.message} -> {after[name].message}"


def test_nothing_seen_is_undecided_and_says_what_would_show_it() -> None:
    result = diagnose(Observations(rollout="made", missing={"live": "nobody was asked"}))
    assert (result.verdict, result.summary) == ("undecided", {"unknown": len(CHECKS)})
    [kv] = [one for one in result.data["findings"] if one["id"] == "kv-cache-full"]
    assert "nobody was asked" in kv["message"]
