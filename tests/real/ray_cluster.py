"""A real Ray cluster of several nodes on loopback, which ends with the test, whatever happens.

    python tests/real/ray_cluster.py FOLDER NODE …

holds the cluster in a process of its own: Ray, as it starts nodes, leaves files unclosed, which are errors in
the tests. It says its addresses, takes the names of nodes to kill, and ends it all with its input.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

STORE_BYTES = 80 * 2**20
SETTINGS = {
    "GRPC_ENABLE_FORK_SUPPORT": "0",  # else the client port's server now and then dies as it forks
    "RAY_AUTH_MODE": "disabled",  # whatever token the user's home has
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # 127.0.0.1 stays what it is
    "RAY_raylet_start_wait_time_s": "120",  # on a machine that is busy with other tests
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120",
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "1",
    "RAY_health_check_period_ms": "500",  # a node that is dead refuses each, and five make it lost
}


class Cluster:
    """`gcs` and `client` are the addresses that a driver can give."""

    def __init__(self, process: subprocess.Popen[str], folder: str) -> None:
        self._process = process
        self.folder = folder
        self.gcs, self.client = json.loads(self._answer())

    def kill(self, node: str) -> None:
        """As when its power goes: nothing of the node gets to say a word."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{node}\n")
        self._process.stdin.flush()
        assert self._answer() == node

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        assert answer, f"the cluster ended: {Path(self.folder, 'log').read_text(errors='replace')[-3000:]}"
        return answer


@contextmanager
def running_cluster(nodes: Sequence[str]) -> Iterator[Cluster]:
    """Each node has one CPU, so that it serves one setting at a time; the first is the head."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets' paths must be short
    Path(folder, "ray").mkdir()  # the cluster writes its address there, and does not make the folder
    try:
        with (
            Path(folder, "log").open("w") as log,
            subprocess.Popen(
                [sys.executable, __file__, folder, *nodes],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | SETTINGS | {"RAY_TMPDIR": folder},
                start_new_session=True,
            ) as process,
        ):
            try:
                yield Cluster(process, folder)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        wait_for_the_end_of(folder)
    finally:
        shutil.rmtree(folder)


def wait_for_the_end_of(word: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while left := processes_of(word):
        assert time.monotonic() < deadline, f"left: {left}"
        time.sleep(0.05)


def processes_of(word: str) -> list[str]:
    """The command lines of all processes that have `word` in them."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if word in line:
                lines.append(f"{process.name} {line}")
    return lines


def hold(folder: str, head: str, *others: str) -> None:
    from ray.cluster_utils import Cluster as Nodes

    common = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "node_ip_address": "127.0.0.1"}
    client = _free_port()
    of_head = {"ray_client_server_port": client, "temp_dir": folder, "include_dashboard": False}
    cluster = Nodes(initialize_head=True, head_node_args=common | of_head | {"node_name": head})
    by_name = {name: cluster.add_node(wait=False, node_name=name, **common) for name in others}
    cluster.wait_for_nodes()
    _wait_for(client)
    print(json.dumps([cluster.address, f"ray://127.0.0.1:{client}"]), flush=True)
    for line in sys.stdin:
        cluster.remove_node(by_name[line.strip()], allow_graceful=False)
        print(line, end="", flush=True)
    cluster.shutdown()


def _wait_for(port: int) -> None:
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port)).close()
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    hold(*sys.argv[1:])
