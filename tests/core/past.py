"""A recorded past as tests write it: a machine's lines and samples, minutes counted from START."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.activity.idle import Thresholds, judge
from cloudgpu.core.events.log import Line
from cloudgpu.core.events.projection import project
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import usage_of_record
from cloudgpu.core.policies.policy import Policy
from cloudgpu.core.reaper.backtest import BacktestResult, MachineHistory, backtest, only_while_it_runs, runs_of
from cloudgpu.core.reaper.decide import decide
from cloudgpu.core.reaper.decisions import MachineView
from cloudgpu.core.reaper.replay import RecordedHistory
from cloudgpu.core.values.times import iso
from cloudgpu.views.advice.backtest import BacktestedPolicy, backtest_document
from cloudgpu.views.reaper import why_document
from tests.core.lives import HOUR_NANOS, START, intent, running, settled, stopped

TEN = timedelta(minutes=10)
DAYS = timedelta(days=30)
USUAL = Policy("default", timedelta(hours=8), timedelta(hours=72))
LASTING = {"expires": iso(START + DAYS), "renew_until": iso(START + DAYS)}


def minute(number: float) -> datetime:
    return START + timedelta(minutes=number)


def bucket(number: float, **more: Any) -> dict[str, Any]:
    """Return the sample of the minute that ends then: a quiet machine, and `more`."""
    return {"t": minute(number).timestamp(), "s": 60, "cpu": 0.01, "net": 500, "disk": 0} | more


def quiet(begin: int, end: int, **more: Any) -> list[dict[str, Any]]:
    return [bucket(number, **more) for number in range(begin + 1, end + 1)]


def busy(begin: int, end: int) -> list[dict[str, Any]]:
    return quiet(begin, end, busy=["kernel 1"])


def life(*lines: Line, price: int | None = HOUR_NANOS, **more: Any) -> list[Line]:
    """Return the lines of a machine that is launched at START and runs, and then `lines`."""
    return [intent(0, price, **(LASTING | more)), settled(1, "made"), running(2, since=0), *lines]


def ended(minutes: float) -> Line:
    return stopped(minutes * 60, since=minutes * 60)


def past(lines: Iterable[Line], samples: Iterable[dict[str, Any]], until: float, since: float = 0) -> MachineHistory:
    every = list(lines)
    found = project(every)
    assert found is not None
    row = Machine.of(found.state["row"])
    ended = [usage_of_record(one) for one in found.ended_usages]
    known = tuple(one for one in (*ended, *row.open_usage) if only_while_it_runs(row, one))
    runs = runs_of(known, minute(since), minute(until))
    return MachineHistory(row, RecordedHistory(every, runs, list(samples)), known)


def tried(
    policy: Policy,
    lines: Iterable[Line],
    samples: Iterable[dict[str, Any]],
    until: float = 300,
    since: float = 0,
    interval: timedelta = TEN,
) -> BacktestResult:
    known = past(lines, samples, until, since)
    return backtest(known, policy, minute(since), minute(until), interval=interval)


def a_backtest() -> dict[str, Any]:
    """Return a document with an end in it, and work after it."""
    samples = [*busy(0, 60), *quiet(60, 200), *busy(200, 215), *quiet(215, 300)]
    test = BacktestedPolicy("default", "default.yaml", ("the limits",), minute(0), minute(300), TEN)
    return backtest_document(test, [tried(USUAL, life(ended(300)), samples)])


def a_why() -> dict[str, Any]:
    """Return why a machine is in use, every signal of which was looked at."""
    shown = {"gpu": 50.0, "busy": ["kernel 1"], "in": 5.0, "out": 6.0, "jup": 7.0}
    judged = judge([bucket(60, **shown)], Thresholds(), minute(60).timestamp(), minute(0).timestamp())
    known = past(life(), [], 60)
    seen = MachineView(known.machine, USUAL, "it was launched under default", judged, scratch=(("/mnt", 4096),))
    (decision,) = decide([seen], (), minute(60), interval=TEN)
    return why_document(seen, decision, minute(60), at=minute(60), how="live")
