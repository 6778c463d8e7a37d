"""The two pools of a rollout, each in its engine's own section, and what they must have in common; the other
sections of the rollout file; and the file as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Union
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from specops.config.deploy import Addresses, Deploy, Peak
from specops.config.edge import Edge
from specops.config.effect import Effect
from specops.config.guard import Guard
from specops.config.monitor import Monitor
from specops.config.referee import RAMP, Referee
from specops.config.route import Route
from specops.defaults import ACCEPTANCE_GATE, CONCURRENCY, CONFIDENCE, REQUEST_TIMEOUT_S, SPEEDUP_GATE
from specops.quantities import (
    MILLISECONDS,
    MINUTES,
    SECONDS,
    Count,
    Factor,
    Level,
    Milliseconds,
    Period,
    Price,
    Rate,
    Ratio,
    Seconds,
    Seed,
    Share,
    Streams,
    Temperature,
    Tokens,
)
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
    """The two pools that `specops run` compares; they differ in speculation only."""

    standard: AnyPool = Field(description="Pool without speculation, the baseline of every comparison.")
    speculative: AnyPool = Field(description="Pool with speculation.")

    @model_validator(mode="after")
    def _one_speculates(self) -> Pools:
        if self.standard.speculates:
            raise PydanticCustomError(
                "pools",
                "the standard pool must not have speculation",
                {"advice": "remove pools.standard.speculation: it is what the other pool is compared with"},
            )
        if self.speculative.speculates is False:
            raise PydanticCustomError(
                "pools",
                "the speculative pool has no speculation",
                {"advice": "add pools.speculative.speculation, such as tree: chain:3"},
            )
        return self

    @model_validator(mode="after")
    def _nothing_else_differs(self) -> Pools:
        standard, speculative = self.standard.comparable, self.speculative.comparable
        if standard is None or speculative is None or self.standard.engine != self.speculative.engine:
            return self
        unlike = sorted(
            key for key in {**standard, **speculative} if standard.get(key) != speculative.get(key)
        )
        if unlike:
            raise PydanticCustomError(
                "pools",
                "the pools differ in more than speculation: {keys}",
                {
                    "keys": ", ".join(unlike),
                    "advice": "write the same for both: any other difference would count as speculation",
                },
            )
        return self


AT = r"^((Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?([01][0-9]|2[0-3]):[0-5][0-9]$"


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there, no name of one, or a folder's
        raise PydanticCustomError(
            "timezone",
            "this machine knows no time zone {name}",
            {"name": name, "advice": "as in Asia/Seoul; on Debian, apt-get install tzdata"},
        ) from None
    return name


Zone = Annotated[str, AfterValidator(_zone)]


class Report(Section):
    """Period, schedule and thresholds of `specops report`."""

    window: Period = Field(default="7d", description="Period that the report covers, such as 24h, 7d or 2w.")
    timezone: Zone = Field(
        default="UTC", description="Time zone of the report's days and hours, such as Asia/Seoul."
    )
    at: str = Field(
        default="Mon 09:00",
        pattern=AT,
        description="Day and time at which `specops report schedule` "
        "runs the report; without a day, every day.",
    )
    min_acceptance: Share = Field(
        default=ACCEPTANCE_GATE,
        gt=0.0,
        lt=1.0,
        description="Acceptance rate below which the report recommends another draft, 0 to 1.",
    )
    min_speedup: Ratio = Field(
        default=SPEEDUP_GATE,
        ge=1.0,
        le=10.0,
        description="Speed-up, as a ratio, below which the report questions the cost of speculation.",
    )
    max_fallbacks: Count = Field(
        default=5,
        ge=0,
        description="Number of fallbacks per week above which the report recommends checking the draft.",
    )


class Costs(Section):
    """Prices of servers and edge machines, for savings in money in `specops report`."""

    currency: str = Field(
        default="USD",
        pattern=r"^\S{1,8}$",
        description="Currency code or sign as it is printed, 1 to 8 characters.",
    )
    standard_per_hour: Price = Field(
        gt=0.0, description="Price of one standard server per hour, all costs included."
    )
    speculative_per_hour: Price | None = Field(
        default=None,
        gt=0.0,
        description="Price of one speculative server per hour; default: standard_per_hour.",
    )
    edge_per_hour: Price | None = Field(
        default=None,
        ge=0.0,
        description="Price of one edge machine per hour, 0 where users "
        "own it; default: none, no cost of edge drafting.",
    )

    @property
    def speculative(self) -> float:
        return self.standard_per_hour if self.speculative_per_hour is None else self.speculative_per_hour


class Sweep(Section):
    """Configurations that `specops sweep` measures; its requests are those of `measure`."""

    k: list[Annotated[Tokens, Field(ge=0, le=64)]] = Field(
        default=[3, 4, 5, 6, 7, 8],
        min_length=1,
        description="Draft lengths to measure, in tokens; 0, no "
        "speculation, is always measured first and last.",
    )
    trees: list[Tree] | None = Field(
        default=None,
        min_length=1,
        description="Draft trees to measure instead of k, on the "
        "embedded engine; default: none, k is measured.",
    )
    drafts: dict[str, str] | None = Field(
        default=None,
        min_length=1,
        description="Drafts to compare: a name of your choice and a folder "
        "or hub id for each; default: the pool's draft.",
    )
    concurrency: list[Annotated[Streams, Field(ge=1, le=1000)]] | None = Field(
        default=None, min_length=1, description="Concurrency levels, in streams; default: those of `measure`."
    )
    temperature: list[Annotated[Temperature, Field(ge=0.0)]] | None = Field(
        default=None, min_length=1, description="Sampling temperatures; default: that of `measure`."
    )
    prompt_tokens: list[Annotated[Tokens, Field(ge=1)]] = Field(
        default=[],
        description="Bounds between classes of prompt length, in "
        "tokens, such as [512, 4096]; empty: one class.",
    )
    budget_min: Annotated[float, Field(gt=0.0), MINUTES] | None = Field(
        default=None,
        description="Time budget in minutes, spent where the result is "
        "undecided; default: none, the full grid is measured.",
    )
    cluster: str | None = Field(
        default=None,
        pattern=r"^(local|(ray://)?[^\s/:]+:\d{1,5})$",
        description="Ray cluster to measure on: ray://HOST:10001, HOST:6379 "
        "or local; default: none, this machine measures.",
    )


CheckName = Literal[
    "parity",
    "mixed",
    "overlap",
    "distribution",
    "temperature",
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
    "own_schema",
    "own_tool",
    "reasoning",
    "grammar",
    "long_prompt",
    "near_limit",
    "too_long",
    "cancel",
    "after_conversation",
    "after_eviction",
    "after_cancel",
    "saturated",
    "beside_schemas",
    "cached_tokens",
    "acceptance_slots",
    "acceptance_uptime",
    "acceptance_context",
]


class Canary(Section):
    """Checks of `specops canary`, which compares the answers of both pools."""

    prompts: Count = Field(
        default=12,
        ge=4,
        le=200,
        description="Number of prompts whose greedy answers are compared.",
    )
    samples: Count = Field(
        default=192,
        ge=32,
        le=20000,
        description="Number of sampled answers per pool; more samples detect smaller differences.",
    )
    concurrency: Streams = Field(
        default=8, ge=2, le=256, description="Number of concurrent requests per pool."
    )
    long_prompt_tokens: Tokens = Field(
        default=4096,
        ge=64,
        description="Length of the longest prompt sent, in tokens, or the model's limit where that is lower.",
    )
    skip: list[CheckName] = Field(default=[], description="Checks to skip.")


class Measure(Section):
    """Load, sampling and limits of the requests that `specops run` and `specops sweep` send."""

    endpoint: Literal["chat", "completions"] = Field(
        default="chat", description="OpenAI route to measure: chat or completions."
    )
    concurrency: list[Annotated[Streams, Field(ge=1, le=1000)]] = Field(
        default=list(CONCURRENCY),
        min_length=1,
        description="Concurrency levels, in streams, measured one after the other.",
    )
    repeats: Count = Field(
        default=2, ge=1, description="Number of times that each prompt is sent at each level."
    )
    warmup: Count = Field(
        default=4, ge=0, description="Number of requests before each level that are not counted."
    )
    temperature: Temperature = Field(
        default=0.0,
        ge=0.0,
        description="Sampling temperature; 0, greedy, also checks that both pools give the same answers.",
    )
    top_p: Share = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        description="Probability mass of nucleus sampling, 0 to 1; 1: all tokens.",
    )
    seed: Seed = Field(
        default=0, description="Seed of the order of prompts, and of sampling at temperatures above 0."
    )
    max_tokens: Tokens | None = Field(
        default=None,
        ge=1,
        description="Limit on output tokens for every prompt; default: the limit of each prompt.",
    )
    ignore_eos: bool = Field(
        default=False, description="Decode up to max_tokens, past the model's end-of-sequence token."
    )
    same_prompts: bool = Field(
        default=False,
        description="Send prompts as they are, although a cache may know them; default: a nonce in front.",
    )
    think_time: Factor = Field(
        default=0.0,
        ge=0.0,
        description="Pauses before later turns of conversations, times as long as recorded; 0: none.",
    )
    tokenizer: ExistingPath | None = Field(
        default=None,
        description="Path of a tokenizer.json that counts tokens where "
        "the server reports no usage; default: none.",
    )
    timeout_s: Seconds = Field(
        default=REQUEST_TIMEOUT_S, gt=0.0, description="Timeout of one request, in seconds."
    )
    max_error_share: Share = Field(
        default=0.05,
        ge=0.0,
        lt=1.0,
        description="Share of failed requests, 0 to 1, above which the verdict is no.",
    )
    max_rps: Rate | None = Field(
        default=None,
        gt=0.0,
        description="Limit on requests per second, for production endpoints; default: no limit.",
    )
    classes: list[str] | None = Field(
        default=None,
        min_length=1,
        description="Traffic classes to measure; default: all classes of the prompt set.",
    )
    trace: ExistingPath | None = Field(
        default=None,
        description="Trace of requests that `ab` replays, in place of `concurrency`: Mooncake, BurstGPT, "
        "Azure, or a log of the router; default: none.",
    )
    trace_speed: Factor = Field(
        default=1.0, gt=0.0, description="Speed of the replay, as a factor: 2 is twice as fast."
    )
    trace_from_s: Seconds = Field(
        default=0.0, ge=0.0, description="Beginning of the replayed part, in seconds of the trace."
    )
    trace_for_s: Annotated[float, Field(gt=0.0), SECONDS] | None = Field(
        default=None,
        description="Length of the replayed part, in seconds of the trace; default: to its end.",
    )
    ramp: str | None = Field(
        default=None,
        pattern=RAMP,
        description="Ramp of arrivals that `ab` sends, in place of `concurrency`: 1-20/10m is from 1 to 20 "
        "requests per second in 10 minutes; default: none.",
    )

    @model_validator(mode="after")
    def _one_replay(self) -> Measure:
        if self.trace is not None and self.ramp is not None:
            raise PydanticCustomError(
                "replay", "trace and ramp are both set", {"advice": "keep one: a comparison replays one load"}
            )
        return self


Design = Literal["interleaved", "abba-restart"]


class Ab(Section):
    """Comparison of the pools by `specops ab`; its requests are those of `measure`."""

    design: Design = Field(
        default="interleaved",
        description="Design: interleaved, both pools run and are measured "
        "in turn; abba-restart, one pool runs at a time.",
    )
    looks: Count = Field(
        default=4,
        ge=1,
        le=20,
        description="Number of looks at the evidence; the comparison ends once settled.",
    )
    requests: Count = Field(
        default=750, ge=16, description="Most requests to each pool; it ends earlier once settled."
    )
    min_duration_s: Seconds = Field(
        default=120.0,
        ge=0.0,
        description="Least time that the pools are observed before a yes, in seconds.",
    )
    confidence: Level = Field(
        default=CONFIDENCE,
        gt=0.5,
        lt=0.999,
        description="Confidence level of all speed-ups together, 0.5 to 0.999.",
    )
    failure_margin: Share = Field(
        default=0.01,
        ge=0.0001,
        lt=1,
        description="Share of requests that may fail, be refused or be late, beyond the standard pool's.",
    )
    answer_margin: Share = Field(
        default=0.05,
        ge=0.001,
        lt=1,
        description="Share of answers that may be unacceptable, beyond the standard pool's.",
    )
    length_margin: Share = Field(
        default=0.03,
        gt=0,
        lt=1,
        description="Relative difference in length, 0 to 1, up to which answers count as equally long.",
    )
    accept_length_change: bool = Field(
        default=False,
        description="Deploy although answers are longer or shorter, if each token is faster.",
    )
    first_token_ratio: Ratio = Field(
        default=1.2, gt=1, le=10, description="Ratio by which the first token may come later, above 1."
    )
    first_token_ms: Milliseconds = Field(
        default=50.0,
        ge=0.0,
        description="Delay of the first token up to which it counts as equal, in milliseconds.",
    )
    mixed_prompts: Count = Field(
        default=4,
        ge=0,
        description="Greedy requests of each cycle that are sent again among sampled ones; 0: none.",
    )
    prefix_share: Share = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of prompts and conversations that begin with one shared prefix, 0 to 1.",
    )
    prefix_tokens: Tokens = Field(
        default=512, ge=1, le=1_000_000, description="Length of the shared prefix, in tokens."
    )
    cold_share: Share = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of conversations of which no cache knows an earlier turn, 0 to 1.",
    )
    live_answers: bool = Field(
        default=False,
        description="Later turns follow on the pool's own answers, in place of the recorded ones.",
    )

    @model_validator(mode="after")
    def _shares_fit(self) -> Ab:
        if self.prefix_share + self.cold_share > 1:
            raise PydanticCustomError(
                "shares",
                "prefix_share and cold_share are together above 1",
                {"advice": "lower one: a conversation is of one kind"},
            )
        return self


class Slo(Section):
    """Latency limits that a request must meet, all of them, to count as goodput in `specops run`."""

    ttft_ms: Annotated[float, Field(ge=1.0), MILLISECONDS] | None = Field(
        default=None,
        description="Limit on the time to the first token, in milliseconds; default: no limit.",
    )
    tpot_ms: Annotated[float, Field(ge=0.1), MILLISECONDS] | None = Field(
        default=None,
        description="Limit on the time per output token after the first, in milliseconds; default: no limit.",
    )
    e2e_ms: Annotated[float, Field(ge=1.0), MILLISECONDS] | None = Field(
        default=None,
        description="Limit on the time from request to last token, in milliseconds; default: no limit.",
    )


class Capacity(Section):
    """Search of `specops capacity` for the highest rate at which each pool meets `slo`.

    `specops run` has this phase where the section is present."""

    attain: Share = Field(
        default=0.95, gt=0.5, lt=1.0, description="Share of requests that must meet every limit of `slo`."
    )
    precision: Share = Field(
        default=0.05,
        ge=0.005,
        le=0.5,
        description="Half of the width of the ratio's interval at which the search ends, as a share.",
    )
    budget_min: Annotated[float, Field(gt=0.0), MINUTES] = Field(
        default=120.0, description="Most time that the probes take, in minutes."
    )


SCHEMA_ID = "urn:specops:rollout-file"
"""A name and not an address: an editor reads the schema beside the rollout file, of the same version."""


class Rollout(Section):
    """The rollout file, for `specops run` and most other commands."""

    model_config = ConfigDict(
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID}
    )
    rollout: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the rollout; results go to runs/NAME beside this file.",
    )
    prompts: ExistingPath | None = Field(
        default=None, description="Path of the prompt set; default: the 64 prompts that ship with specops."
    )
    pools: Pools
    measure: Measure = Measure()
    ab: Ab = Ab()
    sweep: Sweep = Sweep()
    referee: Referee | None = None
    canary: Canary = Canary()
    slo: Slo | None = None
    capacity: Capacity | None = None
    peak: Peak | None = None
    deploy: Deploy = Deploy()
    addresses: Addresses = Addresses()
    monitor: Monitor = Monitor()
    route: Route = Route()
    effect: Effect = Effect()
    guard: Guard = Guard()
    report: Report = Report()
    edge: Edge | None = None
    costs: Costs | None = None
