"""One guard at a time; and those who only ask which."""

from __future__ import annotations

import fcntl
import os
import threading

import pytest

from specops.errors import EnvironmentFailure
from specops.guard.lock import LOCK, holder, locked


def test_the_second_is_refused_and_told_of_the_first(tmp_path) -> None:
    with locked(tmp_path), pytest.raises(EnvironmentFailure, match=f"pid {os.getpid()}"), locked(tmp_path):
        raise AssertionError
    assert holder(tmp_path) is None


def test_two_who_ask_at_once_do_not_take_each_other_for_a_guard(tmp_path) -> None:
    with locked(tmp_path):
        pass
    with (tmp_path / LOCK).open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert holder(tmp_path) is None


def test_a_guard_starts_while_somebody_asks(tmp_path) -> None:
    with (tmp_path / LOCK).open("w") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.1, lambda: fcntl.flock(asking, fcntl.LOCK_UN)).start()
        with locked(tmp_path):
            found = holder(tmp_path)
            assert found is not None
            assert found.pid == os.getpid()
