"""One guard of what is switched, whatever folder it runs from; and files that nobody else has written."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from specops import owned_file
from specops.actions.flag_file import FlagFile
from specops.config import Rollout
from specops.errors import EnvironmentFailure, FileError
from specops.guard.guard import OverrideRequest
from specops.guard.journal import Entry, EntryEvidence, Journal
from specops.guard.lock import alone, locked
from specops.guard.state import Evaluation, State
from specops.phases.commands import Commands
from specops.phases.guard import blind, guarding, override, switch_of

ENDPOINT = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
HOLD = """
import sys
from specops.guard.lock import alone
with alone(sys.argv[1:]):
    print("held", flush=True)
    sys.stdin.read()
"""


def rollout(folder: Path, **guard: Any) -> Rollout:
    actions = [{"kind": "flag_file", "path": str(folder / "flag")}]
    pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
    return Rollout.model_validate({"rollout": "r", "pools": pools, "guard": {"actions": actions, **guard}})


def commands(file: Rollout, folder: Path) -> Commands:
    return Commands(file, folder.parent / "rollout.yaml", folder)


@pytest.fixture(params=[0, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """None, as a daemon has it; or a strict one."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def switched(file: Rollout) -> list[str]:
    return [target.identity for target in switch_of(file, Path()).targets]


@contextmanager
def another_process(*names: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", HOLD, *names]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "held\n"
        yield holding
        holding.communicate()


def test_a_second_guard_from_another_folder_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    file = rollout(tmp_path)
    with another_process(*switched(file)) as first:
        refused = f"another guard on this machine switches file {tmp_path}/flag \\(pid {first.pid}, user"
        with (
            pytest.raises(EnvironmentFailure, match=refused),
            guarding(commands(file, tmp_path / "run"), blind),
        ):
            raise AssertionError
        with pytest.raises(EnvironmentFailure, match=refused):
            override(commands(file, tmp_path / "other"), OverrideRequest(pool="standard", by="ada", why="so"))
        assert not (tmp_path / "flag").exists(), "nothing was switched"
        with guarding(commands(file, tmp_path / "run"), blind, dry_run=True):
            pass  # it switches nothing
    with guarding(commands(file, tmp_path / "run"), blind):
        pass  # the first has ended


def test_a_guard_that_was_killed_leaves_nothing_held() -> None:
    with another_process("router 192.0.2.1:1") as first:
        first.kill()
        first.wait()
        with alone(["router 192.0.2.1:1"]):
            pass


def test_guards_of_other_things_run_side_by_side_and_half_of_them_is_not_held() -> None:
    with alone(["router 192.0.2.1:1", "router 192.0.2.2:1"]):
        with alone(["router 192.0.2.3:1"]):
            pass
        with pytest.raises(EnvironmentFailure, match=r"switches router 192\.0\.2\.2:1"), \
                alone(["router 192.0.2.0:1", "router 192.0.2.2:1"]):  # fmt: skip
            raise AssertionError
        with alone(["router 192.0.2.0:1"]):
            pass


def test_a_second_guard_by_another_name_of_this_machine_is_refused() -> None:
    def names(address: str) -> list[str]:
        pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
        file = {"rollout": "r", "pools": pools, "addresses": {"routers": [address]}}
        return switched(Rollout.model_validate(file))

    refused = pytest.raises(EnvironmentFailure, match="another guard on this machine switches router")
    with alone(names("localhost:9145")):
        for spelling in ("127.0.0.1:9145", "[::1]:9145", f"{socket.gethostname()}:9145"):
            with refused, alone(names(spelling)):
                raise AssertionError(spelling)
        with alone(names("127.0.0.1:9146")):
            pass


def test_a_command_is_one_however_its_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a word is a script of many characters, which no file can be called."""
    (tmp_path / "flag").touch()

    def named(path: str) -> list[str]:
        action = {"kind": "command", "set": [sys.executable, "-c", "pass\n" * 1000, path, "{percent}"]}
        action["read"] = ["true"]
        pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
        return switched(
            Rollout.model_validate({"rollout": "r", "pools": pools, "guard": {"actions": [action]}})
        )

    monkeypatch.chdir(tmp_path)
    assert named("flag") == named(str(tmp_path / "flag")) == named("./flag")
    assert named("flag") != named("another")


def test_what_is_switched_is_named_alike_from_every_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert switched(rollout(tmp_path / "link")) == switched(rollout(tmp_path))
    actions = [
        {"kind": "router"},
        {"kind": "http", "url": "http://flags.test/api"},
        {"kind": "command", "set": ["switch", "{percent}"], "read": ["switch"]},
        {"kind": "restart", "stop": ["a"], "start_standard": ["b"], "start_speculative": ["c"],
         "health": "http://127.0.0.1:1/health", "read": ["d"]},
    ]  # fmt: skip
    pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
    file = {
        "rollout": "r",
        "pools": pools,
        "guard": {"actions": actions},
        "addresses": {"routers": ["a:1", "b:1"]},
    }
    assert switched(Rollout.model_validate(file)) == [
        "router http://a:1/specops/switch",
        "router http://b:1/specops/switch",
        "flag http://flags.test/api",
        "command switch '{percent}'",
        "server http://127.0.0.1:1/health",
    ]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def entry(number: int) -> Entry:
    found = Evaluation(ts=1.0, verdict="healthy", reason="r" * 200)
    return Entry(
        ts=1.0, id=number, verdict="healthy", evidence=EntryEvidence(why="r", evaluation=found), state=State()
    )


@pytest.mark.usefixtures("umask")
def test_whatever_the_umask_nobody_else_may_write_to_what_decides(tmp_path: Path) -> None:
    flag = FlagFile(str(tmp_path / "flag"))
    flag.set(0)
    assert (mode(tmp_path / "flag"), flag.read()) == (0o640, 0)
    journal = Journal(tmp_path / "journal.jsonl", rotate_bytes=900)
    for number in range(6):
        journal.append(entry(number))
    paths = sorted(tmp_path.glob("journal*"))
    assert [path.name for path in paths[:2]] == ["journal.1.jsonl", "journal.2.jsonl"]
    assert {mode(path) for path in paths} == {0o640}
    with locked(tmp_path / "guard"):
        assert mode(tmp_path / "guard" / "lock") == 0o600


@pytest.mark.parametrize("name", ["flag", "journal.jsonl", "lock"])
def test_a_file_of_another_owner_or_that_others_may_write_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name

    def used() -> None:
        if name == "flag":
            FlagFile(str(path)).read()
        elif name == "lock":
            with locked(tmp_path):
                pass
        else:
            Journal(path)

    if name == "journal.jsonl":
        Journal(path).append(entry(1))
    else:
        path.write_text(json.dumps({"speculative_percent": 5}))
    path.chmod(0o640)
    used()
    for wrong in (0o666, 0o660, 0o642):
        path.chmod(wrong)
        with pytest.raises(FileError, match=f"has mode {wrong:04o}: others may write to it, expected 0640"):
            used()
    path.chmod(0o640)
    me = os.geteuid()
    monkeypatch.setattr(owned_file.os, "geteuid", lambda: me + 1)
    with pytest.raises(FileError, match=f"belongs to user {me}, expected {me + 1}"):
        used()


def test_a_link_in_the_place_of_the_new_flag_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".flag.new").symlink_to(tmp_path / "precious")
    FlagFile(str(tmp_path / "flag")).set(25)
    assert (tmp_path / "precious").read_text() == "mine"
    assert FlagFile(str(tmp_path / "flag")).read() == 25
