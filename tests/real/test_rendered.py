"""What `launch render` writes, read by those that it is written for: bash, shellcheck, Compose and kubectl;
and a server that is really started by its script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.assets import asset
from specops.config import Rollout
from specops.launch.servers import FixedAddress, free_port, running
from specops.phases.launch import render
from specops.progress import SilentProgress
from specops.render.server import script

DRAFT = {"method": "draft_model", "model": "org/draft", "num_speculative_tokens": 5}
ROLLOUTS: dict[str, dict[str, Any]] = {
    "vllm": {
        "standard": {"engine": "vllm", "model": "org/target", "version": "0.33.0"},
        "speculative": {"engine": "vllm", "model": "org/target", "version": "0.33.0", "speculation": DRAFT},
    },
    "sglang": {
        "standard": {"engine": "sglang", "model_path": "org/target", "tp_size": 2},
        "speculative": {
            "engine": "sglang",
            "model_path": "org/target",
            "tp_size": 2,
            "speculation": {"algorithm": "EAGLE3", "draft_model_path": "org/draft"},
        },
    },
    "command": {
        "standard": {"engine": "command", "command": "serve --note 'it is a $HOME' --port {port}"},
        "speculative": {"engine": "command", "command": "serve --json '{\"a\": 1e3}' --port {port}"},
    },
}
DEPLOY = {"secrets": {"HF_TOKEN": "hugging-face"}, "standard_replicas": 2, "image": "registry:5000/mine:1"}


@pytest.fixture(params=ROLLOUTS)
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    pools = ROLLOUTS[request.param]
    rollout = Rollout.model_validate({"rollout": request.param, "pools": pools, "deploy": DEPLOY})
    result = render(rollout, tmp_path, SilentProgress())
    assert result.summary["files"] == (11 if request.param == "vllm" else 9)
    return tmp_path / "rendered"


def tool(name: str, *, in_ci: bool) -> str:
    """Its path. Without it the test is skipped, or fails in CI where CI installs it."""
    path = shutil.which(name)
    if path is None:
        reason = f"there is no {name}"
        if in_ci and os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_bash_and_shellcheck_have_nothing_against_the_scripts(rendered: Path) -> None:
    for path in rendered.glob("*.sh"):
        assert os.access(path, os.X_OK)
        assert run("bash", "-n", path).stderr == ""
    shellcheck = tool("shellcheck", in_ci=True)
    # SC2016: a dollar in single quotes is meant to stay one.
    checked = run(shellcheck, "--exclude=SC2016", *rendered.glob("*.sh"))
    assert checked.stdout == ""


def test_compose_reads_the_file(rendered: Path) -> None:
    docker = tool("docker", in_ci=False)
    if run(docker, "compose", "version").returncode != 0:
        pytest.skip("docker has no compose plugin")
    found = run(docker, "compose", "-f", rendered / "compose.yaml", "config", "--format", "json")
    assert found.returncode == 0, found.stderr
    services = json.loads(found.stdout)["services"]
    assert list(services) == ["speculative", "standard", "standard-2"]


def test_kubectl_reads_every_word_as_text(rendered: Path) -> None:
    kubectl = tool("kubectl", in_ci=False)
    folder = rendered / "kubernetes"
    resources = sorted(path.name for path in folder.glob("*.yaml"))
    (folder / "kustomization.yaml").write_text(json.dumps({"resources": resources}))
    found = run(kubectl, "kustomize", folder)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("kind: Deployment") == found.stdout.count("kind: Service") == 2


def test_a_script_does_not_start_without_its_secrets(rendered: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"}
    found = subprocess.run(
        ["bash", rendered / "standard.sh"], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode != 0
    assert "HF_TOKEN" in found.stderr


RECORD = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('NOTE')]))"
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=25)
@given(st.lists(st.one_of(words, st.sampled_from(["--a", "$HOME", "`id`", "a\nb", "'", "*", "~"]))), words)
def test_bash_hands_over_the_words_and_variables_as_they_are(said: list[str], note: str) -> None:
    command = [sys.executable, "-I", "-c", RECORD, *said]
    text = script(command, {"NOTE": note, "PYTHONUTF8": "1"}, [], rollout="r", pool="standard")
    found = subprocess.run(["bash"], input=text.encode(), capture_output=True, check=True, timeout=60)
    assert json.loads(found.stdout) == [said, note]


@pytest.mark.slow
def test_the_script_of_the_shipped_pair_starts_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the serve extra")
    shipped = asset("playbooks", "embedded")
    pool = {"engine": "embedded", "target": shipped / "target", "threads": 1}
    speculation = {"draft": shipped / "head", "tree": "chain:3"}
    port = free_port()
    rollout = Rollout.model_validate(
        {
            "rollout": "shipped",
            "pools": {"standard": pool, "speculative": pool | {"speculation": speculation}},
            "deploy": {"port": port - 1},  # the speculative pool's is the next one
        }
    )
    render(rollout, tmp_path, SilentProgress())
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    command = ["bash", str(tmp_path / "rendered" / "speculative.sh")]
    log = tmp_path / "server.log"
    with running(
        "rendered", command, address=FixedAddress.on(port), log=log, progress=SilentProgress()
    ) as server:
        assert server.model == "shipped"
    assert "chain:3" in log.read_text()
