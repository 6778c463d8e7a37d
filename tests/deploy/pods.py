"""Containers of the chart, run on this machine as a node of Kubernetes runs them.

A container gets its command, its variables, its user, its volumes at their paths, and a root that cannot be
written. What its image has comes from this machine: the programs, and specops as it is being tested. Volumes
have the owner and the modes that the kubelet gives them. It needs root, since it mounts.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shlex
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from charts import ROOT, Manifest, Manifests, pod_specs

CLONE_NEWNET = 0x40000000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENTRYPOINT = [sys.executable, "-m", "specops"]
SYSTEM = ("bin", "lib", "lib64", "sbin", "usr")


def own_network(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a network namespace with nothing but loopback, where its servers may listen on any
    port of any address. Whatever the test starts is in it, too."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        outcome: list[BaseException] = []

        def body() -> None:
            try:
                if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
                    pytest.skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
                subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)
                test(*arguments, **named)
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        if outcome:
            raise outcome[0]

    return run


def require_mounts() -> None:
    """Skip where this process may not mount."""
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, timeout=10, check=False)
    if tried.returncode:
        pytest.skip("a container's volumes need root, with the right to mount")


@dataclass(frozen=True)
class Node:
    folder: Path
    manifests: Manifests
    """What was applied: the chart's, and ConfigMaps made by hand."""

    secrets: Mapping[str, Mapping[str, str]]
    """Keys with their values, by the name of the Secret."""

    hosts: Sequence[str]
    """Names that the cluster's DNS knows. All are this node."""

    def command(self, name: str, *, pod: int = 0, words: Sequence[str] = ()) -> list[str]:
        """The command that runs the container of `name` in its pod; `words`: another command in the same
        container, as of `kubectl exec`. Its process is the container's own."""
        spec = pod_specs(self.manifests)[name]
        (container,) = spec["containers"]
        root = self.folder / "root" / name
        for folder in (root, self.folder / "claims", self.folder / "pods"):
            folder.mkdir(parents=True, exist_ok=True)
        lines = ["set -e", *self._image(root)]
        for mount in sorted(container["volumeMounts"], key=lambda mount: str(mount["mountPath"])):
            target = shlex.quote(f"{root}{mount['mountPath']}")
            lines += [f"mkdir -p {target}", f"mount --bind {self._volume(name, pod, spec, mount)} {target}"]
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {target}")
        for path in sorted({str(ROOT), sys.prefix, sys.base_prefix}):
            lines += [] if path.startswith("/usr/") else _read_only(path, root)
        user = spec["securityContext"]
        words = words or container.get("command") or [*ENTRYPOINT, *container["args"]]
        variables = [f"{variable}={value}" for variable, value in self._environment(container)]
        run = [
            "chroot",
            f"--userspec={user['runAsUser']}:{user['runAsGroup']}",
            f"--groups={user['fsGroup']}",
        ]
        run += [str(root), "/usr/bin/env", "-i", f"PATH={PATH}", f"PYTHONPATH={ROOT}", *variables, *words]
        if container["securityContext"]["readOnlyRootFilesystem"]:
            lines.append(f"mount -o remount,ro {shlex.quote(str(root))}")
        lines.append(f"exec {shlex.join(run)}")
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(lines)]

    def _image(self, root: Path) -> Iterator[str]:
        quoted = shlex.quote(str(root))
        yield f"mount -t tmpfs -o mode=755,size=64m tmpfs {quoted}"
        for name in SYSTEM:
            if Path("/", name).is_symlink():
                yield f"cp -P /{name} {quoted}/{name}"
            elif Path("/", name).exists():
                yield from _read_only(f"/{name}", root)
        yield f"mkdir {quoted}/dev {quoted}/proc && mount --rbind /dev {quoted}/dev"
        yield f"mount --rbind /proc {quoted}/proc && cp -a /etc {quoted}/etc"
        yield f"echo 127.0.0.1 localhost {shlex.join(self.hosts)} > {quoted}/etc/hosts"

    def _volume(self, name: str, pod: int, spec: Manifest, mount: Manifest) -> str:
        """The folder of a volume, made and owned as the kubelet does at each start of a pod."""
        volume = next((entry for entry in spec["volumes"] if entry["name"] == mount["name"]), None)
        if volume is not None and "configMap" in volume:
            folder = self.folder / "pods" / f"{name}-{pod}-{mount['name']}"
            folder.mkdir(exist_ok=True)
            for file, text in self.manifests["ConfigMap", volume["configMap"]["name"]]["data"].items():
                (folder / file).write_text(text, encoding="utf-8")
            return shlex.quote(str(folder))
        if volume is not None and "emptyDir" in volume:
            folder = self.folder / "pods" / f"{name}-{pod}-{mount['name']}"
        else:
            claim = (volume or {}).get("persistentVolumeClaim", {}).get("claimName")
            folder = self.folder / "claims" / (claim or f"{mount['name']}-{name}-{pod}")
        folder.mkdir(exist_ok=True)
        _give(folder, spec["securityContext"])
        return shlex.quote(str(folder))

    def _environment(self, container: Manifest) -> Iterator[tuple[str, str]]:
        for variable in container["env"]:
            if "value" in variable:
                yield variable["name"], variable["value"]
            else:
                reference = variable["valueFrom"]["secretKeyRef"]
                yield variable["name"], self.secrets[reference["name"]][reference["key"]]


def _read_only(path: str, root: Path) -> list[str]:
    target = shlex.quote(f"{root}{path}")
    return [
        f"mkdir -p {target}",
        f"mount --bind {shlex.quote(path)} {target}",
        f"mount -o remount,bind,ro {target}",
    ]


def _give(folder: Path, security: Manifest) -> None:
    """Give a volume to the pod's group, as SetVolumeOwnership of Kubernetes' pkg/volume does."""
    group, info = security["fsGroup"], folder.stat()
    fits = info.st_gid == group and info.st_mode & 0o2770 == 0o2770
    if security.get("fsGroupChangePolicy", "Always") == "OnRootMismatch" and fits:
        return
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        os.chown(path, -1, group, follow_symlinks=False)
        if not stat.S_ISLNK(mode):
            path.chmod(stat.S_IMODE(mode) | (0o2770 if stat.S_ISDIR(mode) else 0o660))
