"""One Ray: a cluster that is there, or one that is started for this machine; kept off the terminal."""

from __future__ import annotations

import importlib
import logging
import os
import re
import secrets
import signal
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from specops.errors import EnvironmentFailure, UsageError, install_command
from specops.phases.sweep.on_ray import testbed

LOCAL = "local"
ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^\s/:]+):(?P<port>\d{1,5})")
ANSWER_S = 5.0
FORK = "Starting Ray client server failed"
"""What a cluster's client port (ray 2.60, grpcio 1.85) now and then says of a server that died as it was
forked beside gRPC's threads; the next one lives."""

OBJECT_STORE_BYTES = 80 * 2**20
"""Nearly the least that Ray takes: what passes through it are pickled records."""

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # a Ray that we start would report itself to its makers
    "RAY_SCHEDULER_EVENTS": "0",  # the autoscaler's messages, and
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # those of lost nodes, would go to standard output: the answer's place
}
"""Read when Ray is imported; one that the environment sets already stays."""

SETTINGS_OF_LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # as where Ray has no clusters: it listens on 127.0.0.1 alone
    "RAY_worker_niceness": "0",  # servers inherit it: as important as those that are started without Ray
}

TOKEN = ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE")
"""A Ray that we start is given a token of its own. Without one, Ray (2.60) writes a token into the user's
home, and every cluster that is started there from then on asks its nodes for it."""


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module ray, connected to the cluster at `address` until the block ends.

    `ray://HOST:PORT` is a cluster's client port, `HOST:PORT` a cluster that this machine is a node of, and
    `local` a Ray of this machine alone, which ends with the block.

    Raises UsageError for another address, EnvironmentFailure where Ray is not installed, not there, or of
    another version.
    """
    parts = ADDRESS.fullmatch(address)
    if parts is None and address != LOCAL:
        raise UsageError(
            f"{address!r} is no address of Ray",
            hint="give ray://HOST:10001, HOST:6379 on a node of the cluster, or local",
        )
    ray = _imported(SETTINGS | SETTINGS_OF_LOCAL if address == LOCAL else SETTINGS)
    if parts is not None:
        _answers(address, parts["host"], int(parts["port"]))
    with _token() if address == LOCAL else nullcontext():
        _init(ray, address)
        try:
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _token() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in TOKEN}
    os.environ.setdefault(TOKEN[0], secrets.token_hex(32))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _imported(settings: Mapping[str, str]) -> Any:
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise EnvironmentFailure(
            "could not sweep on many machines: Ray is not installed",
            hint=f"{install_command('ray')}, and the cluster's version of Ray",
        ) from error
    logging.getLogger("ray").setLevel(logging.ERROR)
    # By value: a node may have another specops, or none, which is for the testbed to tell.
    importlib.import_module("ray.cloudpickle").register_pickle_by_value(testbed)
    return ray


def _answers(address: str, host: str, port: int) -> None:
    # Ray itself would try for half a minute, or two, and print how it fares.
    try:
        socket.create_connection((host, port), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def _init(ray: Any, address: str) -> None:
    started = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's advice to itself
            for tries_left in (2, 1, 0):
                try:
                    ray.init(
                        address,
                        logging_level=logging.ERROR,
                        log_to_driver=False,
                        **(started if address == LOCAL else {}),
                    )
                    break
                except ConnectionError as error:
                    if FORK not in str(error) or not tries_left:
                        raise
    except (ray.exceptions.RayError, RuntimeError, ImportError, ValueError, OSError) as error:
        raise _unreachable(address, str(error)) from error
    finally:
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray puts its own in, which prints a stack


def _unreachable(address: str, why: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"could not reach Ray at {address}: {' '.join(why.split())[:300]}",
        hint="`ray status` on the cluster's head says whether it runs; Ray and Python must be of one version "
        "on all machines",
    )
