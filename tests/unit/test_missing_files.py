"""A file or a program that is missing is the environment's failure, whichever command names it: exit 3."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from calling import specops

URL = ("--base-url", "http://127.0.0.1:1/v1", "--model", "m")
ARMS = ("--arm", "a=http://127.0.0.1:1/v1#m", "--arm", "b=http://127.0.0.1:2/v1#m")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "absent.yaml"),
        ("sweep", "absent.yaml"),
        ("doctor", "absent.yaml"),
        ("launch", "render", "absent.yaml"),
        ("compare", "absent", "absent-2"),
        ("plot", "absent.json"),
        ("baseline", *URL, "--prompts", "absent.json"),
        ("baseline", *URL, "--tokenizer", "absent.json"),
        ("ab", *ARMS, "--prompts", "absent.json"),
        ("ab", *ARMS, "--against", "absent.json"),
        ("launch", "lint", "--file", "absent.sh"),
        ("route", "check", "--config", "absent/nginx.conf"),
        ("edge", "simulate", "--rounds", "absent.json"),
        ("init", "x", "--prompts", "absent.json"),
    ],
    ids=" ".join,
)
def test_a_missing_file_has_one_code(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = specops(*words)
    assert (done.returncode, "absent" in done.stderr) == (3, True), done.stderr
    assert "\nhint: " in done.stderr


def test_a_missing_program_has_it_too(tmp_path: Path) -> None:
    pool = {"engine": "command", "command": "no-such-server --port {port}"}
    path = tmp_path / "rollout.yaml"
    path.write_text(yaml.safe_dump({"rollout": "r", "pools": {"standard": pool, "speculative": pool}}))
    done = specops("run", str(path), "--only", "baseline")
    assert done.returncode == 3
    assert "there is no program no-such-server" in done.stderr
