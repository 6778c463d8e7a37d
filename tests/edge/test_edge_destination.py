"""Who can be reached, and what is said where nobody can."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the engine extra")
pytest.importorskip("grpc", reason="needs the edge extra")

import grpc
import trustme
from scripted_verifier import description, scripted

from specops.edge.connection import Destination, connect, reason
from specops.edge.relay import relay
from specops.errors import EndpointError, FileError, UsageError


def test_who_does_not_answer_is_named() -> None:
    with relay(1) as path:
        path.refusing = True
        port = path.port
    with pytest.raises(EndpointError, match=f"could not reach 127.0.0.1:{port}: nothing listens there"):
        connect(Destination(f"127.0.0.1:{port}"))


def test_who_is_no_verify_server_is_told_apart() -> None:
    with (
        scripted(serves=False) as server,
        pytest.raises(
            EndpointError, match="expected `specops edge verify-server` of this version of specops there"
        ),
    ):
        connect(Destination(f"127.0.0.1:{server.port}"))


def test_an_older_protocol_is_refused() -> None:
    with (
        scripted(description=description(revision=0)) as server,
        pytest.raises(EndpointError, match="revision 0"),
    ):
        connect(Destination(f"127.0.0.1:{server.port}"))


@pytest.mark.parametrize("token", [None, "wrong"])
def test_a_wrong_token_is_told(token: str | None) -> None:
    with (
        scripted(token="right") as server,
        pytest.raises(EndpointError, match="refuses the token") as refused,
    ):
        connect(Destination(f"127.0.0.1:{server.port}", token=token))
    assert "SPECOPS_EDGE_TOKEN" in (refused.value.hint or "")


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:0", "host:70000"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(UsageError, match="a server is named HOST:PORT"):
        connect(Destination(address))


def test_a_token_does_not_travel_in_the_clear() -> None:
    with pytest.raises(UsageError, match="in the clear"):
        connect(Destination("192.0.2.1:9", token="secret"))


def test_tls_with_the_right_authority_only(tmp_path: Path) -> None:
    ours, theirs = trustme.CA(), trustme.CA()
    certificate = ours.issue_cert("127.0.0.1")
    credentials = grpc.ssl_server_credentials(
        [(certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())]
    )
    for name, authority in (("ours.pem", ours), ("theirs.pem", theirs)):
        authority.cert_pem.write_to_path(tmp_path / name)
    with scripted(credentials=credentials, token="secret") as server:
        address = f"127.0.0.1:{server.port}"
        with closing(connect(Destination(address, "secret", str(tmp_path / "ours.pem")))) as link:
            link.end(1)
            assert server.stream().next().WhichOneof("kind") == "close"
        with pytest.raises(EndpointError, match="not signed by these authorities"):
            connect(Destination(address, ca=str(tmp_path / "theirs.pem")))
        with pytest.raises(EndpointError, match="could not reach"):
            connect(Destination(address))
        with pytest.raises(FileError, match="could not read the certificates"):
            connect(Destination(address, ca=str(tmp_path / "none.pem")))


@dataclass(frozen=True)
class Failure:
    said: str

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return self.said


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("errors resolving a:1: [hostname lookup error:Domain name not found]", "its name is not known"),
        ("failed to connect; last error: Timed out: FD shutdown", "it does not answer"),
        ("Stream removed (recvmsg:Connection reset by peer (104))", "the connection was reset"),
        ("something \n else", "something else"),
        ("", "unavailable"),
    ],
)
def test_grpcs_words_are_made_few(said: str, told: str) -> None:
    assert reason(Failure(said)) == told
