"""Every kind of draft by its name: in a rollout file, in what is asked of a pair, in what a result is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.assets import asset
from specops.errors import UsageError
from specops.phases.inputs import _model_folders, _serving
from specops.phases.verify_draft.pair import VerifySettings, settings_for
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress
from specops.serving.embedded import EmbeddedPool, Speculation, arguments
from specops.trees import exit_layers

EMBEDDED = asset("playbooks", "embedded")
KINDS = {
    "draft": "independent",
    "head": "eagle",
    "recurrent": "recurrent",
    "boosted-2": "recurrent",
    "medusa": "medusa",
    "exit": "early_exit",
}


def judged(draft: str, engine: str = "embedded"):  # type: ignore[no-untyped-def]
    asked = {"target": str(EMBEDDED / "target"), "draft": draft, "engine": engine, "allow_degraded": True}
    return verify(VerifySettings(**asked), None, SilentProgress())


@pytest.mark.parametrize("folder", KINDS)
def test_what_ships_fits_the_shipped_target(folder: str) -> None:
    result = judged(str(EMBEDDED / folder))
    assert result.summary["kind"] == KINDS[folder]
    assert result.verdict == "yes", result.reason


@pytest.mark.parametrize("name", ["exit:2", "ngram", "suffix"])
def test_drafts_without_a_folder_fit_too(name: str) -> None:
    assert judged(name).verdict == "yes"


def test_an_exit_keeps_keys_and_values_of_its_layers_alone() -> None:
    whole, own = (judged("exit:2").data["memory"][side] for side in ("target", "draft"))
    assert own["kv_bytes_per_token"] * 4 == whole["kv_bytes_per_token"]  # 2 of 8 layers
    assert own["weights_bytes"] == 0


@pytest.mark.parametrize(
    ("engine", "draft"), [("vllm", "recurrent"), ("sglang", "recurrent"), ("vllm", "exit")]
)
def test_other_engines_refuse_forms_of_our_own(engine: str, draft: str) -> None:
    assert judged(str(EMBEDDED / draft), engine).verdict == "no"


def test_a_rollout_takes_every_kind() -> None:
    for draft in (*(EMBEDDED / name for name in KINDS), "exit:2"):
        assert str(Speculation.model_validate({"draft": str(draft)}).draft) == str(draft)


@pytest.mark.parametrize(
    ("draft", "words"), [("exit:none", "expected exit:LAYERS"), ("nowhere", "does not exist")]
)
def test_a_rollout_refuses_what_is_no_draft(draft: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Speculation.model_validate({"draft": draft})


def test_an_exit_counts_by_its_name_and_a_folder_by_its_content() -> None:
    two, three = (
        EmbeddedPool.model_validate({"engine": "embedded", "speculation": {"draft": f"exit:{n}"}})
        for n in (2, 3)
    )
    assert _serving(two) != _serving(three)
    assert "draft" not in _model_folders(two)
    folder = EMBEDDED / "recurrent"
    pool = EmbeddedPool.model_validate({"engine": "embedded", "speculation": {"draft": str(folder)}})
    assert _model_folders(pool)["draft"] == folder
    assert str(folder) not in str(_serving(pool))


def test_an_exit_is_served_and_judged_by_its_name() -> None:
    pool = EmbeddedPool.model_validate({"engine": "embedded", "speculation": {"draft": "exit:2"}})
    words = arguments(pool, "m", port=0)
    assert words[words.index("--draft") + 1] == "exit:2"
    asked = settings_for(pool)
    assert asked is not None
    assert asked.draft == "exit:2"


def test_names_of_exits() -> None:
    assert exit_layers("exit:12") == 12
    assert exit_layers("exits/here") is None
    assert exit_layers(str(Path("exit:3"))) == 3
    for wrong in ("exit:", "exit:0", "exit:-1", "exit:2.5", "exit:١"):
        with pytest.raises(UsageError, match="expected exit:LAYERS"):
            exit_layers(wrong)
