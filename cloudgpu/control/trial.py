"""A trial: one machine launched, reached, stopped, started, ended and proved gone, each stage timed, with its cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from cloudgpu.control.launch import launch
from cloudgpu.control.lifecycle import end, new_lease, start, stop
from cloudgpu.control.permitted import denied
from cloudgpu.control.prepare import Prepared
from cloudgpu.control.reach import wait_until_ready
from cloudgpu.control.session import Session
from cloudgpu.core.billing.totals import spent
from cloudgpu.core.model.instances import TAG_ID
from cloudgpu.core.values.money import Money
from cloudgpu.errors import CloudgpuError, InvalidRequest, ProviderUnavailable, StopUnproved
from cloudgpu.providers.abilities import HasLeftovers, Pausable, SetsTimer
from cloudgpu.providers.account_abilities import ChecksPermissions
from cloudgpu.views.machines import usd

Row = dict[str, Any]
LEASE = timedelta(minutes=30)
SEEN_WITHIN = timedelta(minutes=2)  # how long a cloud may take until a listing shows what has just changed


@dataclass(frozen=True, slots=True)
class Stage:
    """One step: how it ended, in how many seconds; `next` is the way out and `exit_code` that of its fault."""

    name: str
    said: str
    seconds: float
    ok: bool = True
    next: str | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """What one machine went through. `cost` is the ledger's, disks too; None: nothing was launched.

    `left` is what is still there, each with the command that ends it.
    """

    prepared: Prepared
    name: str | None
    stages: tuple[Stage, ...]
    cost: Money | None
    left: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every stage went well and nothing is left."""
        return not self.left and all(stage.ok for stage in self.stages)


def tried(session: Session, prepared: Prepared) -> Trial:
    """Take one machine through its whole life, and end it whatever happens; return how each stage ended.

    An interruption ends the machine first and is raised then.
    """
    trial = _Trial(session, prepared)
    try:
        trial.live()
    finally:
        trial.clean()
    return trial.result()


class _FailedStage(Exception):
    """What follows has nothing to stand on; the stage has written down why."""


@dataclass
class _Trial:
    """One machine's life: what was done so far."""

    session: Session
    prepared: Prepared
    stages: list[Stage] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def live(self) -> None:
        """Launch, see it, ask what is allowed now that it is there, see its timer, reach, stop, start, reach again.

        A stage that fails is the last.
        """
        try:
            row = self._step("launch", self._launch)
            self._step("listed", lambda: self._listed(row))
            self._step("permitted", lambda: self._permitted(row))
            if self._is_timed(row):
                self._step("timer", lambda: self._timed(row))
            row = self._step("ssh", lambda: wait_until_ready(self.session, row), "answers with the pinned host key")
            if not self._can_stop(row):
                return
            self._step("stop", lambda: stop(self.session, row, why="the live check"), "proved not to be billed")
            row = self._step("start", lambda: start(self.session, row, new_lease(self.session, row, LEASE)))
            self._step("ssh again", lambda: wait_until_ready(self.session, row), "the same host key")
        except _FailedStage:
            pass

    def clean(self) -> None:
        """End the machine, if there is one, and look for what is left of it."""
        row = self._row()
        if row is None:
            return
        try:
            if row["ended"] is None:
                self.session.tell(f"{row['name']}: ending what the check has launched")
                self._step("down", lambda: end(self.session, row, why="the live check is over"), "proved gone")
            self._step("leftovers", lambda: self._nothing_left(row))
        except _FailedStage:
            self.left.append(f"{row['name']} may still be billed: cloudgpu down {row['name']}")
        except BaseException:
            self.session.tell(f"{row['name']} may still be billed. Run: cloudgpu down {row['name']}")
            raise

    def result(self) -> Trial:
        """Return what the machine went through, and its cost."""
        row = self._row()
        cost = None if row is None or row["unpriced"] else spent(row, self.session.clock())
        return Trial(self.prepared, row["name"] if row else None, tuple(self.stages), cost, tuple(self.left))

    def _launch(self) -> Row:
        return launch(self.session, self.prepared, wait=False).row

    def _listed(self, row: Row) -> str:
        """See the machine, with its tag, in the listing that every other command goes by."""
        provider = self.session.provider_of(row)

        def found() -> bool:
            return any(one.tags.get(TAG_ID) == row["id"] for one in provider.list().instances)

        self._until(found, f"{row['name']} is missing from the provider's listing.")
        return "in the listing, with its tags"

    def _permitted(self, row: Row) -> str:
        provider = self.session.provider_of(row)
        if not isinstance(provider, ChecksPermissions):
            return "this provider cannot be asked"
        found = provider.permissions(row["region"])
        for one in found:
            if one.needed and one.allowed is False:
                raise denied(one, row["provider"])
        known = sum(one.allowed is not None for one in found)
        return f"{known} of {len(found)} actions could be asked, none that is needed is denied"

    def _is_timed(self, row: Row) -> bool:
        provider = self.session.provider_of(row)
        return isinstance(provider, SetsTimer) and not provider.no_timer()

    def _timed(self, row: Row) -> str:
        """See the machine's timer where it fires by itself: at renew-until."""
        provider = cast("SetsTimer", self.session.provider_of(row))
        at = provider.timer(row["provider_id"])
        if at is None:
            raise InvalidRequest(
                f"{row['name']} has no timer in the cloud, though the account is set up for one.",
                field="timer",
                value=row["name"],
                next="What its launch said of it tells why; cloudgpu init makes its role anew.",
            )
        return f"fires at {at:%Y-%m-%d %H:%M} UTC"

    def _nothing_left(self, row: Row) -> str:
        provider = self.session.provider_of(row)
        if not isinstance(provider, HasLeftovers):
            return "this provider keeps nothing beside machines"
        able, seen = provider, list[str]()

        def gone() -> bool:
            found = able.leftovers(row["region"])
            for gap in found.unanswered:
                raise ProviderUnavailable(f"{gap.scope} did not answer: {gap.why}", field="provider")
            seen[:] = [f"{one.kind} {one.id}" for one in found.items if one.tags.get(TAG_ID) == row["id"]]
            return not seen

        self._until(gone, lambda: f"{row['name']} has left behind: {', '.join(seen)}.")
        return "none"

    def _until(self, done: Callable[[], bool], otherwise: str | Callable[[], str]) -> None:
        deadline, pause = self.session.clock() + SEEN_WITHIN, 0.1
        while not done():
            if self.session.clock() >= deadline:
                said = otherwise if isinstance(otherwise, str) else otherwise()
                raise StopUnproved(said, field="name", next="Run: cloudgpu ls --refresh")
            self.session.pause(pause)
            pause = min(5.0, pause * 1.5)

    def _can_stop(self, row: Row) -> bool:
        return row["stoppable"] is not False and isinstance(self.session.provider_of(row), Pausable)

    def _row(self) -> Row | None:
        rows = (row for row in self.session.ledger.machines() if row["key"] == self.prepared.key)
        return next((row for row in rows if row["attempt"] in ("made", "open")), None)

    def _step(self, name: str, act: Callable[[], Any], said: str = "") -> Any:
        """Do one stage and write down how it ended and how long it took; raise _FailedStage after a fault."""
        began = self.session.clock()
        try:
            answer = act()
        except CloudgpuError as fault:
            seconds = _seconds(began, self.session.clock())
            self.stages.append(
                Stage(name, fault.message, seconds, ok=False, next=fault.next, exit_code=fault.exit_code)
            )
            raise _FailedStage from fault
        told = answer if isinstance(answer, str) else said or _where(answer)
        self.stages.append(Stage(name, told, _seconds(began, self.session.clock())))
        return answer


def _where(row: Row) -> str:
    return f"{row['name']}: {row['instance_type']} in {row['zone']}, {row['state']}"


def _seconds(began: datetime, now: datetime) -> float:
    return round((now - began).total_seconds(), 3)


def document(trials: Sequence[Trial], at_most: Money, *, whole: bool) -> dict[str, Any]:
    """Return what `doctor --live` adds to the answer of `doctor`; `whole`: `at_most` has every price in it."""
    return {
        "at_most_usd": usd(at_most),
        "at_most_is_whole": whole,
        "machines": [_value(trial) for trial in trials],
        "ok": all(trial.ok for trial in trials),
    }


def _value(trial: Trial) -> dict[str, Any]:
    item = trial.prepared.plan.offer.available
    return {
        "name": trial.name,
        "instance_type": item.instance_type,
        "region": item.region,
        "zone": item.zone,
        "stages": [asdict(stage) for stage in trial.stages],
        "cost_usd": None if trial.cost is None else usd(trial.cost),
        "left": list(trial.left),
        "ok": trial.ok,
    }
