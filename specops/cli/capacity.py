"""`specops capacity ROLLOUT`."""

from __future__ import annotations

from typing import Annotated

import typer

from specops.cli.call import Answer, RolloutCall, shared_options
from specops.quantities import MINUTES, SHARE


@shared_options()
def capacity(
    call: RolloutCall,
    objective: Annotated[
        str | None,
        typer.Option(help='Limits, such as "ttft_p95<300ms, tpot_p95<30ms"; default: `slo`.'),
    ] = None,
    attain: Annotated[
        float | None, SHARE, typer.Option(help="Share of requests that must meet all; default: 0.95.")
    ] = None,
    precision: Annotated[
        float | None, SHARE, typer.Option(help="Half-width of the ratio at which it ends; default: 0.05.")
    ] = None,
    budget: Annotated[
        float | None, MINUTES, typer.Option(help="Most time in minutes, or as 1h30m; default: 2 hours.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again; stored probes are not reused.")
    ] = False,
) -> Answer:
    """Sends both pools the same open-loop arrivals, at rates near the one where the objective is just met.

    Writes capacity.json, and resumes an earlier one. Both pools must run, or fit, at the same time.

    Exit 0 where speculation surely moves the rate up, 1 where down, 4 where it is undecided.
    """
    from pydantic import ValidationError

    from specops.config import Capacity
    from specops.errors import ServerError
    from specops.phases.capacity.document import document
    from specops.phases.capacity.phase import PHASE, with_limits
    from specops.phases.capacity.records import parse_objective
    from specops.phases.phase import PhaseInput, Skipped

    section = call.file.capacity or Capacity()
    settings = {"attain": attain, "precision": precision, "budget_min": budget}
    chosen = {name: value for name, value in settings.items() if value is not None}
    limits = {} if objective is None else parse_objective(objective, chosen.get("attain", section.attain))
    try:
        rollout = with_limits(call.file, limits, chosen)
    except ValidationError as error:
        raise call.wrong_option(error) from error
    with call.progress() as progress:
        task = PhaseInput(rollout, call.path, call.folder, progress, fresh=fresh, by_name=True)
        step = PHASE.run(task)
    if isinstance(step, Skipped):
        raise ServerError(step.reason, hint=step.hint)
    return Answer(step.result, document(step.result, step.path))
