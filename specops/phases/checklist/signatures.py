"""Signatures of a run folder's files, by a key of the operator's choice: OpenSSH's `ssh-keygen -Y`.

A result's own hash has no key: it shows damage and edits in passing, and who may write the file can seal it
anew. A signature beside it, NAME.json.sig, shows who vouched for these bytes. When that was is not in it.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from specops.errors import EnvironmentFailure, FileError
from specops.section import Frozen

NAMESPACE = "specops-result@v1"
"""A signature made for another purpose does not count."""
SUFFIX = ".sig"
WAIT_S = 60
"""A key may have a passphrase, which ssh-agent or a person types."""


class SignedFiles(Frozen):
    """What `checklist sign` signed."""

    signed: list[str]
    """Files of the run folder."""


def sign(path: Path, key: Path) -> None:
    """Write the signature of the file at `path`. `key`: a private key, or a public one whose private key is
    in ssh-agent. Raises FileError, EnvironmentFailure."""
    signature = _signature(path)
    signature.unlink(missing_ok=True)  # ssh-keygen would ask
    done = _ssh_keygen("sign", "-f", key, "-n", NAMESPACE, path)
    if done.returncode:
        raise FileError(
            f"could not sign {path} with {key}: {_last_line(done)}",
            hint=f"ssh-keygen -y -f {shlex.quote(str(key))}  # shows whether the key can be used",
        )


def signer(path: Path, allowed: Path) -> str:
    """Return the name, in the file `allowed` (ALLOWED SIGNERS in ssh-keygen(1)), of who signed the file at
    `path`. Raises FileError where it is unsigned, changed since, or signed by another; EnvironmentFailure."""
    signature = _signature(path)
    if not signature.is_file():
        raise FileError(f"{path} is not signed", hint=_again(path))
    names = _ssh_keygen("find-principals", "-s", signature, "-f", allowed)
    name = names.stdout.decode(errors="replace").partition("\n")[0].strip()
    if names.returncode or not name:
        raise FileError(
            f"{path} is signed by a key that {allowed} does not name: {_last_line(names)}", hint=_again(path)
        )
    options = ("-f", allowed, "-I", name, "-n", NAMESPACE, "-s", signature)
    done = _ssh_keygen("verify", *options, data=path.read_bytes())
    if done.returncode:
        raise FileError(
            f"the signature of {path} by {name} does not hold: {_last_line(done)}", hint=_again(path)
        )
    return name


def _signature(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _again(path: Path) -> str:
    return f"specops checklist sign --help  # whoever vouches for {path.name} signs it"


def _ssh_keygen(action: str, *words: str | Path, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command: Sequence[str] = ["ssh-keygen", "-Y", action, *map(str, words)]
    try:
        return subprocess.run(command, input=data, capture_output=True, timeout=WAIT_S, check=False)
    except FileNotFoundError:
        raise EnvironmentFailure(
            "ssh-keygen is not installed, and signatures are made with it",
            hint="apt-get install openssh-client",
        ) from None
    except subprocess.TimeoutExpired:
        raise EnvironmentFailure(
            f"ssh-keygen did not end within {WAIT_S} s: it waits for a passphrase", hint="ssh-add KEY"
        ) from None


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit {done.returncode}"
