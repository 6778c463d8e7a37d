"""The Python API: functions of the commands' names, which return what the commands print with --json.

They print nothing without `progress=print`, and raise the errors of specops.errors. An error's hint is a
command that can be pasted: the one that does what the call did, changed so that it succeeds.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from typing_extensions import TypedDict, Unpack

from specops import results
from specops.errors import UsageError
from specops.hints import ROLLOUT, as_command
from specops.phases.run_page import run_pages
from specops.progress import LineProgress, Progress, SilentProgress
from specops.quantities import kind_of_field
from specops.results import Result
from specops.validation import problem

if TYPE_CHECKING:
    from specops.load.settings import BaselineSettings
    from specops.phases.run_folder import RunFolder

File = str | PathLike[str]
Report = Callable[[str], None]
Settings = TypeVar("Settings", bound=BaseModel)


class LoadSettings(TypedDict, total=False):
    """What is sent, and how: the fields of `BaselineSettings` that have an option of these names in both
    `specops ab` and `specops baseline`. Defaults are the options'."""

    endpoint: Literal["chat", "completions"]
    api_key_env: str
    """The environment variable that holds the API key."""

    classes: Sequence[str]
    """Traffic classes to send; all by default."""

    tokenizer: File
    concurrency: Sequence[int]
    """Levels: requests at a time."""

    temperature: float
    top_p: float
    ignore_eos: bool
    max_tokens: int
    think_time: float
    timeout_s: float | str
    """In seconds, or as 30s; so are all times."""

    max_rps: float
    same_prompts: bool
    """Send prompts as they are, without a nonce in front of each."""

    repeats: int
    warmup: int
    seed: int
    max_error_share: float
    """Share of failed requests, 0 to 1, above which an endpoint has failed."""

    arrivals: str
    """closed, poisson, gamma, trace:FILE, or a ramp such as ramp:1-20/10m."""

    rate: float
    """Requests per second of poisson and gamma arrivals."""

    burstiness: float
    trace_speed: float
    trace_from_s: float | str
    trace_for_s: float | str
    """The part of a trace that is replayed, in seconds of the trace."""


class BaselineOptions(LoadSettings, total=False):
    """Options of `specops baseline`."""

    stall_s: float | str
    retries: int
    slo: Mapping[Literal["ttft_ms", "tpot_ms", "e2e_ms"], float]
    """Objectives for goodput, in ms."""

    abort_error_share: float
    abort_e2e_ms: float


class CompareOptions(LoadSettings, total=False):
    """Options of `specops ab`."""

    design: Literal["interleaved", "abba-restart"]
    looks: int
    confidence: float
    requests: int
    """Most requests to each server; fewer once it is settled."""

    min_duration_s: float | str
    length_margin: float
    accept_length_change: bool
    failure_margin: float
    answer_margin: float
    mixed_prompts: int
    prefix_share: float
    prefix_tokens: int
    cold_share: float
    live_answers: bool
    same_server: bool
    """An A/A: both are one running server."""


def compare(
    standard: str,
    speculative: str,
    prompts: File | None = None,
    *,
    out: File | None = None,
    fresh: bool = False,
    progress: Report | None = None,
    **options: Unpack[CompareOptions],
) -> Result:
    """Compare two servers on the same prompts, in turn, as `specops ab` does.

    standard, speculative: http://HOST/v1[#MODEL], embedded[:TREE][,KEY=VALUE], or command:WORDS with {port}
    among them.
    prompts: a file with a prompt set; the samples that ship with specops by default.
    out: a file where the result is stored while it is measured, and resumed unless `fresh`; by default
    nothing is stored.
    progress: a function that gets a line of text as the work goes on, such as `print`; None: silent.

    The verdict of the result is yes where a traffic class may be deployed, no where none may.

    Raises UsageError for what cannot be compared, PromptsError for prompts that cannot be sent, EndpointError
    or ServerError where a server does not answer.
    """
    words = ["ab", "--arm", f"standard={standard}", "--arm", f"speculative={speculative}"]
    with _call([*words, *_words(prompts, out, options)], options, CompareOptions.__annotations__):
        from specops.experiment.arms import parse_arms
        from specops.phases.ab.measure import compare as compare_arms
        from specops.phases.ab.measure import compare_into, with_models
        from specops.phases.ab.settings import LOOKS, AbSettings
        from specops.phases.inputs import NO_ADDRESS_YET

        arms = parse_arms([f"standard={standard}", f"speculative={speculative}"])
        of_design = {name: value for name, value in options.items() if name in AbSettings.model_fields}
        looks = LOOKS.get(str(options.get("design")), AbSettings.model_fields["looks"].default)
        settings = _checked(AbSettings, {"looks": looks} | of_design, "ab")
        of_load = {name: value for name, value in options.items() if name not in of_design}
        requested = _load({"base_url": NO_ADDRESS_YET, "model": "", **of_load}, prompts, "ab")
        if out is not None:
            return compare_into(Path(out), arms, requested, settings, _reporting(progress), fresh=fresh)
        logs = Path(tempfile.mkdtemp(prefix="specops-logs-"))
        arms = with_models(arms, requested)
        result = compare_arms(arms, requested, settings, _reporting(progress), logs=logs)
        shutil.rmtree(logs)  # left where a server failed: the hint of its error names its log
        return result


def baseline(
    base_url: str,
    prompts: File | None = None,
    *,
    model: str | None = None,
    out: File | None = None,
    fresh: bool = False,
    progress: Report | None = None,
    **options: Unpack[BaselineOptions],
) -> Result:
    """Measure one endpoint, as `specops baseline` does: latencies in ms, tokens per second, acceptance.

    base_url: an OpenAI base URL, such as http://127.0.0.1:8000/v1.
    model: by default the only one that is served.
    prompts, out, fresh, progress: as in `compare`.

    The verdict of the result is no where too many requests failed.

    Raises UsageError for options that do not fit together, PromptsError for prompts that cannot be sent,
    EndpointError where nothing could be measured.
    """
    words = ["baseline", "--base-url", base_url, *_words(None, None, {"model": model})]
    with _call([*words, *_words(prompts, out, options)], options, BaselineOptions.__annotations__):
        from specops.phases.baseline import measure, measure_into, with_model

        settings = _load({"base_url": base_url, "model": model or "", **options}, prompts, "baseline")
        if out is not None:
            return measure_into(Path(out), settings, _reporting(progress), fresh=fresh)
        return measure(with_model(settings), _reporting(progress))


def verify_draft(
    target: File,
    draft: File,
    prompts: File | None = None,
    *,
    engine: str = "vllm",
    engine_version: str | None = None,
    gpu: str | None = None,
    tensor_parallel: int = 1,
    allow_degraded: bool = False,
) -> Result:
    """Judge from its files whether a draft fits a target, as `specops verify-draft` does.

    target, draft: a folder, or a name on the Hugging Face Hub; draft may be ngram or suffix.
    prompts: your prompt set, whose texts are encoded too.
    gpu: a name such as h100-80, or its memory in GiB, for the KV blocks that the draft costs.

    The verdict of the result is yes where the pair fits, no where it does not, undecided where it rests on
    what the files do not show.

    Raises UsageError for an engine or a version that is not known, ModelError for files that cannot be read.
    """
    fields = {
        "target": str(target),
        "draft": str(draft),
        "engine": engine,
        "engine_version": engine_version,
        "gpu": gpu,
        "tensor_parallel": tensor_parallel,
        "allow_degraded": allow_degraded,
    }
    options = _words(prompts, None, {name: fields[name] for name in fields.keys() - {"target", "draft"}})
    with _call(["verify-draft", str(target), str(draft), *options]):
        from specops.load.workload import load_prompts
        from specops.phases.verify_draft.pair import VerifySettings
        from specops.phases.verify_draft.verify import verify

        settings = _checked(VerifySettings, fields, "verify-draft")
        return verify(settings, load_prompts(Path(prompts)) if prompts else None, SilentProgress())


def lint(
    command: str | Sequence[str] | PathLike[str],
    *,
    text: str | None = None,
    engine_version: str | None = None,
) -> Result:
    """Find unsupported or wrong flags of a serving engine, as `specops launch lint` does.

    command: a command as it is typed, or its words; a Path is a file that starts servers: a script, a
    systemd unit, a Compose file, a manifest.
    text: the text of that file where it is not on this machine; then no file is read. Its name says what it
    is, such as Path("compose.yaml").
    engine_version: by default that of the image or of the installed program, else the newest.

    The verdict of the result is no with an error, undecided where something that may hold one was not read.

    Raises UsageError where no engine is called, FileError for a file that cannot be read.
    """
    options = _words(None, None, {"engine_version": engine_version})
    if isinstance(command, PathLike):
        with _call(["launch", "lint", *options, "--file", str(command)]):
            from specops.phases.launch import lint_file

            return lint_file(Path(command), engine_version, text)[1]
    if text is not None:
        raise UsageError(
            f"text belongs to a file, and {command!r} is a command: expected a Path",
            hint="specops launch lint --help",
        )
    words = [command] if isinstance(command, str) else command
    with _call(["launch", "lint", *options, "--", *words]):
        from specops.phases.launch import lint_words

        return lint_words(words, engine_version)[1]


def read(run_folder: File) -> RunFolder:
    """Read the results of a run, which `specops run` left in its folder, such as runs/NAME.

    `results` has the result of each phase by its name; `unreadable` has files that are damaged or edited,
    with the reason.

    Raises FileError where there is no such folder, or where it has no result.
    """
    with _call(["run", ROLLOUT]):
        from specops.phases.run_folder import RunFolder

        return RunFolder.opened(Path(run_folder))


def _reporting(progress: Report | None) -> Progress:
    return SilentProgress() if progress is None else LineProgress(progress)


@contextmanager
def _call(
    command: Sequence[str],
    options: Mapping[str, Any] = MappingProxyType({}),
    accepted: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[None]:
    """The work of a function that does what `specops COMMAND…` does. Raises TypeError, as Python does, for an
    option that is not `accepted`."""
    for option in options.keys() - accepted.keys():
        raise TypeError(f"unexpected keyword argument {option!r}")
    with as_command(*command), run_pages(), _without_running_loop():
        yield


@contextmanager
def _without_running_loop() -> Iterator[None]:
    """Put aside the event loop that is running in this thread, as in a cell of a notebook: a measurement
    runs its own, and Python refuses one inside another. The outer loop waits, as for any slow cell. A thread
    would not get Ctrl-C."""
    outer = _get_running_loop()
    _set_running_loop(None)
    try:
        yield
    finally:
        if outer is not None:
            asyncio.set_event_loop(outer)  # `asyncio.run` leaves none
            _set_running_loop(outer)


def _words(prompts: File | None, out: File | None, options: Mapping[str, Any]) -> list[str]:
    """The options of a command, as they would be typed."""
    words: list[str] = []
    for name, value in {"prompts": prompts, **options, "out": out}.items():
        if isinstance(value, Mapping):
            words += _words(None, None, {f"{name}_{key}": inner for key, inner in value.items()})
        elif value is True:
            words.append(_flag(name))
        elif value is not None and value is not False:
            many = isinstance(value, Sequence) and not isinstance(value, str)
            words += [_flag(name), ",".join(map(str, value)) if many else str(value)]
    return words


def _flag(name: str) -> str:
    return "--" + name.removesuffix("_s").replace("_", "-")


def _load(fields: Mapping[str, Any], prompts: File | None, command: str) -> BaselineSettings:
    from specops.load.settings import BaselineSettings

    return _checked(BaselineSettings, {**fields, **({"prompts": prompts} if prompts else {})}, command)


def _checked(model: type[Settings], fields: Mapping[str, Any], command: str) -> Settings:
    """`fields` as a `model`. Raises UsageError, by the name of the field, for a value that it refuses."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]) if first["loc"] else ""
        raise UsageError(
            f"could not use the options: {option} {problem(first, kind_of_field(model, option))}",
            hint=f"specops {command} --help",
        ) from error


def _drawn(result: Result) -> str:
    from specops.phases.run_page.result import notebook

    return notebook(result)


results.draw = _drawn
