"""What the guide shows can be typed: commands and options exist, rollout files are read, programs run."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from guide_pages import PAGES, ROOT, Block, blocks, parts
from printed_commands import found, of_shell, parse, problem

from specops.config import Rollout, load

POOLS = {
    name: {"engine": "endpoint", "base_url": f"http://127.0.0.1:{port}/v1", "model": "m"}
    for name, port in (("standard", 8000), ("speculative", 8001))
}


SHELL = [block for block in blocks("sh", "bash", "console") if of_shell(block.text)]


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_are_taken(block: Block) -> None:
    for words in of_shell(block.text):
        why = problem(words)
        assert why is None, f"{block}: specops {shlex.join(words)}: {why}"


@pytest.mark.parametrize(
    "words", ["ab --arms a=b", "nope", "guard run", "guard nope", "route explain a --percent x"]
)
def test_a_wrong_command_is_found(words: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|missing|invalid|a valid number"):
        parse(words.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_prose_are_there(page: Path) -> None:
    for code in re.findall(r"`specops ([a-z][^`]*)`", parts(page)[0]):
        command, left = found(re.split(r"[\s,]+", code))
        group = hasattr(command, "commands")
        assert not (group and left and left[0].islower()), f"{page}: `specops {code}`: there is no {left[0]}"
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(left)):
            assert option in options, f"{page}: `specops {code}`: there is no {option}"


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_rollout_files_are_read(block: Block, tmp_path: Path) -> None:
    """A whole file as it is, and a part of one between two endpoints."""
    fields = yaml.safe_load(block.text)
    assert set(fields) <= set(Rollout.model_fields), f"{block} is no rollout file"
    for name in re.findall(r"[\w./-]+\.(?:jsonl?|json)\b", block.text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('[{"text": "a"}]')
    for name in re.findall(r"[\w./-]+\.(?:pem|key)\b", block.text):
        (tmp_path / name).touch()
    file = tmp_path / "rollout.yaml"
    whole = "rollout" in fields
    file.write_text(block.text if whole else yaml.safe_dump({"rollout": "part", "pools": POOLS} | fields))
    load(file)


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


def programs() -> list[Block]:
    """Without those that are the beginning of another page's."""
    shown = {block.text: block for block in blocks("python")}
    return [
        block for text, block in shown.items() if not any(o.startswith(text) and o != text for o in shown)
    ]


@pytest.mark.parametrize("block", programs(), ids=str)
def test_programs_run(block: Block, monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(ast.parse(block.text), str(block), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_defaults_are_told_as_they_are() -> None:
    """The table of defaults, in both languages: where a row names keys, each key's default is in the row."""
    for page in (ROOT / "docs" / "overview.md", *(ROOT / "docs").glob("*/overview.md")):
        checked = 0
        for row in re.findall(r"^\|(.+)\|$", parts(page)[0], re.MULTILINE):
            for section, key in re.findall(r"`([a-z]+)\.([a-z_]+)`", row):
                default = Rollout.model_fields[section].annotation.model_fields[key].default  # type: ignore[union-attr]
                if isinstance(default, int | float):
                    shown = {f"{default:g}", f"{default:.1f}", f"{default:.0%}".replace("%", "")}
                    assert shown & set(re.findall(r"\d+(?:\.\d+)?", row)), f"{page.name}: {section}.{key}"
                    checked += 1
        assert checked >= 6, page
