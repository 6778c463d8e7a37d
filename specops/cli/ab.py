"""`specops ab`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.call import (
    Answer,
    ArrivalOptions,
    Call,
    LoadOptions,
    ResultOption,
    names,
    shared_options,
)
from specops.defaults import CONFIDENCE
from specops.quantities import SECONDS

if TYPE_CHECKING:
    from specops.experiment.arms import Arm
    from specops.load.settings import BaselineSettings
    from specops.phases.ab.settings import AbSettings
    from specops.results import Result

DEFAULT_OUT = Path("ab.json")


@shared_options(out=ResultOption, default_out=DEFAULT_OUT)
def ab(
    call: Call,
    arm: Annotated[
        list[str],
        typer.Option(
            help="NAME=SPEC, the standard first. SPEC: http://HOST/v1[#MODEL][,api_key_env=VARIABLE], "
            "embedded[:TREE][,KEY=VALUE], or command:WORDS with {port} among them."
        ),
    ],
    design: Annotated[
        str,
        typer.Option(
            help="Design: interleaved (all arms up, in turn) or abba-restart (one arm up at a time, in turn)."
        ),
    ] = "interleaved",
    looks: Annotated[
        int | None,
        typer.Option(
            help="Number of interim looks; the run stops once it is decided; default: 4, abba-restart: 1."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Confidence level of the whole table; 0.95 is 95%.")
    ] = CONFIDENCE,
    classes: Annotated[
        str, typer.Option(help="Traffic classes to compare, comma-separated; default: all.")
    ] = "",
    repeats: Annotated[int, typer.Option(help="How often abba-restart starts each arm.")] = 2,
    warmup: Annotated[int, typer.Option(help="Unmeasured requests to each arm before each level.")] = 4,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 checks parity too.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of order and sampling.")] = 0,
    max_error_share: Annotated[
        float, typer.Option(help="Share of failed requests, 0 to 1, above which an arm has failed.")
    ] = 0.05,
    requests: Annotated[int, typer.Option(help="Most requests to each arm; fewer once it is settled.")] = 750,
    min_duration: Annotated[
        float,
        SECONDS,
        typer.Option(help="Least time of observation before a yes, in seconds or as 2m."),
    ] = 120.0,
    length_margin: Annotated[
        float, typer.Option(help="Share by which answers may differ in length and count as equally long.")
    ] = 0.03,
    accept_length_change: Annotated[
        bool,
        typer.Option(
            "--accept-length-change", help="Deploy although answers are longer or shorter, by time per token."
        ),
    ] = False,
    failure_margin: Annotated[
        float, typer.Option(help="Share of failed, refused or late requests beyond the standard's.")
    ] = 0.01,
    answer_margin: Annotated[
        float, typer.Option(help="Share of unacceptable answers beyond the standard's.")
    ] = 0.05,
    mixed_prompts: Annotated[
        int, typer.Option(help="Temperature-0 requests repeated among sampled ones, a cycle; 0: none.")
    ] = 4,
    prefix_share: Annotated[
        float,
        typer.Option(help="Share of prompts and conversations, 0 to 1, that begin with one shared prefix."),
    ] = 0.0,
    prefix_tokens: Annotated[int, typer.Option(help="Length of the shared prefix, in tokens.")] = 512,
    cold_share: Annotated[
        float,
        typer.Option(help="Share of conversations, 0 to 1, of which no cache knows an earlier turn."),
    ] = 0.0,
    live_answers: Annotated[
        bool,
        typer.Option(
            "--live-answers", help="Later turns follow on each arm's own answers, not on recorded ones."
        ),
    ] = False,
    same_server: Annotated[
        bool,
        typer.Option("--same-server", help="A/A: all arms are one running server; reports the tool's noise."),
    ] = False,
    against: Annotated[Path | None, typer.Option(help="Earlier ab.json to compare with.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Plot file, .svg or .png.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compare again; stored measurements are not reused.")
    ] = False,
    *,
    load: LoadOptions,
    arriving: ArrivalOptions,
) -> Answer:
    """Sends the same prompts to all arms. Writes ab.json, and resumes an earlier one.

    Exit 0 where a class may be deployed, 1 where none may, 4 where it is undecided.
    """
    assert call.out is not None
    from specops import results
    from specops.experiment.arms import parse_arms
    from specops.load.settings import BaselineSettings
    from specops.phases.ab.document import document
    from specops.phases.ab.settings import LOOKS, AbSettings

    arms = parse_arms(arm)
    fields: dict[str, Any] = {
        "base_url": "http://127.0.0.1:0/v1",  # each arm's own takes its place, and so the model's name
        "model": "",
        "classes": names(classes),
        "repeats": repeats,
        "warmup": warmup,
        "temperature": temperature,
        "seed": seed,
        "max_error_share": max_error_share,
    }
    requested = call.settings(BaselineSettings, load.settings() | arriving.settings() | fields)
    settings = call.settings(
        AbSettings,
        {
            "design": design,
            "looks": LOOKS.get(design, 1) if looks is None else looks,
            "confidence": confidence,
            "length_margin": length_margin,
            "accept_length_change": accept_length_change,
            "requests": requests,
            "min_duration_s": min_duration,
            "failure_margin": failure_margin,
            "answer_margin": answer_margin,
            "mixed_prompts": mixed_prompts,
            "prefix_share": prefix_share,
            "prefix_tokens": prefix_tokens,
            "cold_share": cold_share,
            "live_answers": live_answers,
            "same_server": same_server,
        },
    )
    from specops.phases.plot import plot as draw
    from specops.render.plot import check_suffix

    if plot is not None:
        check_suffix(plot)
    recorded = _recorded(against, requested, arms) if against else None
    from specops.phases.ab.measure import compare_into

    with call.progress() as progress:
        result = compare_into(call.out, arms, requested, settings, progress, fresh=fresh)
    if against and recorded:
        result = _held_against(recorded, result, against, settings)
        results.write(call.out, result)
    if plot is not None:
        draw(result, call.out, plot)
    return Answer(result, document(result, call.out))


def _recorded(path: Path, requested: BaselineSettings, arms: list[Arm]) -> Result:
    """The earlier comparison; UsageError, before anything is measured, where it compared something else."""
    from specops import results
    from specops.phases.ab.earlier import refuse_unlike

    recorded = results.read(path)
    refuse_unlike(
        recorded, str(path), requested.prompt_set().sha256, requested.plan(), [arm.name for arm in arms]
    )
    return recorded


def _held_against(recorded: Result, now: Result, path: Path, settings: AbSettings) -> Result:
    from specops.phases.ab.earlier import against

    comparison = against(recorded, now, str(path), settings.confidence)
    return now.model_copy(update={"data": now.data | {"against": comparison.model_dump(mode="json")}})
