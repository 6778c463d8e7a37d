"""Rules and alerts as text: expressions that Prometheus reads, names that exist, thresholds with a source."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import promql_parser
import pytest
import yaml
from calling import specops
from hypothesis import given
from hypothesis import strategies as st
from made_monitoring import ADDRESSES, FULL, MEASURED, NOTHING, POOLS, Watched, rollout

from specops.config.monitor import ALERTS, alert_record
from specops.guard.signals import noise, verdicts
from specops.phases import phase_named
from specops.phases.monitor.check import needs
from specops.phases.monitor.render import FOLDER, texts
from specops.phases.monitor.thresholds import Figure, left_out, limits
from specops.phases.phase import PhaseInput
from specops.progress import SilentProgress
from specops.prometheus import series
from specops.prometheus.series import exposed
from specops.render.grafana.dashboard import dashboard
from specops.render.prometheus.alerts import runbook
from specops.render.prometheus.rules import interpolated
from specops.serving import OWN
from specops.serving.sglang.pool import SERIES as SGLANG
from specops.serving.vllm.pool import SERIES as VLLM
from specops.serving.vllm.pool import SERIES_BEFORE_0_11 as VLLM_BEFORE_0_11

RUNBOOK = Path(__file__).parents[2] / "alerts" / "runbook.md"
SGLANG_POOL = {"engine": "sglang", "model_path": "m"}
SGLANG_POOLS = {
    "standard": SGLANG_POOL,
    "speculative": SGLANG_POOL | {"speculation": {"algorithm": "NGRAM"}},
}
OLD_POOL = {"engine": "vllm", "model": "m", "version": "0.10.2"}
OLD_POOLS = {
    "standard": OLD_POOL,
    "speculative": OLD_POOL | {"speculation": {"method": "ngram"}},
}
ENDPOINTS = {
    name: {"engine": "endpoint", "base_url": f"https://{name}.example:8443/llm/v1", "model": "m"}
    for name in ("standard", "speculative")
}
EVERY_KIND = [
    FULL,
    Watched(rollout(pools=SGLANG_POOLS), MEASURED),
    Watched(rollout(pools=OLD_POOLS), MEASURED),
    Watched(rollout(pools=ENDPOINTS, addresses={}), NOTHING),
    Watched(rollout(monitor={"names": {"standard": "sglang"}, "labels": {"cluster": "a"}}), MEASURED),
]

PROMETHEUS = ("up", "ALERTS", "ALERTS_FOR_STATE")
"""Series that Prometheus makes itself."""


def rules_of(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_the_alert_of_a_thin_standard_pool_is_of_the_guard_s_own_figures() -> None:
    record = alert_record("SpeculationStandardPoolThin")
    assert record.threshold is not None
    assert record.threshold.default == noise.LEAST
    assert f"{verdicts.UNUSED:g} * sum by (specops_rollout) ([[speculative.finished]])" in record.expr
    assert f"up to {verdicts.FURTHER[-1]}" in record.description


def expressions(watched: Watched) -> list[str]:
    texts = watched.texts()
    panels = json.loads(texts["dashboard.json"])
    found = [rule["expr"] for name in ("rules.yml", "alerts.yml") for rule in rules_of(texts[name])]
    found += [query["expr"] for panel in panels["panels"] for query in panel.get("targets", [])]
    found += [event["target"]["expr"] for event in panels["annotations"]["list"]]
    return [expr.replace("$__rate_interval", "1m") for expr in found]


def metrics(expr: promql_parser.Expr) -> set[str]:
    return set(re.findall(r"([A-Za-z_:][A-Za-z0-9_:]*)\{", expr.prettify()))


@pytest.mark.parametrize("watched", EVERY_KIND)
def test_every_expression_is_promql_and_every_name_is_checked_for(watched: Watched) -> None:
    asked = {need.name.removesuffix("_count") for need in needs(watched.rollout)}
    # Panels are the same for all rollouts, whatever is scraped of this one.
    asked |= {need.name.removesuffix("_count") for need in needs(FULL.rollout)}
    made = {rule["record"] for rule in rules_of(watched.texts()["rules.yml"])}
    made |= {rule["record"] for rule in rules_of(FULL.texts()["rules.yml"])}
    for text in expressions(watched):
        parsed = promql_parser.parse(text)
        for name in metrics(parsed):
            whole = re.sub(r"_(sum|count|bucket)$", "", name)
            assert whole in asked or name in made or name in PROMETHEUS, f"{name} in {text}"


def test_what_is_recorded_is_named_in_one_place() -> None:
    known = {value for value in vars(series).values() if isinstance(value, str)}
    known |= {name for by in (series.MEAN, series.P95, series.EXPECTED) for name in by.values()}
    assert {rule["record"] for rule in rules_of(FULL.texts()["rules.yml"])} <= known


def test_the_runbook_has_a_section_for_each_alert_and_is_current() -> None:
    assert RUNBOOK.read_text(encoding="utf-8") == runbook(), "alerts/runbook.md is not current: make generate"
    sections = re.findall(r"^## (\w+)$", runbook(), re.MULTILINE)
    assert tuple(sections) == ALERTS
    links = [rule["annotations"]["runbook_url"] for rule in rules_of(FULL.texts()["alerts.yml"])]
    assert links == [f"runbook.md#{name.lower()}" for name in ALERTS]


def runbook_sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (\w+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_section_of_the_runbook_begins_with_commands_that_run_as_printed() -> None:
    """Each asks a program for what that program exposes. test_docs_commands parses those of specops."""
    watched = Watched(rollout(addresses=ADDRESSES | {"prometheus": "http://127.0.0.1:9090"}), MEASURED)
    path = Path("my rollouts/one.yaml")
    rendered = texts(watched.rollout, watched.before, watched.limits, shlex.quote(str(path)))["runbook.md"]
    known = {need.name for need in needs(FULL.rollout)} | {"up", "specops_route_speculative_percent"}
    known |= {rule["record"] for rule in rules_of(FULL.texts()["rules.yml"])}
    answers = {
        "127.0.0.1:9145": ("/specops/switch",),
        "127.0.0.1:9469": ("/health",),
        "127.0.0.1:8001": ("/health",),
        "127.0.0.1:9090": ("/api/v1/query",),
    }
    sections = runbook_sections(rendered)
    assert set(sections) == set(ALERTS)
    for alert, text in sections.items():
        begins = re.match(r"\n\n\*[^\n]+\*\n\n```sh\n(.+?)```\n\n\*\*What it means", text, re.DOTALL)
        assert begins is not None, f"{alert} does not begin with commands"
        for line in begins[1].splitlines():
            words = shlex.split(line)
            assert not [word for word in words if re.fullmatch(r"[A-Z]{4,}", word)], f"{alert}: {line}"
            if words[0] == "specops":
                assert str(path) in words, f"{alert}: {line}"
                continue
            assert words[0] == "curl", f"{alert}: {line}"
            url = urlsplit(next(word for word in words if word.startswith("http")))
            assert url.path in answers[url.netloc], f"{alert}: {line}"
            for query in (word.removeprefix("query=") for word in words if word.startswith("query=")):
                promql_parser.parse(query)
                name = re.findall(r"[a-z_]+:[a-z_0-9]+|\bup\b|specops_[a-z_]+", query)
                assert name, query
                assert {re.sub(r"_sum$", "_count", one) for one in name} <= known, f"{alert}: {query}"


def test_the_playbooks_walk_and_the_command_write_a_runbook_with_the_rollout_file(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    made = rollout()
    file.write_text(yaml.safe_dump({"rollout": made.rollout, "pools": POOLS, "addresses": ADDRESSES}))
    walked, typed = tmp_path / "walked", tmp_path / "typed"
    phase_named("monitor").run(PhaseInput(made, file, walked, SilentProgress()))
    done = specops("monitor", "render", str(file), "--out", str(typed), "--quiet")
    assert done.returncode == 0, done.stderr
    for folder in (walked, typed):
        text = (folder / FOLDER / "runbook.md").read_text()
        assert f"specops guard status {file} --out {folder}\n" in text


def test_the_runbooks_commands_run_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rendered with relative paths, and another run folder."""
    monkeypatch.chdir(tmp_path)
    file = Path("one.yaml")
    file.write_text(yaml.safe_dump({"rollout": "r", "pools": POOLS, "addresses": ADDRESSES}))
    rendered = specops("monitor", "render", "one.yaml", "--out", "elsewhere", "--quiet")
    assert rendered.returncode == 0, rendered.stderr
    text = (tmp_path / "elsewhere" / FOLDER / "runbook.md").read_text()
    place = f"{tmp_path / 'one.yaml'} --out {tmp_path / 'elsewhere'}"
    assert f"specops guard status {place}\n" in text
    monkeypatch.chdir("/")
    done = specops("guard", "status", *shlex.split(place))
    assert "guard · r" in done.stdout, done.stderr


def test_a_runbook_of_which_nothing_is_known_is_the_shipped_one() -> None:
    bare = rollout(addresses={"standard": ["127.0.0.1:8000"], "speculative": ["127.0.0.1:8001"]})
    rendered = texts(bare, NOTHING, limits(bare, NOTHING))["runbook.md"]
    assert "specops guard status ROLLOUT" in rendered
    assert "http://127.0.0.1:8001/health" in rendered
    assert "http://ROUTER/specops/switch" in rendered
    assert "ROUTER, GUARD and SERVER are HOST:PORT" in rendered


def test_panels_of_several_clusters_show_those_that_are_chosen() -> None:
    labelled = Watched(rollout(monitor={"labels": {"cluster": "a"}}), MEASURED)
    chosen = '{specops_rollout="$rollout",cluster=~"$label_cluster"'
    panels = json.loads(labelled.texts()["dashboard.json"])
    queries = [query["expr"] for panel in panels["panels"] for query in panel.get("targets", [])]
    assert queries
    for expr in queries:
        assert expr.count("{") == expr.count(chosen) > 0, expr
    assert [one["name"] for one in panels["templating"]["list"]][-1] == "label_cluster"


def test_every_recorded_series_and_alert_has_the_clusters_label() -> None:
    labelled = Watched(rollout(monitor={"labels": {"cluster": "a"}}), MEASURED).texts()
    for name in ("rules.yml", "alerts.yml"):
        for rule in rules_of(labelled[name]):
            assert rule["labels"]["cluster"] == "a", rule
            # What is read is the cluster's own, recorded or scraped.
            for which in re.findall(r"\{([^}]*)\}", rule["expr"]):
                assert 'cluster="a"' in which, rule


def test_every_alert_says_where_its_threshold_comes_from() -> None:
    for rule in rules_of(FULL.texts()["alerts.yml"]):
        assert rule["annotations"]["threshold_source"], rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_every_alert_is_of_its_rollout_whatever_its_expression_finds() -> None:
    for rule in rules_of(FULL.texts()["alerts.yml"]):
        assert rule["labels"]["specops_rollout"] == rollout().rollout, rule["alert"]


def test_the_playbooks_thresholds_and_durations_where_nothing_was_measured() -> None:
    rules = {rule["alert"]: rule for rule in rules_of(Watched(rollout(), NOTHING).texts()["alerts.yml"])}
    low, critical = rules["LowAcceptRatio"], rules["CriticalAcceptRatio"]
    assert " < 0.5 " in low["expr"]
    assert (low["for"], low["labels"]["severity"]) == ("10m", "warning")
    assert " < 0.3 " in critical["expr"]
    assert (critical["for"], critical["labels"]["severity"]) == ("5m", "critical")
    assert low["annotations"]["threshold_source"] == "0.5: default"


def test_a_measurement_overrides_the_playbook_and_the_rollout_file_both() -> None:
    measured = FULL.limits["LowAcceptRatio"]
    assert (measured.value, "sweep.json" in measured.source) == (0.4, True)
    assert FULL.limits["CriticalAcceptRatio"].value == pytest.approx(0.24)
    said = {"LowAcceptRatio": {"threshold": 0.45, "for_s": 60}}
    written = Watched(rollout(monitor={"alerts": said}), MEASURED).limits["LowAcceptRatio"]
    assert (written.value, written.for_s) == (0.45, 60)
    assert "rollout file" in written.source


def test_the_guards_limit_is_the_alerts_where_the_rollout_file_sets_it() -> None:
    limit = Watched(rollout(guard={"max_regression": 0.3}), MEASURED).limits["SpeculationLatencyRegression"]
    assert limit.value == pytest.approx(1.3)
    assert limit.source.startswith("guard.max_regression of the rollout file, over baseline.json")


def test_an_alert_with_nothing_to_compare_with_is_left_out_and_says_why() -> None:
    bare = rollout(addresses={name: ADDRESSES[name] for name in ("standard", "speculative")})
    why = left_out(bare, NOTHING)
    assert set(ALERTS) - set(Watched(bare, NOTHING).limits) == set(why)
    assert why["SpeculationLatencyRegression"] == "there is no baseline.json"
    assert "addresses.routers" in why["SpecopsPartialSwitch"]


def test_a_tree_that_branches_has_no_playbooks_threshold() -> None:
    pools = POOLS | {"speculative": {"engine": "embedded", "speculation": {"tree": "expand:3,1"}}}
    branching = replace(NOTHING, branches=True)
    assert "break-even" in left_out(rollout(pools=pools), branching)["LowAcceptRatio"]
    swept = replace(branching, break_even=Figure(0.2, "sweep.json"))
    assert "LowAcceptRatio" not in left_out(rollout(pools=pools), swept)


@pytest.mark.parametrize(
    ("pools", "names", "found"),
    [
        (POOLS, {}, OWN.namings["embedded"]),
        (OLD_POOLS, {}, VLLM_BEFORE_0_11),
        (SGLANG_POOLS, {}, SGLANG),
        (ENDPOINTS, {}, VLLM),
        (ENDPOINTS, {"speculative": "sglang"}, SGLANG),
        (
            POOLS
            | {
                "speculative": {
                    "engine": "command",
                    "command": "python -m sglang.launch_server --port {port}",
                }
            },
            {},
            SGLANG,
        ),
    ],
)
def test_a_pools_names_are_its_engines(pools: Any, names: Any, found: Any) -> None:
    assert exposed(rollout(pools=pools, monitor={"names": names}), "speculative") == found


def test_pools_with_other_names_are_recorded_under_the_same() -> None:
    mixed = Watched(rollout(monitor={"names": {"standard": "sglang"}}), MEASURED)
    tpot = [
        rule["expr"] for rule in rules_of(mixed.texts()["rules.yml"]) if rule["record"] == series.MEAN["tpot"]
    ]
    assert len(tpot) == 2
    assert 'specops_pool="standard"' in tpot[0]
    assert "sglang:" in tpot[0]
    assert 'specops_pool="speculative"' in tpot[1]
    assert "vllm:" in tpot[1]


levels = st.lists(st.integers(1, 200), min_size=2, max_size=6, unique=True).map(sorted)


@given(levels, st.data())
def test_between_measured_loads_the_line_is_numpys_and_beyond_them_there_is_none(at: Any, data: Any) -> None:
    seconds = data.draw(st.lists(st.floats(1e-4, 50), min_size=len(at), max_size=len(at)))
    now = data.draw(st.floats(0, 250))
    found = evaluated(interpolated("x", list(zip(at, seconds, strict=True))), now)
    if at[0] <= now <= at[-1]:
        assert found == pytest.approx(float(np.interp(now, at, seconds)), rel=1e-5, abs=1e-6)
    else:
        assert found is None


def evaluated(expr: str, x: float) -> float | None:
    """As Prometheus does it: a comparison lets a sample through or not, `or` takes the first there is."""
    promql_parser.parse(expr)
    for piece in expr.split(" or "):
        low, high, slope, sign, constant = re.findall(r"(?<=[ (])[+-](?= )|-?[\d.]+(?:e-?\d+)?", piece)
        if float(low) <= x <= float(high):
            return x * float(slope) + float(sign + constant)
    return None


def test_nothing_alerts_on_a_quantile() -> None:
    quantiles = (*series.P95.values(), "histogram_quantile")
    for rule in rules_of(FULL.texts()["alerts.yml"]):
        assert not any(name in rule["expr"] for name in quantiles), rule["alert"]


def test_a_dashboard_is_the_same_each_time_and_its_panels_do_not_overlap() -> None:
    text = dashboard(FULL.rollout, FULL.limits)
    assert text == dashboard(FULL.rollout, FULL.limits)
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(text)["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    built = json.loads(dashboard(FULL.rollout, FULL.limits))
    assert built["timezone"] == "browser"
    assert "style" not in built
    rows = [panel["title"] for panel in built["panels"] if panel["type"] == "row"]
    assert rows[:2] == ["Alerts", "Is it paying?"]
    for panel in built["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] not in ("", "short"), panel["title"]
        for query in panel["targets"]:
            assert query["datasource"]["uid"] == "${datasource}", panel["title"]


def test_a_panel_that_the_runbook_names_is_on_the_dashboard() -> None:
    titles = {panel["title"] for panel in json.loads(dashboard(FULL.rollout, FULL.limits))["panels"]}
    named = [name for alert in ALERTS for name in re.findall(r'"([A-Z][^"]+)"', alert_record(alert).runbook)]
    assert named
    assert set(named) <= titles


def test_every_alert_has_a_title_without_values_and_one_series_with_it() -> None:
    found = [rule for rule in rules_of(FULL.texts()["rules.yml"]) if rule["record"] == series.ALERT_INFO]
    assert [rule["labels"]["alertname"] for rule in found] == [*FULL.limits]
    for rule in found:
        title = rule["labels"]["title"]
        assert re.fullmatch(r"[^\[{%]+\.", title), title
        assert rule["labels"]["runbook_url"] == f"runbook.md#{rule['labels']['alertname'].lower()}"


def test_the_table_of_alerts_links_a_runbook_only_where_its_address_is_known() -> None:
    def links(**monitor: Any) -> list[Any]:
        built = json.loads(Watched(rollout(monitor=monitor), MEASURED).texts()["dashboard.json"])
        [table] = [panel for panel in built["panels"] if panel["type"] == "table"]
        return [one for one in table["fieldConfig"]["overrides"] if one["properties"][0]["id"] == "links"]

    assert links() == []
    assert len(links(runbook="https://wiki.example/runbook")) == 1
