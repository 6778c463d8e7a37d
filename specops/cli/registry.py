"""The registry of commands: the help line of each, and the documents that it prints with --json or writes.

The type of a document is imported when its schema is made, since some types need the embedded engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

COMMANDS = {
    "Start": {
        "init": "Write a rollout file to start from.",
        "doctor": "Check this machine, an endpoint, Prometheus or a rollout.",
        "run": "Run every phase, from measuring to a go-live verdict.",
    },
    "Measure": {
        "baseline": "Measure one endpoint: latency, throughput, acceptance.",
        "ab": "Compare two or more arms on the same prompts, in turn.",
        "sweep": "Find the best K or tree, and the load where it stops paying.",
        "verify-draft": "Judge from their files whether a draft fits a target.",
        "canary": "Check that the speculative pool answers as the standard.",
        "plan": "Explain the planner behind `tree: auto`.",
    },
    "Deploy and operate": {
        "launch": "Render how pools are started; lint commands that start them.",
        "route": "Render, test and explain the NGINX router.",
        "monitor": "Render rules, alerts and a dashboard; check Prometheus.",
        "guard": "Turn speculation off when it stops paying, and back on.",
        "checklist": "Decide whether it may go live, item by item.",
        "diagnose": "Find why serving is slow or odd, from metrics and results.",
        "report": "Report what speculation did over the last week.",
        "compare": "Compare two runs: settings, and what surely changed.",
        "plot": "Draw a result as SVG or PNG.",
        "issues": "List known issues of serving engines with speculation.",
        "schema": "Print the JSON schema of a result or of a --json answer.",
    },
    "Embedded engine": {
        "serve": "Serve a model over the OpenAI API, with vLLM's metrics.",
        "edge": "Draft on this machine, verify on a shared server.",
        "bench": "Measure pairs of models and kernels of the embedded engine.",
    },
}
"""The commands and the first line of their help, by section. Each is loaded from its module when it is
needed, so that `specops --help` and the completion of a shell answer at once."""

SUMMARIES = {name: summary for section in COMMANDS.values() for name, summary in section.items()}


@dataclass(frozen=True)
class Content:
    """The types of a result's `data`. The keys of all types lie side by side there."""

    always: tuple[Any, ...] = ()
    finished: tuple[Any, ...] = ()
    """Absent from a result that was stopped before its end (verdict `partial`)."""

    recommendation: Any = None
    summary: Any = None
    """The type of `summary`; None: it is empty."""


@dataclass(frozen=True)
class Shape:
    """One document: `holds` imports and returns its type, several that make one object, or the `Content` of a
    result."""

    commands: tuple[str, ...]
    """The commands that print it with --json, as they are typed."""

    about: str
    holds: Callable[[], Any]


PHASES_OF = {"run-record": "run", "edge-simulate": "edge_simulate"}
"""The `phase` in a result whose schema has another name."""


def _init() -> Any:
    from specops.cli.init import InitOutput

    return InitOutput


def _doctor() -> Any:
    from specops.phases.doctor import DoctorData

    return Content((DoctorData,))


def _run() -> Any:
    from specops.cli.run import RunOutput

    return RunOutput


def _run_plan() -> Any:
    from specops.cli.run import ForecastOutput
    from specops.phases.playbook.walk import WalkForecast

    return WalkForecast, ForecastOutput


def _run_record() -> Any:
    from specops.phases.playbook.walk import Record
    from specops.phases.summaries import Walk

    return Content((Record,), summary=Walk)


def _baseline() -> Any:
    from specops.load.record import PlaybookSummary
    from specops.phases.baseline import BaselineResult

    return Content((BaselineResult,), summary=PlaybookSummary)


def _ab() -> Any:
    from specops.phases import summaries
    from specops.phases.ab.report import Report
    from specops.phases.ab.visits import AbData

    return Content((AbData,), (Report,), summary=summaries.Ab)


def _sweep() -> Any:
    from specops.phases import summaries
    from specops.phases.sweep.plan import SweepData
    from specops.phases.sweep.report import Recommendation, Report

    return Content((SweepData,), (Report,), Recommendation, summaries.Sweep)


def _sweep_plan() -> Any:
    from specops.phases.sweep.spec import Forecast

    return Forecast


def _verify_draft() -> Any:
    from specops.phases.verify_draft.estimate_record import EstimateData
    from specops.phases.verify_draft.verify import Summary, VerifyDraftData

    return Content((VerifyDraftData, EstimateData), summary=Summary)


def _guide() -> Any:
    from specops.phases.verify_draft.guide import Advice

    return Advice


def _canary() -> Any:
    from specops.phases import summaries
    from specops.phases.canary.pair import Conformance

    return Content((Conformance,), summary=summaries.Canary)


def _plan() -> Any:
    from specops.phases import summaries
    from specops.phases.plan import PlanExplanation

    return Content((PlanExplanation,), summary=summaries.Plan)


def _launch() -> Any:
    from specops.phases import summaries
    from specops.phases.launch import LaunchData

    return Content((LaunchData,), summary=summaries.Launch)


def _lint() -> Any:
    from specops.phases import summaries
    from specops.phases.launch import LintData

    return Content((LintData,), summary=summaries.Lint)


def _route() -> Any:
    from specops.phases import summaries
    from specops.phases.route import RouteData

    return Content((RouteData,), summary=summaries.Route)


def _route_check() -> Any:
    from specops.phases import summaries
    from specops.phases.route.check import RouteCheckData

    return Content((RouteCheckData,), summary=summaries.RouteCheck)


def _explain() -> Any:
    from specops.phases.route.explain import Explanation

    return Explanation


def _monitor() -> Any:
    from specops.phases import summaries
    from specops.phases.monitor.render import MonitorData

    return Content((MonitorData,), summary=summaries.Monitor)


def _monitor_check() -> Any:
    from specops.phases import summaries
    from specops.phases.monitor.check import MonitorCheckData

    return Content((MonitorCheckData,), summary=summaries.Counts)


def _guard() -> Any:
    from specops.guard.guard import Status

    return Status


def _drill() -> Any:
    from specops.phases import summaries
    from specops.phases.guard_drill import Rehearsal

    return Content((Rehearsal,), summary=summaries.Drill)


def _guard_simulate() -> Any:
    from specops.cli.guard import SimulationOutput
    from specops.guard.simulation.simulate import Simulated

    return Simulated, SimulationOutput


def _checklist() -> Any:
    from specops.phases import summaries
    from specops.phases.checklist.evidence import ChecklistData

    return Content((ChecklistData,), summary=summaries.Counts)


def _attestation() -> Any:
    from specops.phases.checklist.evidence import Attestation

    return Attestation


def _diagnose() -> Any:
    from specops.phases import summaries
    from specops.phases.diagnose import Diagnosis

    return Content((Diagnosis,), summary=summaries.Counts)


def _report() -> Any:
    from specops.phases import summaries
    from specops.phases.report.report import Report

    return Content((Report,), summary=summaries.Report)


def _schedule() -> Any:
    from specops.cli.report import ScheduleFiles

    return ScheduleFiles


def _compare() -> Any:
    from specops.phases import summaries
    from specops.phases.run_comparison.comparison import Comparison

    return Content((Comparison,), summary=summaries.Compare)


def _plot() -> Any:
    from specops.cli.plot import PlotOutput

    return PlotOutput


def _issues() -> Any:
    from specops.serving import KnownIssue

    return list[KnownIssue]


def _acceptances() -> Any:
    from specops.serving import ReferenceAcceptance

    return list[ReferenceAcceptance]


def _schemas() -> Any:
    from specops.cli.schema import SchemaEntry

    return list[SchemaEntry]


def _serve() -> Any:
    from specops.cli.serve import Serving

    return Serving


def _verify_server() -> Any:
    from specops.cli.edge import ListeningServer

    return ListeningServer


def _chat() -> Any:
    from specops.cli.edge_client import ChatRecord

    return ChatRecord


def _edge_bench() -> Any:
    from specops.phases import summaries
    from specops.phases.edge_bench.judging import Comparison
    from specops.phases.edge_bench.records import Visits

    return Content((Comparison, Visits), summary=dict[str, summaries.EdgeLevel])


def _edge_simulate() -> Any:
    from specops.phases.edge_simulate import EdgeSimulateData, Summary

    return Content((EdgeSimulateData,), summary=Summary)


def _acceptance() -> Any:
    from specops.phases import summaries
    from specops.phases.acceptance import AcceptanceData

    return Content((AcceptanceData,), summary=summaries.Acceptance)


def _verifiers() -> Any:
    from specops.phases.verifiers import Ranking

    return Content((Ranking,), summary=dict[str, dict[str, float]])


def _specinfer() -> Any:
    from specops.phases.specinfer import Tables

    return Content((Tables,), summary=dict[str, float])


def _kernels() -> Any:
    from specops.phases.kernels import KernelsData

    return Content((KernelsData,), summary=dict[str, float | None])


def _error() -> Any:
    from specops.cli.output import Failure

    return Failure


def _rollout() -> Any:
    from specops.config import Rollout

    return Rollout


GUARD = ("guard run", "guard once", "guard status", "guard override")
SHAPES: Mapping[str, Shape] = {
    "error": Shape((), "Any command that fails, on stdout in place of its answer.", _error),
    "init": Shape(("init",), "The rollout file that was written.", _init),
    "doctor": Shape(("doctor",), "Every check of a machine, an endpoint or a rollout.", _doctor),
    "run": Shape(("run",), "The phases of a walk, and how it ended.", _run),
    "run-plan": Shape(("run",), "With --plan: what a walk would do.", _run_plan),
    "run-record": Shape((), "run.json: what a walk skipped, and where it stopped.", _run_record),
    "baseline": Shape(("baseline",), "baseline.json: one endpoint, by load and class.", _baseline),
    "ab": Shape(("ab",), "ab.json: speed-ups and decisions, with every request.", _ab),
    "sweep": Shape(("sweep",), "sweep.json: every cell, and the recommended setting.", _sweep),
    "sweep-plan": Shape(("sweep",), "With --dry-run: what a sweep would measure.", _sweep_plan),
    "verify-draft": Shape(("verify-draft",), "drafts.json: whether a draft fits a target.", _verify_draft),
    "verify-draft-guide": Shape(("verify-draft",), "With --guide: drafts that suit a target.", _guide),
    "canary": Shape(("canary",), "canary.json: every check of both pools.", _canary),
    "plan": Shape(("plan explain",), "The planner's choice at each batch size.", _plan),
    "launch": Shape(("launch render",), "launch.json: how both pools start; the capacity gate.", _launch),
    "lint": Shape(("launch lint",), "Findings on each command of an engine.", _lint),
    "route": Shape(("route render",), "route.json: the router's rules and their sources.", _route),
    "route-check": Shape(("route check",), "Requests to a real router, and where they went.", _route_check),
    "route-explain": Shape(("route explain",), "The pool of one request, and why.", _explain),
    "monitor": Shape(("monitor render",), "monitor.json: alert thresholds and their sources.", _monitor),
    "monitor-check": Shape(("monitor check",), "Which series Prometheus has.", _monitor_check),
    "guard": Shape(GUARD, "The guard's state and its last evaluation.", _guard),
    "guard-drill": Shape(("guard drill",), "guard-drill.json: a rehearsed fallback.", _drill),
    "guard-simulate": Shape(("guard simulate",), "What the guard's rules do with a trace.", _guard_simulate),
    "checklist": Shape(("checklist show",), "checklist.json: every item and its evidence.", _checklist),
    "checklist-attest": Shape(("checklist attest",), "A person's confirmation of an item.", _attestation),
    "diagnose": Shape(("diagnose",), "diagnose.json: causes, evidence and fixes.", _diagnose),
    "report": Shape(("report make",), "reports/DAY.json: the weekly report.", _report),
    "report-schedule": Shape(("report schedule",), "The cron and systemd files.", _schedule),
    "compare": Shape(("compare",), "Two runs: settings, and what surely changed.", _compare),
    "plot": Shape(("plot",), "The picture that was written.", _plot),
    "issues": Shape(("issues",), "Known issues of serving engines.", _issues),
    "issues-acceptance": Shape(("issues",), "With --acceptance: published lengths.", _acceptances),
    "schema": Shape(("schema",), "Without a name: the schemas that there are.", _schemas),
    "serve": Shape(("serve", "edge serve"), "One line, once the server is up.", _serve),
    "edge-verify-server": Shape(("edge verify-server",), "One line, once it is up.", _verify_server),
    "edge-chat": Shape(("edge chat",), "One answer, with its rates.", _chat),
    "edge-bench": Shape(("edge bench",), "Drafting at the edge and on the server.", _edge_bench),
    "edge-simulate": Shape(("edge simulate",), "Simulated clients at the edge.", _edge_simulate),
    "acceptance": Shape(("bench acceptance",), "Acceptance by rule and tree width.", _acceptance),
    "verifiers": Shape(("bench verifiers",), "Verifiers on the same trees.", _verifiers),
    "specinfer": Shape(("bench specinfer",), "SpecInfer's tables 1 to 3.", _specinfer),
    "kernels": Shape(("bench kernels",), "Times and errors of the Triton kernels.", _kernels),
    "rollout": Shape((), "A rollout file, for editors.", _rollout),
}
"""The documents by the name that `specops schema` takes. A result's name is its `phase`."""


def of_command(words: str) -> list[str]:
    """Names of the documents that the command `words`, such as `guard status`, prints with --json."""
    return [name for name, shape in SHAPES.items() if words in shape.commands]
