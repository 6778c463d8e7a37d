"""Who may ask: tokens, and the names that they stand for."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from pathlib import Path

from specops.errors import FileError, UsageError
from specops.serve.admission import bearer_token

METADATA = "authorization"
"""Where a client sends `Bearer TOKEN`."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TOKEN = re.compile(r"[!-~]{8,512}")


class Access:
    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Tokens by the name of who has it; "" is nobody's name. None at all: everyone may ask, nameless."""
        self._tokens = {name: token.encode() for name, token in tokens.items()}

    def name(self, authorization: str | bytes) -> str | None:
        """Of whoever sent this; None where the token is nobody's."""
        if not self._tokens:
            return ""
        header = authorization.encode("utf-8", "replace") if isinstance(authorization, str) else authorization
        given = bearer_token(header)
        # All are compared, each in constant time: how long it takes says nothing about any of them.
        found = [name for name, token in self._tokens.items() if hmac.compare_digest(given, token)]
        return found[0] if found else None


def own_token(text: str) -> dict[str, str]:
    """The one token of a server whose clients have no names. Raises UsageError, which does not show it."""
    if not _TOKEN.fullmatch(text):
        raise UsageError(
            "could not take SPECOPS_EDGE_TOKEN for a token",
            hint="a token has 8 to 512 characters: letters, digits and signs of ASCII, no spaces",
        )
    return {"": text}


def read_tokens(file: Path) -> dict[str, str]:
    """Lines of `name=token`; blank ones and those that begin with # are left out.

    Raises FileError where it cannot be read, UsageError where a line is wrong. No message shows a token.
    """
    try:
        lines = file.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not plain ASCII"
        raise FileError(f"could not read the tokens in {file}: {reason}") from error
    tokens: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        name, _, token = line.partition("=")
        if not (_NAME.fullmatch(name) and _TOKEN.fullmatch(token)):
            raise UsageError(
                f"could not take line {number} of {file} for a token",
                hint="write name=token: a name of letters, digits, . _ -, a token of 8 characters or more",
            )
        if name in tokens or token in tokens.values():
            raise UsageError(f"line {number} of {file} gives a name or a token a second time")
        tokens[name] = token
    if not tokens:
        raise UsageError(f"there are no tokens in {file}", hint="without --token-file no token is required")
    return tokens
