"""`specops referee ROLLOUT`."""

from __future__ import annotations

from typing import Annotated

import typer

from specops.cli.call import Answer, RolloutCall, shared_options


@shared_options()
def referee(
    call: RolloutCall,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again; reuse no earlier result.")] = False,
) -> Answer:
    """Measures the speculative pool, which adapts, beside off and fixed settings, all up at the same time.

    Sends the load programme of the section referee to each of them in turn, and resumes an earlier run.
    Exit 0 where adapting pays, 1 where it loses, 4 where it is undecided or unknown.
    """
    from specops.phases.phase import PhaseInput, Step
    from specops.phases.referee.document import document
    from specops.phases.referee.phase import PHASE

    with call.progress() as progress:
        step = PHASE.run(PhaseInput(call.file, call.path, call.folder, progress, fresh=fresh, by_name=True))
    assert isinstance(step, Step)
    return Answer(step.result, document(step.result, step.path))
