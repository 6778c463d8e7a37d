"""How sure the standard was of its token where another answer begins to differ from its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from specops.experiment import answers
from specops.experiment.records import Margin, Place, WindowRecord
from specops.load.target_server import TargetServer
from specops.load.workload import Prompt

MOST_MARGINS = 32
"""Most places whose margins are requested: beyond so many differences, their share decides."""


def places_needed(
    windows: Sequence[WindowRecord],
    standard: str,
    challengers: Iterable[str],
    margins: Mapping[Place, object],
) -> list[Place]:
    """Return where greedy answers of `challengers` differ and the standard's margin is not in `margins`."""
    originals = answers.greedy_answers(windows, standard)
    greedy = [
        answers.compare_greedy(originals, answers.greedy_answers(windows, name)) for name in challengers
    ]
    places = dict.fromkeys(difference.place for arm in greedy for difference in arm.differences)
    missing = [place for place in places if place not in margins]
    return missing[: max(0, MOST_MARGINS - len(margins))]


async def request_margins(
    standard: TargetServer, places: Iterable[Place], prompt_of: Callable[[str, str], Prompt]
) -> AsyncIterator[Margin]:
    """Yield the margin at each place. `prompt_of` takes a prompt's id and its variant."""
    characters: dict[tuple[str, str], list[int]] = defaultdict(list)
    for prompt, variant, character in places:
        characters[prompt, variant].append(character)
    for (prompt, variant), differing in characters.items():
        await standard.pace.turn()
        tokens = await standard.client.likeliest(replace(prompt_of(prompt, variant), temperature=0.0))
        for character in differing:
            nats = answers.margin_at(tokens, character)
            yield Margin(prompt=prompt, variant=variant, character=character, nats=nats)
