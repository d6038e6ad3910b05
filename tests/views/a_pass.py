"""A pass in which everything happens at once, as a value for tests of what is shown of passes."""

from __future__ import annotations

from datetime import timedelta

from cloudgpu.core.activity.idle import Thresholds, judge
from cloudgpu.core.events.projection import machine_of
from cloudgpu.core.model.identity import QueriedAccount, Unanswered
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.reaper.decide import decide
from cloudgpu.core.reaper.decisions import MachineView
from cloudgpu.core.reaper.result import EndedItem, GivenWarning, NotEnded, ReaperRun
from tests.core.past import TEN, USUAL, life, minute, quiet

NOW = minute(150)


def a_pass(**changes: object) -> ReaperRun:
    """Return it; `changes` are fields of the pass."""
    row = machine_of(life())
    assert row is not None
    judged = judge(quiet(0, 150), Thresholds(), NOW.timestamp(), minute(0).timestamp())
    seen = MachineView(row, USUAL, "it was launched under default", judged, reached_at=NOW)
    machine, name = row.id, row.name
    fields = {
        "duration": timedelta(seconds=2.5),
        "views": (seen,),
        "decisions": tuple(decide([seen], [], NOW, interval=TEN)),
        "ended": (EndedItem(machine, name, ReaperAction.STOP, Rule.IDLE, "idle for 2h", "stopped"),),
        "renewed": (
            EndedItem(machine, name, ReaperAction.RENEW, Rule.LEASE, "it is in use", "2026-11-20T14:00:00.000000Z"),
        ),
        "warned": (GivenWarning(machine, name, Rule.IDLE, "idle for 2h", NOW + TEN, ("ledger", "alert", "terminal")),),
        "skipped": (NotEnded(machine, name, ReaperAction.KEEP, "it is in use"),),
        "unconfirmed": (NotEnded(machine, name, ReaperAction.STOP, "its stop was refused"),),
        "unanswered": (Unanswered("us-east-1", "it did not answer"),),
        "faults": ("no policy is called 'mine'",),
        "sentences": ("fox is gone",),
        "undelivered": ("mailto-1a2b3c: did not answer",),
        "queried": (QueriedAccount("lab", "aws"),),
        "not_queried": (Unanswered("gcp", "no project is named"),),
    }
    return ReaperRun(NOW, **(fields | changes))  # type: ignore[arg-type]
