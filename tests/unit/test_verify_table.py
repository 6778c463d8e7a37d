"""The table of verdicts: over 200 generated pairs of all its rows, judged as they were made to be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import made_pairs as made
import pytest

from specops.phases.verify_draft import differences
from specops.phases.verify_draft.pair import VerifySettings
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress
from specops.results import Result

EACH = 7
NEWEST = {"engine": "vllm", "engine_version": "0.33"}

# row, change, serving engine, verdict, the check that says so
COMPATIBLE = [
    (made.alike, NEWEST, "kind"),
    (made.old_merges, NEWEST, "merges"),
    (made.pad_token, NEWEST, "special tokens"),
    (made.max_length, NEWEST, "model max length"),
    (made.padding_rows, NEWEST, "vocabulary size"),
    (made.placeholders, NEWEST, "token ids"),
    (made.decoder, NEWEST, "decoder"),
    (made.wrapped, NEWEST, "pre-tokeniser"),
    (made.defaults_written_out, NEWEST, "model"),
    (made.trimmed_offsets, NEWEST, "pre-tokeniser"),
]
DEGRADED = [
    (made.dropped_merge, NEWEST, "merges"),
    (made.swapped_merges, NEWEST, "merges"),
    (made.pre_tokeniser, NEWEST, "pre-tokeniser"),
    (made.normaliser, NEWEST, "normaliser"),
    (made.byte_fallback, NEWEST, "byte fallback"),
    (made.flags, NEWEST, "added tokens"),
    (made.template, NEWEST, "chat template"),
    (made.post_processor, NEWEST, "post-processor"),
    (made.one_more_behind, NEWEST, "post-processor"),
    (made.template_of_another_token, NEWEST, "chat template"),
    (made.added_alone, NEWEST, "token ids"),
    (made.eos, NEWEST, None),
]
INCOMPATIBLE = [
    (made.swapped_ids, NEWEST, "token ids"),
    (made.renamed, NEWEST, "token ids"),
    (made.shifted, NEWEST, "token ids"),
    (made.another, NEWEST, "token ids"),
]
SIZES = [
    (made.config_size, NEWEST, "needs_setting"),
    (made.config_size, {"engine": "vllm", "engine_version": "0.32.0"}, "needs_setting"),
    (made.config_size, {"engine": "vllm", "engine_version": "0.25.0"}, "needs_setting"),
    (made.config_size, {"engine": "vllm", "engine_version": "0.24.0"}, "incompatible"),
    (made.config_size, {"engine": "vllm", "engine_version": "0.9.2"}, "incompatible"),
    (made.config_size, {"engine": "embedded"}, "incompatible"),
    (made.config_size, {"engine": "sglang"}, "incompatible"),
    (made.placeholders, {"engine": "sglang"}, "incompatible"),  # it compares the maps to the last name
]
ROWS: list[tuple[made.Change, dict[str, str], str, str | None]] = [
    *((change, engine, "compatible", check) for change, engine, check in COMPATIBLE),
    *((change, engine, "degraded", check) for change, engine, check in DEGRADED),
    *((change, engine, "incompatible", check) for change, engine, check in INCOMPATIBLE),
    *((change, engine, verdict, "vocabulary size") for change, engine, verdict in SIZES),
]


def judged(tmp_path: Any, seed: int, change: made.Change, **settings: Any) -> Result:
    target, draft = made.pair(seed, change)
    folders = target.write(tmp_path / "target"), draft.write(tmp_path / "draft")
    return verify(
        VerifySettings(target=str(folders[0]), draft=str(folders[1]), **settings), None, SilentProgress()
    )


def test_there_are_enough_of_every_verdict() -> None:
    verdicts = [verdict for _, _, verdict, _ in ROWS for _ in range(EACH)]
    assert len(verdicts) >= 200
    assert min(verdicts.count(verdict) for verdict in set(verdicts)) >= 15


@pytest.mark.parametrize(
    ("change", "engine", "verdict", "check"),
    ROWS,
    ids=[f"{change.__name__}-{'-'.join(engine.values())}-{verdict}" for change, engine, verdict, _ in ROWS],
)
def test_the_verdict_is_the_tables(tmp_path, monkeypatch, change, engine, verdict, check) -> None:
    some = differences.texts()[
        ::8
    ]  # verdicts rest on the files; all texts are encoded in the tests of the command
    monkeypatch.setattr(differences, "texts", lambda: some)
    for seed in range(EACH):
        result = judged(tmp_path, seed, change, **engine)
        findings = {found["check"]: found for found in result.data["findings"]}
        assert result.summary["verdict"] == verdict, (seed, result.reason)
        assert (result.verdict, int(result.exit_code)) == (
            ("yes", 0) if verdict in ("compatible", "needs_setting") else ("no", 1)
        )
        if check is not None:
            assert findings[check]["verdict"] == verdict
        telling = [found["check"] for found in findings.values() if found["verdict"] == verdict]
        assert all(name in result.reason for name in telling) or verdict in ("compatible", "needs_setting")


@pytest.mark.parametrize(
    ("rows", "verdict", "detail"),
    [
        (2, "compatible", "all 2 ids mean the same token"),
        (1, "incompatible", "the draft's embedding has 1 rows; 1 ids in use have none"),
    ],
)
def test_a_row_is_lacking_from_the_first_id_beyond_the_embedding(
    rows: int, verdict: str, detail: str
) -> None:
    """Ids begin at 0: the id 1 needs two rows."""
    both = SimpleNamespace(tokens={0: "a", 1: "b"}, added={})
    found = differences.token_ids(both, both, rows)  # type: ignore[arg-type]
    assert (found.verdict, found.detail) == (verdict, detail)


@pytest.mark.parametrize(("positions", "less"), [(4096, False), (8192, False), (2048, True)])
def test_only_a_draft_that_is_shorter_is_said_to_draft_badly_beyond(positions: int, less: bool) -> None:
    target, draft = (SimpleNamespace(max_positions=length) for length in (4096, positions))
    found = differences.lengths(target, draft)  # type: ignore[arg-type]
    assert found.verdict == "compatible"
    assert ("beyond the draft's" in found.detail) == less


@pytest.mark.parametrize(("score", "verdict"), [(-2.0, "compatible"), (-3.0, "degraded")])
def test_unigram_models_are_compared_by_their_scores(score: float, verdict: str) -> None:
    """Their tokens are compared by id, as all tokens are."""
    target, draft = (
        SimpleNamespace(model={"vocab": [[a, -1.0], ["b", b]]}) for a, b in (("a", -2.0), ("A", score))
    )
    assert differences._merges(target, draft).verdict == verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(("change", "verdict"), [(made.dropped_merge, "yes"), (made.swapped_ids, "no")])
def test_what_is_only_degraded_can_be_allowed(tmp_path, change, verdict) -> None:
    assert judged(tmp_path, 0, change, allow_degraded=True).verdict == verdict


def test_a_setting_is_named_by_the_engines_own_word(tmp_path) -> None:
    result = judged(tmp_path, 0, made.config_size, **NEWEST)
    assert result.summary["settings"] == {"use_heterogeneous_vocab": True}
    assert "use_heterogeneous_vocab" in result.reason


@pytest.mark.parametrize(("version", "named"), [("0.33", True), ("0.24", False)])
def test_other_ids_name_what_vllm_has_for_them(tmp_path, version, named) -> None:
    result = judged(tmp_path, 0, made.swapped_ids, engine="vllm", engine_version=version)
    assert ("use_heterogeneous_vocab" in result.reason) == named


def test_what_encodings_miss_is_found(tmp_path) -> None:
    """The reason for comparing merges whole: some merges are in no text that anyone thought of."""
    unseen = 0
    for seed in range(5):
        result = judged(tmp_path, seed, made.dropped_merge)
        assert result.summary["verdict"] == "degraded"
        unseen += not result.data["encodings"]["differing"]
    assert unseen > 0
