"""The page of `launch lint`: of every command what is wrong, why, what instead, and the command corrected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specops.render.figures import count
from specops.serving import Judged


def page(judged: Sequence[Judged]) -> list[str]:
    return [line for one in judged for line in _command(one)]


def _command(one: Judged) -> Iterator[str]:
    yield f"{one.where}: {one.engine} {one.version}, {one.because}"
    for finding in one.findings:
        yield f"  {finding.level:8} {finding.flag}: {finding.why}"
        if finding.replacement:
            yield f"  {'':8} instead: {finding.replacement}"
    if not one.findings:
        yield f"  clean    nothing against it in what {one.engine} {one.version} knows"
    if one.corrected is not None:
        yield "corrected:" if not one.left else "corrected as far as possible from here:"
        yield ""
        yield from one.corrected.rstrip().splitlines()
        yield ""
    if one.left:
        flags = ", ".join(dict.fromkeys(finding.flag for finding in one.left))
        yield f"left to you: {count(len(one.left), 'error')}, about {flags}"
