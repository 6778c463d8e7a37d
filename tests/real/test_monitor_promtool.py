"""What is rendered, by promtool and amtool: it loads, and each alert fires where it should."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from adopting import adopted_by
from daemons import program
from promtool_tests import check_rules, fired, promtool_test, run_promtool

from specops.config import Rollout, load
from specops.config.monitor import ALERTS, alert_record
from specops.phases.monitor.render import FOLDER, render, texts
from specops.phases.monitor.thresholds import limits, measurements
from specops.progress import SilentProgress
from specops.prometheus import series
from specops.render.prometheus.scrape import BY_SEVERITY

SHIPPED = Path(__file__).parents[2] / "alerts"
RENDERED = SHIPPED / "examples" / FOLDER
ADDRESSES = {"standard": ["a:8000"], "speculative": ["b:8000"]}


def run(name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [program(name), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_prometheus_and_alertmanager_take_what_is_rendered() -> None:
    checked = run("promtool", "check", "config", RENDERED / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout
    for path in (RENDERED / "rules.yml", RENDERED / "alerts.yml"):
        checked = run("promtool", "check", "rules", "--lint-fatal", path)
        assert checked.returncode == 0, checked.stderr
    checked = run("amtool", "check-config", RENDERED / "alertmanager.yml")
    assert checked.returncode == 0, checked.stderr


def test_alerts_go_to_the_guard_and_to_people_by_severity() -> None:
    route = ("config", "routes", "test", f"--config.file={RENDERED / 'alertmanager.yml'}")
    for severity, receiver in BY_SEVERITY.items():
        which = (f"severity={severity}", "alertname=Any")
        ours = run("amtool", *route, "specops_rollout=example", *which)
        assert ours.stdout.strip() == f"specops-guard,{receiver}"
        others = run("amtool", *route, "specops_rollout=another", *which)
        assert others.stdout.strip() == receiver
    assert len(set(BY_SEVERITY.values())) == 3
    unlabelled = run("amtool", *route, "specops_rollout=another", "alertname=Any")
    assert unlabelled.stdout.strip() == "people"


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_fires_where_its_record_says_and_nothing_else_does(name: str, tmp_path: Path) -> None:
    tests = [promtool_test(name, test) for test in alert_record(name).tests]
    assert name in {alert for test in alert_record(name).tests for alert in fired(test)}
    rules = [str(RENDERED / file) for file in ("rules.yml", "alerts.yml")]
    check_rules(tests, rules, tmp_path, evaluation_interval="1m")


def test_recorded_series_have_the_right_values() -> None:
    done = run_promtool("test", "rules", SHIPPED / "tests" / "rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_examples_are_what_is_rendered_today(tmp_path: Path) -> None:
    examples = SHIPPED / "examples"
    rollout = load(examples / "rollout.yaml")
    known = measurements(rollout, examples)
    now = texts(rollout, known, limits(rollout, known), "alerts/examples/rollout.yaml")
    kept = {path.relative_to(RENDERED).as_posix(): path for path in RENDERED.rglob("*") if path.is_file()}
    assert set(kept) == set(now)
    for name, path in kept.items():
        assert path.read_text(encoding="utf-8") == now[name], f"{path} is not current: make generate"


SGLANG = {"engine": "sglang", "model_path": "m"}
SGLANG_POOLS = {"standard": SGLANG, "speculative": SGLANG | {"speculation": {"algorithm": "NGRAM"}}}
MIXED = {
    "standard": {"engine": "vllm", "model": "m", "version": "0.10.2"},
    "speculative": SGLANG_POOLS["speculative"],
}


@pytest.mark.parametrize("addresses", [ADDRESSES, ADDRESSES | {"routers": ["r:1"], "gpus": ["a:9400"]}])
def test_other_engines_and_settings_load_as_well(addresses: dict[str, Any], tmp_path: Path) -> None:
    made = {
        "rollout": "1.mixed",
        "pools": MIXED,
        "addresses": addresses,
        "monitor": {"labels": {"cluster": 'a"b\\c'}},
    }
    result = render(Rollout.model_validate(made), tmp_path, SilentProgress())
    assert result.verdict == "yes"
    checked = run("promtool", "check", "config", tmp_path / FOLDER / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr
    for name in ("rules.yml", "alerts.yml"):
        checked = run("promtool", "check", "rules", "--lint-fatal", tmp_path / FOLDER / name)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    checked = run("amtool", "check-config", tmp_path / FOLDER / "alertmanager.yml")
    assert checked.returncode == 0, checked.stderr


def test_two_clusters_of_one_rollout_are_recorded_and_alerted_on_apart(tmp_path: Path) -> None:
    """In one Prometheus, side by side: no rule, job or series of one is the other's."""
    both: dict[str, Any] = {}
    for cluster in ("a", "b"):
        example = yaml.safe_load((SHIPPED / "examples" / "rollout.yaml").read_text())
        embedded = {"engine": "embedded"}
        example["pools"] = {
            "standard": embedded,
            "speculative": embedded | {"speculation": {"tree": "chain:3"}},
        }
        example["monitor"] = {"labels": {"cluster": cluster}}
        folder = tmp_path / cluster
        shutil.copytree(SHIPPED / "examples", folder)
        file = folder / "rollout.yaml"
        file.write_text(yaml.safe_dump(example))
        adopted_by(file)
        render(load(file), folder, SilentProgress())
        config = yaml.safe_load((folder / FOLDER / "prometheus.yml").read_text())
        both.setdefault("scrape_configs", []).extend(config["scrape_configs"])
        both.setdefault("rule_files", []).extend(
            str(folder / FOLDER / name) for name in ("rules.yml", "alerts.yml")
        )
        for rule in rules_of(folder):
            assert rule["labels"]["cluster"] == cluster, rule
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(both))
    checked = run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    where = 'specops_rollout="example",specops_pool="speculative",model_name="m"'
    names = ("vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total")
    means = [f"vllm:request_time_per_output_token_seconds_{part}" for part in ("sum", "count")]
    grows = {
        "a": dict(zip((*names, *means), (300, 240, 0.0103, 5), strict=True)),
        "b": dict(zip((*names, *means), (300, 60, 0.0103, 5), strict=True)),
    }
    series = [
        {"series": f'{name}{{{where},cluster="{cluster}"}}', "values": f"0+{each}x60"}
        for cluster, grown in grows.items()
        for name, each in grown.items()
    ]
    for cluster, running in (("a", 1), ("b", 4)):
        for name, value in (("vllm:num_requests_running", running), ("vllm:num_requests_waiting", 0)):
            series.append({"series": f'{name}{{{where},cluster="{cluster}"}}', "values": f"{value}x60"})
    asked: dict[str, dict[str, Any]] = {
        "round(vllm:spec_decode_draft_acceptance_rate, 0.01)": {"a": 0.8, "b": 0.2},
        # Alone, and 4 at a time: each is compared at its own load.
        'round(specops:speedup{latency="tpot"}, 0.01)': {"a": 1.0, "b": 2.78},
        'count by (alertname, cluster) (ALERTS{alertname="CriticalAcceptRatio",alertstate="firing"})': {
            "b": 1
        },
    }
    samples: list[dict[str, Any]] = []
    for expr, by_cluster in asked.items():
        labels = 'alertname="CriticalAcceptRatio"' if "ALERTS" in expr else where
        labels += ',latency="tpot"' if "speedup" in expr else ""
        expected = [
            {"labels": f'{{{labels},cluster="{cluster}"}}', "value": value}
            for cluster, value in by_cluster.items()
        ]
        samples.append({"expr": expr, "eval_time": "10m", "exp_samples": expected})
    asserted({"input_series": series, "promql_expr_test": samples}, both["rule_files"], tmp_path)


def rules_of(folder: Path) -> list[dict[str, Any]]:
    texts = [(folder / FOLDER / name).read_text() for name in ("rules.yml", "alerts.yml")]
    return [rule for text in texts for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def asserted(test: dict[str, Any], rule_files: list[str], folder: Path) -> None:
    check_rules([{"interval": "15s"} | test], rule_files, folder, evaluation_interval="15s")


@pytest.mark.parametrize("long", [False, True])
def test_a_server_that_counts_tokens_at_the_end_of_an_answer_is_not_stuck_within_one(
    long: bool, tmp_path: Path
) -> None:
    """An answer of ten minutes, and a server that hangs for longer than any."""
    made = Rollout.model_validate({"rollout": "r", "pools": SGLANG_POOLS, "addresses": ADDRESSES})
    render(made, tmp_path, SilentProgress())
    ours = 'specops_rollout="r",specops_pool="speculative",instance="s"'
    ends = "0x40 100x80" if not long else "0x120"  # a sample every 15 s
    series = [
        {"series": f"sglang:num_running_reqs{{{ours}}}", "values": "1x120"},
        {"series": f"sglang:generation_tokens_total{{{ours}}}", "values": ends},
    ]
    stuck = 'count by (instance) (ALERTS{alertname="SpeculationReplicaStuck",alertstate="firing"})'
    fires = [{"labels": '{instance="s"}', "value": 1}] if long else []
    tests = [
        {"expr": stuck, "eval_time": "10m", "exp_samples": []},
        {"expr": stuck, "eval_time": "20m", "exp_samples": fires},
    ]
    files = [str(tmp_path / FOLDER / name) for name in ("rules.yml", "alerts.yml")]
    asserted({"input_series": series, "promql_expr_test": tests}, files, tmp_path)


VLLM_POOLS = {
    "standard": {"engine": "vllm", "model": "m", "version": "0.33.0"},
    "speculative": {"engine": "vllm", "model": "m", "version": "0.33.0", "speculation": {"method": "ngram"}},
}


@pytest.mark.parametrize(
    ("pools", "counter", "path", "ok", "failed"),
    [
        (VLLM_POOLS, "http_requests_total", "handler", 'status="2xx"', 'status="5xx"'),
        (
            SGLANG_POOLS,
            "sglang:http_responses_total",
            "endpoint",
            'status_code="200"',
            'status_code="503"',
        ),
    ],
    ids=["vllm", "sglang"],
)
def test_without_a_router_a_pool_fails_by_what_its_own_api_answers(
    pools: Any, counter: str, path: str, ok: str, failed: str, tmp_path: Path
) -> None:
    """The API counts 503s that its engine never had."""
    made = Rollout.model_validate({"rollout": "r", "pools": pools, "addresses": ADDRESSES})
    result = render(made, tmp_path, SilentProgress())
    assert "SpeculationFailovers" in result.data["left_out"]
    assert "SpeculationPoolFailing" not in result.data["left_out"]
    series = []
    for pool, good, bad in (
        ("speculative", "0+9x20 180x60", "0x20 0+9x60"),
        ("standard", "0+9x80", "0+1x80"),
    ):
        ours = f'specops_rollout="r",specops_pool="{pool}",{path}="/v1/completions",method="POST"'
        for status, values in ((ok, good), (failed, bad)):
            series.append({"series": f"{counter}{{{ours},{status}}}", "values": values})
    failing = 'count by (specops_pool) (ALERTS{alertname="SpeculationPoolFailing",alertstate="firing"})'
    tests = [
        {"expr": failing, "eval_time": "5m", "exp_samples": []},
        {
            "expr": failing,
            "eval_time": "9m",
            "exp_samples": [{"labels": '{specops_pool="speculative"}', "value": 1}],
        },
    ]
    files = [str(tmp_path / FOLDER / name) for name in ("rules.yml", "alerts.yml")]
    asserted({"input_series": series, "promql_expr_test": tests}, files, tmp_path)


ZERO = {
    "accepts nothing": ("0x60", "0+100x60", "0+105x60", 0.0),
    # One token of each answer comes from its prompt, none of a verification but its own.
    "accepts nothing, in answers of two tokens": ("0x60", "0+5x60", "0+10x60", 0.0),
    # The gauge is 0 between answers, and every scrape falls there: a verification yields 2.5 tokens.
    "is idle at every scrape": ("0x60", "0+100x60", "0+255x60", None),
    "does nothing": ("0x60", "100x60", "105x60", None),
    "accepts little": ("0.1 0.1 0 0 " * 15, "0+100x60", "0+130x60", 0.1),
}


@pytest.mark.parametrize("case", ZERO)
def test_an_acceptance_of_exactly_zero_is_critical_and_an_idle_gauge_is_not(
    case: str, tmp_path: Path
) -> None:
    gauge, verified, generated, acceptance = ZERO[case]
    made = Rollout.model_validate({"rollout": "r", "pools": SGLANG_POOLS, "addresses": ADDRESSES})
    render(made, tmp_path, SilentProgress())
    ours = 'specops_rollout="r",specops_pool="speculative",model_name="m"'
    values = {
        "sglang:spec_accept_rate": gauge,
        "sglang:spec_verify_calls_total": verified,
        "sglang:generation_tokens_total": generated,
        "sglang:num_requests_total": "5x60" if case == "does nothing" else "0+5x60",
    }
    # Of SGLang, gauges and counters have labels of their own beside these.
    given = [
        {"series": f'{name}{{{ours},instance="s"{own}}}', "values": each}
        for name, each in values.items()
        for own in [',tp_rank="0"' if "rate" in name else ',engine_type="unified"']
    ]
    firing = 'ALERTS{alertname="CriticalAcceptRatio",alertstate="firing"}'
    low = [{"labels": '{alertname="CriticalAcceptRatio",severity="critical"}', "value": 1}]
    tests = [
        {
            "expr": series.ACCEPTANCE,
            "eval_time": "10m",
            "exp_samples": [{"labels": f"{series.ACCEPTANCE}{{{ours}}}", "value": acceptance}]
            if acceptance is not None
            else [],
        },
        {
            "expr": f"count by (alertname, severity) ({firing})",
            "eval_time": "12m",
            "exp_samples": low
            if acceptance is not None and case != "accepts nothing, in answers of two tokens"
            else [],
        },
    ]
    files = [str(tmp_path / FOLDER / name) for name in ("rules.yml", "alerts.yml")]
    asserted({"input_series": given, "promql_expr_test": tests}, files, tmp_path)


def recorded_of(pools: dict[str, Any], counted: dict[str, str], folder: Path) -> Callable[..., None]:
    """Renders for `pools`; the function that it gives asserts what is recorded of `counted`, 15 s apart."""
    made = Rollout.model_validate({"rollout": "r", "pools": pools, "addresses": ADDRESSES})
    render(made, folder, SilentProgress())
    ours = 'specops_rollout="r",specops_pool="speculative",model_name="m"'
    given = [{"series": f"{name}{ours}}}", "values": values} for name, values in counted.items()]

    def asserts(**values: float) -> None:
        expected = [
            {
                "expr": f'round({name}{{specops_pool="speculative"}}, 0.0001)',
                "eval_time": "10m",
                "exp_samples": [{"labels": f"{{{ours}}}", "value": value}],
            }
            for name, value in values.items()
        ]
        test = {"input_series": given, "promql_expr_test": expected}
        asserted(test, [str(folder / FOLDER / "rules.yml")], folder)

    return asserts


TRTLLM = {"engine": "trtllm", "model": "m"}
TRTLLM_POOLS = {"standard": TRTLLM, "speculative": TRTLLM | {"speculation": {"decoding_type": "NGram"}}}


@pytest.mark.parametrize(
    ("pools", "counted", "recorded"),
    [
        (  # A release without a counter of verifications: of 2.5 tokens each, by its gauge.
            SGLANG_POOLS,
            {
                "sglang:spec_accept_rate{": "0.6x40",
                "sglang:spec_accept_length{": "2 3 0 0 " * 10,
                "sglang:generation_tokens_total{": "0+25x40",
                "sglang:num_requests_total{": "0+5x40",
            },
            {series.ACCEPTANCE: 0.6, series.ACCEPTED_LENGTH: 2.5, series.DRAFTED: 500},
        ),
        (
            TRTLLM_POOLS,
            {
                'trtllm:spec_decode_drafted_tokens_total{token_position="0",': "0+10x40",
                'trtllm:spec_decode_drafted_tokens_total{token_position="1",': "0+10x40",
                'trtllm:spec_decode_accepted_tokens_total{token_position="0",': "0+8x40",
                'trtllm:spec_decode_accepted_tokens_total{token_position="1",': "0+4x40",
                "trtllm:generation_tokens_total{": "0+22x40",
            },
            {series.ACCEPTANCE: 0.6, series.ACCEPTED_LENGTH: 2.2, series.DRAFTED: 400},
        ),
        (  # Totals without a count of drafts, and the length of the last iteration.
            TRTLLM_POOLS,
            {
                "trtllm:spec_decode_num_draft_tokens_total{": "0+20x40",
                "trtllm:spec_decode_num_accepted_tokens_total{": "0+12x40",
                "trtllm:spec_decode_acceptance_length{": "2 2.4 0 0 " * 10,
                "trtllm:generation_tokens_total{": "0+22x40",
            },
            {series.ACCEPTANCE: 0.6, series.ACCEPTED_LENGTH: 2.2, series.DRAFTED: 400},
        ),
    ],
    ids=["sglang-by-length", "trtllm-by-position", "trtllm-by-iteration"],
)
def test_acceptance_is_recorded_by_what_the_engine_shows(
    pools: Any, counted: dict[str, str], recorded: dict[str, float], tmp_path: Path
) -> None:
    recorded_of(pools, counted, tmp_path)(**recorded)


def test_sglang_has_rates_and_verifications_and_is_recorded_under_the_same_names(tmp_path: Path) -> None:
    counted = {
        # 0 while it decodes nothing: that is no acceptance.
        "sglang:spec_accept_rate{": "0.5 0.7 0 0 0.5 0.7 0 0 " * 5,
        "sglang:spec_verify_calls_total{": "0+10x40",
        "sglang:generation_tokens_total{": "0+25x40",
        "sglang:num_requests_total{": "0+5x40",
        "sglang:num_aborted_requests_total{": "0+1x40",
        "sglang:token_usage{": "0.25x40",
    }
    asserts = recorded_of(SGLANG_POOLS, counted, tmp_path)
    asserts(
        **{
            series.ACCEPTANCE: 0.6,
            series.ACCEPTED_LENGTH: 2.5,
            series.DRAFTED: 500,  # 300 accepted tokens at a rate of 0.6
            series.ANSWER_TOKENS: 5,
            series.KV_USAGE: 0.25,
        }
    )


def test_before_vllm_0_11_tpot_is_of_tokens_not_of_output_events(tmp_path: Path) -> None:
    pool = {"engine": "vllm", "model": "m", "version": "0.10.2"}
    counted = {
        # 10 requests: 5 tokens each, the later 4 in 2 events of 20 ms.
        "vllm:generation_tokens_total{": "0+50x40",
        "vllm:time_to_first_token_seconds_count{": "0+10x40",
        "vllm:time_per_output_token_seconds_count{": "0+20x40",
        "vllm:time_per_output_token_seconds_sum{": "0+0.4x40",
        "vllm:gpu_cache_usage_perc{": "0.5x40",
        'vllm:request_success_total{finished_reason="stop",': "0+9x40",
        'vllm:request_success_total{finished_reason="abort",': "0+1x40",
    }
    asserts = recorded_of(
        {"standard": pool, "speculative": pool | {"speculation": {"method": "ngram"}}}, counted, tmp_path
    )
    tpot, kv_usage, answer = series.MEAN["tpot"], series.KV_USAGE, series.ANSWER_TOKENS
    asserts(**{tpot: 0.01, kv_usage: 0.5, answer: 5, series.FINISHED: 200})
