"""Reads what `spot backtest` was asked for, and the traces; core tests the policies on them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.inputs.launch_request import duration
from cloudgpu.control.spot.history import history
from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay import backtest as core
from cloudgpu.core.spot.replay.traces import Trace, parse_trace, trace_of_changes
from cloudgpu.core.spot.simulate import SpotJob
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.advice.spot import backtest_value

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.spot.places import Sighting, SpotLocation
    from cloudgpu.core.spot.situation import Policy
    from cloudgpu.views.documents.jobs.spot import SpotBacktestDocument

MAX_STARTS, MAX_TICKS = 10_000, 5_000
SHORTEST_TICK = timedelta(seconds=10)
MAX_PRICE = 1e6
GAP_S = 600.0  # between samples of what the ledger has seen
SOURCE = "https://github.com/skypilot-org/spot-traces"


@dataclass(frozen=True, slots=True)
class SpotBacktestOptions:
    """What `spot backtest` takes, as it was typed; durations like `48h`."""

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
    options: SpotBacktestOptions, opened: Callable[[], Session], progress: Callable[[str, int, int], None] | None = None
) -> SpotBacktestDocument:
    """Return how spot policies do on traces, next to the optimum: what `spot backtest` prints.

    `opened` gives the session, which is used only where no traces are named: then its ledger's history is. Raises
    InvalidRequest for a wrong option or trace, and where there is no history.
    """
    job, policies = job_of(options), policies_of(options.policies)
    _check_count("--starts", options.starts, 1, MAX_STARTS)
    _check_count("--seed", options.seed, 0, 2**63)
    traces = read_traces(options.traces) if options.traces else _history(opened())
    found = core.backtest(
        traces, job, policies, starts=options.starts, seed=options.seed, together=options.together, progress=progress
    )
    return backtest_value(
        found,
        traces,
        seed=options.seed,
        priced=options.price_spot is not None or options.price_on_demand is not None,
        from_ledger=not options.traces,
    )


def job_of(options: SpotBacktestOptions) -> SpotJob:
    """Return the job that was asked for; raise InvalidRequest that names the option."""
    work, deadline = _span(options.work, "--work"), _span(options.deadline, "--deadline")
    changeover, tick = _span(options.changeover, "--changeover"), _span(options.tick, "--tick")
    if not SHORTEST_TICK <= tick <= deadline or deadline / tick > MAX_TICKS:
        raise InvalidRequest(
            f"A tick of {options.tick} does not fit a deadline of {options.deadline}.",
            field="--tick",
            value=str(options.tick),
            next=f"Use a tick of at least {SHORTEST_TICK.seconds}s, so that there are 1 to {MAX_TICKS:,} of them.",
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


def policies_of(names: Sequence[str]) -> Mapping[str, Callable[[], Policy]]:
    """Return what makes the named policies, or all of them; raise InvalidRequest for an unknown one."""
    for name in names:
        if name not in POLICIES:
            raise unknown_word(f"There is no spot policy {name!r}", name, POLICIES, field="--policy")
    return {name: POLICIES[name] for name in names or POLICIES}


def read_traces(paths: Sequence[str]) -> list[Trace]:
    """Return the traces of these files, and of every .json file below these directories, each once.

    Raises InvalidRequest for a path that does not exist, a directory without traces, and a file that is no trace.
    """
    files = dict.fromkeys(file.resolve() for path in paths for file in _files(Path(path)))
    names = _names(list(files))
    return [_read(file, name) for file, name in zip(files, names, strict=True)]


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(one for one in path.rglob("*.json") if one.is_file())
        if not found:
            raise _no_traces(f"There is no .json file in {path}.", str(path))
        return found
    if not path.exists():
        raise _no_traces(f"{path} does not exist.", str(path))
    return [path]


def _names(files: Sequence[Path]) -> list[str]:
    """Return a short name for each file, with its folder where two files have the same name."""
    stems = [file.stem for file in files]
    return [
        stem if stems.count(stem) == 1 else f"{file.parent.name}/{stem}"
        for stem, file in zip(stems, files, strict=True)
    ]


def _read(file: Path, name: str) -> Trace:
    try:
        text = file.read_bytes()
    except OSError as error:
        raise _no_traces(f"{file} cannot be read: {error.strerror}.", str(file)) from None
    return parse_trace(text, name)


def seen_traces(session: Session) -> list[Trace]:
    """Return availability as this ledger has seen it up to now, by place; asks no cloud.

    A machine that was launched says that spot was there, a refusal or an interruption that it was not, and each holds
    until something else was seen at that place. A place where nothing but one state was seen says too little, and is
    left out.
    """
    by_location: dict[SpotLocation, list[Sighting]] = defaultdict(list)
    for one in history(session.ledger):
        if one.kind != "ended":  # by its user: spot was there as before
            by_location[one.place].append(one)
    now = session.clock().timestamp()
    found = (_trace(location, seen, now) for location, seen in by_location.items())
    return [trace for trace in found if trace is not None and 0 < sum(trace.data) < len(trace.data)]


def _history(session: Session) -> list[Trace]:
    found = seen_traces(session)
    if not found:
        raise InvalidRequest(
            "The ledger has seen no spot machine come and go yet, and no traces are given.",
            field="--traces",
            value=None,
            next=f"Get traces from {SOURCE}, then: cloudgpu spot backtest --traces DIR",
        )
    return found


def _trace(location: SpotLocation, sightings: list[Sighting], now: float) -> Trace | None:
    name = " ".join(filter(None, (location.account, location.zone or location.region, location.instance_type)))
    return trace_of_changes(name, [(one.at.timestamp(), one.kind == "made") for one in sightings], now, GAP_S)


def _no_traces(fault: str, value: str) -> InvalidRequest:
    way_out = f"Name a trace, or a directory of traces, for example of {SOURCE}"
    return InvalidRequest(fault, field="--traces", value=value, next=way_out)


def _span(value: str | timedelta, field: str) -> timedelta:
    found = duration(value, field)
    assert found is not None  # noqa: S101  (only None gives None)
    return found


def _price(value: float | None, field: str, usual: float) -> float:
    if value is None:
        return usual
    if not 0 < value <= MAX_PRICE:
        way_out = f"Use an amount above zero and up to {MAX_PRICE:,.0f}, for example {field} 0.92"
        raise InvalidRequest(
            f"{field} {value:g} is not a price per hour.", field=field, value=f"{value:g}", next=way_out
        )
    return float(value)


def _check_count(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidRequest(
            f"{field} {value} is not a whole number from {least} to {most:,}.",
            field=field,
            value=str(value),
            next=f"For example {field} {max(least, 20)}",
        )
