"""The two pools of a rollout, each in its engine's own section, and what they must have in common; the other
sections of the rollout file; and the file as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Union
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from specops.config.deploy import Addresses, Deploy, Peak
from specops.config.edge import Edge
from specops.config.guard import Guard
from specops.config.monitor import Monitor
from specops.config.route import Route
from specops.defaults import CONCURRENCY, CONFIDENCE, REQUEST_TIMEOUT_S
from specops.section import ExistingPath, Section, Tree
from specops.serving import ENGINES, Pool

if TYPE_CHECKING:
    AnyPool = Pool
else:
    AnyPool = Annotated[
        Union[tuple(engine.settings for engine in ENGINES.values())],  # noqa: UP007
        Field(discriminator="engine"),
    ]


class Pools(Section):
    standard: AnyPool = Field(description="Without speculation: what the other is compared with.")
    speculative: AnyPool = Field(description="With speculation.")

    @model_validator(mode="after")
    def _one_speculates(self) -> Pools:
        if self.standard.speculates:
            raise PydanticCustomError(
                "pools",
                "the standard pool must not have speculation",
                {"hint": "remove pools.standard.speculation: it is what the other pool is compared with"},
            )
        if self.speculative.speculates is False:
            raise PydanticCustomError(
                "pools",
                "the speculative pool has no speculation",
                {"hint": "add pools.speculative.speculation, such as tree: chain:3"},
            )
        return self

    @model_validator(mode="after")
    def _nothing_else_differs(self) -> Pools:
        one, other = self.standard.comparable, self.speculative.comparable
        if one is None or other is None or self.standard.engine != self.speculative.engine:
            return self
        unlike = sorted(key for key in {**one, **other} if one.get(key) != other.get(key))
        if unlike:
            raise PydanticCustomError(
                "pools",
                "the pools differ in more than speculation: {keys}",
                {
                    "keys": ", ".join(unlike),
                    "hint": "write the same for both: what else differs would be measured as speculation",
                },
            )
        return self


SPAN = r"^[1-9][0-9]{0,3}[hdw]$"
AT = r"^((Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?([01][0-9]|2[0-3]):[0-5][0-9]$"


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there, no name of one, or a folder's
        raise PydanticCustomError(
            "timezone",
            "this machine knows no time zone {name}",
            {"name": name, "hint": "as in Asia/Seoul; on Debian, apt-get install tzdata"},
        ) from None
    return name


Zone = Annotated[str, AfterValidator(_zone)]


class Report(Section):
    window: str = Field(default="7d", pattern=SPAN, description="What it is of: 7d, 24h, 2w.")
    timezone: Zone = Field(default="UTC", description="Of its days and hours.")
    at: str = Field(default="Mon 09:00", pattern=AT, description="When `report schedule` has it made.")
    min_acceptance: float = Field(
        default=0.55, gt=0.0, lt=1.0, description="Below it another draft is recommended."
    )
    min_speedup: float = Field(default=1.3, gt=0.0, description="Below it the cost is questioned.")
    max_fallbacks: int = Field(default=5, ge=0, description="A week; with more the draft is to be checked.")


class Costs(Section):
    currency: str = Field(default="USD", pattern=r"^\S{1,8}$", description="As it is to be printed.")
    standard_per_hour: float = Field(gt=0.0, description="Of one server of the standard pool, all included.")
    speculative_per_hour: float | None = Field(
        default=None, gt=0.0, description="Left out: the same as a standard one."
    )
    edge_per_hour: float | None = Field(
        default=None, ge=0.0, description="Of one edge machine that drafts; 0 where users own it anyway."
    )

    @property
    def speculative(self) -> float:
        return self.standard_per_hour if self.speculative_per_hour is None else self.speculative_per_hour


class Sweep(Section):
    k: list[Annotated[int, Field(ge=0, le=64)]] = Field(
        default=[3, 4, 5, 6, 7, 8],
        min_length=1,
        description="Tokens drafted ahead. 0, no speculation, is always measured, first and again last.",
    )
    trees: list[Tree] | None = Field(
        default=None, min_length=1, description="In place of k, on the embedded engine."
    )
    drafts: dict[str, str] | None = Field(
        default=None,
        min_length=1,
        description="Drafts to compare: a name of yours, and a folder or hub id. Left out: the pool's own.",
    )
    concurrency: list[Annotated[int, Field(ge=1, le=1000)]] | None = Field(
        default=None, min_length=1, description="Streams at a time; left out: those of `measure`."
    )
    temperature: list[Annotated[float, Field(ge=0.0)]] | None = Field(
        default=None, min_length=1, description="Left out: that of `measure`."
    )
    prompt_tokens: list[Annotated[int, Field(ge=1)]] = Field(
        default=[],
        description="Bounds between classes of prompt length, such as [512, 4096]; left out: one class.",
    )
    budget_min: float | None = Field(
        default=None, gt=0.0, description="Minutes to spend where the answer is open; left out: all cells."
    )
    cluster: str | None = Field(
        default=None,
        pattern=r"^(local|(ray://)?[^\s/:]+:\d{1,5})$",
        description="Of Ray, to measure on: ray://HOST:10001, HOST:6379 or local; left out: this machine.",
    )


CheckName = Literal[
    "parity",
    "mixed",
    "distribution",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "stop",
    "length",
    "usage",
    "stream",
    "json_object",
    "json_schema",
    "tools",
    "tools_stream",
    "long_prompt",
    "too_long",
    "cancel",
]


class Canary(Section):
    prompts: int = Field(
        default=12,
        ge=4,
        le=200,
        description="Prompts whose greedy answers are compared.",
    )
    samples: int = Field(
        default=192,
        ge=32,
        le=20000,
        description="Sampled answers of each pool; the result says how small a difference they would show.",
    )
    concurrency: int = Field(default=8, ge=2, le=256, description="Requests that each pool has at a time.")
    long_prompt_tokens: int = Field(
        default=4096, ge=64, description="Longest prompt that is sent, where the model would take more."
    )
    skip: list[CheckName] = Field(default=[], description="Checks to leave out.")


class Measure(Section):
    endpoint: Literal["chat", "completions"] = Field(
        default="chat", description="The OpenAI route that is measured."
    )
    concurrency: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        default=list(CONCURRENCY), min_length=1, description="Streams at a time, one level after the other."
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
    timeout_s: float = Field(default=REQUEST_TIMEOUT_S, gt=0.0, description="Longest time for one request.")
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
        default=CONFIDENCE, gt=0.5, lt=0.999, description="Of all its intervals of a kind together."
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
