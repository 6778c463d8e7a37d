"""What verify-draft says of a pair on vLLM 0.32.0, held against what vLLM 0.32.0 makes of it.

Only what its configuration decides: whether it starts, and with which method. Weights are not loaded.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from real_vllm import PAIR, inside_vllm

from specops.phases.verify_draft.pair import VerifySettings
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]

WIDER = {"vocab_size": 2112}  # with padding rows, as Qwen2.5's larger ones
MEDUSA = {"architectures": ["MedusaModel"], "model_type": "medusa", "num_heads": 3}
MLP = {
    "architectures": ["MLPSpeculatorPreTrainedModel"],
    "model_type": "mlp_speculator",
    "n_predict": 3,
    "emb_dim": 256,
}

# folder, which of the shipped pair it is, changes to its config.json; what is set beside the method
DRAFTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "draft": ("draft", {}, {}),
    "wider": ("draft", WIDER, {}),
    "wider-with-its-setting": ("draft", WIDER, {"use_heterogeneous_vocab": True}),
    "head": ("head", {}, {}),
    "llama-by-name": ("head", {"architectures": ["LlamaForCausalLM"]}, {}),
    "medusa": ("head", MEDUSA, {}),
    "mlp": ("head", MLP, {}),
    "an-eagle-in-name": ("draft", {}, {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(vllm: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("drafts")
    for name, (shipped, changes, _) in DRAFTS.items():
        shutil.copytree(PAIR / shipped, place / name)
        config = json.loads((place / name / "config.json").read_text()) | changes
        (place / name / "config.json").write_text(json.dumps(config))
    return {name: place / name for name in DRAFTS}


@pytest.fixture(scope="module")
def ours(folders: dict[str, Path]) -> dict[str, Any]:
    def judged(folder: Path) -> Any:
        asked = VerifySettings(
            target=str(PAIR / "target"), draft=str(folder), engine="vllm", engine_version="0.32.0"
        )
        return verify(asked, None, SilentProgress())

    return {name: judged(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def theirs(folders: dict[str, Path], ours: dict[str, Any]) -> dict[str, dict[str, str | None]]:
    def words(name: str) -> list[str]:
        # Of an unknown kind, the method that its config.json names.
        method = ours[name].summary["method"] or {"medusa": "medusa"}.get(name, "mlp_speculator")
        keys = {"method": method, "model": str(folders[name]), "num_speculative_tokens": 3} | DRAFTS[name][2]
        return ["--model", str(PAIR / "target"), "--speculative-config", json.dumps(keys)]

    verdicts = inside_vllm([words(name) for name in folders])["verdicts"]
    return dict(zip(folders, verdicts, strict=True))


@pytest.mark.parametrize("name", DRAFTS)
def test_what_is_called_incompatible_is_what_does_not_start(name, ours, theirs) -> None:
    said, found = ours[name].summary["verdict"], theirs[name]
    if (
        said == "unknown"
    ):  # its config.json names another kind than its tensors are: vLLM reads the first only
        assert (ours[name].verdict, ours[name].summary["kind"]) == ("undecided", "unknown")
        return
    needs = ours[name].summary["settings"]
    starts = said == "compatible" or (said == "needs_setting" and needs.items() <= DRAFTS[name][2].items())
    assert (found["error"] is None) == starts, (said, found)


def test_the_setting_is_the_one_that_vllm_asks_for(ours, theirs) -> None:
    assert ours["wider"].summary["settings"] == DRAFTS["wider-with-its-setting"][2]
    assert "same vocabulary size" in str(theirs["wider"]["error"])


def test_a_path_changes_the_method_that_was_named(ours, theirs) -> None:
    assert ours["an-eagle-in-name"].summary["method"] == "draft_model"
    assert theirs["an-eagle-in-name"] == {"error": None, "refused": None, "method": "eagle"}
    (path,) = [found for found in ours["an-eagle-in-name"].data["findings"] if found["check"] == "path"]
    assert path["verdict"] == "needs_setting"


@pytest.mark.parametrize("name", ["draft", "head", "llama-by-name"])
def test_the_method_is_kept_elsewhere(name, ours, theirs) -> None:
    assert theirs[name]["method"] == ours[name].summary["method"]


def test_a_config_that_its_tensors_contradict_has_no_method(ours, theirs) -> None:
    """vLLM starts the engine on the word of the config, and fails on the tensors later."""
    assert ours["medusa"].summary["method"] is None
    assert theirs["medusa"]["method"] == "medusa"
