"""How a server is reached: its address, TLS and the token, and why it was not reached, in few words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from specops.errors import EndpointError, FileError, UsageError
from specops.net import is_loopback

SYSTEM = "system"  # the certificates that this machine trusts

CONNECT_S = 5.0
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.keepalive_time_ms", 10_000),  # a path that died without a word is noticed
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # without it a ping is waited for a minute, whatever stands above
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new attempt does not wait for an old one's back-off
    ("grpc.enable_retries", 0),
    ("grpc.http2.bdp_probe", 0),  # as at the server
]
FINAL = {
    grpc.StatusCode.UNAUTHENTICATED: (
        "it refuses the token",
        "set SPECOPS_EDGE_TOKEN to a token that the server knows",
    ),
    grpc.StatusCode.PERMISSION_DENIED: (
        "it refuses this client",
        "set SPECOPS_EDGE_TOKEN to a token that may do this",
    ),
    grpc.StatusCode.UNIMPLEMENTED: (
        "what listens there does not speak this version of the protocol",
        "is it a `specops edge verify-server`, and is its version of specops this one's?",
    ),
}


_SIGNS = (
    ("connection refused", "nobody listens there"),
    ("certificate_verify_failed", "its certificate is not signed by these authorities"),
    ("certificate verify failed", "its certificate is not signed by these authorities"),
    ("hostname verification", "its certificate is for another name"),
    ("handshak", "the TLS handshake failed"),
    ("lookup error", "its name is not known"),
    ("dns resolution failed", "its name is not known"),
    ("timed out", "it does not answer"),
    ("ping timeout", "it does not answer any more"),
    ("reset by peer", "the connection was reset"),
    ("socket closed", "the connection was closed"),
    ("broken pipe", "the connection was closed"),
)


@dataclass(frozen=True)
class Destination:
    """How a server is reached."""

    address: str  # HOST:PORT
    token: str | None = None
    ca: str | None = None  # a PEM file, or `system`; None: no TLS
    insecure: bool = False  # the token may go over a network in the clear


def channel_to(destination: Destination) -> grpc.Channel:
    """Raises UsageError for an address that is none, or a token that would travel in the clear; FileError for
    certificates that cannot be read."""
    host, _, port = destination.address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"a server is named HOST:PORT, not {destination.address!r}")
    options = list(OPTIONS)
    local = is_loopback(f"//{destination.address}")
    if local:
        options.append(("grpc.enable_http_proxy", 0))
    if destination.ca is None:
        if destination.token is not None and not local and not destination.insecure:
            raise UsageError(
                f"the token would go to {destination.address} in the clear",
                hint="give --tls-ca, or --insecure where the network is to be trusted",
            )
        return grpc.insecure_channel(destination.address, options)
    roots = None
    if destination.ca != SYSTEM:
        try:
            roots = Path(destination.ca).read_bytes()
        except OSError as error:
            raise FileError(
                f"could not read the certificates in {destination.ca}: {error.strerror}"
            ) from error
    return grpc.secure_channel(destination.address, grpc.ssl_channel_credentials(roots), options)


def refused(destination: Destination, error: Any) -> EndpointError:
    if error.code() in FINAL:
        what, hint = FINAL[error.code()]
        return EndpointError(f"could not use {destination.address}: {what}", hint)
    return EndpointError(
        f"could not reach {destination.address}: {reason(error)}",
        hint="is `specops edge verify-server` running there, and does it speak TLS exactly where --tls-ca "
        "is given?",
    )


def reason(error: Any) -> str:
    """gRPC's words in few: the details name every address and file that were tried."""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {CONNECT_S:g} s"
    details = " ".join((error.details() or "").split())
    lower = details.lower()
    for sign, words in _SIGNS:
        if sign in lower:
            return words
    return details[:200] or str(error.code().name).lower().replace("_", " ")
