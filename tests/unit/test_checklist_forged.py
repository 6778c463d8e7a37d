"""Files that are not what they seem: no file hangs the checklist, and what anybody may have written is no
evidence. Signatures are made by the real ssh-keygen."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from calling import specops
from made_checklists import NOW, Made

from specops import results
from specops.errors import FileError
from specops.owned_file import check_evidence
from specops.phases.checklist.checklist import checklist
from specops.phases.checklist.evidence import ATTESTATIONS, ChecklistData, Item
from specops.phases.checklist.signatures import sign, signer
from specops.results import Result

RESULTS = ("baseline", "drafts", "sweep", "ab", "canary", "route", "monitor", "guard-drill")


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = Made(tmp_path_factory.mktemp("complete"))
    made.fill()
    return made


@pytest.fixture
def made(complete: Made, tmp_path: Path) -> Made:
    shutil.copytree(complete.path.parent, tmp_path, dirs_exist_ok=True)
    return Made(tmp_path)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("put", [fifo, folder, unix_socket])
@pytest.mark.parametrize("name", RESULTS)
def test_what_is_no_file_opens_its_items_at_once(name: str, put: object, made: Made) -> None:
    assert callable(put)
    path = made.folder / f"{name}.json"
    path.unlink()
    put(path)
    result, items = made.checked()
    assert result.verdict == "undecided"
    opened = [item for item in items.values() if item.status == "open"]
    assert any(path.name in item.found for item in opened)
    if put in (fifo, folder):
        kind = "FIFO" if put is fifo else "folder"
        assert any(kind in item.found for item in opened)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_of_another_phase_opens_its_items(name: str, made: Made) -> None:
    another = "canary" if name != "canary" else "baseline"
    shutil.copy(made.folder / f"{another}.json", made.folder / f"{name}.json")
    result, items = made.checked()
    assert result.verdict == "undecided"
    reasons = [item.found for item in items.values() if item.status == "open"]
    assert any(f"{name}.json is a result of {another}" in reason for reason in reasons)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("put", [fifo, folder])
def test_attestations_that_are_no_file_are_an_error_of_one_sentence(put: object, made: Made) -> None:
    assert callable(put)
    (made.folder / ATTESTATIONS).unlink()
    put(made.folder / ATTESTATIONS)
    with pytest.raises(FileError, match="expected a file"):
        made.checked()
    done = specops("checklist", str(made.path), "--out", str(made.folder))
    assert done.returncode == FileError.exit_code
    assert "fault in specops" not in done.stderr


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o602])
def test_a_result_that_all_may_write_is_refused(mode: int, made: Made) -> None:
    (made.folder / "baseline.json").chmod(mode)
    _, items = made.checked()
    assert items["baseline"].status == "open"
    assert f"{mode:04o}" in items["baseline"].found


def test_a_folder_in_which_all_may_replace_files_is_refused(made: Made) -> None:
    made.folder.chmod(0o777)
    with pytest.raises(FileError, match="0777"):
        made.checked()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_a_result_of_somebody_else_is_refused(made: Made) -> None:
    path = made.folder / "baseline.json"
    os.chown(path, 65534, 65534)
    _, items = made.checked()
    assert items["baseline"].status == "open"
    assert "65534" in items["baseline"].found
    os.chown(made.folder, 65534, 65534)  # all of it is that user's run
    check_evidence(path)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of Kim and of a stranger; `allowed` names Kim alone."""
    where = tmp_path_factory.mktemp("keys")
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    for name in ("kim", "stranger"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(where / name)]
        subprocess.run(command, check=True)
    public = (where / "kim.pub").read_text()
    (where / "allowed").write_text(f'kim@example.org namespaces="specops-result@v1" {public}')
    return where


def checked(made: Made, signers: Path) -> tuple[Result, dict[str, Item]]:
    result = checklist(made.rollout, made.path, made.folder, NOW, signers)
    return result, {item.name: item for item in ChecklistData.model_validate(result.data).items}


def test_signed_by_the_operator_it_may_go_live_and_each_forgery_is_refused(made: Made, keys: Path) -> None:
    signed = specops(
        "checklist", "sign", str(made.path), "--out", str(made.folder), "--key", str(keys / "kim")
    )
    assert signed.returncode == 0, signed.stderr
    result, items = checked(made, keys / "allowed")
    assert result.verdict == "yes", result.reason
    assert any("kim@example.org" in one.figure for one in items["baseline"].evidence)

    def refused() -> str:
        _, items = checked(made, keys / "allowed")
        assert items["baseline"].status == "open"
        return items["baseline"].found

    path = made.folder / "baseline.json"
    whole = path.read_bytes()
    made.change("baseline", reason="better than it was")  # and sealed anew
    assert results.read(path)
    assert "does not hold" in refused()
    sign(path, keys / "stranger")
    assert "does not name" in refused()
    path.with_name("baseline.json.sig").unlink()
    assert "not signed" in refused()
    path.write_bytes(whole)
    shutil.copy(made.folder / "ab.json.sig", made.folder / "baseline.json.sig")
    assert "does not hold" in refused()
    sign(path, keys / "kim")
    assert checked(made, keys / "allowed")[1]["baseline"].status == "passed"


def test_attestations_are_signed_as_well(made: Made, keys: Path) -> None:
    for path in sorted(made.folder.glob("**/*.json")):
        sign(path, keys / "kim")
    attestations = made.folder / ATTESTATIONS
    attestations.write_text(attestations.read_text().replace("by hand", "by nobody"))
    with pytest.raises(FileError, match="does not hold"):
        checked(made, keys / "allowed")


def test_a_signature_for_another_purpose_does_not_count(made: Made, keys: Path) -> None:
    path = made.folder / "baseline.json"
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(keys / "kim"), "-n", "file", str(path)],
        check=True,
        capture_output=True,
    )
    with pytest.raises(FileError):
        signer(path, keys / "allowed")


def test_without_signatures_the_page_says_what_a_hash_proves(made: Made) -> None:
    done = specops("checklist", str(made.path), "--out", str(made.folder))
    assert "hash has no key" in done.stdout
