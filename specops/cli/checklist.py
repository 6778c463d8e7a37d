"""`specops checklist ROLLOUT`, and `specops checklist attest ITEM ROLLOUT --by NAME`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import typer

from specops.cli.call import Answer, DefaultCommandGroup, RolloutCall, completing, shared_options
from specops.hints import with_options
from specops.phases.measurement import checked
from specops.render.figures import sentence
from specops.results import Result

if TYPE_CHECKING:
    from specops.phases.checklist.evidence import Item

checklist = typer.Typer(
    cls=DefaultCommandGroup,
    help="`checklist ROLLOUT` shows each item with its evidence.",
    no_args_is_help=True,
)


@checklist.command()
@shared_options()
def show(
    call: RolloutCall,
    form: Annotated[
        Literal["text", "junit", "github"],
        typer.Option("--format", help="Form of the answer: text, or junit or github for CI."),
    ] = "text",
    signers: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="File of allowed signers (ssh-keygen): only results signed by them count.",
        ),
    ] = None,
) -> Answer:
    """Decide every item from results and live probes.

    It writes checklist.json. For CI, --format prints JUnit XML, or annotations of GitHub Actions.

    Exit 0 where all are passed or attested, 1 where one failed, 4 where some are open. Nothing else changes.
    """
    from datetime import UTC, datetime

    from specops import results
    from specops.errors import UsageError
    from specops.phases.checklist.checklist import FILE, checklist
    from specops.phases.checklist.document import document

    if call.as_json and form != "text":
        raise UsageError(
            f"--json and --format {form} exclude each other", hint=with_options({"--json": False})
        )
    result = checklist(call.file, call.path, call.folder, datetime.now(UTC), signers)
    results.write(call.folder / FILE, result)
    forms = {"junit": junit, "github": github}
    return Answer(result, forms[form](result) if form in forms else document(result, call.folder / FILE))


def _attestable() -> list[str]:
    from specops.phases.checklist.checklist import ITEMS

    return [spec.name for spec in ITEMS if spec.attestable]


@checklist.command()
@shared_options(rollout_at=1)
def attest(
    call: RolloutCall,
    item: Annotated[
        str,
        typer.Argument(
            help="Name of the item, as `specops checklist ROLLOUT` prints it.",
            autocompletion=completing(_attestable),
        ),
    ],
    by: Annotated[str, typer.Option(help="Name of the person who attests.")],
    note: Annotated[
        str | None, typer.Option(help="Note stored with the attestation, such as where the runbook is.")
    ] = None,
) -> Answer:
    """Record a person's confirmation of an item, for 90 days.

    It is stored in attestations.json with name and date. It counts for the rollout file as it is now.
    """
    from datetime import UTC, datetime

    from pydantic import ValidationError

    from specops.errors import UsageError
    from specops.phases.checklist.checklist import ITEMS
    from specops.phases.checklist.evidence import attest

    attestable = _attestable()
    if item not in attestable:
        exists = item in (spec.name for spec in ITEMS)
        measured = f"{item} is decided by what is measured, and cannot be attested"
        raise UsageError(
            f"{measured if exists else f'there is no item {item!r}'}: expected {', '.join(attestable)}",
            hint=f"specops checklist {call.path}",
        )
    try:
        attestation = attest(call.file, call.folder, item, by, note, datetime.now(UTC))
    except ValidationError as error:
        raise call.wrong_option(error) from error
    until = f"{attestation.until:%Y-%m-%d} or until the rollout file changes"
    return Answer(attestation, [f"{item}: attested by {attestation.by}, until {until}"])


@checklist.command("sign")
@shared_options()
def sign_results(
    call: RolloutCall,
    key: Annotated[
        Path,
        typer.Option(
            dir_okay=False,
            help="SSH private key, or the public key of one that is in ssh-agent.",
        ),
    ],
) -> Answer:
    """Sign the results and attestations in the run folder.

    Each gets NAME.json.sig beside it. A result that was edited is not signed. `checklist --signers FILE`
    accepts only what a signer in FILE signed.
    """
    from specops import results
    from specops.phases.checklist.checklist import FILE
    from specops.phases.checklist.evidence import ATTESTATIONS, read
    from specops.phases.checklist.signatures import SignedFiles, sign

    paths = [
        path
        for path in sorted((*call.folder.glob("*.json"), *call.folder.glob("reports/*.json")))
        if path.name != FILE
    ]
    for path in paths:
        if path.name == ATTESTATIONS:
            read(call.folder)
        else:
            results.read(path)
    for path in paths:
        sign(path, key)
    names = [path.relative_to(call.folder).as_posix() for path in paths]
    message = ", ".join(names) or "nothing: there is no result in the run folder"
    return Answer(SignedFiles(signed=names), [f"signed with {key}: {message}"])


def junit(result: Result) -> list[str]:
    """The items as test cases in JUnit's XML: a failed item is a failure, an open one is skipped."""
    items = _items(result)
    counts = Counter(item.status for item in items)
    suite = Element(
        "testsuite",
        name=f"specops checklist {result.settings['rollout']}",
        tests=str(len(items)),
        failures=str(counts["failed"]),
        skipped=str(counts["open"]),
        errors="0",
        timestamp=f"{result.created:%Y-%m-%dT%H:%M:%S}",
    )
    for item in items:
        case = SubElement(suite, "testcase", name=item.name, classname="specops.checklist")
        if item.status in OUTCOMES:
            outcome = SubElement(case, OUTCOMES[item.status], message=_printable(item.found))
            outcome.text = _printable("\n".join(_to_do(item)))
        SubElement(case, "system-out").text = _printable(f"{item.asks}: {item.found}")
    document = Element("testsuites")
    document.append(suite)
    indent(document)
    return ['<?xml version="1.0" encoding="UTF-8"?>', tostring(document, encoding="unicode")]


OUTCOMES = {"failed": "failure", "open": "skipped"}
LEVELS = {"failed": "error", "open": "warning", "attested": "notice"}


def github(result: Result) -> list[str]:
    """An annotation of GitHub Actions for each item that is not passed, and the verdict."""
    lines = []
    for item in _items(result):
        if item.status in LEVELS:
            message = "\n".join([item.found, *_to_do(item)])
            title = _data(f"{item.name} {item.status}").replace(":", "%3A").replace(",", "%2C")
            lines.append(f"::{LEVELS[item.status]} title={title}::{_data(message)}")
    return [*lines, sentence(result.reason)]


def _items(result: Result) -> list[Item]:
    from specops.phases.checklist.checklist import FILE
    from specops.phases.checklist.evidence import ChecklistData

    return checked(ChecklistData, result.data, f"{FILE} is damaged: data").items


def _to_do(item: Item) -> Iterator[str]:
    if item.change:
        yield f"change: {item.change}"
    if item.decide:
        yield f"next: {item.decide}"


def _printable(text: str) -> str:
    """Return the text without the control characters that XML 1.0 cannot hold."""
    return "".join(char for char in text if char in "\t\n" or ord(char) >= 0x20)


def _data(text: str) -> str:
    """Escape a text as a message of a workflow command of GitHub Actions."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
