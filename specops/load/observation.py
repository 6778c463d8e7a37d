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
    """When it should have been sent: at the drawn instant of an open loop; in a closed one when the answer
    before it had come."""

    first_sent: float = 0.0
    """When the last byte of its first attempt had gone to the kernel."""

    sent: float = 0.0
    """When the last byte of the attempt that counts had gone to the kernel; 0 before any attempt."""

    ended: float = 0.0
    connecting: float = 0.0
    """Seconds until the connection of the attempt that counts was there, where it needed a new one."""

    began: bool = False
    """Whether any byte of a response came."""

    reads: list[tuple[float, bytes]] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    """For each read, the seconds that its bytes waited for this program."""

    failure: Failure | None = None
    retries: int = 0
    resent: bool = False
    """Sent again at once: the server had closed the connection that it had said it would keep."""

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
            resent=self.resent,
            connecting=self.connecting,
            delays=tuple(self.delays),
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
    resent: bool = False
    connecting: float = 0.0
    delays: tuple[float, ...] = ()

    @property
    def ok(self) -> bool:
        return self.answer.failure is None
