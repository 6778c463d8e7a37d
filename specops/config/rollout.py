"""The rollout file's other sections, and the file as a whole."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specops.config.addresses import Addresses
from specops.config.canary import Canary
from specops.config.deploy import Deploy, Peak
from specops.config.edge import Edge
from specops.config.guard import Guard
from specops.config.monitor import Monitor
from specops.config.pools import Pools
from specops.config.report import Costs, Report
from specops.config.route import Route
from specops.config.sweep import Sweep
from specops.section import ExistingPath, Section


class Measure(Section):
    endpoint: Literal["chat", "completions"] = Field(
        default="chat", description="The OpenAI route that is measured."
    )
    concurrency: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        default=[1, 4], min_length=1, description="Streams at a time, one level after the other."
    )
    repeats: int = Field(default=2, ge=1, description="Times that each prompt is sent at each level.")
    warmup: int = Field(default=4, ge=0, description="Requests before each level that are not counted.")
    temperature: float = Field(default=0.0, ge=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    seed: int = Field(default=0, description="Order of the prompts, and sampling where temperature is not 0.")
    max_tokens: int | None = Field(default=None, ge=1, description="In place of what each prompt asks for.")
    ignore_eos: bool = Field(default=False, description="Decode to max_tokens whatever the model says.")
    tokenizer: ExistingPath | None = Field(
        default=None, description="A tokenizer.json, to count tokens where the server reports no usage."
    )
    timeout_s: float = Field(default=60.0, gt=0.0, description="Longest time for one request.")
    max_error_share: float = Field(
        default=0.05, ge=0.0, lt=1.0, description="More failed requests than this: the verdict is no."
    )
    max_rps: float | None = Field(
        default=None, gt=0.0, description="A cap on requests per second, for production."
    )
    classes: list[str] | None = Field(default=None, min_length=1, description="Only these traffic classes.")


Design = Literal["interleaved", "abba-restart"]


class Ab(Section):
    """How the pools are compared; the requests are those of `measure`."""

    design: Design = Field(
        default="interleaved",
        description="interleaved: both pools are up and measured in turn; abba-restart: only one is ever up.",
    )
    looks: int = Field(default=4, ge=1, le=20, description="Times that it may end early, once decided.")
    confidence: float = Field(
        default=0.95, gt=0.5, lt=0.999, description="Of all its intervals of a kind together."
    )
    length_margin: float = Field(
        default=0.03,
        gt=0,
        lt=1,
        description="Share by which answers may be longer or shorter before they count as other answers.",
    )
    accept_length_change: bool = Field(
        default=False,
        description="Deploy although answers are surely longer or shorter, where each token is faster.",
    )
    failure_margin: float = Field(
        default=0.005,
        ge=0.0001,
        lt=1,
        description="Share of requests that may fail, or take over 10x the median, beyond the standard's.",
    )
    mixed_prompts: int = Field(
        default=8, ge=0, description="Greedy requests sent again among sampled ones; 0: none."
    )


class Slo(Section):
    """What a request must meet, all of it, to count as goodput."""

    ttft_ms: float | None = Field(default=None, gt=0.0)
    tpot_ms: float | None = Field(default=None, gt=0.0)
    e2e_ms: float | None = Field(default=None, gt=0.0)


class Rollout(Section):
    rollout: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Its name; results go to runs/NAME beside this file.",
    )
    prompts: ExistingPath | None = Field(
        default=None, description="The prompt set; left out: the one that ships."
    )
    pools: Pools
    measure: Measure = Measure()
    ab: Ab = Ab()
    sweep: Sweep = Sweep()
    canary: Canary = Canary()
    slo: Slo | None = None
    peak: Peak | None = None
    deploy: Deploy = Deploy()
    addresses: Addresses = Addresses()
    monitor: Monitor = Monitor()
    route: Route = Route()
    guard: Guard = Guard()
    report: Report = Report()
    edge: Edge | None = None
    costs: Costs | None = None
