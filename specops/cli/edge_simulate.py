"""`specops edge simulate`: edge drafting with servers, links and clients that are not here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.assets import asset
from specops.cli.call import Answer, AnswerOption, Call, extra, numbers, shared_options
from specops.quantities import MILLISECONDS, SHARE

if TYPE_CHECKING:
    from specops.cli.edge_simulate_inputs import PassTimes, RoundSource
    from specops.progress import Progress
    from specops.results import Result


@shared_options(out=AnswerOption)
def simulate(
    call: Call,
    rollout: Annotated[
        Path | None,
        typer.Argument(help="A rollout file with an `edge:` section. [default: the shipped edge.yaml]"),
    ] = None,
    rtt: Annotated[str, typer.Option(help="Round-trip times in ms, comma-separated.")] = "5,15,30,50,100",
    clients: Annotated[
        str, typer.Option(help="Numbers of concurrent clients, comma-separated.")
    ] = "1,4,16,64",
    jitter: Annotated[
        float, MILLISECONDS, typer.Option(min=0, help="Maximum extra delay of each direction, in ms.")
    ] = 0.0,
    depth: Annotated[
        str | None,
        typer.Option(
            help="Depth: adaptive, included:D or excluded:D. [default: the best one is searched for]"
        ),
    ] = None,
    heads: Annotated[
        int | None,
        typer.Option(
            min=0, help="Number of guessed outcomes to draft for; 0: none. [default: the file's largest]"
        ),
    ] = None,
    ahead: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Number of next trees to send before the verdict; 0: none. [default: the file's largest]",
        ),
    ] = None,
    batching: Annotated[
        str | None,
        typer.Option(help="Batching: dynamic, static:N or static:N:WAIT_MS. [default: the file's]"),
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of trees in one step. [default: the file's]")
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=0, help="Prompt tokens of each request.")] = 0,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each answer.")] = 256,
    itl_ms: Annotated[
        float | None,
        MILLISECONDS,
        typer.Option(
            help="Limit on inter-token latency, in ms. [default: that of server-only with the fewest clients]"
        ),
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help="Costs of passes: JSON as data.costs of an answer.")
    ] = None,
    verify_ms: Annotated[
        float | None, MILLISECONDS, typer.Option(help="Time of a pass of the target, in ms.")
    ] = None,
    verify_token_ms: Annotated[
        float, MILLISECONDS, typer.Option(min=0, help="Extra time for each further token, in ms.")
    ] = 0.0,
    draft_ms: Annotated[
        float | None, MILLISECONDS, typer.Option(help="Time of a draft pass at the edge, in ms.")
    ] = None,
    server_draft_ms: Annotated[
        float | None, MILLISECONDS, typer.Option(help="Time of a draft pass on the server, in ms.")
    ] = None,
    rounds: Annotated[Path | None, typer.Option(help="Rounds that --save-rounds wrote.")] = None,
    acceptance: Annotated[
        float | None,
        SHARE,
        typer.Option(min=0, max=0.99, help="Acceptance of each level, given instead of measured."),
    ] = None,
    hit: Annotated[
        float,
        SHARE,
        typer.Option(min=0, max=1, help="Share of rounds that guesses continue, with --acceptance."),
    ] = 0.2,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts over which the pair is measured.")] = 8,
    save_rounds: Annotated[
        Path | None, typer.Option(help="File for the simulated rounds, for --rounds.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Plot file, .svg or .png.")] = None,
) -> Answer:
    """Simulate the edge: depth, clients and round-trip times.

    It finds the best depth for each RTT, the clients that a server carries, and the highest RTT at which the
    edge is faster.

    A discrete-event simulation: nothing is served. Costs come from `stand_in` in the file, from --costs,
    or from options. Acceptance is measured here with the file's pair, or comes from --rounds or
    --acceptance. Exit 1 where the edge is behind server-only speculation at the lowest RTT, whatever the
    number of clients.
    """
    from specops.phases.plot import plot as draw
    from specops.render.plot import check_suffix

    if plot is not None:
        check_suffix(plot)
    with extra("edge", "simulate"):
        for name in ("torch", "simpy", "google.protobuf"):
            import_module(name)
    from specops.cli.edge_simulate_inputs import PassTimes, RoundSource
    from specops.phases.edge_simulate_document import document

    fields: dict[str, Any] = {
        "rtt_ms": numbers("--rtt", rtt, float, least=0),
        "clients": numbers("--clients", clients, int, least=1),
        "jitter_ms": jitter,
        "depth": depth,
        "heads": heads,
        "ahead": ahead,
        "batching": batching,
        "max_batch": max_batch,
        "prompt_tokens": prompt_tokens,
        "tokens": tokens,
        "itl_ms": itl_ms,
    }
    passes = PassTimes(verify_ms, verify_token_ms, draft_ms, server_draft_ms)
    brought = RoundSource(rounds, acceptance, hit, prompts)
    path = rollout or asset("playbooks", "edge.yaml")
    with call.progress() as progress:
        result = _planned(call, path, fields, costs, passes, brought, save_rounds, progress)
    if plot is not None:
        draw(result, Path("the simulation"), plot)
    return Answer(result, document(result, Path("the simulation")))


def _planned(
    call: Call,
    path: Path,
    fields: dict[str, Any],
    costs: Path | None,
    passes: PassTimes,
    brought: RoundSource,
    save_rounds: Path | None,
    progress: Progress,
) -> Result:
    from specops.cli.edge_simulate_inputs import costs_of, given_rounds, measuring, of_file, save
    from specops.config import load
    from specops.phases.edge_simulate import PlanSettings, plan, rounds_of

    file = load(path)
    options = {name: value for name, value in fields.items() if value is not None}
    settings = call.settings(PlanSettings, of_file(file) | options)
    edge_costs, costs_from = costs_of(file, path, costs, passes)
    rounds = given_rounds(brought)
    if rounds is None:
        pair = measuring(
            file, path, brought.prompts, nodes=settings.nodes, beams=settings.beams, heads=settings.heads
        )
        rounds = rounds_of(pair, progress)
    if save_rounds is not None:
        save(rounds, save_rounds)
    return plan(settings, edge_costs, costs_from, rounds, progress)
