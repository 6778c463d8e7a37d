"""TensorRT-LLM: settings -> a command with its YAML file, held against the table of its releases."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import yaml
from pydantic import ValidationError

from specops.errors import ConfigError
from specops.launch.command_files import shell
from specops.phases.diagnose.checks.speculation import off
from specops.phases.diagnose.observations import DeployedSettings, Live, Observations
from specops.prometheus import exposition
from specops.prometheus.promql import Signals
from specops.serving import ENGINES
from specops.serving.engine import Grid
from specops.serving.trtllm.lint import judge
from specops.serving.trtllm.pool import SERIES, TrtllmPool
from specops.serving.trtllm.releases import Version, installed, table
from specops.serving.trtllm.settings import RENDERED, WITH_DRAFT, DecodingType, command, config

NEWEST = table().release()
TYPES = get_args(DecodingType)


def pool(speculation: dict[str, Any] | None = None, **settings: Any) -> TrtllmPool:
    fields = {"engine": "trtllm", "model": "org/m", "speculation": speculation}
    return TrtllmPool.model_validate(fields | settings)


def drafting(type_: str, **settings: Any) -> TrtllmPool:
    draft = {"speculative_model": "org/d"} if type_ in WITH_DRAFT else {}
    return pool({"decoding_type": type_} | draft | settings)


@pytest.mark.parametrize("version", [one for one in table().versions if one >= RENDERED])
@pytest.mark.parametrize("type_", TYPES)
def test_what_is_rendered_is_read_back_as_the_same_settings(type_, version) -> None:
    release = table().release(version)
    served = drafting(type_)
    if type_ in ("SA", "PARD", "DFlash", "DSpark") and type_ not in release.types:
        with pytest.raises(ConfigError, match=f"has no decoding_type {type_}"):
            command(served, port=80, release=release)
        return
    if type_ == "NGram":
        served = drafting(type_, max_matching_ngram_size=2)
    words = command(served, port=80, release=release)
    assert words[:2] == ["bash", "-c"]
    (found,) = shell.commands(words[2], "the script")
    assert (found.engine, found.words[:2]) == ("trtllm", ("trtllm-serve", "org/m"))
    assert yaml.safe_load(found.files.texts["/tmp/trtllm-80.yaml"]) == config(served, release)
    verdict = judge(found, str(version))
    assert [one for one in verdict.findings if one.level != "note"] == []
    assert verdict.corrected is None


EVERYTHING: dict[str, Any] = {
    "tensor_parallel_size": 8,
    "pipeline_parallel_size": 2,
    "expert_parallel_size": 4,
    "max_batch_size": 64,
    "max_num_tokens": 4096,
    "max_seq_len": 8192,
    "free_gpu_memory_fraction": 0.8,
    "reasoning_parser": "qwen3",
    "tool_parser": "qwen3",
    "enable_chunked_prefill": True,
    "trust_remote_code": True,
}


@pytest.mark.parametrize("version", [one for one in table().versions if one >= RENDERED])
def test_every_setting_is_a_flag_of_every_release(version) -> None:
    release = table().release(version)
    (found,) = shell.commands(command(pool(**EVERYTHING), port=80, release=release)[2], "the script")
    assert [one for one in judge(found, str(version)).findings if one.level == "error"] == []
    for name, setting in EVERYTHING.items():
        if setting is not True:
            assert str(setting) in found.words, name
    assert {"--enable_chunked_prefill", "--trust_remote_code"} <= set(found.words)


def test_all_settings_are_tried_above() -> None:
    others = {"engine", "model", "version", "program", "arguments", "environment", "speculation", "config"}
    assert set(TrtllmPool.model_fields) == set(EVERYTHING) | others | {"start_timeout_s"}


@pytest.mark.parametrize(
    ("type_", "version", "name", "length"),
    [
        ("MTP", "1.2.1", "MTP", "num_nextn_predict_layers"),
        ("MTP", "1.4.0rc1", "MTP", "max_draft_len"),
        ("Eagle3", "1.2.1", "Eagle", "max_draft_len"),
        ("Eagle3", "1.4.0rc1", "Eagle3", "max_draft_len"),
        ("DraftTarget", "1.2.1", "DraftTarget", "max_draft_len"),
        ("DraftTarget", "1.4.0rc1", "Draft_Target", "max_draft_len"),
    ],
)
def test_type_and_k_are_called_as_the_release_calls_them(type_, version, name, length) -> None:
    served = drafting(type_, max_draft_len=5).model_copy(update={"version": version})
    said = yaml.safe_load(served.rendering(80, "m").words[2].partition("\n")[2].partition("CONFIG\n")[0])
    assert said["speculative_config"]["decoding_type"] == name
    assert said["speculative_config"][length] == 5


@pytest.mark.parametrize("version", ["0.21.0", "1.0.0", "1.2.0rc8"])
def test_a_release_whose_flags_were_not_read_whole_is_not_rendered(version) -> None:
    served = drafting("Eagle3").model_copy(update={"version": version})
    with pytest.raises(ConfigError, match=rf"TensorRT-LLM {version} is rendered: expected 1\.2\.1 or newer"):
        served.rendering(80, "m")


def test_a_setting_of_another_release_is_refused() -> None:
    served = drafting("MTP", acceptance_window=100, acceptance_length_threshold=0.5)
    with pytest.raises(ConfigError, match=r"1\.4\.0rc1 has no acceptance_length_threshold, "):
        served.rendering(80, "m")


@pytest.mark.parametrize(
    ("speculation", "message"),
    [
        ({"decoding_type": "Eagle3"}, "Eagle3 needs a draft"),
        ({"decoding_type": "NGram", "speculative_model": "d"}, "NGram drafts without a model"),
        ({"decoding_type": "MTP", "max_matching_ngram_size": 2}, "is of NGram and SA"),
        ({"decoding_type": "MTP", "max_concurrency": 4, "draft_len_schedule": {1: 3}}, "exclude each other"),
        ({"decoding_type": "Medusa"}, "Eagle3"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(speculation, message) -> None:
    with pytest.raises(ValidationError, match=message):
        pool(speculation)


def test_the_sweep_varies_k_and_the_draft(tmp_path) -> None:
    served = drafting("Eagle3")
    found = served.variants(Grid(ks=[2, 4], trees=None, drafts={"a": "org/a"}, folder=tmp_path))
    speculated = [one.pool.speculation for one in found if isinstance(one.pool, TrtllmPool)]
    assert [(one.max_draft_len, one.speculative_model) for one in speculated if one] == [
        (2, "org/a"),
        (4, "org/a"),
    ]


def test_a_container_and_its_gpus() -> None:
    found = pool(tensor_parallel_size=4, pipeline_parallel_size=2).container(8000, "m", "1.2.1", 60)
    assert (found.image, found.gpus) == ("nvcr.io/nvidia/tensorrt-llm/release:1.2.1", 8)
    assert "--host 0.0.0.0" in found.words[2]


def test_an_unknown_version_is_rendered_and_said_to_be_judged_as_another() -> None:
    found = drafting("MTP").model_copy(update={"version": "2.0.0"}).rendering(80, "m")
    assert found.judged == "TensorRT-LLM 1.4.0rc4"
    assert [one.why for one in found.notes] == ["the table has no TensorRT-LLM 2.0.0; judged as 1.4.0rc4"]


# The acceptance gate


GATED = {"acceptance_rate_threshold": 0.4, "acceptance_rate_window_size": 100}


def test_the_program_says_its_version_through_the_python_that_runs_it(tmp_path) -> None:
    python, program = tmp_path / "venv" / "python3", tmp_path / "trtllm-serve"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 1.2.1\n")
    program.write_text(f"#!{python}\n")
    for file in (python, program):
        file.chmod(0o755)
    assert installed(["mpirun", "-n", "2", str(program), "org/m"]) == Version.parse("1.2.1")
    python.write_text("#!/bin/sh\necho\n")
    assert installed([str(program), "org/m"]) is None, "its Python has no such package"
    assert installed(["vllm", "serve", "org/m"]) is None


def test_the_gate_is_known_to_the_pool_and_to_diagnose() -> None:
    served = drafting("MTP", **GATED)
    gate = (
        "TensorRT-LLM's acceptance gate (acceptance_rate_threshold 0.4 over acceptance_rate_window_size 100)"
    )
    assert served.ends_speculation == gate
    assert drafting("MTP", acceptance_rate_threshold=0.4).ends_speculation is None
    live = Live(source="p", over="5m", answers=500, drafted=0, not_drafting=("a:8000",))
    deployed = DeployedSettings(engine="trtllm", ends_speculation=gate)
    found = off(Observations(rollout="r", live=live, deployed=deployed))
    assert found.severity == "cause"
    assert found.cause is not None
    assert found.cause.startswith(f"{gate} ends speculation for good")
    plain = off(Observations(rollout="r", live=live, deployed=DeployedSettings(engine="trtllm")))
    assert plain.cause is not None
    assert "gate" not in plain.cause


# Its counters


def page(requests: int, first: int, second: int, accepted: int) -> str:
    """As prometheus_client writes it, where each position is a series."""
    labels = 'model_name="m",engine_type="trtllm"'
    return (
        f"# TYPE trtllm_generation_tokens_total counter\ntrtllm_generation_tokens_total{{{labels}}} 100\n"
        f"# TYPE trtllm_num_requests_running gauge\ntrtllm_num_requests_running{{{labels}}} {requests}\n"
        "# TYPE trtllm_spec_decode_drafted_tokens_total counter\n"
        f'trtllm_spec_decode_drafted_tokens_total{{{labels},token_position="0"}} {first}\n'
        f'trtllm_spec_decode_drafted_tokens_total{{{labels},token_position="1"}} {second}\n'
        "# TYPE trtllm_spec_decode_accepted_tokens_total counter\n"
        f'trtllm_spec_decode_accepted_tokens_total{{{labels},token_position="0"}} {accepted}\n'
        f'trtllm_spec_decode_accepted_tokens_total{{{labels},token_position="1"}} 0\n'
    )


def test_drafts_are_counted_by_their_first_position() -> None:
    before, after = exposition.parse(page(1, 0, 0, 0)), exposition.parse(page(2, 10, 8, 6))
    counts = exposition.draft_counts(before, after)
    assert counts == exposition.DraftCounts(10.0, 18.0, 6.0, (6.0, 0.0))


def test_expressions_over_its_counters() -> None:
    signals = Signals(SERIES, {"pool": "s"}, "5m")
    first = 'rate(trtllm:spec_decode_drafted_tokens_total{pool="s",token_position="0"}[5m])'
    assert f"(sum by (instance) ({first}) or " in signals.accepted_length()
    each = signals.per_position()
    assert each is not None
    assert '"position", "$1", "token_position", "(.+)"' in each
    assert first in each


def test_its_metrics_are_found_where_it_has_them(monkeypatch) -> None:
    asked: list[str] = []

    def read(url: str, *_: object) -> str:
        asked.append(url)
        return page(1, 2, 2, 2) if url.endswith("/prometheus/metrics") else '[{"iter": 1}]'

    monkeypatch.setattr(exposition, "_read", read)
    found = exposition.scrape("http://h:8000/v1")
    assert asked == ["http://h:8000/metrics", "http://h:8000/prometheus/metrics"]
    assert exposition.series_of(found) is SERIES


def test_the_registry_has_it() -> None:
    assert ENGINES["trtllm"].title == "TensorRT-LLM"
    assert ENGINES["trtllm"].refused.keys() == {"min_p", "logit_bias"}
