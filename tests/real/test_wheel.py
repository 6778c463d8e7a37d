"""The built wheel works outside the checkout, the shipped pair included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from specops import __version__

ROOT = Path(__file__).parents[2]
ASSETS = "specops/_assets/playbooks"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)], cwd=out
    )
    (built,) = out.glob("*.whl")
    return built


def test_the_source_distribution_can_be_built_from_and_read(tmp_path) -> None:
    run(
        [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        cwd=tmp_path,
    )
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "constraints.txt", "README.md", "ARCHITECTURE.md", "LOG.md"} <= inside
    assert any(name.startswith("benchmarks/") for name in inside)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel; dependencies come from this one, specops does not."""
    venv = tmp_path_factory.mktemp("venv")
    run([sys.executable, "-m", "venv", "--without-pip", str(venv)], cwd=venv)
    python = venv / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    run([*pip, "install", "--no-deps", "--no-index", str(wheel)], cwd=venv)
    (site,) = (venv / "lib").glob("python*/site-packages")
    # A path in a .pth file: the .pth files over there, the editable install's among them, are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def run(words: list[str], cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


def test_the_wheel_holds_what_it_should_and_no_more(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "specops/py.typed",
        "specops_kernels/__init__.py",
        f"{ASSETS}/rollout.template.yaml",
        f"{ASSETS}/embedded/rollout.yaml",
        f"{ASSETS}/embedded/prompts.json",
        *(
            f"{ASSETS}/embedded/{model}/{file}"
            for model in ("target", "draft")
            for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
        ),
        f"specops-{__version__}.dist-info/licenses/LICENSE",
    ):
        assert name in names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"specops", "specops_kernels", f"specops-{__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name]


def test_it_runs_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = run([str(installed), "-c", "import specops; print(specops.__file__)"], cwd=tmp_path).stdout
    assert Path(where.strip()).is_relative_to(installed.parents[1])
    specops = str(installed.parent / "specops")
    assert run([specops, "--version"], cwd=tmp_path).stdout == f"specops {__version__}\n"
    run([specops, "init"], cwd=tmp_path)
    assert (tmp_path / "rollout.yaml").is_file()


def test_it_brings_the_pair(installed: Path, tmp_path: Path) -> None:
    specops = str(installed.parent / "specops")
    answer = json.loads(run([specops, "doctor", "--json"], cwd=tmp_path, check=False).stdout)
    (pair,) = (check for check in answer["data"]["checks"] if check["name"] == "shipped pair")
    assert pair["status"] == "ok", pair["found"]
    assert Path(pair["found"]).is_relative_to(installed.parents[1])
