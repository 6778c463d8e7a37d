"""One decorator for all commands: the options that they share, and how their answer is given. Below it are
the options that several commands have in common, with their checks.

A command's function has only its own options. It takes a `Call`, or a `RolloutCall` where its first argument
is a rollout file, and returns an `Answer`; a command that serves until it is stopped returns None.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import logging
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel, ValidationError
from typer.core import TyperGroup
from typer.models import OptionInfo

from specops.cli.output import name_rollout, print_document, print_json, print_text
from specops.cli.progress import progress
from specops.defaults import LEVELS_HELP, REQUEST_TIMEOUT_S
from specops.errors import EnvironmentFailure, Exit, UsageError, install_command
from specops.hints import with_options
from specops.quantities import SECONDS, SHARE, Quantity, TimeQuantity, kind_of_field
from specops.render.report.document import Document
from specops.results import Result, write
from specops.validation import problem

if TYPE_CHECKING:
    from specops.config import Rollout
    from specops.phases.commands import Commands
    from specops.progress import Progress


Settings = TypeVar("Settings", bound=BaseModel)

ROLLOUT_FILE = "Rollout file; `specops init` writes one."

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no notes.")]
# `main` looks for --debug on the command line itself, since a command may fail before it is parsed.
DebugFlag = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]
RolloutArgument = Annotated[Path, typer.Argument(help=ROLLOUT_FILE)]
FolderOption = Annotated[
    Path | None, typer.Option("--out", help="Run folder; default: runs/NAME beside the rollout file.")
]
AnswerOption = Annotated[Path | None, typer.Option("--out", help="File that the answer is also written to.")]
ResultOption = Annotated[Path, typer.Option("--out", help="File of the result; an earlier one is resumed.")]


@dataclass(frozen=True)
class Answer:
    """The answer of a command, as JSON and as text."""

    value: BaseModel | Mapping[str, Any] | Sequence[Any]
    """Printed with --json."""

    text: Iterable[str] | Document = ()
    """Printed without --json: a document, or lines."""

    exit_code: int | None = None
    """None: the result's own; 0 for other values."""

    @property
    def code(self) -> int:
        if self.exit_code is not None:
            return self.exit_code
        return self.value.exit_code if isinstance(self.value, Result) else Exit.YES


@dataclass(frozen=True)
class Call:
    """The call of a command: its shared options and what they lead to."""

    context: typer.Context
    as_json: bool
    quiet: bool
    out: Path | None
    """`--out`, for a command that has it."""

    writes_answer: bool
    """Whether `--out` is an `AnswerOption`."""

    def progress(self, *, heartbeat: bool = True) -> AbstractContextManager[Progress]:
        """`heartbeat`: a log has a line now and then, also while nothing happens; a service says what
        changes."""
        return progress(self.quiet, heartbeat=heartbeat)

    def announce(self, value: Mapping[str, Any], text: str) -> None:
        """A server is up: `value` as one line of JSON on stdout with --json, else `text` on stderr."""
        if self.as_json:
            print(json.dumps(value), flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def give(self, answer: Answer) -> None:
        """Print it, and write it to the file of an `AnswerOption`."""
        if self.writes_answer and self.out is not None and isinstance(answer.value, Result):
            write(self.out, answer.value)
        if self.as_json:
            print_json(answer.value)
            return
        if isinstance(answer.text, Document):
            print_document(answer.text)
        else:
            print_text(answer.text)
        if self.out is not None and isinstance(answer.value, Result) and not self.quiet:
            for line in picture_of(answer.value, self.out, self.context.params.get("plot")):
                print_text([line])

    def settings(self, model: type[Settings], fields: Mapping[str, Any]) -> Settings:
        """Return `fields` as a `model`, for options that are named as its fields. Raises UsageError, by the
        name of the option, for a value that the model refuses."""
        try:
            return model.model_validate(fields)
        except ValidationError as error:
            raise self.wrong_option(error, model) from error

    def wrong_option(self, error: ValidationError, model: type[BaseModel] | None = None) -> UsageError:
        """Return the error in the options' words. `model`: the one that refused, whose numbers have kinds."""
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        option = "--" + field.removesuffix("_s").replace("_", "-") if field else ""
        kind = kind_of_field(model, field) if model is not None else None
        return UsageError(
            f"could not use the options: {option} {problem(first, kind)}",
            hint=f"{self.context.command_path} --help",
        )


@dataclass(frozen=True)
class RolloutCall(Call):
    """A call with a rollout file, which is read before the command's function runs: a wrong file is reported
    at once."""

    path: Path
    file: Rollout

    @property
    def folder(self) -> Path:
        """The run folder: `--out`, or runs/NAME beside the rollout file."""
        from specops.config import run_folder

        return run_folder(self.path, self.file.rollout, self.out)

    @property
    def commands(self) -> Commands:
        from specops.phases.commands import Commands

        return Commands(self.file, self.path, self.folder)


def picture_of(result: Result, path: Path, drawn: Path | None) -> Iterator[str]:
    """Yield where a result that was written to the file `path` can be looked at. `drawn`: the plot, if there
    is one already. Nothing for a run folder, whose page `run` names, and for what has neither page nor
    plot."""
    if path.suffix != ".json":
        return
    from specops.phases.plot import plotter
    from specops.phases.run_page import INDEX
    from specops.phases.run_page.document import is_run_folder

    if is_run_folder(path.parent) and (path.parent / INDEX).exists():
        yield f"page: {path.parent / INDEX}"
    elif drawn is None and result.verdict != "partial" and plotter(result.phase) is not None:
        yield f"plot: specops plot {shlex.quote(str(path))}"


def shared_options(
    *, out: Any = None, default_out: Path | None = None, rollout_at: int = 0
) -> Callable[[Callable[..., Answer | None]], Callable[..., None]]:
    """Make a Typer command of a function whose first parameter is a `Call` or a `RolloutCall`.

    out: the type of `--out`; by default the run folder for a `RolloutCall`, and no such option for a `Call`.
    An `AnswerOption` needs nothing of the function: the result is written here.
    An option with a kind of number, as in `Annotated[float, SECONDS, typer.Option()]`, is read as a key of
    this kind in a rollout file.
    rollout_at: how many arguments come before the rollout file.
    A parameter whose type is a dataclass stands for an option for each of its fields.
    """

    def decorate(function: Callable[..., Answer | None]) -> Callable[..., None]:
        first, *own = inspect.signature(function, eval_str=True).parameters.values()
        groups: dict[str, Any] = {
            parameter.name: parameter.annotation for parameter in own if is_dataclass(parameter.annotation)
        }
        on_rollout = first.annotation is RolloutCall
        kind = FolderOption if out is None and on_rollout else out
        rollout_options = [_option("rollout", RolloutArgument)] if on_rollout else []
        common_options = [] if kind is None else [_option("out", kind, default_out)]
        common_options += [_option(name, flag, False) for name, flag in FLAGS.items()]

        @functools.wraps(function)
        def called(context: typer.Context, **options: Any) -> None:
            options.pop("debug")
            shared = {
                "context": context,
                "as_json": options.pop("as_json"),
                "quiet": options.pop("quiet"),
                "out": options.pop("out", None),
                "writes_answer": kind is AnswerOption,
            }
            path: Any = options.pop("rollout") if on_rollout else options.get("rollout")
            name_rollout(_place(path, shared["out"] if kind is FolderOption else None))
            if on_rollout:
                from specops.config import load

                shared |= {"path": path, "file": load(path)}
            for name, group in groups.items():
                options[name] = group(**{option.name: options.pop(option.name) for option in fields(group)})
            call = first.annotation(**shared)
            answer = function(call, **options)
            if answer is not None:
                call.give(answer)
                raise typer.Exit(answer.code)

        own_options = [option for parameter in own for option in _options_of(parameter)]
        parameters = [
            _option("context", typer.Context),
            *own_options[:rollout_at],
            *rollout_options,
            *own_options[rollout_at:],
            *common_options,
        ]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return decorate


def _place(rollout: Any, folder: Path | None) -> str | None:
    """The arguments that name the rollout file, and the run folder where `--out` gives one; None without a
    rollout file."""
    if not isinstance(rollout, Path):
        return None
    return shlex.join([str(rollout), *(["--out", str(folder)] if folder is not None else [])])


FLAGS = {"as_json": JsonFlag, "quiet": QuietFlag, "debug": DebugFlag}


def _options_of(parameter: Parameter) -> list[Parameter]:
    group = parameter.annotation
    if not is_dataclass(group):
        return [_option(parameter.name, group, parameter.default)]
    kinds = get_type_hints(group, include_extras=True)
    return [_option(field.name, kinds[field.name], field.default) for field in fields(group)]


def _option(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    *kinds, option = getattr(annotation, "__metadata__", (None,))
    if isinstance(option, OptionInfo):
        for kind in kinds:
            option.parser = option.parser or _reader(kind, option.min, option.max)
        is_time = any(isinstance(kind, TimeQuantity) for kind in kinds)
        option.metavar = option.metavar or ("TIME" if is_time else _metavar(annotation.__origin__))
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _metavar(kind: Any) -> str | None:
    """How help writes the value of an option where Typer writes `<list[str]>` and `<int range>`; None: as
    Typer does."""
    parts = get_args(kind) if get_origin(kind) is UnionType else (kind,)
    value_type = next(part for part in parts if part is not NoneType)
    if get_origin(value_type) is list:
        return f"<{get_args(value_type)[0].__name__}>..."
    return f"<{value_type.__name__}>" if value_type in (int, float) else None


def _reader(kind: Quantity, low: float | None, high: float | None) -> Callable[[str | float], float]:
    """A function that reads the value of an option within its bounds; None: no bound."""

    def read(text: str | float) -> float:
        return kind.bounded(
            kind.option(text), -math.inf if low is None else low, math.inf if high is None else high
        )

    return read


def completing(choices: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """The completion of an option or argument whose values are `choices()`, called at a Tab alone."""

    def completed(incomplete: str) -> list[str]:
        return [choice for choice in choices() if choice.startswith(incomplete)]

    return completed


def _engines() -> Iterable[str]:
    from specops.serving import ENGINES

    return ENGINES


complete_engine = completing(_engines)


class DefaultCommandGroup(TyperGroup):
    """A group of commands in which the first is meant where none is named: `report ROLLOUT` is
    `report make ROLLOUT`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


EndpointOption = Annotated[str, typer.Option(help="API to call: chat or completions.")]
TopPOption = Annotated[float, SHARE, typer.Option(help="Nucleus sampling.")]
SamePromptsOption = Annotated[
    bool,
    typer.Option("--same-prompts", help="Send prompts as they are; default: a nonce in front of each."),
]
ApiKeyOption = Annotated[
    str | None,
    typer.Option(help="Environment variable with the API key; default: SPECOPS_API_KEY or OPENAI_API_KEY."),
]
PromptsOption = Annotated[
    Path | None, typer.Option(help="Prompt set: JSON list, OpenAI batch, ShareGPT or Spec-Bench.")
]
HostOption = Annotated[str, typer.Option(help="Address to listen on.")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
MaxQueueOption = Annotated[
    int, typer.Option(min=0, help="Limit on waiting sequences; above it the answer is 429.")
]
GraceOption = Annotated[
    float,
    SECONDS,
    typer.Option(min=0, help="Grace period for running requests at shutdown, in seconds or as 5m."),
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="Number of PyTorch threads.")]


def nearest(name: str, choices: Sequence[str]) -> str:
    """The one of `choices` that `name` was probably meant to be, else the first."""
    return (difflib.get_close_matches(name, choices, 1, 0.0) or choices)[0]


Number = TypeVar("Number", int, float)


def numbers(option: str, text: str, kind: type[Number], *, least: float = -math.inf) -> list[Number]:
    """The numbers of `text`, which is the value of `option`. Raises UsageError for a part that is not a
    number, or is below `least`."""
    words = "whole numbers" if kind is int else "numbers"
    try:
        values = [kind(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(least <= number < math.inf for number in values):
        bound = f" of at least {least:g}" if least > -math.inf else ""
        raise UsageError(
            f"invalid {option} {text!r}: expected {words}{bound}, separated by commas",
            hint=with_options({option: "1,4,8"}),
        )
    return values


@dataclass(frozen=True)
class LoadOptions:
    """The options of a command that sends prompts to endpoints and measures the answers."""

    endpoint: EndpointOption = "chat"
    api_key_env: ApiKeyOption = None
    prompts: PromptsOption = None
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json, to count tokens where no usage is reported.")
    ] = None
    concurrency: Annotated[str, typer.Option(help=LEVELS_HELP)] = "1"
    top_p: TopPOption = 1.0
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Generate up to max_tokens, past the end of the text.")
    ] = False
    max_tokens: Annotated[
        int | None, typer.Option(help="Maximum number of tokens; default: each prompt's own.")
    ] = None
    timeout: Annotated[
        float, SECONDS, typer.Option(help="Timeout of one request, in seconds or as 30s or 2m.")
    ] = REQUEST_TIMEOUT_S
    max_rps: Annotated[float | None, typer.Option(help="Limit on requests per second.")] = None
    same_prompts: SamePromptsOption = False
    think_time: Annotated[
        float,
        typer.Option(min=0, help="Pauses before later turns, times as long as recorded; 0: none."),
    ] = 0.0

    def settings(self) -> dict[str, Any]:
        """Return them as `BaselineSettings` has them."""
        settings = vars(self) | {"concurrency": numbers("--concurrency", self.concurrency, int)}
        settings["timeout_s"] = settings.pop("timeout")
        return {name: value for name, value in settings.items() if name != "prompts" or value is not None}


@dataclass(frozen=True)
class ArrivalOptions:
    """The options of a command that may send requests in an open loop, or replay a trace."""

    arrivals: Annotated[
        str,
        typer.Option(
            metavar="PROCESS",
            help="Arrivals: closed, poisson, gamma, trace:FILE, or a ramp such as ramp:1-20/10m "
            "(requests/s from, to, and time).",
        ),
    ] = "closed"
    rate: Annotated[float | None, typer.Option(help="Requests per second of poisson and gamma.")] = None
    burstiness: Annotated[float, typer.Option(help="Shape of gamma arrivals; below 1 is burstier.")] = 1.0
    trace_speed: Annotated[float, typer.Option(help="Speed of a trace; 2 is twice as fast.")] = 1.0
    trace_from: Annotated[
        float,
        typer.Option(
            parser=SECONDS.option,
            metavar="TIME",
            help="Beginning of the replayed part, in seconds of the trace or as 10m.",
        ),
    ] = 0.0
    trace_for: Annotated[
        float | None,
        typer.Option(
            parser=SECONDS.option,
            metavar="TIME",
            help="Length of the replayed part, in seconds of the trace or as 10m; default: to its end.",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return them as `BaselineSettings` has them."""
        settings = dict(vars(self))
        settings["trace_from_s"], settings["trace_for_s"] = (
            settings.pop("trace_from"),
            settings.pop("trace_for"),
        )
        return settings


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def log_to_stderr(*, quiet: bool) -> None:
    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO,
        format="%(levelname)s: %(message)s",
        stream=sys.stderr,
    )


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Around imports: raise EnvironmentFailure, that `purpose` could not be done, where one of them is not
    installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise EnvironmentFailure(
            f"could not {purpose}: {error.name} is not installed",
            hint=install_command(name),
        ) from error
