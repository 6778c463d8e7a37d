"""The token of an Authorization header."""

from __future__ import annotations


def bearer_token(authorization: bytes) -> bytes:
    """The token of `Bearer TOKEN`, whose scheme may be written in any case (RFC 9110, section 11.1).

    Empty for any other scheme.
    """
    scheme, _, token = authorization.partition(b" ")
    return token.lstrip(b" ") if scheme.lower() == b"bearer" else b""
