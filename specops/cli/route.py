"""`specops route …`: which requests NGINX sends to which pool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.output import DebugFlag, FolderOption, JsonFlag, OutOption, QuietFlag, print_json

route = typer.Typer(
    help="Render, test and explain the NGINX router.",
    no_args_is_help=True,
)

RolloutArgument = Annotated[Path, typer.Argument(help="The rollout file; `specops init` writes one.")]
RunOption = Annotated[
    Path | None, typer.Option("--run", help="The run folder; default: runs/NAME beside the rollout file.")
]


@route.command()
def render(
    rollout: RolloutArgument,
    out: FolderOption = None,
    native: Annotated[
        bool, typer.Option("--native", help="Without Lua. The file's head says what that cannot do.")
    ] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Write NGINX's folder, with thresholds from measurements."""
    from specops.config import load, run_folder

    file = load(rollout)  # before what follows is loaded: a wrong file is answered at once
    from specops import results
    from specops.cli.route_page import rendered
    from specops.phases.route.render import render

    folder = run_folder(rollout, file.rollout, out)
    result = render(file, folder, without_lua=native)
    results.write(folder / "route.json", result)
    if as_json:
        print_json(result)
    else:
        typer.echo("\n".join(rendered(result, rollout)))
    raise typer.Exit(result.exit_code)


@route.command()
def check(
    rollout: Annotated[
        Path | None, typer.Argument(help="The rollout file: what `route render` would write.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="In its place: the nginx.conf of a rendered folder.")
    ] = None,
    cases: Annotated[
        Path | None,
        typer.Option("--cases", help='Requests of yours: [{"name", "pool", "class", "request": {…}}, …].'),
    ] = None,
    nginx: Annotated[
        str | None, typer.Option("--nginx", help="The program; default: the one in PATH.")
    ] = None,
    run: RunOption = None,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Test the router: a real NGINX and requests, on loopback.

    On each side of every threshold there is one; --cases adds yours. Exit 1 where NGINX refuses it, or a
    request goes elsewhere.
    """
    from specops import results
    from specops.cli.progress import progress
    from specops.cli.route_page import checked
    from specops.config import load, run_folder
    from specops.errors import UsageError
    from specops.phases.route.cases import read
    from specops.phases.route.check import check_config, check_rollout

    if (rollout is None) == (config is None):
        raise UsageError(
            "route check looks at a rollout file or at a configuration, one of the two",
            hint="specops route check rollout.yaml, or --config runs/NAME/rendered/nginx/nginx.conf",
        )
    more = read(cases) if cases else []
    with progress(quiet) as shown:
        if rollout is not None:
            file = load(rollout)
            result = check_rollout(file, run_folder(rollout, file.rollout, run), more, nginx, shown)
        else:
            assert config is not None
            result = check_config(config, more, nginx, shown)
    if out is not None:
        results.write(out, result)
    if as_json:
        print_json(result)
    else:
        typer.echo("\n".join(checked(result)))
    raise typer.Exit(result.exit_code)


@route.command()
def explain(
    request: Annotated[
        Path,
        typer.Argument(help='A file with a JSON body, or {"method", "path", "headers", "body"} around it.'),
    ],
    rollout: Annotated[Path, typer.Option("--rollout", help="The rollout file.")] = Path("rollout.yaml"),
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=0, help="Requests that the speculative pool has.")
    ] = 0,
    percent: Annotated[
        float | None,
        typer.Option("--percent", min=0.0, max=100.0, help="Of the switch; default: the rollout file's."),
    ] = None,
    remote_addr: Annotated[str, typer.Option("--remote-addr", help="The client's.")] = "127.0.0.1",
    run: RunOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Explain which pool a request goes to; sends nothing.

    It runs the Lua file that NGINX runs.
    """
    from specops.cli.route_page import explained
    from specops.config import load, run_folder

    file = load(rollout)
    from specops.phases.route.explain import explain, read_request

    asked = read_request(request, remote_addr)
    found = explain(file, run_folder(rollout, file.rollout, run), asked, in_flight=in_flight, percent=percent)
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(explained(found)))
