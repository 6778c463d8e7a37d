"""`specops diagnose ROLLOUT`: why it is slow, or odd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.call import Answer, RolloutCall, completing, nearest, shared_options
from specops.hints import with_options

if TYPE_CHECKING:
    from specops.phases.diagnose.finding import Symptom


def _choices() -> tuple[Symptom, ...]:
    from typing import get_args

    from specops.phases.diagnose.finding import Symptom

    return get_args(Symptom)


@shared_options()
def diagnose(
    call: RolloutCall,
    symptom: Annotated[
        list[str] | None,
        typer.Option(
            help="slower, acceptance, bursts, vocabulary, answers or watching; again for more. Default: all.",
            autocompletion=completing(_choices),
        ),
    ] = None,
    requests: Annotated[
        bool,
        typer.Option(help="Send a few streamed requests to the speculative pool, to see how text comes."),
    ] = True,
) -> Answer:
    """Every question gets an answer: a cause with its fix, ruled out, or the missing evidence. Writes
    diagnose.json. Exit 0 where nothing is wrong, 1 where something is, 4 where a check has no evidence.
    """
    from datetime import UTC, datetime

    from specops import results
    from specops.phases.diagnose import FILE, diagnose
    from specops.phases.diagnose.collectors import gather
    from specops.phases.diagnose.document import document

    symptoms = _symptoms(symptom or [])
    with call.progress() as progress:
        observed = gather(call.file, call.folder, datetime.now(UTC), progress, requests=requests)
    result = diagnose(observed, symptoms, call.commands.place, call.commands.sweep())
    results.write(call.folder / FILE, result)
    return Answer(result, document(result, call.folder / FILE))


def _symptoms(requested: list[str]) -> list[Symptom]:
    from specops.errors import UsageError

    choices = _choices()
    for name in requested:
        if name not in choices:
            raise UsageError(
                f"there is no symptom {name!r}: expected {', '.join(choices)}",
                hint=with_options({"--symptom": nearest(name, choices)}),
            )
    return [name for name in choices if name in requested]
