"""`specops mcp`: read-only tools for assistants, over the Model Context Protocol on stdin and stdout."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

import specops
from specops import results
from specops.cli.call import extra
from specops.config import load
from specops.config import run_folder as default_folder
from specops.config.explanation import Explanation
from specops.config.explanation import explain as explained
from specops.errors import SpecopsError, UsageError
from specops.hints import as_command
from specops.phases import PhaseName
from specops.results import Result, Verdict

if TYPE_CHECKING:
    from mcp.server import MCPServer

INSTRUCTIONS = (
    "specops measures whether speculative decoding pays for an LLM server. These tools read files and "
    "metrics. They start no server, send no prompt and write no file. A verdict is yes, no, undecided "
    "(evidence is missing) or partial (stopped before its end)."
)


class PhaseVerdict(TypedDict):
    phase: PhaseName
    verdict: Verdict
    reason: str
    created: str
    """When it was measured, in ISO 8601."""

    summary: dict[str, Any]


class UnreadableFile(TypedDict):
    file: str
    why: str
    hint: str | None


class RunVerdicts(TypedDict):
    run: str
    answer: str
    """The verdict on the rollout in sentences."""

    phases: list[PhaseVerdict]
    unreadable: list[UnreadableFile]


def lint_launch_file(
    text: Annotated[
        str, Field(description="Text of a file that starts a server of vLLM, SGLang or another.")
    ],
    name: Annotated[
        str,
        Field(description="Name of the file, without a folder. The form is read from it, as compose.yaml."),
    ] = "start.sh",
    engine_version: Annotated[
        str | None,
        Field(description="Version of the engine, such as 0.32.0; default: the image's, else the newest."),
    ] = None,
) -> dict[str, Any]:
    """Find flags and keys of a serving engine that are wrong, removed or ignored, with what to write instead.
    Nothing is run. The files that the text names are not read."""
    if not name or Path(name).name != name:
        raise UsageError(
            f"invalid name {name!r}: expected the name of a file without its folder, such as compose.yaml",
            hint="specops launch lint --help",
        )
    return _fields(specops.lint(Path(name), text=text, engine_version=engine_version))


def explain_key(
    key: Annotated[
        str, Field(description="Key or section, such as guard.max_regression; empty: all sections.")
    ] = "",
) -> Explanation:
    """Explain a key of the rollout file: meaning, type, unit, allowed values, default and an example."""
    with as_command("explain", key):
        return explained(key)


def read_run(
    run_folder: Annotated[str, Field(description="Folder of a run, such as runs/NAME.")],
) -> RunVerdicts:
    """Read the verdict of each phase of a run, with its reason and figures, and the answer in sentences."""
    from specops.phases.run_page.document import document

    run = specops.read(run_folder)
    phases = [
        PhaseVerdict(
            phase=phase,
            verdict=result.verdict,
            reason=result.reason,
            created=result.created.isoformat(),
            summary=result.summary,
        )
        for phase, result in run.results.items()
    ]
    unreadable = [UnreadableFile(file=file.name, why=file.why, hint=file.hint) for file in run.unreadable]
    return RunVerdicts(run=run.name, answer=document(run).in_short(), phases=phases, unreadable=unreadable)


def diagnose(
    rollout_file: Annotated[str, Field(description="Path of the rollout file.")],
    run_folder: Annotated[
        str | None, Field(description="Folder of the run; default: runs/NAME beside the rollout file.")
    ] = None,
) -> dict[str, Any]:
    """Find why serving with speculation is slow or odd, from metrics and earlier results: causes with their
    fixes, what is ruled out, and which evidence is missing. No request is sent to the model."""
    from specops.phases.commands import Commands
    from specops.phases.diagnose import diagnose as diagnosed
    from specops.phases.diagnose.collectors import gather
    from specops.progress import SilentProgress

    path = Path(rollout_file)
    with as_command("diagnose", rollout_file, *(["--out", run_folder] if run_folder else [])):
        rollout = load(path)
        folder = default_folder(path, rollout.rollout, Path(run_folder) if run_folder else None)
        commands = Commands(rollout, path, folder)
        observed = gather(rollout, folder, datetime.now(UTC), SilentProgress(), requests=False)
        return _fields(diagnosed(observed, (), commands.place, commands.sweep()))


def _fields(result: Result) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(results.written(result))
    return fields


TOOLS: tuple[Callable[..., Any], ...] = (lint_launch_file, explain_key, read_run, diagnose)

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def server() -> MCPServer[Any]:
    """The server with all tools. Raises ModuleNotFoundError without the package mcp."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    def failing_with_its_hint(tool: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        @wraps(tool)
        def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
            try:
                return tool(*args, **kwargs)
            except SpecopsError as error:
                raise ToolError("\nhint: ".join(filter(None, (str(error), error.hint)))) from error

        return called

    mcp_server: MCPServer[Any] = MCPServer("specops", instructions=INSTRUCTIONS, version=specops.__version__)
    for tool in TOOLS:
        mcp_server.add_tool(failing_with_its_hint(tool), annotations=ToolAnnotations(read_only_hint=True))
    return mcp_server


def mcp() -> None:
    """Serves until its input ends. An assistant starts it; the guide shows how to add it to one.

    The tools lint the text of a launch file, explain a key of the rollout file, read the verdicts of a run,
    and diagnose a rollout. They start no server, send no prompt and write no file.
    """
    with extra("mcp", "start the MCP server"):
        mcp_server = server()
    mcp_server.run("stdio")
