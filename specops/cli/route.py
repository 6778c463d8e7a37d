"""`specops route …`: which requests the router sends to which pool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.call import Answer, AnswerOption, Call, RolloutCall, shared_options
from specops.phases.route.document import document, route_check
from specops.phases.route.explain import Explanation
from specops.quantities import PERCENTAGE
from specops.render.figures import aligned

route = typer.Typer(no_args_is_help=True)

RunOption = Annotated[
    Path | None, typer.Option("--run", help="The run folder; default: runs/NAME beside the rollout file.")
]


@route.command()
@shared_options()
def render(call: RolloutCall) -> Answer:
    """Write the router's folder, thresholds from measurements."""
    from specops import results
    from specops.phases.route import render

    result, path = render(call.file, call.folder), call.folder / "route.json"
    results.write(path, result)
    return Answer(result, document(result, path, call.commands))


@route.command()
@shared_options(out=AnswerOption)
def check(
    call: Call,
    rollout: Annotated[
        Path | None, typer.Argument(help="The rollout file: what `route render` would write.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Main file of a rendered folder, without a rollout file."),
    ] = None,
    cases: Annotated[
        Path | None,
        typer.Option(
            "--cases", help='File with further requests: [{"name", "pool", "class", "request": {…}}, …].'
        ),
    ] = None,
    program: Annotated[
        str | None, typer.Option("--program", help="The router's program; default: the one in PATH.")
    ] = None,
    run: RunOption = None,
) -> Answer:
    """Test the router: a real one and requests, on loopback.

    On each side of every threshold there is one; --cases adds yours. Exit 1 where it refuses its files, or a
    request goes elsewhere.
    """
    from specops.config import load, run_folder
    from specops.errors import UsageError
    from specops.phases.route.cases import read
    from specops.phases.route.check import check_config, check_rollout

    if (rollout is None) == (config is None):
        raise UsageError(
            "route check needs a rollout file or --config, not both",
            hint="specops route check rollout.yaml",
        )
    more = read(cases) if cases else []
    with call.progress() as progress:
        if rollout is not None:
            file = load(rollout)
            result = check_rollout(file, run_folder(rollout, file.rollout, run), more, program, progress)
        else:
            assert config is not None
            result = check_config(config, more, program, progress)
    return Answer(result, route_check(result, Path("the check")))


@route.command()
@shared_options()
def explain(
    call: Call,
    request: Annotated[
        Path,
        typer.Argument(help='A file with a JSON body, or {"method", "path", "headers", "body"} around it.'),
    ],
    rollout: Annotated[Path, typer.Option("--rollout", help="The rollout file.")] = Path("rollout.yaml"),
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=0, help="Number of requests in flight on the speculative pool.")
    ] = 0,
    percent: Annotated[
        float | None,
        PERCENTAGE,
        typer.Option(
            "--percent", min=0.0, max=100.0, help="Switch, in percent; default: that of the rollout file."
        ),
    ] = None,
    remote_addr: Annotated[
        str, typer.Option("--remote-addr", help="IP address of the client.")
    ] = "127.0.0.1",
    run: RunOption = None,
) -> Answer:
    """Explain which pool a request goes to; sends nothing.

    It runs the code that the router runs.
    """
    from specops.config import load, run_folder
    from specops.phases.route.explain import explain, read_request

    file = load(rollout)
    requested = read_request(request, remote_addr)
    explanation = explain(
        file, run_folder(rollout, file.rollout, run), requested, in_flight=in_flight, percent=percent
    )
    return Answer(explanation, explained(explanation))


def explained(explanation: Explanation) -> list[str]:
    rows = [
        ["pool", explanation.pool if explanation.pool != "none" else "none: the router answers 404"],
        ["class", explanation.traffic_class],
        ["reason", f"{explanation.reason}: {explanation.message}"],
    ]
    if explanation.source is not None:
        rows.append(["by", explanation.source])
    if explanation.weight != 1:
        rows.append(["counts as", f"{explanation.weight:g} in flight"])
    return aligned(rows)
