"""A server that already runs: which engine answers there cannot be known from its address."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specops.serving.engine import Endpoint, Engine, Pool


class EndpointPool(Pool):
    """An OpenAI-compatible server that is already running. Its key comes from the environment."""

    engine: Literal["endpoint"]
    base_url: str = Field(
        pattern=r"^https?://", description="URL of the API, such as http://127.0.0.1:8000/v1."
    )
    model: str = Field(min_length=1, description="Name of the model at the endpoint.")

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.base_url, self.model)


def pool_at(base_url: str, model: str) -> EndpointPool:
    """A pool that runs at a checked address. `model` is empty where it is still the endpoint's to say."""
    return EndpointPool.model_construct(engine="endpoint", base_url=base_url, model=model)


ENGINE = Engine(
    name="endpoint",
    title="an endpoint",
    about="one that is already running",
    settings=EndpointPool,
    opaque=True,
)
