"""What a command asks of the model runner that it will have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from specops.serving.vllm.execution import PIN, REFUSED, execution
from specops.serving.vllm.given import CONFIG, SHORTCUTS, Given
from specops.serving.vllm.rules.rule import Found, of_flag
from specops.serving.vllm.versions import Release


def runner(given: Given, release: Release) -> Iterator[Found]:
    chosen = execution(given, release).runner
    if chosen.value == REFUSED:
        why = f"{chosen.why}: vLLM {release.version} refuses to start"
        yield of_flag("error", PIN, why, f"leave {PIN} out, or set it to the other", _unpinned)
    elif given.speculates and chosen.value is not None and PIN in release.variables:
        plain = execution(_without_speculation(given), release).runner
        if plain.value is not None and plain.value != chosen.value:
            why = (
                f"it runs on Model Runner {chosen.value} ({chosen.why}), and a pool without speculation on "
                f"{plain.value}: a comparison of the two includes the runner"
            )
            pin = f"{PIN}={int(chosen.value == 'V2')} in the environment of the pool without speculation"
            yield of_flag("note", CONFIG, why, pin)


def asynchronous(given: Given, release: Release) -> Iterator[Found]:
    chosen = execution(given, release).asynchronous
    if chosen.value == REFUSED:
        why = f"{chosen.why}: vLLM {release.version} refuses to start"
        yield of_flag(
            "error", "--async-scheduling", why, "leave it out", lambda g: g.without("--async-scheduling")
        )


def _unpinned(given: Given) -> Given:
    assigned = [word for word in given.program if word.startswith(f"{PIN}=")]
    around = {name: value for name, value in given.around.items() if name != PIN}
    for word in assigned:
        given = given.without_assignment(word)
    return replace(given, around=around)


def _without_speculation(given: Given) -> Given:
    options = tuple(o for o in given.options if o.flag not in (CONFIG, *SHORTCUTS))
    return replace(given, options=options, keys=None, opaque=False, unread=None)
