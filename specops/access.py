"""What an endpoint requires of a client: an API key, headers, TLS files.

`Access` is what a rollout file says of it. It names environment variables and files, and may be stored and
printed. `Credentials` is what these hold. It is read just before requests are sent, and is never stored.
"""

from __future__ import annotations

import os
import re
import shlex
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from specops.errors import UsageError
from specops.section import ExistingPath, Section

NO_KEY = "none"
"""What is sent where there is no API key, as servers without keys expect."""

API_KEYS = ("SPECOPS_API_KEY", "OPENAI_API_KEY")
"""Variables that may hold the key of an endpoint that names none of its own; the first that is set counts."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_NAME = re.compile(
    r"auth|cookie|key|token|secret|password|credential|signature|session", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"(Bearer|Basic|Token|Digest)\s|(?=.*\d)(?=.*[A-Za-z])[\w+/=.~-]{20,}$", re.IGNORECASE
)
_OURS = ("accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding")
"""Headers that specops sets for each request."""


def _variable(value: str) -> str:
    # The value is not in the message: somebody may have written the key itself.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise _refusal(
            "it is not the name of an environment variable",
            "write the name, such as GATEWAY_KEY, not the key",
        )
    return value


def _headers(headers: dict[str, str]) -> dict[str, str]:
    names = [name.lower() for name in headers]
    for name, value in headers.items():
        literal = _VARIABLE.sub("", value)
        if not _NAME.fullmatch(name):
            raise _refusal(f"{name!r} is not a name of a header", "write NAME: value")
        if name.lower() in _OURS:
            raise _refusal(f"specops sets the header {name} itself", "remove it")
        if names.count(name.lower()) > 1:
            raise _refusal(f"the header {name} is given twice", "upper and lower case are the same name")
        if "${" in literal or not (value.isascii() and value.isprintable()):
            raise _refusal(
                f"the value of the header {name} cannot be sent",
                "write printable ASCII; a variable is ${NAME}",
            )
        if literal == value and (_SECRET_NAME.search(name) or _SECRET_VALUE.match(value)):
            raise _refusal(
                f"the value of the header {name} may be a secret, and results keep it",
                f"put it into an environment variable, and write {name}: ${{NAME_OF_THE_VARIABLE}}",
            )
    return headers


def _refusal(message: str, advice: str) -> PydanticCustomError:
    return PydanticCustomError("access", "{message}", {"message": message, "advice": advice})


def _absent(value: object) -> bool:
    """Return whether a setting is not given: it is then in no result and no hash."""
    return not value


class Access(Section):
    """What an endpoint requires of a client. Secrets are named by the variables that hold them."""

    api_key_env: Annotated[str, AfterValidator(_variable)] | None = Field(
        default=None,
        exclude_if=_absent,
        description="Environment variable that holds the API key of this pool; default: "
        f"{' or '.join(API_KEYS)}.",
    )
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(
        default={},
        exclude_if=_absent,
        description="Headers of every request to this pool; ${NAME} stands for an environment variable, "
        "which a secret must be in.",
    )
    ca_file: ExistingPath | None = Field(
        default=None,
        exclude_if=_absent,
        description="Certificates (PEM) of the authority that signed this pool's; default: the system's.",
    )
    client_cert: ExistingPath | None = Field(
        default=None,
        exclude_if=_absent,
        description="Client certificate (PEM) that this pool asks for; default: none.",
    )
    client_key: ExistingPath | None = Field(
        default=None,
        exclude_if=_absent,
        description="Private key (PEM) of client_cert, without a passphrase; default: in client_cert.",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Access:
        own = next((name for name in self.headers if name.lower() == "authorization"), None)
        if own is not None and self.api_key_env is not None:
            raise _refusal(f"api_key_env and the header {own} both say who asks", "remove one of them")
        if self.client_key is not None and self.client_cert is None:
            raise _refusal("client_key has no client_cert", "add client_cert, the certificate of this key")
        return self

    def credentials(self, owner: str = "", api_key_env: str | None = None) -> Credentials:
        """Read the variables and files.

        `owner`: what messages call the endpoint, such as the name of its pool. `api_key_env`: the variable of
        the key where this names none. Raises UsageError for a variable that is not set, and for files that
        are no certificates.
        """
        authorization = next((name for name in self.headers if name.lower() == "authorization"), None)
        variable = self.api_key_env or api_key_env
        if variable is None:
            variable = next((name for name in API_KEYS if os.environ.get(name)), None)
        if authorization is not None:
            variable = None
        names = [name for value in self.headers.values() for name in _VARIABLE.findall(value)]
        names += [variable] if variable else []
        self._require(names, owner)
        secrets = {name: os.environ[name].strip() for name in names}
        for name, secret in secrets.items():
            if not (secret.isascii() and secret.isprintable()):
                raise UsageError(
                    f"the environment variable {name}{_owner_suffix(owner)} has characters that no header "
                    "can carry",
                    hint=f"export {name}=YOUR_SECRET",
                )
        sent = {
            "Authorization" if name == authorization else name: _VARIABLE.sub(
                lambda match: secrets[match[1]], value
            )
            for name, value in self.headers.items()
        }
        return Credentials(
            owner=owner,
            variable=variable,
            api_key=secrets[variable] if variable else NO_KEY,
            headers=sent,
            secrets=tuple(sorted({*secrets.values()} - {NO_KEY}, key=len, reverse=True)),
            tls=self._tls(owner),
            curl=self._curl(variable),
        )

    def _require(self, names: Iterable[str], owner: str) -> None:
        missing = list(dict.fromkeys(name for name in names if not os.environ.get(name, "").strip()))
        if missing:
            variables = "variable" if len(missing) == 1 else "variables"
            raise UsageError(
                f"nothing was sent: the environment {variables} "
                f"{' and '.join(missing)}{_owner_suffix(owner)} "
                f"{'is' if len(missing) == 1 else 'are'} not set",
                hint=f"export {' '.join(f'{name}=YOUR_SECRET' for name in missing)}  "
                "# then run the same command again",
            )

    def _tls(self, owner: str) -> ssl.SSLContext | None:
        if self.ca_file is None and self.client_cert is None:
            return None
        file = self.ca_file
        try:
            context = ssl.create_default_context(cafile=None if file is None else str(file))
            if self.client_cert is not None:
                file = self.client_cert
                key = None if self.client_key is None else str(self.client_key)
                # Without this, OpenSSL would ask the terminal for the passphrase of an encrypted key.
                context.load_cert_chain(str(file), key, password=lambda: "")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"could not use {file}{_owner_suffix(owner)}: {reason}; expected PEM, and a private key that "
                "fits its "
                "certificate and has no passphrase",
                hint=f"head -n 1 {shlex.quote(str(file))}",
            ) from None
        return context

    def _curl(self, variable: str | None) -> str:
        words = [f' -H "Authorization: Bearer ${variable}"'] if variable else []
        for name, value in self.headers.items():
            parts = re.split(r"(\$\{\w+\})", f"{name}: {value}")
            quoted = (
                part if _VARIABLE.fullmatch(part) else re.sub(r'([\\"$`])', r"\\\1", part) for part in parts
            )
            words.append(f' -H "{"".join(quoted)}"')
        files = (("--cacert", self.ca_file), ("--cert", self.client_cert), ("--key", self.client_key))
        words += [f" {option} {shlex.quote(str(path))}" for option, path in files if path is not None]
        return "".join(words)


HOW = ("api_key_env", "ca_file", "client_cert", "client_key")
"""Settings of `Access` that change nothing about what answers. Headers may: a gateway may route by them."""

OPEN = Access()
"""An endpoint that says nothing of its own."""


def _owner_suffix(owner: str) -> str:
    return f" of {owner}" if owner else ""


@dataclass(frozen=True)
class Credentials:
    """What a client sends to an endpoint and checks of it, with secrets: never stored, never printed."""

    owner: str = ""
    """What messages call the endpoint; empty: its address alone."""

    variable: str | None = None
    """The environment variable that the API key came from; None: there is no key."""

    api_key: str = field(default=NO_KEY, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of every request, without that of the API key."""

    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The values of all variables, the longest first, to be blotted out where a server echoes them."""

    tls: ssl.SSLContext | None = None
    """None: the system's authorities, and no client certificate."""

    curl: str = ""
    """Options of curl that send and check the same, each with a space before it; without secrets."""

    @property
    def all_headers(self) -> dict[str, str]:
        """Headers of every request, that of an API key among them."""
        key = {} if self.api_key == NO_KEY else {"Authorization": f"Bearer {self.api_key}"}
        return key | dict(self.headers)

    @property
    def description(self) -> str:
        """Return in words what says who asks."""
        if self.variable is None and self.headers:
            return f"the headers {', '.join(self.headers)}"
        return f"the API key in {self.variable}" if self.variable else "the API key"

    def endpoint_name(self, base_url: str) -> str:
        """Return what messages call the endpoint at this address."""
        return f"{self.owner} ({base_url})" if self.owner else base_url

    def blotted(self, text: str) -> str:
        """Return `text` without the secrets in it."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


NOTHING = Credentials()
"""No key, no headers, and the system's authorities."""
