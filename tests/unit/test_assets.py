"""Shipped files are found, and one that is missing is named."""

from __future__ import annotations

import pytest

from specops.assets import asset
from specops.errors import FileError


def test_a_shipped_file_is_found_in_a_checkout() -> None:
    assert asset("playbooks", "rollout.template.yaml").is_file()


def test_a_missing_file_is_named() -> None:
    with pytest.raises(FileError, match=r"absent\.json is missing from this installation"):
        asset("playbooks", "absent.json")
