"""Reads the options of `spot backtest`, and traces of spot availability; core replays the policies on them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.inputs.launch_request import check_count, parse_optional_duration
from cloudgpu.control.spot.history import history
from cloudgpu.core.model.machine import not_none
from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay import backtest as replay
from cloudgpu.core.spot.replay.traces import Trace, parse_trace, trace_of_changes
from cloudgpu.core.spot.simulate import SpotJob
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.advice.spot import backtest_document

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.spot.places import Sighting, SpotLocation
    from cloudgpu.core.spot.situation import Policy
    from cloudgpu.views.documents.jobs.spot import SpotBacktestDocument

MAX_STARTS, MAX_TICKS = 10_000, 5_000
MIN_TICK = timedelta(seconds=10)
MAX_PRICE = 1e6  # USD an hour
SAMPLE_INTERVAL_S = 600.0  # between two samples of a trace that is made from the ledger
TRACES_URL = "https://github.com/skypilot-org/spot-traces"


@dataclass(frozen=True, slots=True)
class SpotBacktestOptions:
    """The options of `spot backtest`, as typed; durations like `48h`.

    `traces` are files or directories, `policies` names. A simulated job needs `work` before its `deadline`; each
    `changeover` to another machine costs it time; a policy decides once in each `tick`. Prices are USD an hour. Each
    trace is replayed from `starts` random moments, chosen with `seed`; `together` takes all traces as zones of one
    cloud.
    """

    traces: Sequence[str] = ()
    policies: Sequence[str] = ()
    work: str | timedelta = "48h"
    deadline: str | timedelta = "60h"
    changeover: str | timedelta = "12m"
    tick: str | timedelta = "10m"
    price_spot: float | None = None
    price_on_demand: float | None = None
    starts: int = 20
    seed: int = 0
    together: bool = False


def spot_backtest_document(
    options: SpotBacktestOptions,
    open_session: Callable[[], Session],
    progress: Callable[[str, int, int], None] | None = None,
) -> SpotBacktestDocument:
    """Return how spot policies do on traces, next to the optimum: what `spot backtest` prints.

    `open_session` is called only without traces: then the ledger's history is used. Raises
    InvalidRequest for a wrong option or trace, and where there is no history.
    """
    job, policies = simulated_job(options), policy_factories(options.policies)
    check_count("--starts", options.starts, 1, MAX_STARTS)
    check_count("--seed", options.seed, 0, 2**63)
    traces = read_traces(options.traces) if options.traces else _ledger_traces(open_session())
    results = replay.backtest(
        traces, job, policies, starts=options.starts, seed=options.seed, together=options.together, progress=progress
    )
    return backtest_document(
        results,
        traces,
        seed=options.seed,
        priced=options.price_spot is not None or options.price_on_demand is not None,
        from_ledger=not options.traces,
    )


def simulated_job(options: SpotBacktestOptions) -> SpotJob:
    """Return the job that the options describe; raise InvalidRequest that names the invalid option."""
    work, deadline = _duration(options.work, "--work"), _duration(options.deadline, "--deadline")
    changeover, tick = _duration(options.changeover, "--changeover"), _duration(options.tick, "--tick")
    if not MIN_TICK <= tick <= deadline or deadline / tick > MAX_TICKS:
        raise InvalidRequest(
            f"A tick of {options.tick} does not fit a deadline of {options.deadline}.",
            field="--tick",
            value=str(options.tick),
            next=f"Use a tick of at least {MIN_TICK.seconds}s, so that there are 1 to {MAX_TICKS:,} of them.",
        )
    if work + changeover > deadline:
        raise InvalidRequest(
            f"{options.work} of work and a changeover of {options.changeover} do not fit in {options.deadline}.",
            field="--deadline",
            value=str(options.deadline),
            next=f"Use --deadline {math.ceil((work + changeover) / timedelta(hours=1))}h or more.",
        )
    spot = _price(options.price_spot, "--price-spot", 1.0)
    on_demand = _price(options.price_on_demand, "--price-on-demand", 3 * spot)
    hour = timedelta(hours=1)
    return SpotJob(work / hour, deadline / hour, tick / hour, changeover / hour, spot, on_demand)


def policy_factories(names: Sequence[str]) -> Mapping[str, Callable[[], Policy]]:
    """Return the factories of the named policies, or of all; raise InvalidRequest for an unknown one."""
    for name in names:
        if name not in POLICIES:
            raise unknown_word(f"There is no spot policy {name!r}", name, POLICIES, field="--policy")
    return {name: POLICIES[name] for name in names or POLICIES}


def read_traces(paths: Sequence[str]) -> list[Trace]:
    """Return the traces of these files, and of every .json file below these directories, each once.

    Raises InvalidRequest for a path that does not exist, a directory without traces, and a file that is no trace.
    """
    files = dict.fromkeys(file.resolve() for path in paths for file in _trace_files(Path(path)))
    return [_read_trace(file, name) for file, name in zip(files, _trace_names(list(files)), strict=True)]


def _trace_files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*.json") if file.is_file())
        if not files:
            raise _no_traces_error(f"There is no .json file in {path}.", str(path))
        return files
    if not path.exists():
        raise _no_traces_error(f"{path} does not exist.", str(path))
    return [path]


def _trace_names(files: Sequence[Path]) -> list[str]:
    """Return a short name for each file, with its folder where two files have the same name."""
    stems = [file.stem for file in files]
    return [
        stem if stems.count(stem) == 1 else f"{file.parent.name}/{stem}"
        for stem, file in zip(stems, files, strict=True)
    ]


def _read_trace(file: Path, name: str) -> Trace:
    try:
        text = file.read_bytes()
    except OSError as error:
        raise _no_traces_error(f"{file} cannot be read: {error.strerror}.", str(file)) from None
    return parse_trace(text, name)


def observed_traces(session: Session) -> list[Trace]:
    """Return spot availability over time as this ledger has seen it, one trace for each location; asks no cloud.

    A launch means that spot was available, a refusal or an interruption that it was not, until the next event at that
    location. A location with only one of both states is left out.
    """
    by_location: dict[SpotLocation, list[Sighting]] = defaultdict(list)
    for sighting in history(session.ledger):
        if sighting.kind != "ended":  # ended by its user: availability did not change
            by_location[sighting.place].append(sighting)
    now = session.clock().timestamp()
    # data: 1 where spot was available, else 0
    traces = (_trace_of_sightings(location, sightings, now) for location, sightings in by_location.items())
    return [trace for trace in traces if trace is not None and 0 < sum(trace.data) < len(trace.data)]


def _ledger_traces(session: Session) -> list[Trace]:
    traces = observed_traces(session)
    if not traces:
        raise InvalidRequest(
            "The ledger has seen no spot machine come and go yet, and no traces are given.",
            field="--traces",
            value=None,
            next=f"Get traces from {TRACES_URL}, then: cloudgpu spot backtest --traces DIR",
        )
    return traces


def _trace_of_sightings(location: SpotLocation, sightings: list[Sighting], now: float) -> Trace | None:
    """Return availability at a location over time: from a launch on it is available, from a loss or refusal on not."""
    name = " ".join(filter(None, (location.account, location.zone or location.region, location.instance_type)))
    return trace_of_changes(
        name, [(sighting.at.timestamp(), sighting.kind == "made") for sighting in sightings], now, SAMPLE_INTERVAL_S
    )


def _no_traces_error(message: str, value: str) -> InvalidRequest:
    remedy = f"Name a trace, or a directory of traces, for example of {TRACES_URL}"
    return InvalidRequest(message, field="--traces", value=value, next=remedy)


def _duration(value: str | timedelta, field: str) -> timedelta:
    return not_none(parse_optional_duration(value, field))  # only None gives None


def _price(value: float | None, field: str, default: float) -> float:
    if value is None:
        return default
    if not 0 < value <= MAX_PRICE:
        remedy = f"Use an amount above zero and up to {MAX_PRICE:,.0f}, for example {field} 0.92"
        raise InvalidRequest(
            f"{field} {value:g} is not a price per hour.", field=field, value=f"{value:g}", next=remedy
        )
    return float(value)
