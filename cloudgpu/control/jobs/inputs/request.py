"""Parses and checks the options of `run`, before a machine or a provider is queried."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Unpack

from cloudgpu.config.files.user_files import parse_finite_number, shown
from cloudgpu.control.inputs.launch_request import (
    UpOptions,
    check_count,
    parse_optional_duration,
    parse_request,
    validate_request,
)
from cloudgpu.control.jobs.inputs.command import check_command
from cloudgpu.control.jobs.inputs.data import check_apart, parse_data, parse_results_to, volume_for, workdir_path
from cloudgpu.control.jobs.inputs.deadline import DeadlineRequest, parse_deadline
from cloudgpu.control.jobs.inputs.env_file import check_variable, read_env_file
from cloudgpu.control.jobs.inputs.slurm import SlurmOptions, SlurmRequest, parse_slurm
from cloudgpu.core.events.job_events import DataRecord
from cloudgpu.core.launch.trust import check_exposure, parse_trust
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import NAME, NAME_RULE, generated_name, tag_value
from cloudgpu.core.values.times import seconds_text
from cloudgpu.core.values.typed import MAX_USD_PER_HOUR, check_keywords
from cloudgpu.errors import InvalidRequest

MAX_PORT, MAX_TRIES = 65_535, 100  # tries: of --retries and of --restarts, each
_PORT = re.compile(r"[1-9][0-9]{0,4}")
DEFAULT_RESTARTS = 5
DEFAULT_EVERY, DEFAULT_RESULTS_WAIT = timedelta(minutes=10), timedelta(hours=2)
DEFAULT_RESULTS = "results"
# Options of `up` that go with an existing machine (--on), too.
_OPTIONS_WITH_ON = frozenset({"owner", "project", "expose"})

# Options whose values the owner of a community host could read. (--volume is checked with the launch.)
_HOST_VISIBLE_OPTIONS = {"--secret": "secret", "--env-file": "env_file"}

_NON_LAUNCH_OPTIONS = {"name", "key", "new", *SlurmOptions.__annotations__}


class JobOptions(UpOptions, SlurmOptions, total=False):
    """The options of a job: of `up` but `new`, for Slurm, and its own. Text is read as on the command line."""

    on: str | None  # an existing machine, by name or id
    workdir: Path | str | None  # None: the working directory
    setup: str | None  # a command for a shell, once for each machine
    env: Mapping[str, str] | Sequence[str] | None  # K=V
    env_file: Path | str | None
    secret: Sequence[str] | None  # names in the caller's environment
    data: Sequence[str] | None  # SRC:DEST
    port: Sequence[int | str] | None  # of the machine, forwarded to this computer
    results: str | None  # the directory in the workdir to which the command writes its results
    results_to: str | None  # s3://BUCKET/PREFIX or volume:NAME
    checkpoint: str | None  # the directory in the workdir to which the command writes its checkpoints
    every: timedelta | str | None  # the time between two copies of results and checkpoints
    timeout: timedelta | str | None  # how long the command may run
    max_cost: Decimal | str | float | None  # USD
    stall: timedelta | str | None  # how long the command may be silent before an alert is raised
    deadline: timedelta | datetime | str | None  # from now, or a time with its zone
    work: timedelta | str | None  # how long the command runs, if nothing interrupts it
    spot_policy: str | None
    retries: int  # how often a failed command is run again
    restarts: int  # how often the job continues after it has lost its machine
    keep: timedelta | str | None  # how long the machine of a failed job is kept
    results_wait: timedelta | str | None  # how long a machine is kept with results that nobody has fetched
    include: Sequence[str] | None  # glob patterns of ignored files that are uploaded all the same


class RunOptions(JobOptions, total=False):
    """What `run` takes: the options of a job, its command, and whether to leave it once it has begun."""

    detach: bool
    argv: Sequence[str]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The options that the user gave, each checked; their meaning is in JobOptions.

    `launch` has the options of `up` that were given, but name and key. `name` is generated unless `is_named`. `secrets`
    are names, without their values.
    """

    name: str
    is_named: bool
    argv: tuple[str, ...]
    workdir: Path
    key: str | None = None
    launch: dict[str, str | bool] = field(default_factory=dict)
    on: str | None = None
    setup: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    env_file: Path | None = None
    secrets: tuple[str, ...] = ()
    data: tuple[DataRecord, ...] = ()
    ports: tuple[int, ...] = ()
    results: str = DEFAULT_RESULTS
    results_to: str | None = None
    checkpoint: str | None = None
    include: tuple[str, ...] = ()
    every: timedelta = DEFAULT_EVERY
    timeout: timedelta | None = None
    max_cost: Money | None = None
    stall: timedelta | None = None
    retries: int = 0
    restarts: int = DEFAULT_RESTARTS
    keep: timedelta = timedelta(0)
    results_wait: timedelta = DEFAULT_RESULTS_WAIT
    deadline: DeadlineRequest | None = None
    slurm: SlurmRequest = field(default_factory=SlurmRequest)
    detach: bool = False

    @property
    def is_exposed(self) -> bool:
        """Whether secrets and volumes may be given to a community host, whose owner could read them (`--expose`)."""
        return bool(self.launch.get("expose"))


def parse_run(*, environ: Mapping[str, str] | None = None, **options: Unpack[RunOptions]) -> RunRequest:
    """Return the options of `run` as one value; raise InvalidRequest for the first option that is not valid.

    `environ` is where the secrets are looked for, the caller's environment by default. Queries no provider, and writes
    nothing.
    """
    check_keywords("run", options, RunOptions.__annotations__)
    name, workdir = _parse_name(options.get("name")), _parse_workdir(options.get("workdir"))
    on = _check_not_empty(options.get("on"), "--on", "Name a machine of cloudgpu ls, or leave --on out.")
    data = parse_data(_as_list(options.get("data"), "--data"))
    slurm = parse_slurm(options, on)
    launch = _launch_options(options) | (
        {"nodes": str(slurm.nodes), "engine": "slurm"} if on is None and slurm.nodes > 1 else {}
    )
    results_to = parse_results_to(options.get("results_to"))
    _check_launch(launch, on)
    volume = volume_for(results_to, data, options.get("volume"))
    if volume is not None and on is None:
        launch["volume"] = volume
    check_exposure(parse_trust(options.get("trust")), host_visible_options(options), expose=bool(options.get("expose")))
    results, checkpoint = _parse_output_directories(options, workdir)
    check_apart(data, {"--results": results, "--checkpoint": checkpoint})
    setup = _check_not_empty(options.get("setup"), "--setup", "For example --setup 'pip install -r requirements.txt'")
    env_file = options.get("env_file")
    return RunRequest(
        name=name or generated_name(secrets.token_hex(8), ()),
        is_named=name is not None,
        argv=_parse_command(options.get("argv", ()), workdir, [results, *(record["target"] for record in data)], setup),
        workdir=workdir,
        key=_parse_key(options.get("key")),
        launch=launch,
        on=on,
        setup=setup,
        env=_parse_variables(options.get("env")),
        env_file=None if env_file is None else _parse_env_file(Path(env_file)),
        secrets=_parse_secrets(_as_list(options.get("secret"), "--secret"), os.environ if environ is None else environ),
        data=data,
        ports=_parse_ports(options.get("port")),
        results=results,
        results_to=results_to,
        checkpoint=checkpoint,
        include=_parse_globs(_as_list(options.get("include"), "--include")),
        every=parse_optional_duration(options.get("every"), "--every") or DEFAULT_EVERY,
        timeout=parse_optional_duration(options.get("timeout"), "--timeout"),
        max_cost=_parse_max_cost(options.get("max_cost")),
        stall=parse_optional_duration(options.get("stall"), "--stall"),
        retries=check_count("--retries", options.get("retries", 0), 0, MAX_TRIES),
        restarts=check_count("--restarts", options.get("restarts", DEFAULT_RESTARTS), 0, MAX_TRIES),
        keep=parse_optional_duration(options.get("keep"), "--keep") or timedelta(0),
        results_wait=parse_optional_duration(options.get("results_wait"), "--results-wait") or DEFAULT_RESULTS_WAIT,
        deadline=parse_deadline(
            options.get("deadline"), options.get("work"), options.get("spot_policy"), launch, on, results_to
        ),
        slurm=slurm,
        detach=bool(options.get("detach")),
    )


def host_visible_options(options: Mapping[str, object]) -> list[str]:
    """Return the given options whose values or files the owner of a community host could read."""
    return [option for option, name in _HOST_VISIBLE_OPTIONS.items() if options.get(name)]


def _parse_name(name: str | None) -> str | None:
    if name is None or NAME.fullmatch(name):
        return name
    raise InvalidRequest(
        f"{shown(name)!r} cannot be a job's name: {NAME_RULE}.",
        field="NAME",
        value=shown(name),
        next="Choose a name like train-7, or leave it out. The command comes after --",
    )


def _parse_key(key: str | None) -> str | None:
    """Return the key of `--key`, by which a repeated request finds its job."""
    if key is None or (key and tag_value(key) == key and not key.startswith("auto-")):
        return key
    raise InvalidRequest(
        f"{shown(key)!r} cannot be a job's key: use 1 to 63 of a-z, 0-9, _ and -, not beginning with auto-.",
        field="--key",
        value=shown(key),
        next="For example --key experiment-7",
    )


def _parse_workdir(directory: Path | str | None) -> Path:
    path = Path.cwd() if directory is None else Path(directory).expanduser()
    if str(directory) and path.is_dir():
        return path.resolve()
    raise InvalidRequest(
        f"{str(directory)!r} is not a directory.",
        field="--workdir",
        value=str(directory),
        next="Name the directory of your program, or leave --workdir out: then it is the one that you are in.",
    )


def _launch_options(options: RunOptions) -> dict[str, str | bool]:
    """Return the options of `up` that were given, as text or a flag."""
    if options.get("new"):
        message = "--new is not needed: every run without NAME or --key is a new job."
        raise InvalidRequest(message, field="--new", value=None, next="Leave it out.")
    values = {name: options.get(name) for name in UpOptions.__annotations__ if name not in _NON_LAUNCH_OPTIONS}
    return {
        name: _as_text_or_flag(value)
        for name, value in values.items()
        if value is not None
        and (value is not False or name == "spot")  # `spot` is the only flag that means something when it is False
    }


def _as_text_or_flag(value: object) -> str | bool:
    """Return an option's value as text, or as a flag."""
    if isinstance(value, timedelta):
        return seconds_text(value)
    return value if isinstance(value, bool) else str(value)


def _check_launch(launch: Mapping[str, str | bool], on: str | None) -> None:
    """Raise InvalidRequest for options of a launch that cannot be read, or that do not go with `--on`."""
    validate_request(parse_request(**launch))  # type: ignore[arg-type]  # text stands for each of them
    conflicting_name = next((name for name in launch if name not in _OPTIONS_WITH_ON), None)
    if on is not None and conflicting_name is not None:
        option = (
            "--on-demand"
            if launch.get("spot") is False and conflicting_name == "spot"
            else f"--{conflicting_name.replace('_', '-')}"
        )
        raise InvalidRequest(
            f"{option} is for a machine that is launched, and --on {on} uses one that is there.",
            field=option,
            value=None if isinstance(launch[conflicting_name], bool) else str(launch[conflicting_name]),
            next=f"Leave {option} or --on out.",
        )


def _parse_output_directories(options: RunOptions, workdir: Path) -> tuple[str, str | None]:
    """Return where the command writes results and checkpoints, relative to the workdir."""
    results = options.get("results")
    results_dir = workdir_path(DEFAULT_RESULTS if results is None else results, "--results", "results")
    _check_writable(workdir, results_dir)
    checkpoint_dir = options.get("checkpoint")
    if checkpoint_dir is None:
        return results_dir, None
    checkpoint_dir = workdir_path(checkpoint_dir, "--checkpoint", "checkpoint")
    if checkpoint_dir == results_dir:
        raise InvalidRequest(
            f"--checkpoint and --results are both {results_dir}.",
            field="--checkpoint",
            value=checkpoint_dir,
            next="Write checkpoints to a directory of their own, --checkpoint checkpoint, say.",
        )
    _check_writable(workdir, checkpoint_dir, "--checkpoint")
    return results_dir, checkpoint_dir


def _check_writable(workdir: Path, results: str, option: str = "--results") -> None:
    """Raise InvalidRequest where results could not be brought back, or checkpoints not be written.

    A directory is uploaded with its permissions: what cannot be written here cannot be written on the machine. It is
    checked here, before a machine is paid for.
    """
    directory = workdir / results
    directory = next(path for path in (directory, *directory.parents) if path.exists() or path.is_symlink())
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        why = "cannot be written to" if directory.is_dir() else "is not a directory"
        consequence = "results cannot be brought back" if option == "--results" else "checkpoints cannot be written"
        raise InvalidRequest(
            f"{directory} {why}, so {consequence}.",
            field=option,
            value=results,
            next=f"Name another directory inside the workdir with {option}, or correct its permissions.",
        )


def _parse_command(
    argv: Sequence[str], workdir: Path, runtime_dirs: Sequence[str], setup: str | None
) -> tuple[str, ...]:
    if isinstance(argv, str):
        remedy = 'For example ["python", "train.py"], or ["sh", "-c", "..."] for a shell.'
        raise InvalidRequest("A command is a list of words.", field="CMD", value=argv, next=remedy)
    if not argv or not argv[0]:
        remedy = "For example: cloudgpu run --gpu v100 -- python train.py"
        raise InvalidRequest("There is no command to run.", field="CMD", value=None, next=remedy)
    words = tuple(str(word) for word in argv)
    check_command(words, workdir, runtime_dirs, has_setup=setup is not None)
    return words


def _check_not_empty(text: str | None, option: str, remedy: str) -> str | None:
    if text is None or text.strip():
        return text
    raise InvalidRequest(f"{option} is empty.", field=option, value=text, next=remedy)


def _parse_variables(variables: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    if isinstance(variables, Mapping):
        pairs = [(key, "=", value) for key, value in variables.items()]
    else:
        pairs = [text.partition("=") for text in _as_list(variables, "--env")]
    for key, equals, _ in pairs:
        if not equals:
            raise InvalidRequest(
                f"--env {shown(key)} has no value: it is K=V.",
                field="--env",
                value=shown(key),
                next=f"Write --env {shown(key)}=VALUE. For a value of your environment: --secret {shown(key)}",
            )
        check_variable(key, "--env")
    return {key: value for key, _, value in pairs}


def _parse_env_file(path: Path) -> Path:
    """Return where the file of `--env-file` is; raise InvalidRequest where it cannot be read now."""
    read_env_file(path.expanduser())
    return path.expanduser().resolve()


def _parse_secrets(names: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of secrets, each once; raise InvalidRequest for one that `environ` lacks."""
    for name in names:
        if "=" in name:  # what follows may be the secret itself
            key = name.partition("=")[0]
            raise InvalidRequest(
                f"--secret takes a name alone: its value is read from your environment, not from {key}=...",
                field="--secret",
                value=key,
                next=f"Run: export {key}, and then: --secret {key}",
            )
        check_variable(name, "--secret")
        if name not in environ:
            raise InvalidRequest(
                f"--secret {name} is not in your environment.",
                field="--secret",
                value=name,
                next=f"Set it before: read -rs {name} && export {name}",
            )
    return tuple(dict.fromkeys(names))


def _parse_ports(ports: Sequence[int | str] | int | str | None) -> tuple[int, ...]:
    port_list = (ports,) if isinstance(ports, int | str) else ports or ()
    return tuple(dict.fromkeys(_parse_port(str(port)) for port in port_list))


def _parse_port(text: str) -> int:
    if _PORT.fullmatch(text) and int(text) <= MAX_PORT:
        return int(text)
    raise InvalidRequest(
        f"{shown(text)!r} is not a port: it is a whole number from 1 to {MAX_PORT}.",
        field="--port",
        value=shown(text),
        next="For example --port 6006 for TensorBoard",
    )


def _parse_globs(patterns: Sequence[str]) -> tuple[str, ...]:
    if any(not pattern.strip() for pattern in patterns):
        remedy = "For example --include 'models/*.bin'"
        raise InvalidRequest("--include is empty.", field="--include", value="", next=remedy)
    return tuple(patterns)


def _parse_max_cost(value: Decimal | str | float | None) -> Money | None:
    if value is None:
        return None
    amount = parse_finite_number(str(value).removeprefix("$"))
    if amount is not None and 0 < amount <= MAX_USD_PER_HOUR:
        return Money.usd(amount)
    raise InvalidRequest(
        f"{shown(str(value))!r} is not an amount in USD above zero.",
        field="--max-cost",
        value=shown(str(value)),
        next="For example --max-cost 20",
    )


def _as_list(values: Iterable[str] | None, option: str) -> list[str]:
    """Return what was given for an option that may be repeated; raise InvalidRequest for one text in its place."""
    if isinstance(values, str):
        message = f"{option} takes a list of texts."
        raise InvalidRequest(
            message, field=option, value=None, next=f"For example [{values!r}] in place of {values!r}."
        )
    return list(values or ())
