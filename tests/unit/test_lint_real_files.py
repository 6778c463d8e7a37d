"""Files as charts, guides and samples have them, shortened, two of each kind and with the mistakes that are
made in them: the command is found, what is wrong with it is said, and what is printed instead is right."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from specops.errors import UsageError
from specops.launch.command_files import command_of, commands_in, judge
from specops.launch.command_files.containers import filled_in
from specops.serving import Command

# Of each: the file, its text, and of its commands the engine and the flags of the errors.
FILES: dict[str, tuple[str, str, list[tuple[str, list[str]]]]] = {
    # vLLM's production-stack: the values of its tutorials
    "production-stack, flags of 0.6": (
        "values.yaml",
        """\
servingEngineSpec:
  runtimeClassName: ""
  modelSpec:
    - name: llama3
      repository: vllm/vllm-openai
      tag: v0.33.0
      modelURL: meta-llama/Llama-3.1-8B-Instruct
      replicaCount: 1
      requestCPU: 10
      requestMemory: 16Gi
      requestGPU: 1
      vllmConfig:
        enableChunkedPrefill: false
        enablePrefixCaching: false
        maxModelLen: 16384
        extraArgs:
          ["--disable-log-requests", "--speculative-model", "org/draft", "--num-speculative-tokens", "5"]
""",
        [("vllm", ["--speculative-model", "--num-speculative-tokens"])],
    ),
    "production-stack, a draft that is missing": (
        "values-spec.yaml",
        """\
servingEngineSpec:
  modelSpec:
    - name: eagle
      repository: vllm/vllm-openai
      tag: v0.33.0
      modelURL: meta-llama/Llama-3.1-8B-Instruct
      vllmConfig:
        enablePrefixCaching: true
        extraArgs: ["--speculative-config", '{"method": "eagle3", "num_speculative_tokens": 3}']
""",
        [("vllm", ["--speculative-config model"])],
    ),
    # llm-d's modelservice
    "llm-d, a flag that is gone": (
        "ms-values.yaml",
        """\
modelArtifacts: {uri: "hf://meta-llama/Llama-3.1-8B-Instruct", size: 30Gi}
decode:
  replicas: 1
  containers:
    - name: vllm
      image: ghcr.io/llm-d/llm-d-gaudi:v0.3
      modelCommand: vllmServe
      args: [--block-size, "128", --max-seq-len-to-capture, "2048", --max-num-seqs, "32"]
""",
        [("vllm", ["--max-seq-len-to-capture"])],
    ),
    "llm-d, speculation in decode alone": (
        "ms-pd-values.yaml",
        """\
modelArtifacts: {uri: "hf://org/m"}
decode:
  parallelism: {tensor: 4}
  containers:
    - name: vllm
      image: ghcr.io/llm-d/llm-d:v0.4.0
      modelCommand: vllmServe
      args:
        - --speculative-config
        - '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_maximum": 4}'
prefill:
  containers:
    - {name: vllm, image: "ghcr.io/llm-d/llm-d:v0.4.0", modelCommand: vllmServe, args: [--seed, "0"]}
""",
        [("vllm", ["--speculative-config prompt_lookup_maximum"]), ("vllm", [])],
    ),
    # KServe
    "InferenceService, in the format huggingface": (
        "isvc.yaml",
        """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: huggingface-llama3}
spec:
  predictor:
    model:
      modelFormat: {name: huggingface}
      args:
        - --model_name=llama3
        - --model_id=meta-llama/Llama-3.1-8B-Instruct
        - --num_speculative_tokens=5
""",
        [("vllm", ["--num-speculative-tokens", "--speculative-config method"])],
    ),
    "InferenceService, a container of its own": (
        "custom.yaml",
        """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: sglang}
spec:
  predictor:
    containers:
      - name: kserve-container
        image: lmsysorg/sglang:v0.5.23
        command: [python3, -m, sglang.launch_server]
        args: [--model-path, org/m, --speculative-algorithm, EAGLE3, --speculative-num-steps, "3"]
""",
        [("sglang", ["--speculative-draft-model-path", "--speculative-eagle-topk"])],
    ),
    "LLMInferenceService, arguments in a variable": (
        "llm.yaml",
        """\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  model: {uri: "hf://Qwen/Qwen3-32B", name: Qwen/Qwen3-32B}
  replicas: 2
  template:
    containers:
      - name: main
        image: vllm/vllm-openai:v0.33.0
        env:
          - {name: VLLM_ADDITIONAL_ARGS, value: "--max-num-seqs 8 --num-lookahead-slots 3"}
""",
        [("vllm", ["--num-lookahead-slots"])],
    ),
    # The template's shell reads the words again: JSON needs quotes of its own
    "LLMInferenceService, JSON that a shell reads": (
        "llm.yaml",
        """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  model: {uri: "hf://Qwen/Qwen3-32B", name: Qwen/Qwen3-32B}
  template:
    containers:
      - name: main
        image: vllm/vllm-openai:v0.33.0
        args: ["--speculative-config", '{"method":"ngram","num_speculative_tokens":4}']
""",
        [("vllm", ["--speculative-config"])],
    ),
    "LLMInferenceService, JSON in quotes for the shell": (
        "llm.yaml",
        """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  model: {uri: "hf://Qwen/Qwen3-32B", name: Qwen/Qwen3-32B}
  template:
    containers:
      - name: main
        image: vllm/vllm-openai:v0.33.0
        args:
          - --speculative-config
          - "'{\\"method\\":\\"ngram\\",\\"num_speculative_tokens\\":4,\\"prompt_lookup_max\\":4}'"
""",
        [("vllm", [])],
    ),
    "LLMInferenceServiceConfig, a script that is a template": (
        "config.yaml",
        """\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceServiceConfig
metadata: {name: data-parallel}
spec:
  template:
    containers:
      - name: main
        image: ghcr.io/llm-d/llm-d-cuda:v0.4.0
        command: [/bin/bash, -c]
        args:
          - |
            eval "vllm serve /mnt/models --port 8000 \\
              {{- if .Spec.Parallelism.Expert -}}--enable-expert-parallel{{- end }} \\
              {{- if .Spec.Tensor -}}--tensor-parallel-size {{ .Spec.Tensor }}{{- end }} \\
              --trust-remote-code"
""",
        [("vllm", [])],
    ),
    # Ray Serve
    "Ray Serve, arguments of 0.6": (
        "serve.yaml",
        """\
applications:
  - name: llms
    import_path: ray.serve.llm:build_openai_app
    args:
      llm_configs:
        - model_loading_config: {model_id: llama, model_source: meta-llama/Llama-3.1-8B-Instruct}
          engine_kwargs: {max_model_len: 8192, speculative_model: org/draft, num_speculative_tokens: 5}
""",
        [("vllm", ["--speculative-model", "--num-speculative-tokens"])],
    ),
    "RayService, an unknown key": (
        "rayservice.yaml",
        """\
apiVersion: ray.io/v1
kind: RayService
metadata: {name: llm}
spec:
  serveConfigV2: |
    applications:
      - name: llms
        args:
          llm_configs:
            - model_loading_config: {model_id: org/m}
              engine_kwargs:
                speculative_config: {method: ngram, num_speculative_tokens: 5, prompt_lookup_maxi: 4}
""",
        [("vllm", ["--speculative-config prompt_lookup_maxi"])],
    ),
    # Dockerfiles
    "Dockerfile, words": (
        "Dockerfile",
        """\
FROM vllm/vllm-openai:v0.33.0
ENV VLLM_LOGGING_LEVEL=INFO
RUN pip install --no-cache-dir hf_transfer
ENTRYPOINT ["vllm", "serve", "org/m", "--use-v2-block-manager", "--max-model-len", "4096"]
""",
        [("vllm", ["--use-v2-block-manager"])],
    ),
    "Dockerfile, a script": (
        "trt.Dockerfile",
        """\
ARG TAG=1.4.0rc1
FROM nvcr.io/nvidia/tensorrt-llm/release:${TAG}
WORKDIR /app
CMD trtllm-serve /models/llama --host 0.0.0.0 --tp-size 2 --kv_cache_free_gpu_mem_fraction 0.9
""",
        [("trtllm", ["--tp-size", "--kv_cache_free_gpu_mem_fraction"])],
    ),
    # Compose
    "Compose, one text": (
        "compose.yaml",
        """\
services:
  sglang:
    image: lmsysorg/sglang:v0.5.23
    command: >
      python3 -m sglang.launch_server --model-path org/m --host 0.0.0.0 --speculative-algo MEDUSA
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
""",
        [("sglang", ["--speculative-algorithm"])],
    ),
    # vLLM-Omni takes over `vllm serve`, and has flags of its own
    "Compose, vLLM-Omni": (
        "compose.yaml",
        """\
services:
  omni:
    image: vllm/vllm-omni:v0.20.0
    command: [vllm, serve, /models/qwen3-omni, --omni, --deploy-config, /cfg/omni.yaml, --port, "8091"]
""",
        [("vllm", [])],
    ),
    "Compose, llama.cpp": (
        "docker-compose.yml",
        """\
services:
  llama:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda-b11549
    volumes: ["./models:/models"]
    command: -m /models/t.gguf -md /models/d.gguf --draft-max 8 --host 0.0.0.0 -ngl 99
""",
        [("llamacpp", ["--draft-max", "-md"])],
    ),
    # Compose fills in before it splits: a variable may hold words, or none
    "Compose, words in variables": (
        "compose.yaml",
        """\
services:
  llama:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda-b11549
    command: >-
      -m /models/t.gguf --metrics -np 1 --spec-type draft-mtp --spec-draft-n-max ${N:-${K:-2}}
      ${IMAGES:+--image-min-tokens ${IMAGES}} ${THINK:+--reasoning ${MODE:-on} --temp ${T:-1.0}} ${MORE:-}
""",
        [("llamacpp", [])],
    ),
    "Compose, a fork of llama.cpp": (
        "compose.yaml",
        """\
services:
  llama:
    image: ${IK_LLAMA_IMAGE:-ghcr.io/ikawrakow/ik-llama-cpp@sha256:5f91}
    entrypoint: [/app/llama-server]
    command: -m /models/t.gguf --merge-qkv -khad --spec-type mtp:n_max=5,p_min=0.0
""",
        [("llamacpp", [])],
    ),
    "Compose, a fork of llama.cpp in a script": (
        "compose.yaml",
        """\
services:
  llama:
    image: ghcr.io/ikawrakow/ik-llama-cpp@sha256:5f91
    entrypoint: [/bin/bash, -c, 'exec /app/llama-server "$$@"', --]
    command: -m /models/t.gguf --merge-qkv --spec-type mtp:n_max=5,p_min=0.0
""",
        [("llamacpp", [])],
    ),
    # KubeRay writes the shell's words and its script apart
    "RayCluster, bash -lc --": (
        "cluster.yaml",
        """\
apiVersion: v1
kind: Pod
metadata: {name: head}
spec:
  containers:
    - name: ray-head
      image: vllm/vllm-openai:v0.33.0
      command: ["/bin/bash", "-lc", "--"]
      args: ["ulimit -n 65536; $KUBERAY_GEN_RAY_START_CMD; vllm serve /models/m --swap-space 4"]
""",
        [("vllm", ["--swap-space"])],
    ),
    # Scripts in other YAML
    "SkyPilot": (
        "task.yaml",
        """\
envs: {MODEL: org/m}
resources: {accelerators: "H100:1"}
run: |
  conda activate vllm
  vllm serve $MODEL --speculative-model org/d --num-speculative-tokens 3
""",
        [("vllm", ["--speculative-model", "--num-speculative-tokens"])],
    ),
    "GitHub's workflow": (
        "e2e.yml",
        """\
on: push
jobs:
  e2e:
    steps:
      - uses: actions/checkout@v5
      - run: echo "it's here"
      - run: |
          nohup python3 -m sglang.launch_server --model-path ${{ matrix.model }} --tp ${{ matrix.tp }} \\
            --speculative-algorithm MEDUSA &
""",
        [("sglang", ["--speculative-algorithm"])],
    ),
    "llm-d's benchmark": (
        "wide-ep.yaml",
        """\
scenario:
  - decode:
      vllm:
        customCommand: |
          . /shared-config/llmdbench_env.sh
          exec vllm serve /model-cache/$MODEL_PATH -host 0.0.0.0 --enable-expert-parallel
""",
        [("vllm", ["-host"])],
    ),
    # Manifests
    "Deployment": (
        "deployment.yaml",
        """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm}
spec:
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.33.0
          args: ["--model", "org/m", "--swap-space", "8",
            "--speculative-config", '{"method": "mpt", "num_speculative_tokens": 1}']
""",
        [("vllm", ["--swap-space", "--speculative-config method"])],
    ),
    "StatefulSet with a ConfigMap": (
        "trt.yaml",
        """\
apiVersion: v1
kind: ConfigMap
metadata: {name: trt}
data:
  extra.yaml: |
    enable_attention_dp: false
    speculative_config: {decoding_type: Eagle, max_draft_len: 3, pytorch_weights_path: /models/e3}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: trt}
spec:
  template:
    spec:
      containers:
        - name: server
          image: nvcr.io/nvidia/tensorrt-llm/release:1.2.1
          command: [trtllm-serve]
          args: [org/m, --backend, pytorch, --extra_llm_api_options, /etc/trt/extra.yaml]
""",
        [("trtllm", ["speculative_config.pytorch_weights_path"])],
    ),
    # Scripts
    "script with an array": (
        "serve.sh",
        """\
#!/usr/bin/env bash
set -euo pipefail
MODEL=${MODEL:-org/m}
ARGS=(--tensor-parallel-size 2 --speculative-disable-by-batch-size 32)
ARGS+=(--speculative-config '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}')
exec vllm serve "$MODEL" "${ARGS[@]}"
""",
        [("vllm", ["--speculative-disable-by-batch-size", "--speculative-config disable_by_batch_size"])],
    ),
    # What bash reads, and a reader that only counts braces does not
    "script with braces in quotes": (
        "serve.sh",
        """\
export KWARGS="${KWARGS:-{\\"enable_thinking\\": false\\}}"
COMPILATION=${COMPILATION:-'{"mode":3,"pass_config":{"fuse":true}}'}
SPEC="${SPEC:-{"method": "ngram", "num_speculative_tokens": 3}}"
ANSWER="$(curl -s "$URL" | python3 -c "
import sys  # don't read a ( here
print('}', sys.stdin.read())
")" || exit 1
vllm serve org/m --compilation-config "$COMPILATION" --speculative-config "$SPEC" --num-lookahead-slots 2
""",
        # bash takes the quotes of SPEC's default away: {method: ngram, num_speculative_tokens: 3}.
        [("vllm", ["--num-lookahead-slots", "--speculative-config"])],
    ),
    "script with docker run": (
        "run.sh",
        """\
docker run --gpus all --shm-size 32g -p 30000:30000 --ipc=host \\
    lmsysorg/sglang:v0.5.23 \\
    python3 -m sglang.launch_server --model-path org/m --tp 2 \\
    --speculative-algorithm STANDALONE --speculative-num-steps 3 --speculative-eagle-topk 4
""",
        [("sglang", ["--speculative-draft-model-path", "--speculative-num-draft-tokens"])],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_commands_are_found_and_their_errors_said(name, tmp_path) -> None:
    file, text, wanted = FILES[name]
    (tmp_path / file).write_text(text)
    verdicts = [(found.engine, judge(found, None)) for found in commands_in(tmp_path / file)]
    assert [
        (engine, [one.flag for one in verdict.findings if one.level == "error"])
        for engine, verdict in verdicts
    ] == wanted


@pytest.mark.parametrize("name", FILES)
def test_what_is_printed_instead_has_no_error_left_but_those_that_are_named(name, tmp_path) -> None:
    file, text, _ = FILES[name]
    (tmp_path / file).write_text(text)
    for found in commands_in(tmp_path / file):
        verdict = judge(found, None)
        if verdict.corrected is None:
            continue
        again = judge(read(found, verdict.corrected, tmp_path / "corrected.sh"), verdict.version)
        assert [one.flag for one in again.findings if one.level == "error"] == [
            one.flag for one in verdict.left
        ]


def read(found: Command, corrected: str, path: Path) -> Command:
    """What is printed, pasted into a script; or the arguments of an image, as its words."""
    path.write_text(corrected)
    try:
        (again,) = commands_in(path)
    except UsageError:
        return replace(found, words=tuple(shlex.split(corrected.replace("\\\n", " "))))
    return again


def test_a_template_is_read_as_if_its_conditions_held() -> None:
    text = "a {{- if .X -}}--b{{- end }} {{ .Spec.Size }} {{- range $i := .Y }}c{{ end }}"
    assert filled_in(text).split() == ["a", "--b", "{{.Spec.Size}}", "c"]


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("vllm serve m --max-model-len", "--max-model-len"),
        ("vllm serve m --max-model-len --seed 1", "--max-model-len"),
        ("vllm serve m --seed -1 --enforce-eager", None),
        ("vllm serve m --max-model-len $LENGTH", None),
        ("sglang serve --model-path m --speculative-algorithm", "--speculative-algorithm"),
        ("sglang serve --model-path m --tp --dp 2", "--tp"),
        ("sglang serve --model-path m --enable-metrics --trust-remote-code", None),
    ],
)
def test_a_flag_without_its_value_is_an_error(command, flag) -> None:
    found = judge(command_of(shlex.split(command))).findings
    errors = [(one.flag, one.why) for one in found if one.level == "error"]
    assert errors == ([(flag, "it takes a value")] if flag else [])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("flags.yaml", "model: org/m\nmax-model-len: 4096\nquantization:\n"),
        (
            "serve.yaml",
            "model_loading_config: {model_id: org/m}\nengine_kwargs: {seed: 1, quantization: null}\n",
        ),
    ],
)
def test_a_key_without_a_value_is_no_flag(file, text, tmp_path) -> None:
    (tmp_path / file).write_text(text)
    (found,) = commands_in(tmp_path / file)
    assert "--quantization" not in found.words
    assert judge(found, None).left == []
