"""dashboard.json: the rows, built with Grafana's Foundation SDK."""

from __future__ import annotations

import json
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    prometheus,
    stat,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models

from specops.config import Rollout
from specops.prometheus import series
from specops.prometheus.series import ROLLOUT
from specops.render.grafana.panels import EVENTS, Panel, Row, acceptance, guard, now, routes, servers, speed
from specops.render.prometheus.alerts import Limits
from specops.render.server import dns_name, header, to_yaml

CHOSEN = f'{ROLLOUT}="$rollout"'
DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")


def dashboard(rollout: Rollout, limits: Limits) -> str:
    """The text. One dashboard serves all rollouts of a Prometheus; this one's is chosen to begin with.

    Where there is no alert, no colour judges either.
    """
    low, critical, errors = (
        limits[name].value or 0.0 if name in limits else 0.0
        for name in ("LowAcceptRatio", "CriticalAcceptRatio", "SpeculationErrors")
    )
    made = (
        builders.Dashboard(f"Speculative decoding: {rollout.rollout}")
        .uid(f"specops-{dns_name(rollout.rollout)}"[:40])
        .description("Made by specops. Every value is of the window that the rules have.")
        .tags(["specops"])
        .timezone("browser")
        .refresh("30s")
        .time("now-6h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .readonly()
    )
    for variable in _variables(rollout):
        made = made.with_variable(variable)
    for name, (expr, colour) in EVENTS.items():
        event = builders.AnnotationQuery().name(name).datasource(DATASOURCE).enable(True).icon_color(colour)
        made = made.annotation(event.expr(expr))
    for row in (now(low, critical, errors), acceptance(), speed(), routes(), servers(), guard()):
        made = _with_row(made, row)
    built = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    _choose_by(rollout, built)
    return json.dumps(_as_grafana_has_it(built), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _choose_by(rollout: Rollout, built: dict[str, Any]) -> None:
    """Every query is of the rollout that is chosen, and of the values that are chosen of `monitor.labels`."""
    chosen = "".join(f',{name}=~"$label_{name}"' for name in rollout.monitor.labels)
    events = built["annotations"]["list"]
    for query in [*events, *(one for panel in built["panels"] for one in panel.get("targets", []))]:
        query["expr"] = query["expr"].replace(CHOSEN, CHOSEN + chosen)


def _as_grafana_has_it(built: dict[str, Any]) -> dict[str, Any]:
    """Where the SDK differs from Grafana's own schema: an annotation's query is its target, `auto` belongs to
    variables of an interval alone, and every variable says whose it is."""
    for event in built["annotations"]["list"]:
        event["target"] = {"datasource": event["datasource"], "expr": event.pop("expr"), "refId": "Anno"}
    for variable in built["templating"]["list"]:
        for key in ("auto", "auto_count", "auto_min"):
            variable.pop(key, None)
        variable.setdefault("datasource", None)
    return built


def _variables(rollout: Rollout) -> list[Any]:
    asked = models.VariableRefresh.ON_TIME_RANGE_CHANGED
    chosen = models.VariableOption(selected=True, text=rollout.rollout, value=rollout.rollout)
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    return [
        builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        builders.QueryVariable("rollout")
        .label("Rollout")
        .datasource(DATASOURCE)
        .query(f"label_values({series.FINISHED}, {ROLLOUT})")
        .refresh(asked)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .current(chosen),
        builders.QueryVariable("model")
        .label("Model")
        .datasource(DATASOURCE)
        .query(f'label_values({series.FINISHED}{{{ROLLOUT}="$rollout"}}, model_name)')
        .refresh(asked)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .current(everything),
        *(_label(name, value) for name, value in rollout.monitor.labels.items()),
    ]


def _label(name: str, value: str) -> Any:
    return (
        builders.QueryVariable(f"label_{name}")
        .label(name)
        .datasource(DATASOURCE)
        .query(f"label_values({series.FINISHED}{{{CHOSEN}}}, {name})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .current(models.VariableOption(selected=True, text=value, value=value))
    )


def _with_row(made: Any, row: Row) -> Any:
    made = made.with_row(builders.Row(row.title))
    for panel in row.panels:
        made = made.with_panel(_panel(panel))
    return made


def _panel(panel: Panel) -> Any:
    kinds = {"lines": _lines, "value": _value, "bars": _bars, "states": _states}
    built = (
        kinds[panel.kind]()
        .title(panel.title)
        .description(panel.description)
        .unit(panel.unit)
        .datasource(DATASOURCE)
        .span(panel.width)
        .height(panel.height)
    )
    if panel.steps:
        steps = [models.Threshold(None, "red" if panel.kind == "value" else "transparent")]
        steps += [models.Threshold(value, colour) for value, colour in panel.steps]
        coloured = builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
        by_threshold = builders.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)
        built = built.thresholds(coloured).color_scheme(by_threshold)
    if panel.words:
        words = {value: models.ValueMappingResult(text=word) for value, word in panel.words.items()}
        built = built.mappings([models.ValueMap(options=words)])
    at_once = panel.kind in ("value", "bars")
    for number, query in enumerate(panel.queries):
        asked = (
            prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(ord("A") + number))
        )
        asked = asked.datasource(DATASOURCE)
        built = built.with_target(asked.instant() if at_once else asked.range())
    return built


def _lines() -> Any:
    legend = (
        common.VizLegendOptions()
        .display_mode(options.LegendDisplayMode.LIST)
        .placement(options.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )
    tooltip = (
        common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING)
    )
    return timeseries.Panel().line_width(1).fill_opacity(0).legend(legend).tooltip(tooltip)


def _last() -> Any:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)


def _value() -> Any:
    return (
        stat.Panel()
        .reduce_options(_last())
        .color_mode(options.BigValueColorMode.VALUE)
        .graph_mode(options.BigValueGraphMode.NONE)
        .no_value("–")
    )


def _bars() -> Any:
    return bargauge.Panel().reduce_options(_last()).min(0).max(1).orientation(options.VizOrientation.VERTICAL)


def _states() -> Any:
    return statetimeline.Panel().merge_values(True).show_value(options.VisibilityMode.NEVER)


PROMETHEUS = "http://127.0.0.1:9090"
DASHBOARDS = "/var/lib/grafana/dashboards/specops"


def datasource(rollout: Rollout) -> str:
    """No credentials: Grafana takes them from secureJsonData, which is the operator's to add."""
    return header(rollout.rollout, "For provisioning/datasources.") + to_yaml(
        {
            "apiVersion": 1,
            "datasources": [
                {
                    "name": "specops",
                    "type": "prometheus",
                    "access": "proxy",
                    "url": rollout.addresses.prometheus or PROMETHEUS,
                    # What $__rate_interval is made from.
                    "jsonData": {
                        "timeInterval": f"{rollout.monitor.scrape_interval_s}s",
                        "httpMethod": "POST",
                    },
                }
            ],
        }
    )


def dashboard_provider(rollout: Rollout) -> str:
    note = f"For provisioning/dashboards; dashboard.json goes to {DASHBOARDS}."
    return header(rollout.rollout, note) + to_yaml(
        {
            "apiVersion": 1,
            "providers": [
                {
                    "name": "specops",
                    "folder": "specops",
                    "type": "file",
                    "disableDeletion": True,
                    "options": {"path": DASHBOARDS},
                }
            ],
        }
    )
