"""The tree of questions: each is always answered, and to see more is never to know less."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from specops.phases.diagnose import CHECKS, Diagnosis, diagnose, findings
from specops.phases.diagnose.finding import DiagnosisFinding
from specops.phases.diagnose.observations import (
    AbFigures,
    BaselineFigures,
    BaselineLoad,
    CanaryCheck,
    CanaryFigures,
    ClassVerdict,
    DraftFigures,
    EarlierAcceptance,
    Fallbacks,
    GpuFigures,
    LintFigures,
    LintFinding,
    Live,
    MissingNames,
    Observations,
    RoutedErrors,
    RoutedShare,
    SpeedupInterval,
    StreamFigures,
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
    st.builds(
        BaselineLoad, concurrency=st.integers(1, 64), ttft_ms=MAYBE_MS, tpot_ms=MAYBE_MS, token_ms=MAYBE_MS
    ),
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
    "baseline": st.builds(BaselineFigures, source=SOURCE, loads=LOADS),
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
    "drafts": st.builds(DraftFigures, source=SOURCE, verdict=WORDS, reason=SOURCE, wrong=st.just(("x: y",))),
    "canary": st.builds(
        CanaryFigures, source=SOURCE,
        checks=st.lists(
            st.builds(CanaryCheck, name=SOURCE, status=WORDS, message=SOURCE), max_size=3
        ).map(tuple),
    ),
    "lint": st.builds(
        LintFigures, source=SOURCE,
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
    "gpu": st.builds(GpuFigures, source=SOURCE, used_gib=st.floats(0, 80), total_gib=st.just(80.0)),
    "stream": st.builds(
        StreamFigures, source=SOURCE, requests=st.just(3), chunks=st.just(9),
        tokens_per_chunk=st.floats(1, 9), tokens_per_chunk_p95=st.none() | st.floats(1, 9),
        gap_p50_ms=MAYBE_MS, gap_p95_ms=MAYBE_MS,
        tokens_per_s=st.floats(1, 1e4), buffer_ms=MAYBE_MS,
    ),
    "fallbacks": st.builds(Fallbacks, source=SOURCE, week=st.integers(0, 20), last=st.none()),
}  # fmt: skip
SEEN = st.builds(
    Observations, rollout=st.just("made"), branches=st.booleans(),
    **{name: st.none() | part for name, part in PARTS.items()},
)  # fmt: skip


def by_id(seen: Observations) -> dict[str, DiagnosisFinding]:
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


OLD = Live(
    source="prometheus, speculative pool", over="the last 1h", age_s=3700.0, answers=900.0, drafted=9000.0,
    acceptance=0.05, per_position=(0.1, 0.03), ttft_ms=900.0, tpot_ms=90.0, e2e_ms=9000.0,
    answer_tokens=100.0, load=2.0, kv_usage=0.99, preemptions_per_s=3.0, aborted=0.5,
    not_drafting=("a:1",), stuck=("a:1",),
)  # fmt: skip
MEASURED = BaselineFigures(
    source="baseline.json",
    loads=tuple(BaselineLoad(concurrency=n, ttft_ms=50, tpot_ms=5, token_ms=5) for n in (1, 4)),
)


def test_what_was_so_an_hour_ago_is_no_cause_of_now() -> None:
    """Its metrics are down since: everything was wrong then, and nothing is known now."""
    fresh = Observations(rollout="r", live=OLD.model_copy(update={"age_s": 5.0}), baseline=MEASURED)
    wrong = [one for one in findings(fresh) if one.severity in ("cause", "symptom")]
    assert len(wrong) >= 6
    stale = {one.id: one for one in findings(Observations(rollout="r", live=OLD, baseline=MEASURED))}
    for one in wrong:
        assert stale[one.id].severity == "unknown", one.id
        assert one.message in stale[one.id].message  # said as of then
        assert "1 hour ago" in stale[one.id].message


@given(parts=st.fixed_dictionaries({}, optional=PARTS))
@settings(deadline=None)
def test_old_figures_of_pools_never_make_a_present_answer(parts: dict[str, Any]) -> None:
    """Whatever else is observed: with old figures the answers are those without any."""
    old = {
        name: parts[name].model_copy(update={"age_s": 1e4}) for name in ("live", "standard") if name in parts
    }
    rest = {name: part for name, part in parts.items() if name not in old}
    without = findings(Observations(rollout="r", **rest))
    with_old = findings(Observations(rollout="r", **rest, **old))
    assert [(one.id, one.severity) for one in with_old] == [(one.id, one.severity) for one in without]


def test_evidence_has_the_age_of_its_source() -> None:
    ages = {"baseline.json": 864000.0, OLD.source: 5.0}
    live = OLD.model_copy(update={"age_s": 5.0})
    found = findings(Observations(rollout="r", live=live, baseline=MEASURED, ages=ages))
    assert {part.age_s for one in found for part in one.evidence if part.source == OLD.source} == {5.0}
    compared = AbFigures(
        source="ab.json", e2e=SpeedupInterval(estimate=0.8, low=0.7, high=0.9), ttft=None,
        ttft_change_ms=None, acceptance=None, drafts=0, classes={}, equal=None, compared=None, control=None,
    )  # fmt: skip
    then = findings(Observations(rollout="r", compared=compared, ages={"ab.json": 12 * 86400.0}))
    [symptom] = [one for one in then if one.severity == "symptom"]
    assert symptom.message.startswith("as measured 12 days ago: ")


def test_one_in_ten_5xx_at_the_routers_is_a_cause() -> None:
    def severity(failed: float, saved: float, standard: float | None) -> str:
        errors = RoutedErrors(
            source="p", over="5m", requests=500, failed=failed, saved=saved, standard_failed=standard
        )
        found = findings(Observations(rollout="r", routed_errors=errors))
        return next(one.severity for one in found if one.id == "routers-answer-errors")

    assert severity(0.1, 0.0, 0.0) == "cause"
    assert severity(0.1, 0.0, 0.1) == "cause"
    assert severity(0.0, 0.1, None) == "cause"
    assert severity(0.02, 0.01, 0.0) == "ruled_out"
