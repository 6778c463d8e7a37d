"""What is documented and proposed to install: nothing brings PyTorch for CUDA to a machine without a GPU."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from specops import errors
from specops.errors import CPU_TORCH, WITH_TORCH, install_command

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PAGES = sorted([ROOT / "README.md", ROOT / "README.ko.md", *(ROOT / "docs").rglob("*.md")])
FOR_GPUS = ("kernels", "vllm", "gpu")
"""Extras of what needs a GPU."""


def needs_torch(extra: str) -> bool:
    inner = [name for line in EXTRAS[extra] for name in re.findall(r"^specops\[(\w+)\]", line)]
    return any(line.startswith("torch") for line in EXTRAS[extra]) or any(map(needs_torch, inner))


def documented() -> list[tuple[str, str, str]]:
    """Each documented installation of an extra: page, extra, and the line above it."""
    rows = []
    for page in PAGES:
        lines = page.read_text(encoding="utf-8").splitlines()
        for above, line in zip(["", *lines], lines, strict=False):
            if match := re.match(r"pip install (?:-e )?['\"]?(?:\.|specops)\[(\w+)\]", line):
                rows.append((page.name, match[1], above))
    return rows


def test_the_extras_with_torch_are_those_of_the_project() -> None:
    assert {extra for extra in EXTRAS if needs_torch(extra)} == set(WITH_TORCH)


def test_the_pages_install_torch_for_cpus_first() -> None:
    rows = [row for row in documented() if needs_torch(row[1]) and row[1] not in FOR_GPUS]
    assert len(rows) >= 3
    assert [row[:2] for row in rows if not row[2].startswith(CPU_TORCH)] == []


@pytest.mark.parametrize(
    ("platform", "gpu", "torch", "first"),
    [
        ("linux", False, False, True),
        ("linux", True, False, False),
        ("linux", False, True, False),
        ("darwin", False, False, False),
    ],
)
def test_a_hint_installs_torch_for_cpus_where_there_is_no_gpu(
    platform: str, gpu: bool, torch: bool, first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "nvidiactl"
    if gpu:
        device.touch()
    monkeypatch.setattr(errors, "_GPU_DEVICES", (str(device),))
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(errors, "find_spec", lambda name: object() if torch else None)
    assert install_command("serve").startswith(f"{CPU_TORCH} && pip install ") == first
    assert install_command("ray").startswith("pip install ")
    assert "download.pytorch.org" not in install_command("ray")
