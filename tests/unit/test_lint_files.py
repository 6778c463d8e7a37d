"""Commands of engines where people keep them: scripts, Compose files, manifests, YAML files of flags."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specops.errors import FileError, UsageError
from specops.launch.command_files import command_of, commands_in, judge
from specops.serving.vllm.arguments import ParsedCommand

PLAYBOOK = """\
# speculative_decoding_config.yaml
# 이 설정을 기반으로 실험하고, accept ratio와 latency를 보면서 조정

# Draft 토큰 수: 너무 많으면 reject 증가, 너무 적으면 이점 감소
num_speculative_tokens: 5 # 시작값. 3-7 범위에서 실험

# Speculative decoding이 효과 없는 경우 자동 비활성화
speculative_disable_by_batch_size: 8 # 배치 8 이상이면 비활성화

# temperature > 0일 때의 처리
# typical acceptance sampling 사용 (품질 유지)
speculative_draft_tensor_parallel_size: 1 # draft는 TP=1로 충분
"""
SCRIPT = """\
#!/bin/bash
# don't run this twice
set -e; export MODEL=org/m
sudo mkdir -p /cache && exec python -m vllm.entrypoints.openai.api_server \\
    --model "$MODEL" \\
    --speculative-config '{"method": "ngram",
        "num_speculative_tokens": 3}' \\
    --port 8000 > server.log 2>&1 &
bash -c 'vllm serve org/n --use-v2-block-manager'
docker run --gpus all -v /m:/m vllm/vllm-openai:v0.12.0 --model org/o | tee log
echo vllm serve
python -m sglang.launch_server --model-path org/p
"""
COMPOSE = """\
services:
  router: {image: nginx}
  listed:
    image: vllm/vllm-openai:v0.33.0
    command: [--model, org/m, --use-v2-block-manager]
  written:
    image: vllm/vllm-openai:v0.9.1
    command: --model org/m --seed 1
  own:
    image: registry.local/llm:1
    entrypoint: [vllm, serve]
    command: org/m --seed 1
"""
MANIFEST = """\
apiVersion: v1
kind: Service
metadata: {name: llm}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      initContainers:
        - {name: wait, image: busybox, command: [sh, -c, "sleep 1"]}
      containers:
        - name: server
          image: vllm/vllm-openai:v0.32.0
          args: [--model, org/m]
        - name: shell
          image: vllm/vllm-openai:v0.20.2-cu129
          command: [/bin/bash, -c]
          args: ["ulimit -l unlimited && vllm serve org/n --seed 2"]
"""


def commands(folder: Path, name: str, text: str) -> list[tuple[str, str, str | None, list[str]]]:
    (folder / name).write_text(text, encoding="utf-8")
    return [(c.where, c.engine, c.version, list(c.words)) for c in commands_in(folder / name)]


def test_a_script_is_read_as_a_shell_would(tmp_path) -> None:
    keys = '{"method": "ngram",\n        "num_speculative_tokens": 3}'
    module = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/m"]
    run = ["docker", "run", "--gpus", "all", "-v", "/m:/m", "vllm/vllm-openai:v0.12.0", "--model", "org/o"]
    assert commands(tmp_path, "start.sh", SCRIPT) == [
        ("start.sh, line 4", "vllm", None, [*module, "--speculative-config", keys, "--port", "8000"]),
        ("start.sh, line 9", "vllm", None, ["vllm", "serve", "org/n", "--use-v2-block-manager"]),
        ("start.sh, line 10", "vllm", "0.12.0", run),
        (
            "start.sh, line 12",
            "sglang",
            None,
            ["python", "-m", "sglang.launch_server", "--model-path", "org/p"],
        ),
    ]


def test_a_compose_file(tmp_path) -> None:
    assert commands(tmp_path, "compose.yaml", COMPOSE) == [
        ("service listed", "vllm", "0.33.0", ["--model", "org/m", "--use-v2-block-manager"]),
        ("service written", "vllm", "0.9.1", ["--model", "org/m", "--seed", "1"]),
        ("service own", "vllm", None, ["vllm", "serve", "org/m", "--seed", "1"]),
    ]


def test_a_manifest(tmp_path) -> None:
    assert commands(tmp_path, "llm.yml", MANIFEST) == [
        ("Deployment llm, container server", "vllm", "0.32.0", ["--model", "org/m"]),
        ("Deployment llm, container shell", "vllm", "0.20.2", ["vllm", "serve", "org/n", "--seed", "2"]),
    ]


def test_the_playbooks_file_of_flags(tmp_path) -> None:
    path = tmp_path / "speculative_decoding_config.yaml"
    path.write_text(PLAYBOOK, encoding="utf-8")
    judged = judge(commands_in(path)[0], "0.33.0")
    flags = [finding.flag for finding in judged.findings]
    for key in ("num-speculative-tokens", "speculative-disable-by-batch-size"):
        assert f"--{key}" in flags
    assert [finding.flag for finding in judged.left] == ["--speculative-config method"]
    # As `vllm serve --config` reads it: a flag a key, the JSON as text.
    corrected = yaml.safe_load(judged.corrected or "")
    assert json.loads(corrected.pop("speculative-config")) == {
        "num_speculative_tokens": 5,
        "draft_tensor_parallel_size": 1,
    }  # and no schedule in place of the old key: it collapses at its threshold (vllm#49548)
    assert corrected == {}


def test_a_file_of_flags_has_switches_lists_and_mappings(tmp_path) -> None:
    text = (
        "model: m\nenforce_eager: true\nenable-lora: false\nallowed-origins: [a, b]\n"
        "speculative_config: {method: ngram}\n"
    )
    words = commands(tmp_path, "flags.yaml", text)[0][3]
    assert words[:4] == ["--model", "m", "--enforce-eager", "--no-enable-lora"]
    assert words[4:7] == ["--allowed-origins", "a", "b"]
    assert ParsedCommand.parse(words).keys == {"method": "ngram"}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("start.sh", "echo hello\n", "no command of vLLM or SGLang"),
        ("start.sh", "vllm serve 'm\n", "line 1: no closing quotation"),
        ("start.sh", 'bash -c "vllm \'serve"\n', "line 1: no closing quotation"),
        ("compose.yaml", "services: {db: {image: postgres}}\n", "no command of vLLM or SGLang"),
        ("list.yaml", "- 1\n", "no command of vLLM or SGLang"),
        ("values.yaml", "replicas: 2\nlabels: {a: b}\n", "no command of vLLM or SGLang"),
        ("rollout.yaml", "rollout: x\npools: {}\n", "is a rollout file"),
        ("chart.yaml", "a: {{ .Values.x }}\n", "invalid YAML"),
    ],
)
def test_a_file_without_a_command_is_said(tmp_path, name, text, says) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=says) as caught:
        commands_in(tmp_path / name)
    assert caught.value.hint


def test_a_file_that_cannot_be_read_is_said(tmp_path) -> None:
    with pytest.raises(FileError, match="No such file"):
        commands_in(tmp_path / "absent.sh")
    (tmp_path / "binary.sh").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not UTF-8"):
        commands_in(tmp_path / "binary.sh")


def test_a_command_may_be_one_word_or_flags_alone() -> None:
    assert command_of(["exec vllm serve m --seed 1 &"]).words == ("vllm", "serve", "m", "--seed", "1")
    assert command_of(["--model", "m"]).engine == "vllm"
    for words in (["ls", "-l"], ["ls -l"], []):
        with pytest.raises(UsageError, match="not a command of vLLM or SGLang"):
            command_of(words)


PIECES = st.sampled_from(
    ["vllm serve m", "--seed", "1", "'", '"', "\\\n", "\n", ";", "|", "#", "bash -c", "> x", " "]
)


@given(st.lists(PIECES, max_size=12).map("".join), st.sampled_from(["any.sh", "any.yaml"]))
def test_any_text_is_read_or_refused(tmp_path_factory, text, name) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_text(text, encoding="utf-8")
    with suppress(UsageError):
        for command in commands_in(path):
            judge(command, "0.33.0")


NODES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["services", "kind", "metadata", "name", "containers", "image", "command", "args"]
            ),
            inner | st.just("vllm/vllm-openai:v0.33.0"),
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(NODES)
def test_any_yaml_is_read_or_refused(tmp_path_factory, node) -> None:
    path = tmp_path_factory.getbasetemp() / "node.yaml"
    path.write_text(yaml.safe_dump(node), encoding="utf-8")
    with suppress(UsageError):
        for command in commands_in(path):
            judge(command, "0.33.0")


def test_another_file_that_has_a_version_is_no_file_of_flags(tmp_path) -> None:
    path = tmp_path / "dependabot.yml"
    path.write_text("version: 2\nupdates: [{package-ecosystem: pip, directory: /}]\n")
    with pytest.raises(UsageError, match="no command"):
        commands_in(path)


def test_a_date_in_a_file_of_flags_is_read(tmp_path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text("model: org/m\nseed: 1\nhf_overrides: {released: 2026-08-21}\n")
    [command] = commands_in(path)
    assert '{"released": "2026-08-21"}' in command.words


def test_yaml_that_a_script_writes_with_variables_is_not_called_broken(tmp_path) -> None:
    path = tmp_path / "start.sh"
    path.write_text(
        "cat > extra.yml << EOF\nmax_batch_size: 8\ntorch_compile_config:\n"
        "    capture_num_tokens: [${TOKENS%, }]\nno_such_key: 1\nEOF\n"
        "trtllm-serve org/m --backend pytorch --extra_llm_api_options=extra.yml\n"
    )
    [command] = commands_in(path)
    found = {one.flag: one.level for one in judge(command).findings}
    assert "extra.yml" not in found
    assert "no_such_key" in found, "the rest is judged"
