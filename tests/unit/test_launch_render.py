"""`launch render`: which files, what is found wrong, what is left out, and the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from specops.config import Rollout
from specops.errors import ConfigError, Exit, FileError
from specops.phases.commands import Commands
from specops.phases.launch import lint_file, render
from specops.phases.launch.document import document
from specops.progress import SilentProgress
from specops.render.report.terminal import terminal
from specops.results import Result

VLLM = {"engine": "vllm", "model": "org/target", "version": "0.33.0"}
NGRAM = {"speculation": {"method": "ngram", "prompt_lookup_max": 4}}
SGLANG = {"engine": "sglang", "model_path": "org/target"}
EVERY_FILE = [
    "rendered/standard.sh",
    "rendered/speculative.sh",
    "rendered/compose.yaml",
    "rendered/compose/standard.yaml",
    "rendered/compose/speculative.yaml",
    "rendered/kubernetes/standard.yaml",
    "rendered/kubernetes/speculative.yaml",
    "rendered/kserve/standard.yaml",
    "rendered/kserve/speculative.yaml",
    "rendered/llminferenceservice/standard.yaml",
    "rendered/llminferenceservice/speculative.yaml",
]


COMMANDS = Commands(
    Rollout.model_validate(
        {
            "rollout": "demo",
            "pools": {
                name: {"engine": "endpoint", "base_url": f"http://127.0.0.1:{port}/v1", "model": "m"}
                for name, port in (("standard", 1), ("speculative", 2))
            },
        }
    ),
    Path("rollout.yaml"),
    Path("runs/demo"),
)


def page(result: Result) -> list[str]:
    return list(terminal(document(result, Path("launch.json"), COMMANDS)))


def rollout(standard: dict[str, Any], speculative: dict[str, Any], **sections: Any) -> Rollout:
    pools = {"standard": standard, "speculative": speculative}
    return Rollout.model_validate({"rollout": "r", "pools": pools} | sections)


def rendered(folder: Path, *pools: dict[str, Any], **sections: Any) -> Result:
    return render(rollout(*pools, **sections), folder, SilentProgress())


def findings(result: Result, pool: str = "speculative") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.data["pools"][pool]["findings"]
    return found


def in_container(folder: Path, pool: str) -> list[str]:
    text = (folder / f"rendered/kubernetes/{pool}.yaml").read_text()
    deployment = next(iter(yaml.safe_load_all(text)))
    command: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    return command


def test_both_pools_are_equal_in_everything_but_speculation(tmp_path: Path) -> None:
    result = rendered(tmp_path, VLLM, VLLM | NGRAM)
    assert result.data["files"] == EVERY_FILE
    assert all((tmp_path / name).is_file() for name in EVERY_FILE)
    assert findings(result) == findings(result, "standard") == []
    standard, speculative = in_container(tmp_path, "standard"), in_container(tmp_path, "speculative")
    speculating = speculative.index("--speculative-config")
    assert json.loads(speculative[speculating + 1])["method"] == "ngram"
    assert speculative[:speculating] + speculative[speculating + 2 :] == standard
    assert standard[standard.index("--host") + 1] == "0.0.0.0"
    services = yaml.safe_load((tmp_path / "rendered/compose.yaml").read_text())["services"]
    assert services["standard"]["image"] == services["speculative"]["image"] == "vllm/vllm-openai:v0.33.0"


@pytest.mark.parametrize("pool", [VLLM | NGRAM, SGLANG | {"speculation": {"algorithm": "NGRAM"}}])
def test_the_lint_reads_every_file_and_has_nothing_against_it(tmp_path: Path, pool: dict[str, Any]) -> None:
    standard = {key: value for key, value in pool.items() if key != "speculation"}
    for name in rendered(tmp_path, standard, pool).data["files"]:
        judged, result = lint_file(tmp_path / name)
        assert result.verdict == "yes", name
        assert len(judged) == (2 if name.endswith("compose.yaml") else 1)


def test_a_version_that_can_drain_is_told_to_and_another_gets_the_time_before(tmp_path: Path) -> None:
    def stop(version: str) -> tuple[bool, str]:
        pool = VLLM | {"version": version}
        rendered(tmp_path / version, pool, pool | NGRAM, deploy={"drain_s": 77})
        text = (tmp_path / version / "rendered/kubernetes/standard.yaml").read_text()
        spec = next(iter(yaml.safe_load_all(text)))["spec"]["template"]["spec"]["containers"][0]
        words = spec["command"]
        drains = words[-2:] == ["--shutdown-timeout", "77"]
        return drains, spec["lifecycle"]["preStop"]["exec"]["command"][1]

    assert stop("0.33.0") == (True, "10")
    assert stop("0.10.2") == (False, "87")  # 0.10 has no such flag: SIGTERM ends its requests


def test_gpus_are_the_parallel_sizes_and_the_image_is_the_version(tmp_path: Path) -> None:
    pool = SGLANG | {"tp_size": 4, "pp_size": 2}
    rendered(tmp_path, pool, pool | {"speculation": {"algorithm": "NGRAM"}})
    service = yaml.safe_load((tmp_path / "rendered/compose.yaml").read_text())["services"]["standard"]
    assert service["image"] == "lmsysorg/sglang:v0.5.23"
    device = service["deploy"]["resources"]["reservations"]["devices"][0]
    assert len(device["device_ids"]) == 8
    rendered(tmp_path, pool, pool | {"speculation": {"algorithm": "NGRAM"}}, deploy={"gpus": 0})
    assert "nvidia" not in (tmp_path / "rendered/compose.yaml").read_text()


def test_a_model_that_no_volume_brings_in_keeps_its_pool_out_of_containers(tmp_path: Path) -> None:
    here = VLLM | {"model": "/models/target"}

    def left_out(draft: str, **sections: Any) -> list[str | None]:
        speculative = here | {"speculation": {"method": "draft_model", "model": draft}}
        result = rendered(tmp_path, here, speculative, **sections)
        assert {"rendered/standard.sh", "rendered/speculative.sh"} <= set(result.data["files"])
        assert result.summary["errors"] == 0
        return [pool["left_out"].get("Compose and Kubernetes") for pool in result.data["pools"].values()]

    deploy = {"deploy": {"model_folder": "/models"}}
    standard, speculative = left_out("/models/draft")
    assert "model /models/target" in str(standard)
    assert standard == speculative
    assert left_out("/models/draft", **deploy) == [None, None]
    standard, speculative = left_out("/models/../etc", **deploy)
    assert standard is None
    assert "speculation.model /models/../etc" in str(speculative)
    assert not (tmp_path / "rendered/kubernetes/speculative.yaml").exists()


def test_pools_that_run_already_have_nothing_and_others_without_an_image_have_scripts(tmp_path: Path) -> None:
    endpoint = {"engine": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    result = rendered(tmp_path, endpoint, {"engine": "command", "command": "serve --port {port}"})
    assert result.data["files"] == ["rendered/speculative.sh"]
    assert "serve \\\n  --port 8001" in (tmp_path / "rendered/speculative.sh").read_text()
    text = " ".join(" ".join(page(result)).split())
    assert "standard left out everything it runs already, at http://127.0.0.1:9/v1" in text
    assert "a command of your own has no published image" in text


def test_what_is_not_rendered_any_more_is_removed(tmp_path: Path) -> None:
    rendered(tmp_path, VLLM, VLLM | NGRAM)
    endpoint = {"engine": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    rendered(tmp_path, endpoint, endpoint)
    assert not [path for path in (tmp_path / "rendered").rglob("*") if path.is_file()]


def test_a_command_is_linted_and_must_be_reached_in_its_container(tmp_path: Path) -> None:
    old = {
        "engine": "command",
        "command": "vllm serve m --port {port} --speculative-model d --num-speculative-tokens 5",
    }
    plain = {"engine": "command", "command": "serve --host 0.0.0.0 --port {port}"}
    result = rendered(tmp_path, plain, old, deploy={"image": "mine:1"})
    levels = {found["flag"]: found["level"] for found in findings(result)}
    assert levels["command"] == "warning"  # it does not say 0.0.0.0
    assert levels["--speculative-model"] == "error"
    assert findings(result, "standard") == []
    assert result.verdict == "no"
    assert "error" in page(result)[-3]
    assert page(result)[-2].startswith("change: fix the errors above in ")


def test_a_setting_that_the_version_lacks_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    old = VLLM | {"version": "0.9.2"}
    schedule = {"speculation": {"method": "suffix"}}
    with pytest.raises(ConfigError, match=r"0\.9\.2"):
        rendered(tmp_path, old, old | schedule)
    assert not (tmp_path / "rendered").exists()


def test_a_version_that_was_not_checked_is_said(tmp_path: Path) -> None:
    pool = SGLANG | {"version": "0.4.0"}
    result = rendered(tmp_path, pool, pool | {"speculation": {"algorithm": "NGRAM"}})
    assert "SGLang 0.4.0 is not in the table" in findings(result)[0]["why"]


def test_without_a_peak_the_files_are_there_and_the_gate_does_not_pass(tmp_path: Path) -> None:
    result = rendered(tmp_path, VLLM, VLLM | NGRAM)
    assert (result.verdict, result.exit_code) == ("undecided", Exit.UNDECIDED)
    assert "names no peak" in result.reason
    assert "add peak" in page(result)[-2]


@pytest.mark.parametrize(
    ("verdict", "following"), [("yes", "kubectl apply -f"), ("no", "3 servers would carry it")]
)
def test_the_page_says_what_the_gate_said_and_what_comes_next(
    tmp_path: Path, verdict: str, following: str
) -> None:
    result = rendered(tmp_path, VLLM, VLLM | NGRAM)
    gate = {"verdict": verdict, "change": "3 servers would carry it", "reason": "what the gate said"}
    result.data["capacity"] |= gate
    *lines, before, next_ = page(result)
    assert "  What the gate said." in lines
    assert following in (before if verdict == "no" else next_)
    assert next_.startswith("next: ")


def test_no_secret_reaches_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    result = rendered(tmp_path, VLLM, VLLM | NGRAM, deploy={"secrets": {"HF_TOKEN": "hugging-face"}})
    assert "hf_very_secret" not in result.model_dump_json()
    assert not any("hf_very_secret" in (tmp_path / name).read_text() for name in EVERY_FILE)


def test_a_folder_that_cannot_be_written_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "rendered").write_text("a file")
    with pytest.raises(FileError) as error:
        rendered(tmp_path, VLLM, VLLM | NGRAM)
    assert error.value.hint
