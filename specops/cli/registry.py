"""The registry of commands: the help line of each, and the documents that it prints with --json or writes.

The type of a document is imported when its schema is made, since some types need the embedded engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specops.phases import phase_of_result
from specops.results import Content, Types

COMMANDS = {
    "Start": {
        "init": "Write a rollout file to start from.",
        "explain": "Explain a key of the rollout file: unit, range, default.",
        "doctor": "Check this machine, an endpoint, Prometheus or a rollout.",
        "run": "Run every phase, from measuring to a go-live verdict.",
    },
    "Measure": {
        "baseline": "Measure one endpoint: latency, throughput, acceptance.",
        "ab": "Compare two or more arms on the same prompts, in turn.",
        "sweep": "Find the best K or tree, and the load where it stops paying.",
        "capacity": "Find the highest rate at an objective, for both pools.",
        "verify-draft": "Judge from their files whether a draft fits a target.",
        "referee": "Compare an adaptive pool with fixed settings under load.",
        "canary": "Check that the speculative pool answers as the standard.",
        "plan": "Explain the planner behind `tree: auto`.",
        "predict": "Predict acceptance and speed-up from logged answers.",
    },
    "Deploy and operate": {
        "launch": "Render how pools are started; lint commands that start them.",
        "route": "Render, test and explain the router.",
        "monitor": "Render rules, alerts and a dashboard; check Prometheus.",
        "guard": "Turn speculation off when it stops paying, and back on.",
        "effect": "Compare live traffic with and without speculation.",
        "checklist": "Decide whether it may go live, item by item.",
        "diagnose": "Find why serving is slow or odd, from metrics and results.",
        "report": "Report what speculation did over the last week.",
        "compare": "Compare two runs: settings, and what surely changed.",
        "plot": "Draw a result as SVG or PNG.",
        "issues": "List known issues of serving engines with speculation.",
        "schema": "Print the JSON schema of a result or of a --json answer.",
        "mcp": "Serve read-only tools to assistants, over stdio.",
    },
    "Embedded engine": {
        "serve": "Serve a model over the OpenAI API, with vLLM's metrics.",
        "edge": "Draft on this machine, verify on a shared server.",
    },
}
"""The commands and the first line of their help, by section. Each is loaded from its module when it is
needed, so that `specops --help` and the completion of a shell answer at once."""

SUMMARIES = {name: summary for section in COMMANDS.values() for name, summary in section.items()}


FOR_A_FILE = {
    "plan": "explain",
    "route": "render",
    "guard": "status",
    "monitor": "render",
    "launch": "render",
}
"""The harmless command of a group that a rollout file is probably meant for."""

OTHER_NAMES = {
    "version": "specops --version",
    "status": "specops guard status ROLLOUT",
    "validate": "specops run ROLLOUT --plan",
    "lint": "specops launch lint --help",
}
"""Names by which people look for a command, with the command."""


@dataclass(frozen=True)
class Shape:
    """One document."""

    commands: tuple[str, ...]
    """The commands that print it with --json, as they are typed."""

    about: str
    holds: Types | Content | None = None
    """None of the result of a phase of the playbook, which says itself what its results hold."""

    many: bool = False
    """Whether the document is a list of such objects."""


PHASES_OF = {"run-record": "run", "edge-simulate": "edge_simulate"}
"""The `phase` in a result whose schema has another name."""


GUARD = ("guard run", "guard once", "guard status", "guard override")
SHAPES: Mapping[str, Shape] = {
    "error": Shape((), "Any command that fails, on stdout in place of its answer.", "cli.output:Failure"),
    "init": Shape(("init",), "The rollout file that was written.", "cli.init:InitOutput"),
    "explain": Shape(
        ("explain",), "A key or a section of the rollout file.", "config.explanation:Explanation"
    ),
    "doctor": Shape(
        ("doctor",),
        "Every check of a machine, an endpoint or a rollout.",
        Content("phases.doctor:DoctorData"),
    ),
    "run": Shape(("run",), "The phases of a walk, and how it ended.", "cli.run:RunOutput"),
    "run-plan": Shape(
        ("run",),
        "With --plan: what a walk would do.",
        ("phases.playbook.walk:WalkForecast", "cli.run:ForecastOutput"),
    ),
    "run-record": Shape(
        (),
        "run.json: what a run skipped, and where it stopped.",
        Content("phases.playbook.walk:Record", summary="phases.summaries:Walk"),
    ),
    "baseline": Shape(("baseline",), "baseline.json: one endpoint, by load and class."),
    "ab": Shape(("ab",), "ab.json: speed-ups and decisions, with every request."),
    "sweep": Shape(("sweep",), "sweep.json: every cell, and the recommended setting."),
    "sweep-plan": Shape(("sweep",), "With --plan: what a sweep would measure.", "phases.sweep.spec:Forecast"),
    "referee": Shape(("referee",), "referee.json: an adaptive pool, by load phase."),
    "verify-draft": Shape(("verify-draft",), "drafts.json: whether a draft fits a target."),
    "verify-draft-guide": Shape(
        ("verify-draft",), "With --guide: drafts that suit a target.", "phases.verify_draft.guide:Advice"
    ),
    "capacity": Shape(("capacity",), "capacity.json: the highest rates at the objective, and their ratio."),
    "canary": Shape(("canary",), "canary.json: every check of both pools."),
    "plan": Shape(
        ("plan explain",),
        "The planner's choice at each batch size.",
        Content("phases.plan:PlanExplanation", summary="phases.summaries:Plan"),
    ),
    "predict": Shape(
        ("predict",),
        "Acceptance and speed-up on logged answers.",
        Content("phases.predict.records:PredictData", summary="phases.predict.records:Summary"),
    ),
    "launch": Shape(("launch render",), "launch.json: how both pools start; the capacity gate."),
    "lint": Shape(
        ("launch lint",),
        "Findings on each command of an engine.",
        Content("phases.launch:LintData", summary="phases.summaries:Lint"),
    ),
    "route": Shape(("route render",), "route.json: the router's rules and their sources."),
    "route-check": Shape(
        ("route check",),
        "Requests to a real router, and where they went.",
        Content("phases.route.check:RouteCheckData", summary="phases.summaries:RouteCheck"),
    ),
    "route-explain": Shape(
        ("route explain",), "The pool of one request, and why.", "phases.route.explain:Explanation"
    ),
    "monitor": Shape(("monitor render",), "monitor.json: alert thresholds and their sources."),
    "monitor-check": Shape(
        ("monitor check",),
        "Which series Prometheus has.",
        Content("phases.monitor.check:MonitorCheckData", summary="phases.summaries:Counts"),
    ),
    "guard": Shape(GUARD, "The guard's state and its last evaluation.", "guard.guard:Status"),
    "guard-drill": Shape(("guard drill",), "guard-drill.json: a rehearsed fallback."),
    "guard-simulate": Shape(
        ("guard simulate",),
        "What the guard's rules do with a trace.",
        ("guard.simulation.simulate:Simulated", "cli.guard:SimulationOutput"),
    ),
    "effect": Shape(("effect",), "The live effect, by class.", "phases.effect:LiveEffect"),
    "checklist": Shape(("checklist show",), "checklist.json: every item and its evidence."),
    "checklist-attest": Shape(
        ("checklist attest",), "A person's confirmation of an item.", "phases.checklist.evidence:Attestation"
    ),
    "checklist-sign": Shape(
        ("checklist sign",), "The files that were signed.", "phases.checklist.signatures:SignedFiles"
    ),
    "diagnose": Shape(
        ("diagnose",),
        "diagnose.json: causes, evidence and fixes.",
        Content("phases.diagnose:Diagnosis", summary="phases.summaries:Counts"),
    ),
    "report": Shape(
        ("report make",),
        "reports/DAY.json: the weekly report.",
        Content("phases.report.report:WeeklyReport", summary="phases.summaries:Report"),
    ),
    "report-schedule": Shape(("report schedule",), "The cron and systemd files.", "cli.report:ScheduleFiles"),
    "compare": Shape(
        ("compare",),
        "Two runs: settings, and what surely changed.",
        Content("phases.run_comparison.comparison:Comparison", summary="phases.summaries:Compare"),
    ),
    "compare-tools": Shape(
        ("compare",),
        "Two result files of other benchmarks.",
        "phases.tool_results.views:ToolComparison",
    ),
    "plot": Shape(("plot",), "The picture that was written.", "cli.plot:PlotOutput"),
    "issues": Shape(("issues",), "Known issues of serving engines.", "serving:KnownIssue", many=True),
    "issues-acceptance": Shape(
        ("issues",), "With --acceptance: published lengths.", "serving:ReferenceAcceptance", many=True
    ),
    "schema": Shape(
        ("schema",), "Without a name: the schemas that there are.", "cli.schema:SchemaEntry", many=True
    ),
    "serve": Shape(("serve", "edge serve"), "One line, once the server is up.", "cli.serve:Serving"),
    "edge-verify-server": Shape(
        ("edge verify-server",), "One line, once it is up.", "cli.edge:ListeningServer"
    ),
    "edge-chat": Shape(("edge chat",), "One answer, with its rates.", "cli.edge_client:ChatRecord"),
    "edge-bench": Shape(
        ("edge bench",),
        "Drafting at the edge and on the server.",
        Content(
            ("phases.edge_bench.judging:EdgeComparison", "phases.edge_bench.records:EdgeWindows"),
            summary="phases.summaries:EdgeLevels",
        ),
    ),
    "edge-simulate": Shape(
        ("edge simulate",),
        "Simulated clients at the edge.",
        Content("phases.edge_simulate:EdgeSimulateData", summary="phases.edge_simulate:Summary"),
    ),
    "rollout": Shape((), "A rollout file, for editors.", "config:Rollout"),
}
"""The documents by the name that `specops schema` takes. A result's name is its `phase`."""


def shape_named(name: str) -> Shape | None:
    """The document called `name`: one of SHAPES, or the result of another phase of the playbook."""
    if name in SHAPES:
        return SHAPES[name]
    phase = phase_of_result(name)
    return None if phase is None else Shape((), f"{phase.name}.json: the result of the phase.")


def of_command(words: str) -> list[str]:
    """Names of the documents that the command `words`, such as `guard status`, prints with --json."""
    return [name for name, shape in SHAPES.items() if words in shape.commands]
