"""One request as it was observed, before any statistic. Instants are seconds of `time.perf_counter`."""

from __future__ import annotations

from dataclasses import dataclass, field

from specops.load.answer import Answer, CountTokens, Failure, read_answer
from specops.load.workload import Prompt


@dataclass(slots=True)
class Exchange:
    """A request in flight or just over: raw bytes with the instants at which they came.

    Nothing is parsed while requests run, so that the work of reading one answer does not delay the stamps
    of another.
    """

    prompt: Prompt
    scheduled: float
    """When it should have been sent: for open-loop arrivals the drawn instant, else when it was begun."""

    first_sent: float = 0.0
    """When its first attempt was handed to the transport."""

    sent: float = 0.0
    """When the attempt that counts was handed to the transport."""

    ended: float = 0.0
    reads: list[tuple[float, bytes]] = field(default_factory=list)
    failure: Failure | None = None
    retries: int = 0

    def observe(self, count_tokens: CountTokens | None) -> Observation:
        try:
            answer = read_answer(self.reads, self.failure, count_tokens)
        except Exception as error:  # one answer that nothing can read must not cost the others
            failure = Failure("malformed", f"could not be read: {type(error).__name__}: {error}"[:300])
            answer = Answer(failure=failure)
        return Observation(
            prompt=self.prompt.id,
            traffic_class=self.prompt.traffic_class,
            scheduled=self.scheduled,
            first_sent=self.first_sent,
            sent=self.sent,
            ended=self.ended if answer.ended is None or answer.failure else answer.ended,
            answer=answer,
            retries=self.retries,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    prompt: str
    traffic_class: str
    scheduled: float
    first_sent: float
    sent: float
    ended: float
    answer: Answer
    retries: int = 0

    @property
    def ok(self) -> bool:
        return self.answer.failure is None
