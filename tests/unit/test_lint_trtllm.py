"""What is wrong with a command of trtllm-serve and its YAML file, by release, as people write both."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import trtllm_table

from specops.launch.command_files import commands_in, judge
from specops.serving import Command, Files, issues
from specops.serving.argv import LintResult
from specops.serving.trtllm.releases import Version, table

STATS = "return_perf_metrics: true\nenable_iter_perf_stats: true\n"


def judged(text: str, folder: Path, version: str | None = None, name: str = "serve.sh") -> LintResult:
    path = folder / name
    path.write_text(text)
    (command,) = commands_in(path)
    assert command.engine == "trtllm"
    return judge(command, version)


def errors(found: LintResult) -> list[str]:
    return [one.flag for one in found.findings if one.level == "error"]


def script(config: str, command: str, file: str = "config.yaml") -> str:
    return f"cat > {file} <<EOF\n{config}EOF\n{command}\n"


# Commands and files as documentation, deployment guides, issues and blogs have them, shortened.
REAL = {
    # a user's first script: the file's name in a variable, keys of 0.20
    "variable": (
        "1.2.1",
        "model=/m/llama\nf=/tmp/config.yml\ncat << EOF > ${f}\n"
        "enable_attention_dp: false\nprint_iter_log: true\n"
        "cuda_graph_config:\n  enable_padding: true\n  max_batch_size: 1024\n"
        "kv_cache_config:\n  dtype: fp8\nEOF\n"
        "trtllm-serve ${model} --max_batch_size 1024 --kv_cache_free_gpu_memory_fraction 0.9 --tp_size 1"
        " --trust_remote_code --config ${f}\n",
        [],
    ),
    "keys of 0.20": (
        "1.2.1",
        script(
            "use_cuda_graph: true\ncuda_graph_padding_enabled: true\ncuda_graph_max_batch_size: 1024\n"
            "kv_cache_dtype: fp8\n",
            "trtllm-llmapi-launch trtllm-serve serve m --backend pytorch --max_seq_len 2048"
            " --extra_llm_api_options config.yaml",
        ),
        ["use_cuda_graph", "cuda_graph_padding_enabled", "cuda_graph_max_batch_size", "kv_cache_dtype"],
    ),
    # EAGLE-3 of gpt-oss, as a blog of 2025 has it
    "gpt-oss": (
        "1.2.1",
        script(
            "enable_attention_dp: false\nenable_autotuner: false\ncuda_graph_config:\n  max_batch_size: 10\n"
            "use_torch_sampler: true\nspeculative_config:\n  decoding_type: Eagle\n  max_draft_len: 3\n"
            "  speculative_model_dir: /config/models/eagle/\n",
            "TRTLLM_ENABLE_PDL=1 trtllm-serve /config/models/gpt-oss-120b --host 0.0.0.0 --port 8000"
            " --max_batch_size 10 --tp_size 8 --ep_size 4 --extra_llm_api_options config.yaml",
        ),
        ["use_torch_sampler"],
    ),
    "eagle3 in 1.2": (
        "1.2.1",
        script(
            "speculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 3\n"
            "  speculative_model: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B\n",
            "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --config config.yaml",
        ),
        ["speculative_config.decoding_type Eagle3"],
    ),
    "no draft": (
        "1.4.0rc1",
        script(
            "speculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 4\n",
            "trtllm-serve m --config config.yaml",
        ),
        ["speculative_config.speculative_model"],
    ),
    "two models": (
        "1.4.0rc1",
        script(
            "speculative_config:\n  decoding_type: Eagle\n  max_draft_len: 3\n  eagle3_one_model: false\n"
            "  pytorch_weights_path: /trt_llm/EAGLE3-LLaMA3.3-Instruct-70B\n",
            "trtllm-serve m --config config.yaml",
        ),
        ["speculative_config.eagle3_one_model", "speculative_config.pytorch_weights_path"],
    ),
    "mtp of 1.2": (
        "1.2.1",
        script(
            "speculative_config:\n  decoding_type: MTP\n  max_draft_len: 3\n",
            "trtllm-serve deepseek-ai/DeepSeek-V3 --tp_size 8 --ep_size 8 --config config.yaml",
        ),
        ["speculative_config.max_draft_len"],
    ),
    "mtp of today": (
        "1.4.0rc1",
        script(
            "speculative_config:\n  decoding_type: MTP\n  num_nextn_predict_layers: 3\n",
            "trtllm-serve deepseek-ai/DeepSeek-V3 --tp_size 8 --config config.yaml",
        ),
        [],
    ),
    "n-gram of 1.2": (
        "1.2.1",
        script(
            "disable_overlap_scheduler: true\n"
            "speculative_config:\n  decoding_type: NGram\n  max_draft_len: 4\n",
            "trtllm-serve m --config config.yaml",
        ),
        ["speculative_config.max_matching_ngram_size"],
    ),
    "vllm's words": (
        "1.4.0rc1",
        script(
            "speculative_config:\n  method: ngram\n  num_speculative_tokens: 5\n",
            "trtllm-serve m --tensor-parallel-size 2 --config config.yaml",
        ),
        ["--tensor-parallel-size", "speculative_config.method", "speculative_config.num_speculative_tokens",
         "speculative_config.decoding_type ngram"],
    ),
    "schedule": (
        "1.3.0rc15",
        script(
            "guided_decoding_backend: xgrammar\n"
            "speculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 1\n"
            "  speculative_model_dir: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B\n"
            "  draft_len_schedule: {1: 2, 16: 1, 32: 0}\n",
            "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --backend pytorch --max_batch_size 64"
            " --extra_llm_api_options config.yaml",
        ),
        # judged as 1.3.0rc26, the first known of its release
        ["speculative_config.draft_len_schedule", "speculative_config.draft_len_schedule"],
    ),
    "the TensorRT backend": (
        "1.4.0rc1",
        'docker run --gpus all nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc0'
        ' bash -lc "trtllm-serve serve /data/engine'
        ' --tokenizer /data/tokenizer --backend tensorrt --host 0.0.0.0 --max_batch_size 1"\n',
        ["--backend"],
    ),
    "short flags": (
        "1.2.1",
        "mpirun -n 8 trtllm-serve m --tp 8 --kv_cache_free_gpu_mem_fraction 0.9\n",
        ["--tp", "--kv_cache_free_gpu_mem_fraction"],
    ),
    "a dynamic tree": (
        "1.4.0rc1",
        script(
            "speculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 4\n  speculative_model: e\n"
            "  use_dynamic_tree: true\n",
            "trtllm-serve m --config config.yaml",
        ),
        ["speculative_config.use_dynamic_tree"],
    ),
    "the gate of 1.2 today": (
        "1.4.0rc1",
        script(
            "speculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 4\n  speculative_model: e\n"
            "  acceptance_window: 1000\n  acceptance_length_threshold: 0.5\n",
            "trtllm-serve m --config config.yaml",
        ),
        ["speculative_config.acceptance_window", "speculative_config.acceptance_length_threshold"],
    ),
    "rejection of n-grams": (
        "1.4.0rc1",
        script(
            "speculative_config: {decoding_type: NGram, max_draft_len: 4, use_rejection_sampling: true}\n",
            "trtllm-serve m --config config.yaml",
        ),
        ["speculative_config.use_rejection_sampling"],
    ),
    "medusa": (
        "1.2.1",
        script(
            "speculative_config: {decoding_type: Medusa, max_draft_len: 4, speculative_model: h}\n",
            "trtllm-serve m --config config.yaml",
        ),
        ["speculative_config.decoding_type"],
    ),
    # NVIDIA's playbook for DGX Spark: EAGLE-3 of gpt-oss in a container, with a YAML file of its own
    "a playbook of NVIDIA": (
        "1.3.0rc26",
        "docker run --gpus all nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc12 bash -c '\n"
        "  cat > /tmp/extra-llm-api-config.yml <<EOF\n"
        "enable_attention_dp: false\ndisable_overlap_scheduler: false\nenable_autotuner: false\n"
        "cuda_graph_config:\n    max_batch_size: 1\n"
        "speculative_config:\n    decoding_type: Eagle\n    max_draft_len: 5\n"
        "    speculative_model_dir: /opt/gpt-oss-120b-Eagle3/\n\n"
        "kv_cache_config:\n    free_gpu_memory_fraction: 0.9\n    enable_block_reuse: false\nEOF\n"
        "  trtllm-serve openai/gpt-oss-120b --backend pytorch --tp_size 1 --max_batch_size 1"
        " --extra_llm_api_options /tmp/extra-llm-api-config.yml'\n",
        [],
    ),
    "a playbook of NVIDIA, a draft model": (
        "1.3.0rc26",
        script(
            "print_iter_log: false\ndisable_overlap_scheduler: true\n"
            "speculative_config:\n  decoding_type: DraftTarget\n  max_draft_len: 4\n"
            "  speculative_model_dir: /opt/Llama-3.1-8B-Instruct-FP4\n"
            "kv_cache_config:\n  enable_block_reuse: false\n",
            "trtllm-serve nvidia/Llama-3.3-70B-Instruct-FP4 --backend pytorch --tp_size 1 --max_batch_size 1"
            " --kv_cache_free_gpu_memory_fraction 0.9 --extra_llm_api_options config.yaml",
        ),
        [],
    ),
    "graphs of NVIDIA's page": (
        "1.2.1",
        script(
            "cuda_graph_config:\n  padding_enabled: true\nprint_iter_log: true\nkv_cache_dtype: fp8\n",
            "trtllm-serve m --config config.yaml",
        ),
        ["kv_cache_dtype", "cuda_graph_config.padding_enabled"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_a_command_as_people_write_it(name, tmp_path) -> None:
    version, text, wrong = REAL[name]
    found = judged(text, tmp_path, version)
    assert errors(found) == wrong


@pytest.mark.parametrize("name", REAL)
def test_what_is_corrected_has_no_error_left_but_those_that_are_named(name, tmp_path) -> None:
    version, text, _ = REAL[name]
    found = judged(text, tmp_path, version)
    if found.corrected is None:
        return
    again = judged(found.corrected, tmp_path, version, "corrected.sh")
    assert errors(again) == [one.flag for one in found.left]
    assert again.corrected is None


def test_a_corrected_script_is_whole(tmp_path) -> None:
    found = judged(REAL["vllm's words"][1], tmp_path, "1.4.0rc1")
    assert found.left == []
    assert found.corrected is not None
    head, _, rest = found.corrected.partition("'CONFIG'\n")[2].partition("CONFIG\n")
    assert yaml.safe_load(head) == {
        "speculative_config": {"decoding_type": "NGram", "max_draft_len": 5},
        "return_perf_metrics": True,
        "enable_iter_perf_stats": True,
    }
    assert rest == "trtllm-serve m \\\n    --tensor_parallel_size 2 \\\n    --config config.yaml\n"


def test_a_good_command_has_no_findings(tmp_path) -> None:
    config = f"{STATS}speculative_config: {{decoding_type: MTP, max_draft_len: 3}}\n"
    found = judged(script(config, "trtllm-serve m --tp_size=8 --config config.yaml"), tmp_path, "1.4.0rc1")
    assert {(one.level, one.flag) for one in found.findings} <= {("note", issue.id) for issue in issues()}
    assert found.corrected is None


def test_the_yaml_file_alone_is_judged_and_corrected_as_yaml(tmp_path) -> None:
    text = "speculative_config:\n  decoding_type: draft_target\n  max_draft_len: 3\n  draft_model: d\n"
    found = judged(text, tmp_path, "1.2.1", "extra.yaml")
    assert errors(found) == [
        "speculative_config.decoding_type draft_target",
        "speculative_config.draft_model",
    ]
    assert found.corrected is not None
    corrected = yaml.safe_load(found.corrected)
    assert corrected["speculative_config"] == {
        "decoding_type": "DraftTarget",
        "max_draft_len": 3,
        "speculative_model": "d",
    }


def test_a_file_that_is_not_here_is_said_and_not_judged(tmp_path) -> None:
    found = judged("trtllm-serve m --config elsewhere.yaml\n", tmp_path)
    assert found.findings == []
    assert [(entry.what, entry.decides) for entry in found.unknown] == [("elsewhere.yaml", True)]


def test_a_config_map_holds_the_file(tmp_path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"extra.yaml": "speculative_config: {decoding_type: Eagle3, max_draft_len: 3}"},
    }
    container = {"name": "c", "image": "nvcr.io/nvidia/tensorrt-llm/release:1.4.0rc1",
                 "command": ["trtllm-serve", "m", "--config", "/etc/c/extra.yaml"]}  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    found = judged(yaml.safe_dump_all([config, pod]), tmp_path, None, "pod.yaml")
    assert found.version == "1.4.0rc1"
    assert errors(found) == ["speculative_config.speculative_model"]


def test_an_image_that_starts_no_server_is_no_command(tmp_path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("docker run nvcr.io/nvidia/tensorrt-llm/release:1.2.1 nvidia-smi\ntrtllm-serve m\n")
    assert [command.words for command in commands_in(path)] == [("trtllm-serve", "m")]


def test_a_subcommand_with_a_file_of_its_own_is_left_alone(tmp_path) -> None:
    found = judged("trtllm-serve disaggregated -c disagg.yaml\n", tmp_path)
    assert found.findings == []
    assert ("disaggregated", True) in [(entry.what, entry.decides) for entry in found.unknown]


@pytest.mark.parametrize(
    ("gate", "flag"),
    [
        ("acceptance_rate_threshold: 0.4, acceptance_rate_window_size: 100", "trtllm#12905"),
        ("acceptance_rate_threshold: 0.4", "speculative_config.acceptance_rate_threshold"),
        ("acceptance_rate_window_size: 9", "speculative_config.acceptance_rate_window_size"),
    ],
)
def test_the_acceptance_gate_is_a_warning(gate, flag, tmp_path) -> None:
    config = f"{STATS}speculative_config: {{decoding_type: MTP, max_draft_len: 3, {gate}}}\n"
    found = judged(script(config, "trtllm-serve m --config config.yaml"), tmp_path, "1.4.0rc1")
    assert ("warning", flag) in [(one.level, one.flag) for one in found.findings]


EAGLE3 = "decoding_type: Eagle3, max_draft_len: 4, speculative_model: e"
REFUSED = {
    # What the validators of llm_args.py refuse, which the reference of the classes does not show
    "share above 1": (f"{EAGLE3}, acceptance_rate_threshold: 1.2", "acceptance_rate_threshold"),
    "negative window": (f"{EAGLE3}, acceptance_rate_window_size: -1", "acceptance_rate_window_size"),
    "no concurrency": (f"{EAGLE3}, max_concurrency: 0", "max_concurrency"),
    "sampling mode": (f"{EAGLE3}, advanced_sampling_mode: FULL", "advanced_sampling_mode"),
    "architecture": (f"{EAGLE3}, eagle3_model_arch: qwen3", "eagle3_model_arch"),
    "drafts above K": (f"{EAGLE3}, draft_len_schedule: {{4: 4, 8: 6}}", "draft_len_schedule"),
    "batch size 0": (f"{EAGLE3}, draft_len_schedule: {{0: 4}}", "draft_len_schedule"),
    "negative drafts": (f"{EAGLE3}, draft_len_schedule: {{4: 4, 8: -1}}", "draft_len_schedule"),
    "nodes of a tree": (
        f"{EAGLE3}, use_dynamic_tree: true, dynamic_tree_max_topK: 3, max_total_draft_tokens: 13",
        "max_total_draft_tokens",
    ),
    "wide tree": (
        f"{EAGLE3}, use_dynamic_tree: true, dynamic_tree_max_topK: 33, use_rejection_sampling: true",
        "use_rejection_sampling",
    ),
    "rejection beside SA": (
        f"{EAGLE3}, sa_config: {{threshold: 4}}, use_rejection_sampling: true",
        "use_rejection_sampling",
    ),
    "threshold of SA": (f"{EAGLE3}, sa_config: {{threshold: 0}}", "sa_config.threshold"),
    "no match": (
        "decoding_type: SA, max_draft_len: 4, max_matching_ngram_size: 0",
        "max_matching_ngram_size",
    ),
    "long match in a pool": (
        "decoding_type: SA, max_draft_len: 4, max_matching_ngram_size: 65, enable_global_pool: true",
        "max_matching_ngram_size",
    ),
    "size of no pool": ("decoding_type: SA, max_draft_len: 4, global_pool_size: 64", "global_pool_size"),
    "small pool": (
        "decoding_type: SA, max_draft_len: 4, global_pool_size: 8, enable_global_pool: true",
        "global_pool_size",
    ),
    "n-gram of 0": (
        "decoding_type: NGram, max_draft_len: 4, max_matching_ngram_size: 0",
        "max_matching_ngram_size",
    ),
    "block": ("decoding_type: DSpark, max_draft_len: 4, block_size: 5", "block_size"),
    "nowhere to write": ("decoding_type: SaveState", "output_directory"),
    "relaxed and exact": (
        "decoding_type: MTP, max_draft_len: 3, use_rejection_sampling: true,"
        " use_relaxed_acceptance_for_thinking: true",
        "use_rejection_sampling",
    ),
    "half a token": ("decoding_type: MTP, max_draft_len: 2.5", "max_draft_len"),
}  # fmt: skip


@pytest.mark.parametrize("version", ["1.3.0rc26", "1.4.0rc1"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_the_validators_refuse(name, version, tmp_path) -> None:
    config, key = REFUSED[name]
    text = script(
        f"{STATS}speculative_config: {{{config}}}\n",
        "trtllm-serve m --max_batch_size 16 --config config.yaml",
    )
    assert errors(judged(text, tmp_path, version)) == [f"speculative_config.{key}"]


def test_guided_decoding_excludes_rejection_sampling_but_not_of_eagle3(tmp_path) -> None:
    for spec, wrong in (
        ("decoding_type: MTP, max_draft_len: 3", ["speculative_config.use_rejection_sampling"]),
        (EAGLE3, []),
    ):
        config = f"speculative_config: {{{spec}, use_rejection_sampling: true}}\n"
        config = f"{STATS}guided_decoding_backend: xgrammar\n{config}"
        found = judged(script(config, "trtllm-serve m --config config.yaml"), tmp_path, "1.3.0rc27")
        assert errors(found) == wrong


@pytest.mark.parametrize(
    "config",
    [
        f"{EAGLE3}, acceptance_rate_threshold: 0.4, draft_len_schedule: {{4: 4, 8: 2, 32: 0}}",
        f"{EAGLE3}, use_dynamic_tree: true, dynamic_tree_max_topK: 3, max_total_draft_tokens: 12",
        "decoding_type: SA, max_draft_len: 4, max_matching_ngram_size: -1, enable_global_pool: true,"
        " global_pool_size: 64",
        "decoding_type: NGram, max_draft_len: '4'",  # a number in quotes is read as a number
        "decoding_type: DSpark, max_draft_len: 4, block_size: 4, markov_head_type: gated",
    ],
)
def test_what_the_validators_take(config, tmp_path) -> None:
    text = script(f"{STATS}speculative_config: {{{config}}}\n", "trtllm-serve m --config config.yaml")
    assert errors(judged(text, tmp_path, "1.3.0rc27")) == []


def test_keys_of_two_models_are_ignored_up_to_1_3_0rc26_and_refused_since(tmp_path) -> None:
    config = f"{STATS}speculative_config: {{{EAGLE3}, eagle3_one_model: false}}\n"
    text = script(config, "trtllm-serve m --config config.yaml")
    at = "speculative_config.eagle3_one_model"
    for version, level in (("1.3.0rc26", "warning"), ("1.3.0rc27", "error")):
        found = judged(text, tmp_path, version)
        assert [one.level for one in found.findings if one.flag == at] == [level]
        assert "eagle3_one_model" not in str(found.corrected)


def test_eagle_is_read_as_eagle3_since_1_3(tmp_path) -> None:
    text = script(
        f"{STATS}speculative_config: {{decoding_type: Eagle, max_draft_len: 3, speculative_model: e}}\n",
        "trtllm-serve m --config config.yaml",
    )
    at = "speculative_config.decoding_type Eagle"
    found = judged(text, tmp_path, "1.4.0rc1")
    assert [one.level for one in found.findings if one.flag == at] == ["warning"]
    assert "decoding_type: Eagle3" in str(found.corrected)
    assert not any(one.flag == at for one in judged(text, tmp_path, "1.2.1").findings)


@pytest.mark.parametrize(
    ("version", "judged_as", "because"),
    [
        ("1.4.0rc1", "1.4.0rc1", "as requested"),
        (
            "1.3.0rc28",
            "1.3.0rc27",
            "the nearest known before it; for 1.3.0rc28, as requested, it was not checked",
        ),
        ("9.9", "1.4.0rc4", "the nearest known before it; for 9.9.0, as requested, it was not checked"),
        (
            "1.3.0rc13",
            "1.3.0rc26",
            "the first known of its release; for 1.3.0rc13, as requested, it was not checked",
        ),
        ("0.20.0", "0.21.0", "the oldest of the table; for 0.20.0, as requested, it was not checked"),
    ],
)
def test_an_unknown_version_is_judged_as_one_that_is_named(version, judged_as, because, tmp_path) -> None:
    found = judged("trtllm-serve m\n", tmp_path, version)
    assert (found.version, found.because) == (judged_as, because)


def test_versions_are_ordered() -> None:
    names = ["1.2.0rc8", "1.2.1", "1.3.0rc9", "1.3.0rc27", "1.3.0", "1.4.0rc1"]
    assert [str(one) for one in sorted(map(Version.parse, reversed(names)))] == names
    assert Version.parse("1.3.0rc5.post2") == Version.parse("v1.3.0rc5")


def test_every_release_of_the_table_has_its_source() -> None:
    assert {str(version) for version in table().versions} == table().sources.keys()


ARGS = '''
class StrictBaseModel: ...
class DecodingBaseConfig(StrictBaseModel):
    max_draft_len: Optional[int] = Field(default=None)
    speculative_model: str = Field(validation_alias=AliasChoices("speculative_model", "draft_dir"))
    _private: bool = PrivateAttr(True)
class EagleDecodingConfig(DecodingBaseConfig):
    decoding_type: Literal["Eagle"] = Field(default="Eagle")
    eagle_choices: Optional[list] = None
class Eagle3DecodingConfig(EagleDecodingConfig):
    decoding_type: Literal["Eagle3"] = Field(default="Eagle3")
    sa_config: Optional[object] = None
class DraftTargetDecodingConfig(DecodingBaseConfig):
    decoding_type: ClassVar[str] = "Draft_Target"
class BaseLlmArgs(StrictBaseModel):
    model_config: dict = {}
    model: str = Field()
class TorchLlmArgs(BaseLlmArgs):
    attn_backend: str = "TRTLLM"
'''  # fmt: skip
SERVE = '''
@click.command("serve")
@click.argument("model", type=str)
@stability_option("--tensor_parallel_size", "--tp_size", type=int, status="beta", help="")
@click.option("--trust_remote_code", is_flag=True, default=False)
@click.option("--telemetry/--no-telemetry", default=True)
def serve(model): ...
@click.option("--config_file", type=str)
def disaggregated(config_file): ...
'''  # fmt: skip


def test_the_table_is_read_from_a_releases_sources(tmp_path, monkeypatch) -> None:
    for name, text in ((trtllm_table.ARGS, ARGS), (trtllm_table.SERVE, SERVE)):
        (tmp_path / "tensorrt_llm" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tensorrt_llm" / name).write_text(text)
    out = tmp_path / "releases.json"
    out.write_text('{"sources": {}, "single_keys": {}, "releases": {}}')
    monkeypatch.setattr(sys, "argv", ["trtllm_table", "9.0.0", str(tmp_path), "--table", str(out)])
    trtllm_table.main()
    assert json.loads(out.read_text())["releases"]["9.0.0"] == {
        "complete": True,
        "flags": {"--no-telemetry": 0, "--telemetry": 0, "--tensor_parallel_size": 1, "--tp_size": 1,
                  "--trust_remote_code": 0},
        "keys": ["attn_backend", "model"],
        "speculative": {
            "base": ["draft_dir", "max_draft_len", "speculative_model"],
            "types": {"DraftTarget": [], "Draft_Target": [], "Eagle": ["eagle_choices"],
                      "Eagle3": ["eagle_choices", "sa_config"]},
        },
    }  # fmt: skip


NUMBERS = st.integers(-3, 40) | st.floats()
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3),
    max_leaves=4,
)
NEWEST = table().release()
SPECULATIVE = sorted({*NEWEST.base, *(key for own in NEWEST.types.values() for key in own)})
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "speculative_config": VALUES
        | st.dictionaries(st.sampled_from(["decoding_type", *SPECULATIVE]), VALUES, max_size=5)
        | st.fixed_dictionaries(
            {"decoding_type": st.sampled_from(sorted(NEWEST.types))},
            optional=dict.fromkeys(SPECULATIVE, VALUES),
        ),
        "cuda_graph_config": VALUES,
        "kv_cache_dtype": VALUES,
        "kv_cache_config": VALUES,
        "backend": VALUES,
    },
)


@settings(max_examples=100, deadline=None)
@given(content=CONFIGS, version=st.sampled_from([str(one) for one in table().versions]))
def test_any_content_of_the_file_is_judged(content, version) -> None:
    text = yaml.safe_dump(content)
    command = Command("x", "trtllm", ("trtllm-serve", "m", "--config", "c"), files=Files({"c": text}))
    found = judge(command, version)
    assert found.version == version


def speculating(tmp_path, version: str, **keys: object):
    config = STATS + yaml.safe_dump({"speculative_config": keys})
    return judged(script(config, "trtllm-serve m --config config.yaml"), tmp_path, version)


@pytest.mark.parametrize(
    ("version", "keys", "unknown"),
    [
        # Between two releases that agree, and on a release of the table: known.
        ("1.4.0rc1", {"decoding_type": "MTP", "max_draft_len": 3}, []),
        ("1.3.0", {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "d"}, []),
        ("1.4.0rc4", {"decoding_type": "MTP", "max_draft_len": 3, "draft_moe_dtype": "nvfp4"}, []),
        # Read by the one and not by the other: which of both this release is like is not known.
        ("1.4.0rc2", {"decoding_type": "MTP", "max_draft_len": 3, "draft_moe_dtype": "nvfp4"},
         ["draft_moe_dtype"]),
        ("1.2.5", {"decoding_type": "PARD", "max_draft_len": 3, "speculative_model": "d"},
         ["decoding_type"]),
        # Older than the oldest, newer than the newest.
        ("0.19.0", {"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model": "d"},
         ["--config", "decoding_type", "max_draft_len", "speculative_model"]),
        # A key that came and went between two releases of the table.
        ("1.0.0", {"decoding_type": "MTP", "num_nextn_predict_layers": 1, "acceptance_window": 9,
                   "acceptance_length_threshold": 0.5},
         ["--config", "return_perf_metrics", "acceptance_length_threshold", "acceptance_window"]),
        ("2.0.0", {"decoding_type": "MTP", "max_draft_len": 3}, ["decoding_type", "max_draft_len"]),
        # A release of the table whose reference of that type was not at hand.
        ("1.4.0rc4", {"decoding_type": "DFlash", "max_draft_len": 3, "speculative_model": "d",
                      "attention_backend": "TRTLLM"}, ["decoding_type", "attention_backend"]),
    ],
)  # fmt: skip
def test_what_was_not_read_of_a_release_is_unknown_and_never_clean(version, keys, unknown, tmp_path) -> None:
    found = speculating(tmp_path, version, **keys)
    asked = [entry.what.removeprefix("speculative_config.") for entry in found.unknown]
    assert asked == unknown
    assert all(entry.decides for entry in found.unknown)
    assert errors(found) == []


@pytest.mark.parametrize(("key", "has_key"), [("use_cuda_graph", True), ("moe_config", None)])
def test_what_the_oldest_release_lacks_an_older_one_may_have(key, has_key) -> None:
    assert table().has_key(Version.parse("0.19.0"), key) is has_key


def test_a_release_that_ignores_a_key_is_not_said_to_refuse_it(tmp_path) -> None:
    config = yaml.safe_dump({"speculative_config": {"decoding_type": "MTP", "relaxed_gamma": 1}})
    text = script(config, "trtllm-serve m --backend pytorch --extra_llm_api_options config.yaml")
    result = judged(text, tmp_path, "0.21.0")
    (finding,) = [entry for entry in result.findings if "relaxed_gamma" in entry.flag]
    assert (finding.level, "ignores it" in finding.why) == ("warning", True)
    assert "relaxed_gamma" in errors(judged(text, tmp_path, "1.0.0rc5"))[0]


@pytest.mark.parametrize(("version", "refused"), [("0.21.0", True), ("1.0.0rc5", False)])
def test_the_backend_that_a_release_chooses(version, refused, tmp_path) -> None:
    keys = {"decoding_type": "MTP", "num_nextn_predict_layers": 1}
    config = yaml.safe_dump({"speculative_config": keys, "enable_iter_perf_stats": True})
    result = judged(script(config, "trtllm-serve m --extra_llm_api_options config.yaml"), tmp_path, version)
    assert ("speculative_config.decoding_type" in errors(result)) == refused


@pytest.mark.parametrize(
    ("version", "has_key"),
    [("1.0.0rc5", False), ("1.0.0", None), ("1.1.0rc1", True), ("1.2.0", None), ("1.2.1", False)],
)
def test_a_key_that_came_and_went(version, has_key) -> None:
    assert table().has_key(Version.parse(version), "use_torch_sampler") is has_key


@pytest.mark.parametrize(
    ("version", "type_", "key"),
    [
        ("1.4.0rc1", "MTP", "draft_moe_dtype"),
        ("1.4.0rc4", "Eagle3", "num_eagle_layers"),
        ("1.3.0rc27", "DSpark", "enable_confidence_scheduling"),
        ("1.2.1", "Eagle", "sa_config"),
    ],
)
def test_a_key_that_a_release_does_not_read_is_reported(version, type_, key, tmp_path) -> None:
    given = {"decoding_type": type_, "max_draft_len": 3, "speculative_model": "d", key: 1}
    assert f"speculative_config.{key}" in errors(speculating(tmp_path, version, **given))


def test_keys_that_a_release_reads_are_none_of_an_error(tmp_path) -> None:
    """The reference of 1.4.0rc1 has them, and the table did not."""
    given = {"decoding_type": "DFlash", "max_draft_len": 3, "speculative_model": "d"}
    found = speculating(
        tmp_path, "1.4.0rc1", **given, context_recompute_tail=0, skip_ctx_buffer_budget_check=True
    )
    assert (errors(found), found.unknown) == ([], [])
