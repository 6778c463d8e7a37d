"""`specops edge simulate`: edge drafting with servers, links and clients that are not here."""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.assets import asset
from specops.cli.call import Answer, AnswerOption, Call, shared_options
from specops.cli.options import extra
from specops.errors import UsageError

if TYPE_CHECKING:
    from specops.progress import Progress
    from specops.results import Result
import json
from dataclasses import dataclass

from specops.config import Rollout
from specops.edge.simulation import paper
from specops.edge.simulation.model import EdgeCosts, straight
from specops.edge.simulation.rounds import Rounds, of_rates
from specops.errors import FileError
from specops.phases.edge_simulate import Measuring
from specops.render.figures import NONE, aligned, count, milliseconds, percent, sentence
from specops.results import Result

LEVELS = 10
"""Of trees whose acceptance is given as one number."""


@dataclass(frozen=True)
class Passes:
    """In milliseconds; None where it was not said."""

    verify: float | None
    verify_token: float
    draft: float | None
    server_draft: float | None
    """None: as at the edge."""


@dataclass(frozen=True)
class Brought:
    """Where rounds are from: a file, one number, or else the pair, over so many prompts."""

    file: Path | None
    acceptance: float | None
    hit: float
    prompts: int


def costs_of(file: Rollout, path: Path, costs: Path | None, passes: Passes) -> tuple[EdgeCosts, str]:
    """And where they are from: --costs, the options, or the file's stand_in, whichever is there first."""
    if costs is not None:
        if (passes.verify, passes.draft, passes.server_draft) != (None, None, None):
            raise UsageError(
                "--costs and passes by options are two answers to one question", hint="give one of them"
            )
        return EdgeCosts.of_json(_read(costs), str(costs)), str(costs)
    if passes.verify is not None and passes.draft is not None:
        own = passes.draft if passes.server_draft is None else passes.server_draft
        verify = straight(passes.verify / 1000, passes.verify_token / 1000)
        return EdgeCosts(straight(passes.draft / 1000), verify, straight(own / 1000)), "the options"
    if passes.verify is not None or passes.draft is not None or passes.server_draft is not None:
        raise UsageError("costs need both --verify-ms and --draft-ms", hint="give both, or --costs")
    if file.edge is None or file.edge.stand_in is None:
        raise UsageError(
            f"{path} declares no costs of passes",
            hint="add edge.stand_in to it, or give --verify-ms and --draft-ms",
        )
    declared = file.edge.stand_in
    draft, verify, server_draft = (
        straight(one.pass_ms / 1000, one.token_ms / 1000)
        for one in (declared.edge_draft, declared.verify, declared.server_draft)
    )
    return EdgeCosts(draft, verify, server_draft), f"edge.stand_in of {path.name}"


def given_rounds(brought: Brought) -> Rounds | None:
    """None: they are to be measured."""
    if brought.file is not None and brought.acceptance is not None:
        raise UsageError("--rounds and --acceptance are two answers to one question", hint="give one of them")
    if brought.file is not None:
        return Rounds.of_json(_read(brought.file), str(brought.file))
    if brought.acceptance is None:
        return None
    source = f"{brought.acceptance:g} at every level, guesses hit in {brought.hit:g} of the rounds"
    return of_rates([brought.acceptance] * LEVELS, hit=brought.hit, hit_many=brought.hit, source=source)


def measuring(file: Rollout, path: Path, prompts: int, *, nodes: int, beams: int, heads: int) -> Measuring:
    own = file.pools.speculative.own
    if own is None or own.tree is None or own.draft is None:
        raise UsageError(
            f"the speculative pool of {path} is no embedded pair of two models, and others cannot be measured"
            " here",
            hint="give --rounds or --acceptance",
        )
    return Measuring(
        target=own.target,
        draft=Path(own.draft),
        prompts=file.prompts or asset("playbooks", "embedded", "prompts.json"),
        count=prompts,
        nodes=nodes,
        beams=beams,
        heads=max(heads, 2),
    )


def of_file(file: Rollout) -> dict[str, Any]:
    """Settings that the rollout file has; prices that it lacks are the paper's."""
    fields: dict[str, Any] = {
        "server_per_hour": paper.PRICES.server_per_hour,
        "edge_per_hour": paper.PRICES.edge_per_hour,
    }
    if file.costs is not None:
        fields["server_per_hour"] = file.costs.speculative
        if file.costs.edge_per_hour is not None:
            fields["edge_per_hour"] = file.costs.edge_per_hour
    if file.edge is not None:
        fields |= {
            "nodes": file.edge.nodes,
            "beams": file.edge.beams,
            "heads": max(file.edge.heads),
            "ahead": max(file.edge.ahead),
            "batching": file.edge.batching,
        }
    own = file.pools.speculative.own
    if own is not None:
        fields["max_batch"] = own.max_batch
    return fields


def save(rounds: Rounds, path: Path) -> None:
    try:
        path.write_text(json.dumps(rounds.to_json(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(f"could not write {path}: {error.strerror}", hint="give another path") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(
            f"could not read {path}: {getattr(error, 'strerror', None) or error}",
            hint="give the path of a file that specops wrote",
        ) from error


BESIDE_PAPER = {"paper", "as_json", "out", "quiet", "debug"}


@shared_options(out=AnswerOption)
def simulate(
    call: Call,
    rollout: Annotated[
        Path | None,
        typer.Argument(help="A rollout file with an `edge:` section. [default: the shipped edge.yaml]"),
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="SpecEdge's published costs, beside its published figures.")
    ] = False,
    rtt: Annotated[str, typer.Option(help="Round trips in ms, by commas.")] = "5,15,30,50,100",
    clients: Annotated[str, typer.Option(help="Streams at a time, by commas.")] = "1,4,16,64",
    jitter: Annotated[float, typer.Option(min=0, help="ms that each way takes more, at most.")] = 0.0,
    depth: Annotated[
        str | None, typer.Option(help="adaptive, included:D or excluded:D. [default: the best is looked for]")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(min=0, help="Guesses drafted on from; 0: none. [default: the file's most]")
    ] = None,
    ahead: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Next trees sent before it is known which it is; 0: none. [default: the file's most]",
        ),
    ] = None,
    batching: Annotated[
        str | None, typer.Option(help="dynamic, static:N or static:N:WAIT_MS. [default: the file's]")
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(min=1, help="Trees of a step. [default: the file's]")
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=0, help="Prompt tokens of each request.")] = 0,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each answer.")] = 256,
    itl_ms: Annotated[
        float | None,
        typer.Option(
            help="Inter-token latency that clients may have. [default: server-only's with the fewest]"
        ),
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help="Costs of passes: JSON as data.costs of an answer.")
    ] = None,
    verify_ms: Annotated[float | None, typer.Option(help="Time of a target's pass.")] = None,
    verify_token_ms: Annotated[float, typer.Option(min=0, help="Time for each token more.")] = 0.0,
    draft_ms: Annotated[float | None, typer.Option(help="Time of a draft's pass at the edge.")] = None,
    server_draft_ms: Annotated[float | None, typer.Option(help="Time of a draft's pass, server.")] = None,
    rounds: Annotated[Path | None, typer.Option(help="Rounds that --save-rounds wrote.")] = None,
    acceptance: Annotated[
        float | None,
        typer.Option(min=0, max=0.99, help="Acceptance of each level, not measured."),
    ] = None,
    hit: Annotated[
        float, typer.Option(min=0, max=1, help="Share of rounds that guesses continue, with --acceptance.")
    ] = 0.2,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts over which the pair is measured.")] = 8,
    save_rounds: Annotated[Path | None, typer.Option(help="Keep the rounds that are simulated.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: .svg or .png.")] = None,
) -> Answer:
    """Simulate the edge: depth, clients and round-trip times.

    It finds the best depth for each RTT, the clients that a server carries, and the highest RTT at which the
    edge is faster.

    A discrete-event simulation: nothing is served. Costs are the file's `stand_in`, others (--costs) or
    the options'; what rounds bring is measured on the file's pair, here, or given. Exit 1 where the edge
    is behind server-only speculation at the lowest RTT, whatever the number of clients.
    """
    from specops.phases.plot import plot as draw
    from specops.render.plot import check_suffix

    if plot is not None:
        check_suffix(plot)
    with extra("edge", "simulate"):
        for name in ("torch", "simpy", "google.protobuf"):
            import_module(name)
    from specops.phases.edge_simulate import replay_paper

    if paper:
        _refuse_beside_paper(call.context)
        with call.progress() as shown:
            result = replay_paper(shown)
    else:
        fields: dict[str, Any] = {
            "rtt_ms": _numbers("--rtt", rtt, float, least=0),
            "clients": _numbers("--clients", clients, int, least=1),
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
        passes = Passes(verify_ms, verify_token_ms, draft_ms, server_draft_ms)
        brought = Brought(rounds, acceptance, hit, prompts)
        path = rollout or asset("playbooks", "edge.yaml")
        with call.progress() as shown:
            result = _planned(call, path, fields, costs, passes, brought, save_rounds, shown)
    if plot is not None:
        draw(result, Path("the simulation"), plot)
    return Answer(result, paper_page(result) if paper else page(result))


def _refuse_beside_paper(context: typer.Context) -> None:
    for option in context.command.params:
        if option.name is None or option.name in BESIDE_PAPER:
            continue
        source = context.get_parameter_source(option.name)
        if source is not None and source.name == "COMMANDLINE":
            named = max(option.opts, key=len) if option.param_type_name == "option" else "the rollout file"
            raise UsageError(
                f"--paper has its own costs, pair and settings, and {named} says nothing to them",
                hint=f"leave {named} out",
            )


def _planned(
    call: Call,
    path: Path,
    fields: dict[str, Any],
    costs: Path | None,
    passes: Passes,
    brought: Brought,
    save_rounds: Path | None,
    shown: Progress,
) -> Result:
    from specops.config import load
    from specops.phases.edge_simulate import PlanSettings, plan, rounds_of

    file = load(path)
    given = {name: value for name, value in fields.items() if value is not None}
    settings = call.settings(PlanSettings, of_file(file) | given)
    found, costs_from = costs_of(file, path, costs, passes)
    rounds = given_rounds(brought)
    if rounds is None:
        pair = measuring(
            file, path, brought.prompts, nodes=settings.nodes, beams=settings.beams, heads=settings.heads
        )
        rounds = rounds_of(pair, shown)
    if save_rounds is not None:
        save(rounds, save_rounds)
    return plan(settings, found, costs_from, rounds, shown)


def _numbers(option: str, text: str, kind: type[int] | type[float], *, least: int) -> list[float]:
    hint = f"such as {option} 5,15,50"
    try:
        found = [kind(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} takes numbers by commas, not {text!r}", hint=hint) from None
    if not all(least <= number < math.inf for number in found):
        raise UsageError(f"{option} takes numbers from {least} on, not {text!r}", hint=hint)
    return found


def page(result: Result) -> list[str]:
    """Of a plan."""
    data = result.data
    settings = result.settings
    guesses = {0: "no guess", 1: "one guess, as in the paper,"}.get(
        settings["heads"], f"{settings['heads']} guesses"
    )
    return [
        f"simulated  trees of up to {settings['nodes']} nodes, {guesses} drafted on from while they are away,"
        f"{' the trees below them sent ahead,' if _sends_ahead(result) else ''}"
        f" batching {settings['batching']}",
        f"costs      {data['costs_from']}",
        f"rounds     {data['rounds']['source']}",
        f"prices     {settings['server_per_hour']:g} an hour for the server,"
        f" {settings['edge_per_hour']:g} for each edge",
        "",
        *_cells(data, ahead=_sends_ahead(result)),
        "",
        *_carried(data),
        "",
        *_even(data),
        "",
        sentence(result.reason),
        "Nothing was served: passes take the times above, streams walk the texts that were measured (where",
        "shares were given, rounds are independent draws), and a reused tree counts as a new one.",
        *(AHEAD if _sends_ahead(result) else ["Every round goes there and back: none is sent ahead."]),
    ]


AHEAD = [
    "hits: rounds after which the next tree had been begun; ahead: those after which it had been sent, and",
    "the server went on at once. A tree that was begun and is worth it is taken to be among those sent.",
]


def _sends_ahead(result: Result) -> bool:
    return bool(result.settings["heads"] and result.settings["ahead"])


def _cells(data: dict[str, Any], *, ahead: bool) -> list[str]:
    served = {one["clients"]: one for one in data["served"]}
    rows = [
        [
            *("RTT", "clients", "best depth", "ITL", "p95", "× server-only", "tokens/s", "× server-only"),
            *("idle", "batch", "hits", *(["ahead"] if ahead else []), "× tokens for money"),
        ]
    ]
    for cell in data["cells"]:
        figures = cell["figures"]
        rows.append(
            [
                f"{cell['rtt_ms']:g} ms",
                str(cell["clients"]),
                cell["setting"]["depth"],
                _ms(figures["itl_ms"]),
                _ms(figures["itl_p95_ms"]),
                f"{cell['itl_ratio']:.2f}",
                f"{figures['tokens_per_s']['mean']:.0f}",
                f"{cell['throughput_ratio']:.2f}",
                _share(figures["idle"]),
                f"{figures['batch']['mean']:.1f}",
                _share(figures["hit_rate"]),
                *([_share(figures["taken"])] if ahead else []),
                NONE if cell["cost_ratio"] is None else f"{cell['cost_ratio']:.2f}",
            ]
        )
    table = aligned(rows)
    rows = [["server-only", "best depth", "ITL", "tokens/s", "autoregressive", "tokens/s"]]
    for clients, one in served.items():
        own, plain = one["server_only"], one["autoregressive"]
        rows.append(
            [
                count(clients, "client"),
                own["setting"]["depth"],
                _ms(own["figures"]["itl_ms"]),
                f"{own['figures']['tokens_per_s']['mean']:.0f}",
                _ms(plain["figures"]["itl_ms"]),
                f"{plain['figures']['tokens_per_s']['mean']:.0f}",
            ]
        )
    return [*table, "", *aligned(rows)]


def _carried(data: dict[str, Any]) -> list[str]:
    bound = data["itl_bound_ms"]
    rows = [["RTT", "idle below 10%", f"carries within {bound:.1f} ms a token"]]
    for at in data["at_rtt"]:
        busy = (
            "more clients than simulated"
            if at["busy_from"] is None
            else f"from {count(at['busy_from'], 'client')} on"
        )
        carried = "none" if at["carried"] is None else count(at["carried"], "client")
        if at["carried_all"]:
            carried += " and maybe more"
        rows.append([f"{at['rtt_ms']:g} ms", busy, carried])
    return aligned(rows)


def _even(data: dict[str, Any]) -> list[str]:
    rows = [["clients", "ahead of server-only in inter-token latency"]]
    for even in data["even"]:
        at = even["rtt_ms"]
        words = {
            "behind at all": "at no RTT that was simulated",
            "ahead at all": "at every RTT that was simulated",
        }
        rows.append([str(even["clients"]), words.get(at) or f"below {at:.0f} ms"])
    return aligned(rows)


def paper_page(result: Result) -> list[str]:
    """Published beside simulated, under each assumption that was tried."""
    published, cases = result.data["published"], result.data["cases"]
    base, fitted, *tried = cases
    rows = [["", "published", "simulated", "differs by", f"at {fitted['server_draft_ms']:.1f} ms"]]
    for name, wanted in (("throughput", "server throughput"), ("cost_efficiency", "cost efficiency")):
        rows.append(
            [
                wanted,
                f"{published[name]:.2f}×",
                f"{base[name]:.2f}×",
                percent(base[name] / published[name]),
                f"{fitted[name]:.2f}×",
            ]
        )
    for name, wanted in (
        ("itl_change", "inter-token latency"),
        ("proactive", "tokens of a verification, one head"),
    ):
        points = 100 * (base[name] - published[name])
        rows.append(
            [
                wanted,
                f"{100 * published[name]:+.2f}%",
                f"{100 * base[name]:+.2f}%",
                f"{points:+.1f} points",
                f"{100 * fitted[name]:+.2f}%",
            ]
        )
    ahead = [f"below {published['ahead_below_ms']:.0f} ms", _crossing(base), "", _crossing(fitted)]
    dollars = [f"{published['dollars']['edge']:.1f}", f"{base['dollars']:.1f}"]
    off = percent(base["dollars"] / published["dollars"]["edge"])
    rows.append(["ahead of server-only", *ahead])
    rows.append(["USD for a million tokens", *dollars, off, f"{fitted['dollars']:.1f}"])
    others = [["server draft pass", "head hits", "throughput", "cost", "ITL", "proactive", "ahead"]]
    for case in (base, fitted, *tried):
        others.append(
            [
                f"{case['server_draft_ms']:.1f} ms",
                f"{100 * case['hit']:.0f}%",
                f"{case['throughput']:.2f}×",
                f"{case['cost_efficiency']:.2f}×",
                f"{100 * case['itl_change']:+.1f}%",
                f"{100 * case['proactive']:+.1f}%",
                _crossing(case),
            ]
        )
    given, pass_ms = published, f"{fitted['server_draft_ms']:.1f} ms"
    return [
        "SpecEdge (arXiv 2505.17052), Qwen3-32B with Qwen3-1.7B, two edges to a server, one tree a step",
        f"published  verify {given['verify_ms']:g} ms, a draft pass at the edge {given['draft_ms']:g} ms,"
        f" RTT {given['rtt_ms']:g} ms",
        f"inferred   acceptance of a level, {base['rate']:.3f}: from what server-only costs "
        f"({published['dollars']['server-only']:g} USD for a million tokens)",
        f"assumed    a draft pass takes {base['server_draft_ms']:g} ms on the server too; the head hits in "
        f"{100 * base['hit']:.0f}% of the rounds",
        "",
        *aligned(rows),
        "",
        "What the assumptions decide:",
        *aligned(others),
        "",
        sentence(result.reason),
        "",
        "Why it differs: what a draft pass takes on the server was not found published. The longer it is,",
        "the higher acceptance must have been for server-only to cost what it did, and the more the edge",
        f"gains; one value, {pass_ms}, fitted to the throughput, gives cost and latency too. What",
        "proactive drafting gains in tokens comes out too low: here levels are accepted independently of",
        "each other, while in a text what is easy comes together, and there a head hits and a deeper tree is",
        "accepted. Published figures are means over pairs and tasks, these are of one pair.",
    ]


def _crossing(case: dict[str, Any]) -> str:
    at = case["even_ms"]
    words = {"behind at all": "at no RTT", "ahead at all": "at every RTT"}
    return words.get(at) or f"below {at:.0f} ms"


def _ms(figure: dict[str, float] | None) -> str:
    return milliseconds(None if figure is None else figure["mean"])


def _share(figure: dict[str, float] | None) -> str:
    return NONE if figure is None else f"{100 * figure['mean']:.0f}%"
