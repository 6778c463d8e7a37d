"""A server that already runs: which engine answers there cannot be known from its address."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.access import OPEN, Access
from specops.serving.engine import Endpoint, Engine, Pool


class EndpointPool(Access, Pool):
    """An OpenAI-compatible server that is already running. Its secrets come from the environment."""

    engine: Literal["endpoint"]
    base_url: str = Field(
        pattern=r"^https?://", description="URL of the API, such as http://127.0.0.1:8000/v1."
    )
    model: str = Field(min_length=1, description="Name of the model at the endpoint.")

    @model_validator(mode="after")
    def _files_for_https(self) -> EndpointPool:
        setting = next((name for name in ("ca_file", "client_cert") if getattr(self, name) is not None), None)
        if setting is not None and not self.base_url.startswith("https://"):
            raise PydanticCustomError(
                "access",
                "{name} has no effect at an address that begins with http://",
                {"name": setting, "advice": f"write base_url: https://…, or remove {setting}"},
            )
        return self

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.base_url, self.model, self)


def pool_at(base_url: str, model: str, access: Access = OPEN) -> EndpointPool:
    """A pool that runs at a checked address. `model` is empty where it is still the endpoint's to say."""
    fields = {name: getattr(access, name) for name in Access.model_fields}
    return EndpointPool.model_construct(engine="endpoint", base_url=base_url, model=model, **fields)


ENGINE = Engine(
    name="endpoint",
    title="an endpoint",
    about="one that is already running",
    settings=EndpointPool,
    opaque=True,
)
