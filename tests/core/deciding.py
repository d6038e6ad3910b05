"""A machine's ledger lines and what a pass does with its decisions: short words for tests. Minutes count from START."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.activity.idle import ActivityVerdict, Signal
from cloudgpu.core.events.log import Event
from cloudgpu.core.events.projection import machine_of
from cloudgpu.core.model import machine as model
from cloudgpu.core.model.launch import Setup, setup_to_json
from cloudgpu.core.policies.policy import Policy
from cloudgpu.core.reaper.decide import decide
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.values.times import iso
from tests.core.lives import START, intent, line, seen, settled

TEN = timedelta(minutes=10)
DEFAULT = Policy("default", timedelta(hours=8), timedelta(hours=72))
KEEPS_DISK, LOSES_DISK = (setup_to_json(Setup(keep_disk=keeps)) for keeps in (True, False))


def minute(number: float) -> datetime:
    return START + timedelta(minutes=number)


def active(ago: float = 0) -> ActivityVerdict:
    return ActivityVerdict("ACTIVE", ago * 60, f"GPU, {ago * 60:.0f} s ago", (Signal("GPU", 80, 3, ago * 60, True),))


def idle(ago: float = 60) -> ActivityVerdict:
    return ActivityVerdict(
        "IDLE", ago * 60, f"kernel, {ago * 60:.0f} s ago", (Signal("kernel", ago, 3600, ago * 60, False),)
    )


UNKNOWN = ActivityVerdict("UNKNOWN", -1, "GPU not read: 0% of the window is known", ())


class Machine:
    """The lines of one machine; `runs` and the like append to them."""

    def __init__(self, name: str = "cg-1", *, policy: Policy | None = DEFAULT, **more: Any) -> None:
        self.id, self.policy = name, policy
        usual = {"expires": iso(minute(480)), "renew_until": iso(minute(72 * 60)), "region": "here"}
        self.lines = [intent(0, None, **usual | {"name": name, "owner": "ann", "project": "thesis"} | more)]
        self.lines += [settled(1, "made"), seen(2, "running", billed=True, since=2)]

    def tell(self, minutes: float, kind: str, **body: Any) -> None:
        self.lines.append(line(minutes * 60, kind, body, len(self.lines)))

    def see(self, at: float, state: str, *, billed: bool, **more: Any) -> None:
        self.lines.append(seen(at * 60, state, billed=billed, since=at * 60, **more))

    @property
    def machine(self) -> model.Machine:
        renamed = [Event(number, *_of(item, self.id, number)) for number, item in enumerate(self.lines, 1)]
        found = machine_of(renamed)
        assert found is not None
        return found

    def known(self, judged: ActivityVerdict | None = None, **more: Any) -> MachineView:
        return MachineView(self.machine, self.policy, judged=judged, **more)

    def decided(self, at: float, judged: ActivityVerdict | None = None, *, stops: Any = (), **more: Any) -> Decision:
        """Return what a pass decides; its warnings are written as a pass would."""
        (decision,) = decide([self.known(judged, **more)], stops, minute(at), interval=TEN)
        self.take(at, decision)
        return decision

    def take(self, at: float, decision: Decision) -> None:
        said = {name: getattr(decision, name) for name in ("do", "rule", "why", "activity")}
        self.tell(at, "decision_made", **said | {"at": decision.at and iso(decision.at)})
        for warned in decision.warnings:
            due = iso(warned.due) if warned.due else None
            self.tell(at, "warning_sent", rule=str(warned.rule), due=due, why=warned.why)
        for lifted in decision.withdrawn:
            self.tell(at, "warning_cleared", rule=str(lifted.rule), why=lifted.why)


def _of(item: Event, subject: str, number: int) -> list[Any]:
    fields = {name: getattr(item, name) for name in Event.__slots__[1:]}
    return list((fields | {"subject": subject, "dedupe": f"{number}"}).values())
