"""The dashboard by Grafana's own types: @grafana/schema of the release that the SDK is for, and tsc."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_monitoring import FULL

from specops.render.grafana.dashboard import dashboard

HERE = Path(__file__).parents[1] / "grafana"
KINDS = {
    "timeseries": "TimeSeries",
    "stat": "Stat",
    "bargauge": "BarGauge",
    "state-timeline": "StateTimeline",
    "table": "Table",
}
RAW = "./node_modules/@grafana/schema/dist/esm/raw/composable"
QUERY = f"{RAW}/prometheus/dataquery/x/PrometheusDataQuery_types.gen"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def grafana(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the types and the compiler of the lockfile."""
    npm = shutil.which("npm")
    if npm is None:
        _missing("npm is not installed (Debian: npm)")
    folder = tmp_path_factory.mktemp("grafana")
    shutil.copytree(HERE, folder, dirs_exist_ok=True)
    done = subprocess.run(
        [str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode:
        _missing(f"npm could not fetch Grafana's types: {done.stderr[-300:]}")
    return folder


def _missing(reason: str) -> None:
    pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture(scope="module")
def rendered() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(dashboard(FULL.rollout, FULL.limits))
    return made


def test_it_is_what_grafanas_types_say(grafana: Path, rendered: dict[str, Any]) -> None:
    assert _complaints(grafana, rendered) == ""


def test_the_types_find_what_is_wrong(grafana: Path, rendered: dict[str, Any]) -> None:
    wrong = copy.deepcopy(rendered)
    panels = [panel for panel in wrong["panels"] if panel["type"] == "timeseries"]
    panels[0]["options"]["legend"]["placement"] = "under"
    panels[1]["targets"][0]["expression"] = "up"
    wrong["refreshed"] = "30s"
    complaints = _complaints(grafana, wrong)
    for mistake in ('"under"', "'\"expression\"'", "'\"refreshed\"'"):
        assert mistake in complaints


def _complaints(folder: Path, rendered: dict[str, Any]) -> str:
    (folder / "dashboard.ts").write_text("\n".join(_typescript(copy.deepcopy(rendered))), encoding="utf-8")
    compiler = str(folder / "node_modules" / ".bin" / "tsc")
    done = subprocess.run(
        [compiler, "-p", "."], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode or not done.stdout
    return done.stdout


def _typescript(rendered: dict[str, Any]) -> Iterator[str]:
    """The dashboard as constants with types; what the schema leaves open, each by the type of its plugin."""
    yield "import type { Dashboard } from '@grafana/schema';"
    yield "import type { Plain } from './plain';"
    yield f"import type {{ PrometheusDataQuery }} from '{QUERY}';"
    for kind, name in KINDS.items():
        folder = kind.replace("-", "")
        yield f"import type * as {name} from '{RAW}/{folder}/panelcfg/x/{name}PanelCfg_types.gen';"
    # The schema has a target of any data source there, and none of the data source's own keys.
    events = [event.pop("target") for event in rendered["annotations"]["list"]]
    for event in rendered["annotations"]["list"]:
        for key in ("expr", "titleFormat", "textFormat", "tagKeys"):
            assert isinstance(event.pop(key), str)
    # This release's schema requires a theme. Later ones have none; Grafana then uses the user's.
    assert "style" not in rendered
    rendered["style"] = "light"
    yield f"export const dashboard: Plain<Dashboard> = {json.dumps(rendered)};"
    queries = list(events)
    for number, panel in enumerate(rendered["panels"]):
        if panel["type"] == "row":
            continue
        name = KINDS[panel["type"]]
        yield f"export const options{number}: Plain<{name}.Options> = {json.dumps(panel['options'])};"
        custom = panel["fieldConfig"]["defaults"].get("custom")
        if custom is not None:
            yield f"export const custom{number}: Plain<{name}.FieldConfig> = {json.dumps(custom)};"
        queries += panel["targets"]
    for number, query in enumerate(queries):
        query.pop("datasource")  # the schema has any there
        yield f"export const query{number}: Plain<PrometheusDataQuery> = {json.dumps(query)};"
