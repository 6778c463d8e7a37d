"""What is rendered, by promtool and amtool: it loads, and each alert fires where it should."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from daemons import program

from specops.config import Rollout, load
from specops.config.monitor import ALERTS
from specops.phases.monitor.before import before
from specops.phases.monitor.render import FOLDER, render, texts
from specops.phases.monitor.thresholds import limits
from specops.progress import Silent
from specops.prometheus import recorded

SHIPPED = Path(__file__).parents[2] / "alerts"
RENDERED = SHIPPED / "examples" / FOLDER
ADDRESSES = {"standard": ["a:8000"], "speculative": ["b:8000"]}


def run(name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [program(name), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_prometheus_and_alertmanager_take_what_is_rendered() -> None:
    checked = run("promtool", "check", "config", RENDERED / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr
    assert "14 rules found" in checked.stdout
    for path in (RENDERED / "rules.yml", RENDERED / "alerts.yml"):
        checked = run("promtool", "check", "rules", "--lint-fatal", path)
        assert checked.returncode == 0, checked.stderr
    checked = run("amtool", "check-config", RENDERED / "alertmanager.yml")
    assert checked.returncode == 0, checked.stderr


def test_alerts_go_to_the_guard_and_to_people() -> None:
    route = ("config", "routes", "test", f"--config.file={RENDERED / 'alertmanager.yml'}")
    ours = run("amtool", *route, "specops_rollout=example", "alertname=LowAcceptRatio")
    assert ours.stdout.strip() == "specops-guard,people"
    others = run("amtool", *route, "specops_rollout=another", "alertname=LowAcceptRatio")
    assert others.stdout.strip() == "people"


def test_alerts_fire_where_they_should() -> None:
    done = run("promtool", "test", "rules", *sorted((SHIPPED / "tests").glob("*.yml")))
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_could_fall_silent_unnoticed(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "alerts")
    path = tmp_path / "alerts" / "examples" / FOLDER / "alerts.yml"
    file = yaml.safe_load(path.read_text())
    for rule in file["groups"][0]["rules"]:
        rule["expr"] = f"({rule['expr']}) and vector(0) > 0"
    path.write_text(yaml.safe_dump(file))
    done = run("promtool", "test", "rules", *sorted((tmp_path / "alerts" / "tests").glob("*.yml")))
    assert done.returncode == 1
    missed = done.stdout + done.stderr
    assert [alert for alert in ALERTS if not re.search(rf'exp:.*"{alert}"', missed)] == []


def test_the_examples_are_what_is_rendered_today(tmp_path: Path) -> None:
    examples = SHIPPED / "examples"
    rollout = load(examples / "rollout.yaml")
    known = before(rollout, examples)
    now = texts(rollout, known, limits(rollout, known))
    kept = {path.relative_to(RENDERED).as_posix(): path for path in RENDERED.rglob("*") if path.is_file()}
    assert set(kept) == set(now)
    for name, path in kept.items():
        assert path.read_text(encoding="utf-8") == now[name], f"{path} is not current: make generate"


def test_other_engines_and_settings_load_as_well(tmp_path: Path) -> None:
    pools = {
        "standard": {"engine": "vllm", "model": "m", "version": "0.10.2"},
        "speculative": {"engine": "sglang", "model_path": "m", "speculation": {"algorithm": "NGRAM"}},
    }
    addresses = ADDRESSES | {"gpus": ["a:9400", "b:9400"]}
    made = {
        "rollout": "1.mixed",
        "pools": pools,
        "addresses": addresses,
        "monitor": {"labels": {"cluster": 'a"b\\c'}},
    }
    result = render(Rollout.model_validate(made), tmp_path, Silent())
    assert result.verdict == "yes"
    checked = run("promtool", "check", "config", tmp_path / FOLDER / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr


def recorded_of(pools: dict[str, Any], counted: dict[str, str], folder: Path) -> Callable[..., None]:
    """Renders for `pools`; the function that it gives asserts what is recorded of `counted`, 15 s apart."""
    made = Rollout.model_validate({"rollout": "r", "pools": pools, "addresses": ADDRESSES})
    render(made, folder, Silent())
    ours = 'specops_rollout="r",specops_pool="speculative",model_name="m"'
    series = [{"series": f"{name}{ours}}}", "values": values} for name, values in counted.items()]

    def asserts(**values: float) -> None:
        expected = [
            {
                "expr": f'round({name}{{specops_pool="speculative"}}, 0.0001)',
                "eval_time": "10m",
                "exp_samples": [{"labels": f"{{{ours}}}", "value": value}],
            }
            for name, value in values.items()
        ]
        test = {"interval": "15s", "input_series": series, "promql_expr_test": expected}
        file = {
            "rule_files": [str(folder / FOLDER / "rules.yml")],
            "evaluation_interval": "15s",
            "tests": [test],
        }
        (folder / "test.yml").write_text(yaml.safe_dump(file))
        done = run("promtool", "test", "rules", folder / "test.yml")
        assert done.returncode == 0, done.stdout + done.stderr

    return asserts


def test_sglang_has_rates_and_verifications_and_is_recorded_under_the_same_names(tmp_path: Path) -> None:
    pool = {"engine": "sglang", "model_path": "m"}
    counted = {
        # 0 while it decodes nothing: that is no acceptance.
        "sglang:spec_accept_rate{": "0.5 0.7 0 0 0.5 0.7 0 0 " * 5,
        "sglang:spec_verify_calls_total{": "0+10x40",
        "sglang:generation_tokens_total{": "0+25x40",
        "sglang:num_requests_total{": "0+5x40",
        "sglang:num_aborted_requests_total{": "0+1x40",
        "sglang:token_usage{": "0.25x40",
    }
    asserts = recorded_of(
        {"standard": pool, "speculative": pool | {"speculation": {"algorithm": "NGRAM"}}}, counted, tmp_path
    )
    asserts(
        **{
            recorded.ACCEPTANCE: 0.6,
            recorded.ACCEPTED_LENGTH: 2.5,
            recorded.DRAFTED: 200,
            recorded.ANSWER_TOKENS: 5,
            recorded.KV_USAGE: 0.25,
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
    tpot, kv_usage, answer = recorded.MEAN["tpot"], recorded.KV_USAGE, recorded.ANSWER_TOKENS
    asserts(**{tpot: 0.01, kv_usage: 0.5, answer: 5, recorded.FINISHED: 200})
