"""Options of commands and of the Python API take numbers as the keys of a rollout file do: a time may be
text, and a number of another scale is corrected in the same words."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer
from calling import specops as command

import specops
from specops.cli.app import app
from specops.errors import UsageError
from specops.load.settings import BaselineSettings
from specops.progress import LineProgress
from specops.quantities import HOURS, RATIO, SECONDS

UNIT = re.compile(r"\b(seconds?|milliseconds?|ms|minutes|hours|days)\b", re.IGNORECASE)
OTHER = ("--rtt", "--max-rps", "--rate")
"""Several times in one text, or requests per second."""

URL = "http://127.0.0.1:1/v1"


def options() -> dict[str, Any]:
    """Each option that takes a value, by its command and its first name."""
    by_name = {}
    todo = [(("specops",), typer.main.get_command(app))]
    while todo:
        path, entry = todo.pop()
        todo += [((*path, name), inner) for name, inner in getattr(entry, "commands", {}).items()]
        parameters: list[Any] = list(entry.params)
        for parameter in parameters:
            if parameter.param_type_name == "option" and not parameter.is_flag:
                by_name[" ".join((*path, parameter.opts[0]))] = parameter
    return by_name


def test_every_option_that_takes_a_time_takes_it_as_text() -> None:
    timed = {
        name: option
        for name, option in options().items()
        if UNIT.search(option.help or "") and not name.endswith(OTHER)
    }
    assert len(timed) > 20
    assert [name for name, option in timed.items() if option.metavar != "TIME"] == []


def test_help_has_no_type_of_python() -> None:
    metavars = [option.metavar or "" for option in options().values()]
    assert "<str>..." in metavars
    assert [metavar for metavar in metavars if "range" in metavar or "[" in metavar] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("baseline", "--base-url", URL, "--max-error-share", "5"), "5 means 500%; write 0.05 for 5%"),
        (("baseline", "--base-url", URL, "--abort-error-share", "50"), "50 means 5000%; write 0.5 for 50%"),
        (
            ("ab", "--arm", f"a={URL}", "--arm", "b=http://127.0.0.1:2/v1", "--failure-margin", "1"),
            "--failure-margin is a share: 1 means 100%; write 0.01 for 1%",
        ),
        (
            ("ab", "--arm", f"a={URL}", "--arm", "b=http://127.0.0.1:2/v1", "--confidence", "95"),
            "--confidence is a confidence level: 95 means 9500%; write 0.95 for 95%",
        ),
        (("guard", "simulate", "x.yaml", "--slower", "0.5"), "write 1.5 for 50% more"),
        (("route", "explain", "body.json", "--percent", "0.5"), "0.5 means 0.5%; write 50 for 50%"),
        (("serve", "--grace", "-1"), "'--grace': -1, expected at least 0"),
        (("serve", "--grace", "5 minutes"), "expected a time such as 30s, 5m, 7d or 1h30m, not '5 minutes'"),
        (
            ("guard", "drill", "x.yaml", "--limit", "2h"),
            "'--limit': 7200, expected at least 10 and at most 3600",
        ),
        (("baseline", "--base-url", URL, "--stall", "0s"), "--stall is 0.0, and should be greater than 0"),
    ],
)
def test_an_option_of_another_scale_is_corrected(words: tuple[str, ...], message: str) -> None:
    done = command(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Value error" not in done.stderr


def test_a_number_inside_its_bounds_is_taken_as_it_is() -> None:
    assert SECONDS.option("1m30s") == 90.0
    assert SECONDS.option("90") == 90.0
    assert HOURS.option("7d") == 168.0
    assert RATIO.bounded(20.0, 1.01, 100.0) == 20.0  # not 20% here: the bounds allow it


def test_the_python_api_corrects_as_the_commands_do() -> None:
    with pytest.raises(UsageError, match=r"max_error_share is a share: 5 means 500%; write 0[.]05 for 5%"):
        specops.baseline(URL, max_error_share=5)
    with pytest.raises(UsageError, match="stall_s '5 minutes' is not a time"):
        specops.baseline(URL, stall_s="5 minutes")


def test_settings_take_times_as_text() -> None:
    settings = BaselineSettings.model_validate(
        {"base_url": URL, "model": "", "timeout_s": "2m", "abort_e2e_ms": "1.5s", "slo": {"ttft_ms": "500ms"}}
    )
    assert (settings.timeout_s, settings.abort_e2e_ms, settings.slo.ttft_ms) == (120.0, 1500.0, 500.0)


def test_progress_of_the_api_is_lines_of_text() -> None:
    lines: list[str] = []
    progress = LineProgress(lines.append)
    progress.start("one stream", 40)
    for _ in range(40):
        progress.advance()
    progress.note("the server is up")
    assert lines[:2] == ["one stream", "one stream: 4/40"]
    assert lines[-2:] == ["one stream: 40/40", "the server is up"]
    assert len(lines) == 12
