"""What a run of the tests says at its end, in runs of tests made for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import suite_report
from suite_report import MOST_SECOND_TRIES, feature_of

CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(suite_report.__file__).parent)!r})
from suite_report import SuiteReport

def pytest_addoption(parser):
    parser.addoption("--slowest-files", type=int, default=0)

def pytest_configure(config):
    config.pluginmanager.register(SuiteReport(config.getoption("--slowest-files")), "suite_report")
"""
FLAKY = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("number", range({count}))
def test_flaky(number):
    tried = Path(__file__).with_name(f"tried-{{number}}")
    first = not tried.exists()
    tried.touch()
    assert not first, f"the first try of {{number}}"
"""
SKIPPED = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_proxied(number):
    pytest.skip("nginx is not installed")
"""


def run(folder: Path, tests: str, *options: str) -> tuple[int, str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_router_made.py").write_text(tests)
    words = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        *options,
    )
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_second_try_is_counted_and_its_first_failure_printed(tmp_path: Path, workers: str) -> None:
    code, said = run(tmp_path, FLAKY.format(count=2), "--reruns", "1", "-n", workers)
    assert code == 0
    assert (
        "2 tests needed a second try: test_router_made.py::test_flaky[0], test_router_made.py::test_fl"
        in said
    )
    assert "AssertionError: the first try of 0" in said
    assert "AssertionError: the first try of 1" in said


@pytest.mark.parametrize("workers", ["0", "1"])
def test_too_many_second_tries_fail_the_run(tmp_path: Path, workers: str) -> None:
    code, said = run(tmp_path, FLAKY.format(count=MOST_SECOND_TRIES + 1), "--reruns", "1", "-n", workers)
    assert code == 1
    assert f"{MOST_SECOND_TRIES + 1} passed" in said
    assert f"More than {MOST_SECOND_TRIES} second tries fail the run." in said


def test_as_many_as_are_allowed_do_not_fail_it(tmp_path: Path) -> None:
    code, said = run(tmp_path, FLAKY.format(count=MOST_SECOND_TRIES), "--reruns", "1")
    assert code == 0
    assert f"{MOST_SECOND_TRIES} tests needed a second try" in said
    assert "fail the run" not in said


def test_a_run_without_second_tries_says_nothing_of_them(tmp_path: Path) -> None:
    code, said = run(tmp_path, "def test_well():\n    pass\n", "--reruns", "1")
    assert code == 0
    assert "second" not in said
    assert "not tested" not in said


def test_skips_are_summed_up_by_feature_and_slow_files_listed(tmp_path: Path) -> None:
    code, said = run(tmp_path, SKIPPED, "--slowest-files", "5")
    assert code == 0
    assert "nginx is not installed: router not tested (3 tests)" in said
    assert re.search(r"^ +\d+\.\d +\d+\.\d  test_router_made\.py$", said, re.MULTILINE)


@pytest.mark.parametrize(
    ("test", "feature"),
    [
        ("tests/real/test_router_faults.py::test_x[1]", "router"),
        ("tests/engine/test_graphs.py::test_x", "the embedded engine"),
        ("tests/unit/test_monitor_rules.py::test_x", "monitoring"),
        ("tests/unit/test_stats_ranks.py::test_x", "stats ranks"),
    ],
)
def test_a_feature_is_named_by_folder_or_file(test: str, feature: str) -> None:
    assert feature_of(test) == feature
