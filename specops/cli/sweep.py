"""`specops sweep`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.call import (
    Answer,
    Call,
    RolloutCall,
    SamePromptsOption,
    names,
    numbers,
    shared_options,
)
from specops.errors import UsageError
from specops.hints import with_options
from specops.quantities import MINUTES
from specops.validation import problem

if TYPE_CHECKING:
    from specops.config import Pool, Rollout
    from specops.phases.sweep.spec import Forecast, SweepSpec
    from specops.results import Result

FILE = "sweep.json"


def _attached() -> str:
    return with_options({"--attach": "0=http://127.0.0.1:8000/v1"}) + " --attach 3=http://127.0.0.1:8001/v1"


SweepResult = Annotated[
    Path | None, typer.Option("--out", help="File of the result, or its folder; default: the run folder.")
]


@shared_options(out=SweepResult)
def sweep(
    call: RolloutCall,
    k: Annotated[
        str, typer.Option("--k", help="Values of K to try, comma-separated; 0 is always measured.")
    ] = "",
    trees: Annotated[
        str, typer.Option(help="Trees to try instead of --k (embedded engine only), comma-separated.")
    ] = "",
    concurrency: Annotated[str, typer.Option(help="Levels in streams, comma-separated.")] = "",
    temperature: Annotated[str, typer.Option(help="Sampling temperatures, comma-separated.")] = "",
    classes: Annotated[str, typer.Option(help="Traffic classes to measure, comma-separated.")] = "",
    repeats: Annotated[int | None, typer.Option(help="Requests for each prompt at each level.")] = None,
    budget: Annotated[
        float | None,
        MINUTES,
        typer.Option(help="Time budget in minutes or as 1h30m. Without it, the full grid is measured."),
    ] = None,
    attach: Annotated[
        list[str] | None, typer.Option(help="K=URL[#MODEL], an endpoint that runs already; 0 is needed.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Address of Ray: ray://HOST:10001, HOST:6379, local; default: sweep.cluster."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would be measured, and stop.")] = False,
    same_prompts: SamePromptsOption = False,
    plot: Annotated[Path | None, typer.Option(help="Plot file, .svg or .png.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again; stored measurements are not reused.")
    ] = False,
) -> Answer:
    """Measures K = 0 and each setting at each level. Writes sweep.json, and resumes an earlier one.

    Exit 0 where a setting pays, 1 where none does, 4 where it is undecided.
    """
    from specops.phases.sweep.spec import spec_of

    file = _overridden(
        call.file,
        {
            "k": numbers("--k", k, int) if k else None,
            "trees": re.split(r",(?=[a-z])", trees) if trees else None,  # an expansion has commas of its own
            "concurrency": numbers("--concurrency", concurrency, int) if concurrency else None,
            "temperature": numbers("--temperature", temperature, float) if temperature else None,
            "budget_min": budget,
        },
        {"classes": names(classes) or None, "repeats": repeats, "same_prompts": same_prompts or None},
    )
    from specops.phases.plot import plot as draw
    from specops.phases.sweep.document import document
    from specops.render.plot import check_suffix

    if plot is not None:
        check_suffix(plot)
    out = call.folder
    path = out if out.suffix == ".json" and not out.is_dir() else out / FILE
    spec = spec_of(file, call.path.parent, _endpoints(attach or [], file))
    if plan:
        from specops.phases.sweep.spec import forecast

        planned = forecast(spec, path)
        return Answer(planned, _plan(planned, path))
    result = _swept(call, spec, path, on or file.sweep.cluster, fresh=fresh)
    if plot is not None:
        draw(result, path, plot)
    return Answer(result, document(result, path))


EXAMPLES = {"trees": "chain:3,chain:5", "k": "3,5", "temperature": "0,1", "repeats": "2", "budget": "30"}
"""A right value of each option that sets a list or a number, other than a list of concurrencies."""


def _overridden(file: Rollout, of_sweep: dict[str, Any], of_measure: dict[str, Any]) -> Rollout:
    """The rollout with the options that were given; UsageError by the name of one that makes no sense."""
    from pydantic import ValidationError

    from specops.config import Measure, Sweep

    def specified(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if value is not None}

    written = file.sweep.model_dump()
    if of_sweep["k"]:
        written["trees"] = None
    try:
        requested = Sweep.model_validate(written | specified(of_sweep))
        measure = Measure.model_validate(file.measure.model_dump() | specified(of_measure))
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).removesuffix("_min")
        raise UsageError(
            f"could not use the options: --{option} {problem(first)}",
            hint=with_options({f"--{option}": EXAMPLES.get(option, "1,4,8")}),
        ) from None
    return file.model_copy(update={"sweep": requested, "measure": measure})


def _endpoints(attach: list[str], file: Rollout) -> dict[int, Pool]:
    """Return the endpoints by K; those without a model's name are queried for it."""
    from specops.access import OPEN
    from specops.load.client import only_model
    from specops.load.settings import checked_base_url
    from specops.phases.inputs import settings_of
    from specops.serving import pool_at

    requested = settings_of(file, file.pools.standard)

    endpoints: dict[int, Pool] = {}
    for text in attach:
        number, _, place = text.partition("=")
        address, _, model = place.partition("#")
        if not number.isdecimal():
            raise UsageError(f"{text!r} does not begin with a K", hint=_attached())
        if int(number) in endpoints:
            raise UsageError(f"K = {number} is attached twice: expected one endpoint a K", hint=_attached())
        try:
            base_url = checked_base_url(address)
        except ValueError as error:
            raise UsageError(f"{address} is not a usable address: it {error}", hint=_attached()) from None
        # The endpoint of K = 0 stands for the standard pool, and any other for the speculative one.
        own_endpoint = (file.pools.speculative if int(number) else file.pools.standard).endpoint
        pool = pool_at(base_url, model, OPEN if own_endpoint is None else own_endpoint.access)
        if not model:
            endpoint = requested.at(pool.endpoint, f"K = {number}")
            model = only_model(endpoint.target(), endpoint.decoding())
            pool = pool.model_copy(update={"model": model})
        same = next((k for k, attached in endpoints.items() if attached == pool), None)
        if same is not None:
            raise UsageError(
                f"K = {same} and K = {number} are one server: {base_url} serving {model}",
                hint=_attached(),
            )
        endpoints[int(number)] = pool
    return endpoints


def _swept(call: Call, spec: SweepSpec, path: Path, on: str | None, *, fresh: bool) -> Result:
    from specops import results
    from specops.phases.measurement import partial_results, resumable
    from specops.phases.sweep.measure import machines
    from specops.phases.sweep.plan import measurements_of
    from specops.phases.sweep.spec import samples_of
    from specops.phases.sweep.sweep import sweep

    earlier, _ = samples_of(path)
    previous = resumable(path, "sweep", spec.inputs, measurements_of, fresh=fresh, hint={"--fresh": True})
    with call.progress() as progress:

        def set_aside() -> None:
            if path.exists():
                progress.note(f"the earlier sweep is now {results.set_aside(path)}")

        with partial_results(path, progress, resumed=previous is not None, before_first=set_aside) as keep:
            with machines(spec, on, path.parent / "logs" / "sweep", progress) as executor:
                result = sweep(spec, executor, progress, previous=previous, earlier=earlier, on_partial=keep)
            keep(result)
    return result


def _plan(plan: Forecast, path: Path) -> list[str]:
    from specops.render.figures import aligned, count

    def seconds(value: float | None) -> str:
        return "" if value is None else f"about {value / 60:.1f} min"

    rows = [
        [
            f"  rung {rung.rung + 1}",
            count(rung.starts, "server start"),
            count(rung.cells, "cell"),
            count(rung.requests, "request"),
            seconds(rung.seconds),
        ]
        for rung in plan.rungs
    ]
    if plan.seconds is None:
        time = "unknown, no baseline.json or sweep.json in the run folder"
    else:
        without = ", and the starts of its servers, which were not timed yet" if plan.without_starts else ""
        time = f"{seconds(plan.seconds)} by the earlier {plan.known_from}{without}"
    if plan.budget_min is not None:
        time += f"; later rungs depend on the results (budget {plan.budget_min:g} min)"
    return [
        f"settings  {', '.join(plan.settings)}",
        f"loads     {'; '.join(plan.loads)}",
        f"prompts   {', '.join(f'{number} of {name}' for name, number in plan.prompts.items())}",
        *aligned(rows),
        f"time      {time}",
        f"result    {path}",
    ]
