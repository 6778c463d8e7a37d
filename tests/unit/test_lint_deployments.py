"""Commands in what deploys servers: Dockerfiles, Compose, pods, KServe, Helm values, Ray Serve."""

from __future__ import annotations

import json

import pytest

from specops.launch.command_files import commands_in, judge
from specops.serving import Command

DOCKERFILE = """\
# syntax=docker/dockerfile:1
ARG VERSION=0.32.0
FROM vllm/vllm-openai:v${VERSION} AS serve
ENV MODEL=org/m VLLM_USE_V1=0
ENV HF_TOKEN hf_1
RUN pip install x \\
    y
ENTRYPOINT ["vllm", "serve"]
CMD ["org/m", "--seed", "1"]
"""
SHELL_FORM = """\
FROM lmsysorg/sglang:v0.5.23
ENV MODEL=org/m
CMD python3 -m sglang.launch_server --model-path $MODEL \\
    --tp 2
"""
COMPOSE = """\
services:
  llm:
    image: vllm/vllm-openai:${TAG:-v0.33.0}
    environment:
      - VLLM_USE_V2_MODEL_RUNNER=1
      - HF_TOKEN
    command: ["--model", "org/m", "--max-model-len", "${LEN:-4096}"]
"""
POD = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts}
data: {start.sh: "vllm serve org/x"}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
    - name: c
      image: vllm/vllm-openai:v0.33.0
      env:
        - {name: MODEL, value: org/m}
        - {name: K, value: "5"}
        - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hf, key: token}}}
      command: [/bin/sh, -c, 'vllm serve $MODEL --seed $K "$@"', "--"]
      args: [--max-num-seqs, "8"]
"""
LEADER = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  leaderWorkerTemplate:
    leaderTemplate:
      spec:
        containers:
          - name: leader
            image: lmsysorg/sglang:v0.5.20
            command: [python3, -m, sglang.launch_server, --model-path, org/m, --nnodes, $(LWS_GROUP_SIZE)]
"""
INFERENCE_SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llama}
spec:
  predictor:
    model:
      modelFormat: {name: huggingface}
      args: [--model_name=llama, --model_id=org/m, --max_length, "4096", --tensor-parallel-size=2]
      env: [{name: VLLM_LOGGING_LEVEL, value: DEBUG}]
"""
LLM = """\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  model: {uri: "hf://org/m", name: qwen}
  parallelism: {tensor: 4}
  template:
    containers:
      - name: main
        image: vllm/vllm-openai:v0.33.0
        args: [--seed, "2"]
        env:
          - name: VLLM_ADDITIONAL_ARGS
            value: --speculative-config '{"method":"mtp","num_speculative_tokens":1}'
          - {name: HF_TOKEN, value: hf_1}
  prefill:
    template:
      containers: [{name: main, args: [--seed, "3"]}]
"""
STACK = """\
servingEngineSpec:
  modelSpec:
    - name: llama
      repository: vllm/vllm-openai
      tag: v0.33.0
      modelURL: org/m
      vllmConfig:
        enablePrefixCaching: true
        maxModelLen: 4096
        tensorParallelSize: 2
        v0: 1
        extraArgs: ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}']
      env: [{name: K, value: "1"}]
      hf_token: hf_1
"""
MODELSERVICE = """\
modelArtifacts: {uri: "hf://org/m"}
decode:
  parallelism: {tensor: 2}
  containers:
    - {name: vllm, image: "ghcr.io/llm-d/llm-d:v0.2.0", modelCommand: vllmServe, args: [--seed, "1"]}
prefill:
  containers:
    - {name: vllm, image: "ghcr.io/llm-d/llm-d:v0.2.0", modelCommand: imageDefault}
"""
CHART = """\
replicas: 2
server:
  image: {repository: registry.local/llm, tag: "1"}
  command: [vllm, serve, org/m]
  args: [--seed, "1"]
"""
RAY = """\
applications:
  - name: llms
    import_path: ray.serve.llm:build_openai_app
    args:
      llm_configs:
        - model_loading_config: {model_id: small, model_source: org/m}
          engine_kwargs:
            tensor_parallel_size: 2
            enforce_eager: true
            enable_chunked_prefill: false
            speculative_config: {method: ngram, num_speculative_tokens: 3}
          runtime_env: {env_vars: {VLLM_USE_V1: "1"}}
"""
RAY_SERVICE = """\
apiVersion: ray.io/v1
kind: RayService
metadata: {name: r}
spec:
  serveConfigV2: |
    applications:
      - name: llms
        args:
          llm_configs:
            - model_loading_config: {model_id: org/m}
              engine_kwargs: {max_model_len: 4096}
"""
KEYS = '{"method": "ngram", "num_speculative_tokens": 3}'
FILES = {
    # name: the file, its text, and of each command: where, engine, version, words, environment
    "Dockerfile": (
        "Dockerfile",
        DOCKERFILE,
        [
            (
                "Dockerfile, line 8",
                "vllm",
                "0.32.0",
                ["vllm", "serve", "org/m", "--seed", "1"],
                {"MODEL": "org/m", "VLLM_USE_V1": "0", "HF_TOKEN": "hf_1"},
            )
        ],
    ),
    "shell form": (
        "gpu.Dockerfile",
        SHELL_FORM,
        [
            (
                "gpu.Dockerfile, line 3",
                "sglang",
                "0.5.23",
                ["python3", "-m", "sglang.launch_server", "--model-path", "org/m", "--tp", "2"],
                {"MODEL": "org/m"},
            )
        ],
    ),
    "Compose": (
        "compose.yaml",
        COMPOSE,
        [
            (
                "service llm",
                "vllm",
                "0.33.0",
                ["--model", "org/m", "--max-model-len", "4096"],
                {"VLLM_USE_V2_MODEL_RUNNER": "1", "HF_TOKEN": "$HF_TOKEN"},
            )
        ],
    ),
    "pod": (
        "pod.yaml",
        POD,
        [
            (
                "Pod p, container c",
                "vllm",
                "0.33.0",
                ["vllm", "serve", "org/m", "--seed", "5", "--max-num-seqs", "8"],
                {"MODEL": "org/m", "K": "5", "HF_TOKEN": "$HF_TOKEN"},
            )
        ],
    ),
    "LeaderWorkerSet": (
        "lws.yaml",
        LEADER,
        [
            (
                "LeaderWorkerSet big, container leader",
                "sglang",
                "0.5.20",
                [
                    *["python3", "-m", "sglang.launch_server", "--model-path", "org/m", "--nnodes"],
                    "$(LWS_GROUP_SIZE)",
                ],
                {},
            )
        ],
    ),
    "InferenceService": (
        "isvc.yaml",
        INFERENCE_SERVICE,
        [
            (
                "InferenceService llama, model",
                "vllm",
                None,
                ["--model", "org/m", "--tensor-parallel-size=2"],
                {"VLLM_LOGGING_LEVEL": "DEBUG"},
            )
        ],
    ),
    "LLMInferenceService": (
        "llm.yaml",
        LLM,
        [
            (
                "LLMInferenceService qwen, container main",
                "vllm",
                "0.33.0",
                [
                    *["vllm", "serve", "org/m", "--tensor-parallel-size", "4", "--speculative-config"],
                    '{"method":"mtp","num_speculative_tokens":1}',
                    "--seed",
                    "2",
                ],
                {"HF_TOKEN": "hf_1"},
            ),
            (
                "LLMInferenceService qwen, prefill, container main",
                "vllm",
                None,
                ["vllm", "serve", "org/m", "--seed", "3"],
                {},
            ),
        ],
    ),
    "production-stack": (
        "values.yaml",
        STACK,
        [
            (
                "modelSpec llama",
                "vllm",
                "0.33.0",
                [
                    *["vllm", "serve", "org/m", "--enable-prefix-caching", "--max-model-len", "4096"],
                    *["--tensor-parallel-size", "2", "--speculative-config"],
                    KEYS,
                ],
                {"K": "1", "VLLM_USE_V1": "0", "HF_TOKEN": "hf_1"},
            )
        ],
    ),
    "llm-d": (
        "ms-values.yaml",
        MODELSERVICE,
        [
            (
                "decode, container vllm",
                "vllm",
                None,
                ["vllm", "serve", "org/m", "--tensor-parallel-size", "2", "--seed", "1"],
                {},
            ),
            ("prefill, container vllm", "vllm", None, ["--model", "org/m"], {}),
        ],
    ),
    "any chart": (
        "values.yml",
        CHART,
        [("server", "vllm", None, ["vllm", "serve", "org/m", "--seed", "1"], {})],
    ),
    "Ray Serve": (
        "serve.yaml",
        RAY,
        [
            (
                "serve.yaml, application llms, model small",
                "vllm",
                None,
                [
                    *["--model", "org/m", "--tensor-parallel-size", "2", "--enforce-eager"],
                    *("--no-enable-chunked-prefill", "--speculative-config", KEYS),
                ],
                {"VLLM_USE_V1": "1"},
            )
        ],
    ),
    "RayService": (
        "ray.yaml",
        RAY_SERVICE,
        [
            (
                "RayService r, application llms, model org/m",
                "vllm",
                None,
                ["--model", "org/m", "--max-model-len", "4096"],
                {},
            )
        ],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_commands_are_found_where_they_are(name, tmp_path) -> None:
    file, text, wanted = FILES[name]
    (tmp_path / file).write_text(text)
    found = [
        (c.where, c.engine, c.version, list(c.words), dict(c.environment))
        for c in commands_in(tmp_path / file)
    ]
    assert found == wanted


@pytest.mark.parametrize("name", FILES)
def test_a_secret_in_a_file_is_warned_of_and_never_printed(name, tmp_path) -> None:
    file, text, _ = FILES[name]
    (tmp_path / file).write_text(text)
    judged = [judge(command, None) for command in commands_in(tmp_path / file)]
    warned = [finding.flag for one in judged for finding in one.findings if finding.flag == "HF_TOKEN"]
    assert bool(warned) == ("hf_1" in text)
    assert "hf_1" not in json.dumps([str(one) for one in judged])


@pytest.mark.parametrize(
    ("version", "judged_as", "because"),
    [
        (
            "0.99.0",
            "0.33.0",
            "the nearest known before 0.99.0, as the image's tag says, which is newer",
        ),
        ("0.20.9", "0.20.2", "which is not in the table of 0.8.0 to 0.33.0"),
        ("0.6.3", "0.33.0", "into which the command is translated; for 0.6.3"),
        ("2025.05", "0.33.0", "the image's tag, 2025.05, is not a release of vLLM"),
        ("0.3.9", "0.33.0", "the image's tag, 0.3.9, is not a release of vLLM"),
    ],
)
def test_a_version_that_is_not_known_is_said_to_be_judged_as_another(version, judged_as, because) -> None:
    judged = judge(Command("x", "vllm", ("vllm", "serve", "m"), version))
    assert judged.version == judged_as
    assert because in judged.because
