"""Writes docs/cli.md: every command, argument and option as `--help` has them. `make generate` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from specops.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
HELP = ["-h", "--help"]  # as of the app

HEAD = """\
# Commands

Generated from the commands by `make generate`; a test proves it current. What a command is for, and what its
answers look like, is on [the pages of the guide](README.md).
"""

# What most commands take is told once. An option that says something else is told with its command.
EVERYWHERE = ("--json", "-q, --quiet", "--debug", "-h, --help")


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group of commands by the words that call it, in the order of `--help`."""

    def below(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name, command in group.commands.items():
            yield (*path, name), command
            if is_group(command):
                yield from below(command, (*path, name))

    return below(typer.main.get_command(app), ())


def is_group(command: Any) -> bool:
    return hasattr(command, "commands")


def records(path: tuple[str, ...], command: Any) -> list[tuple[str, str]]:
    """Of every parameter, how it is written and what its help says of it. No line is folded."""
    context = command.make_context(
        " ".join(("specops", *path)), [], resilient_parsing=True, help_option_names=HELP
    )
    found = (parameter.get_help_record(context) for parameter in command.get_params(context))
    return [(written, " ".join(told.split())) for written, told in filter(None, found)]


def told_everywhere(all_records: list[list[tuple[str, str]]]) -> dict[str, str]:
    """Those of EVERYWHERE, by how they are written; most commands must agree on what they say."""
    told = {}
    for written in EVERYWHERE:
        helps = [text for records in all_records for name, text in records if name == written]
        told[written] = max(sorted(set(helps)), key=helps.count)
    return told


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    found = [(path, command, records(path, command)) for path, command in commands()]
    everywhere = told_everywhere([told for _, command, told in found if not is_group(command)])
    lines = [HEAD]
    for path, command, _ in found:
        name = " ".join(("specops", *path))
        summary = " ".join(command.help.partition("\n\n")[0].split())
        lines.append(f"{'  ' * (len(path) - 1)}- [`{name}`](#{name.replace(' ', '-')}) – {summary}")
    lines += ["", "## What most commands take", ""]
    lines += [f"- `{written}` – {text}" for written, text in everywhere.items()]
    for path, command, told in found:
        lines += section(path, command, told, everywhere)
    return "\n".join(lines) + "\n"


def section(
    path: tuple[str, ...], command: Any, told: list[tuple[str, str]], everywhere: dict[str, str]
) -> list[str]:
    name = " ".join(("specops", *path))
    lines = ["", f"{'#' * (len(path) + 1)} {name}", ""]
    lines.append("\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n")))
    if is_group(command):
        return lines
    context = command.make_context(name, [], resilient_parsing=True, help_option_names=HELP)
    lines += ["", "```text", " ".join((name, *command.collect_usage_pieces(context))), "```", ""]
    own = [(written, text) for written, text in told if everywhere.get(written) != text]
    if own:
        lines += ["| | |", "|---|---|"]
        lines += [f"| `{_cell(written)}` | {_cell(text)} |" for written, text in own]
        lines.append("")
    common = [f"`{written}`" for written, text in told if everywhere.get(written) == text]
    return [*lines, f"Also {', '.join(common)}."]


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
