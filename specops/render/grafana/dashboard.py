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
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as queries

from specops.config import Rollout
from specops.prometheus import series
from specops.prometheus.series import POOL, ROLLOUT
from specops.render.grafana.panels import (
    EVENTS,
    Panel,
    Row,
    acceptance,
    alerts,
    guard,
    paying,
    routes,
    servers,
    speed,
)
from specops.render.prometheus.alerts import Limits
from specops.render.server import dns_name, header, to_yaml

CHOSEN = f'{ROLLOUT}="$rollout"'
DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")


def dashboard(rollout: Rollout, limits: Limits) -> str:
    """The text of dashboard.json. It shows any rollout of a Prometheus; this one is chosen to begin with.

    A panel has no colours by threshold where there is no alert.
    """
    low, critical, errors = (
        limits[name].value or 0.0 if name in limits else 0.0
        for name in ("LowAcceptRatio", "CriticalAcceptRatio", "SpeculationErrors")
    )
    built = (
        builders.Dashboard(f"Speculative decoding: {rollout.rollout}")
        .uid(f"specops-{dns_name(rollout.rollout)}"[:40])
        .description(
            "Does speculation pay, and is it safe? Ratios and means are"
            " over the window of the recording rules."
        )
        .tags(["specops"])
        .timezone("browser")
        .refresh("30s")
        .time("now-6h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .readonly()
    )
    for variable in _variables(rollout):
        built = built.with_variable(variable)
    for event in EVENTS:
        annotation = builders.AnnotationQuery().name(event.name).datasource(DATASOURCE).enable(True)
        built = built.annotation(annotation.icon_color(event.colour).expr(event.expr))
    for row in (alerts(errors), paying(low, critical), acceptance(), speed(), routes(), servers(), guard()):
        built = _with_row(built, row)
    plain = json.loads(json.dumps(built.build(), cls=JSONEncoder))
    _choose_by(rollout, plain)
    _link_runbook(rollout, plain)
    return json.dumps(_as_grafana_reads(plain), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _choose_by(rollout: Rollout, built: dict[str, Any]) -> None:
    """Add the choice of each of `monitor.labels` to every selector, and these labels to every join."""
    chosen = "".join(f',{name}=~"$label_{name}"' for name in rollout.monitor.labels)
    joined = ", ".join((ROLLOUT, *rollout.monitor.labels))
    events = built["annotations"]["list"]
    for query in [*events, *(target for panel in built["panels"] for target in panel.get("targets", []))]:
        query["expr"] = (
            query["expr"].replace(CHOSEN, CHOSEN + chosen).replace(f"on ({ROLLOUT}", f"on ({joined}")
        )


def _link_runbook(rollout: Rollout, built: dict[str, Any]) -> None:
    """Link the runbook's column where its address is known; a file beside the rules cannot be linked."""
    if rollout.monitor.runbook is None:
        return
    link = {"title": "Open the runbook", "url": "${__value.raw}", "targetBlank": True}
    override = {
        "matcher": {"id": "byName", "options": "Runbook"},
        "properties": [{"id": "links", "value": [link]}],
    }
    for panel in built["panels"]:
        if panel["type"] == "table":
            panel["fieldConfig"]["overrides"].append(override)


def _as_grafana_reads(built: dict[str, Any]) -> dict[str, Any]:
    """Repair what differs between the SDK and Grafana.

    Grafana's Prometheus reads `expr` and the formats of an annotation beside its target, up to version 12 at
    least; the schema has the target. `auto` belongs to interval variables alone. The SDK sets a dark theme;
    without one, Grafana uses the theme of the user.
    """
    del built["style"]
    for event, query in zip(EVENTS, built["annotations"]["list"], strict=True):
        query["target"] = {"datasource": query["datasource"], "expr": query["expr"], "refId": "Anno"}
        query |= {"titleFormat": event.title, "textFormat": event.text, "tagKeys": "severity,specops_pool"}
    for variable in built["templating"]["list"]:
        for key in ("auto", "auto_count", "auto_min"):
            variable.pop(key, None)
        variable.setdefault("datasource", None)
    return built


def _variables(rollout: Rollout) -> list[Any]:
    refresh = models.VariableRefresh.ON_TIME_RANGE_CHANGED
    chosen = models.VariableOption(selected=True, text=rollout.rollout, value=rollout.rollout)
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    return [
        builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        builders.QueryVariable("rollout")
        .label("Rollout")
        .datasource(DATASOURCE)
        .query(f"label_values({series.FINISHED}, {ROLLOUT})")
        .refresh(refresh)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .current(chosen),
        builders.QueryVariable("model")
        .label("Model")
        .datasource(DATASOURCE)
        .query(f'label_values({series.FINISHED}{{{ROLLOUT}="$rollout"}}, model_name)')
        .refresh(refresh)
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


def _with_row(dashboard: Any, row: Row) -> Any:
    dashboard = dashboard.with_row(builders.Row(row.title))
    for panel in row.panels:
        dashboard = dashboard.with_panel(_panel(panel))
    return dashboard


def _panel(panel: Panel) -> Any:
    kinds = {"lines": _lines, "value": _value, "bars": _bars, "states": _states, "table": _table}
    built = (
        kinds[panel.kind]()
        .title(panel.title)
        .description(panel.description)
        .unit(panel.unit)
        .datasource(DATASOURCE)
        .span(panel.width)
        .height(panel.height)
        .no_value(panel.empty)
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
    at_once = panel.kind in ("value", "bars", "table")
    for number, query in enumerate(panel.queries):
        target = (
            prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(ord("A") + number))
        )
        target = target.datasource(DATASOURCE)
        if panel.kind == "table":
            target = target.format(queries.PromQueryFormat.TABLE)
        built = built.with_target(target.instant() if at_once else target.range())
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
    )


def _bars() -> Any:
    return bargauge.Panel().reduce_options(_last()).min(0).max(1).orientation(options.VizOrientation.VERTICAL)


def _states() -> Any:
    return statetimeline.Panel().merge_values(True).show_value(options.VisibilityMode.NEVER)


COLUMNS = {
    "severity": "Severity",
    "alertname": "Alert",
    "title": "What it means",
    POOL: "Pool",
    "model_name": "Model",
    "latency": "Latency",
    "instance": "Server",
    "Value": "True for",
    "runbook_url": "Runbook",
}
"""The labels that the table of alerts shows, in this order."""
HIDDEN = ("Time", ROLLOUT, "job", "state", "series", "status")


def _table() -> Any:
    arranged = {
        "excludeByName": dict.fromkeys(HIDDEN, True),
        "indexByName": {name: place for place, name in enumerate(COLUMNS)},
        "renameByName": COLUMNS,
    }
    return (
        table.Panel()
        .show_header(True)
        .with_transformation(models.DataTransformerConfig(id_val="organize", options=arranged))
        .override_by_name("Alert", [_width(250)])
        .override_by_name("Severity", [_width(90)])
        .override_by_name("True for", [_width(110)])
    )


def _width(pixels: int) -> Any:
    return models.DynamicConfigValue(id_val="custom.width", value=pixels)


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
