"""Plans and runs the live check: one machine launched, reached, stopped, started, and ended for certain.

Each stage is timed, and the cost of the trial is reported. A plan is for a small machine, and for one with a GPU if
requested; it says what they cost at most. The check is the same for all providers, but for the names of small machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from cloudgpu.control.access.reach import wait_until_ready
from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import Prepared, prepare
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.session.accounts import account_of
from cloudgpu.control.session.base import report_nothing
from cloudgpu.control.session.guarding import GUARD_REMEDY, NO_GUARD_OPTION
from cloudgpu.control.session.session import Session
from cloudgpu.control.setup.permissions import denied_error
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.billing.rates import MONTH_H
from cloudgpu.core.launch.plan import HOUR, run_cost
from cloudgpu.core.model.instances import TAG_ID
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.values.money import ZERO, Money, usd
from cloudgpu.core.values.times import epoch_text
from cloudgpu.core.values.typed import parse_gpu
from cloudgpu.errors import CloudgpuError, InvalidRequest, NoCapacity, ProviderUnavailable, StopUnproved
from cloudgpu.providers.abilities import HasResources, Pausable, SetsTimer
from cloudgpu.providers.account_abilities import ChecksPermissions

if TYPE_CHECKING:
    from cloudgpu.views.documents.setup.doctor import LiveCheck, LiveTrial

LEASE = timedelta(minutes=30)
LISTING_DELAY = timedelta(minutes=2)  # how long a cloud may take until a listing shows what has just changed


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its message and duration; after an error, `next` is the remedy and `exit_code` that of the error."""

    name: str
    message: str
    seconds: float
    ok: bool = True
    next: str | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of one machine. `cost` is by the ledger, with disks; None: nothing was launched.

    `remaining` is what is still there, each with the command that ends it.
    """

    prepared: Prepared
    name: str | None
    stages: tuple[Stage, ...]
    cost: Money | None
    remaining: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every stage went well and nothing is left."""
        return not self.remaining and all(stage.ok for stage in self.stages)


def run_trial(session: Session, prepared: Prepared, begin: Callable[[str], None] = report_nothing) -> Trial:
    """Take one machine through its whole life, and end it whatever happens; return how each stage ended.

    `begin` is given each stage as it begins, in words.
    An interruption ends the machine first and is raised then.
    """
    trial = _Trial(session, prepared, begin)
    try:
        trial.live()
    finally:
        trial.clean()
    return trial.result()


class _FailedStage(Exception):
    """A stage failed, so the following ones are skipped; the stage has recorded why."""


@dataclass
class _Trial:
    """A trial that is under way."""

    session: Session
    prepared: Prepared
    begin: Callable[[str], None]
    stages: list[Stage] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)

    def live(self) -> None:
        """Launch, see it, ask what is allowed now that it is there, see its timer, reach, stop, start, reach again.

        A stage that fails is the last.
        """
        try:
            machine = self._step("launch", lambda: launch(self.session, self.prepared, wait=False).machine)
            self._step("listed", lambda: self._check_listed(machine))
            self._step("permitted", lambda: self._check_permissions(machine))
            if self._has_timer(machine):
                self._step("timer", lambda: self._check_timer(machine))
            machine = self._step(
                "ssh", lambda: wait_until_ready(self.session, machine), "answers with the pinned host key"
            )
            if machine.stoppable is False or not isinstance(self.session.provider_of(machine), Pausable):
                return
            self._step("stop", lambda: stop(self.session, machine, why="the live check"), "proved not to be billed")
            machine = self._step("start", lambda: start(self.session, machine, new_lease(self.session, machine, LEASE)))
            self._step("ssh again", lambda: wait_until_ready(self.session, machine), "the same host key")
        except _FailedStage:
            pass

    def clean(self) -> None:
        """End the machine, if there is one, and look for what is left of it."""
        machine = self._machine()
        if machine is None:
            return
        try:
            if machine.terminated_at is None:
                self.session.report(f"{machine.name}: ending what the check has launched")
                self._step(
                    "down", lambda: terminate_one(self.session, machine, why="the live check is over"), "proved gone"
                )
            self._step("leftovers", lambda: self._check_nothing_left(machine))
        except _FailedStage:
            self.remaining.append(f"{machine.name} may still be billed: cloudgpu down {machine.name}")
        except BaseException:
            self.session.report(f"{machine.name} may still be billed. Run: cloudgpu down {machine.name}")
            raise

    def result(self) -> Trial:
        """Return what the machine went through, and its cost."""
        machine = self._machine()
        cost = None if machine is None or machine.unpriced else spent_until_now(machine, self.session.clock())
        return Trial(self.prepared, machine.name if machine else None, tuple(self.stages), cost, tuple(self.remaining))

    def _check_listed(self, machine: Machine) -> str:
        """See the machine, with its tag, in the listing that every other command goes by."""
        provider = self.session.provider_of(machine)

        def found() -> bool:
            return any(one.tags.get(TAG_ID) == machine.id for one in provider.list().instances)

        self._until(found, lambda: f"{machine.name} is missing from the provider's listing.")
        return "in the listing, with its tags"

    def _check_permissions(self, machine: Machine) -> str:
        provider = self.session.provider_of(machine)
        if not isinstance(provider, ChecksPermissions):
            return "this provider has no way to check"
        found = provider.permissions(machine.region)
        for one in found:
            if one.needed and one.allowed is False:
                raise denied_error(one, machine.provider)
        known = sum(one.allowed is not None for one in found)
        return f"{known} of {len(found)} actions could be asked, none that is needed is denied"

    def _has_timer(self, machine: Machine) -> bool:
        provider = self.session.provider_of(machine)
        return isinstance(provider, SetsTimer) and not provider.why_no_timer()

    def _check_timer(self, machine: Machine) -> str:
        """See the machine's timer where it fires by itself: at renew-until."""
        provider = cast("SetsTimer", self.session.provider_of(machine))
        at = provider.timer(not_none(machine.provider_id))
        if at is None:
            raise InvalidRequest(
                f"{machine.name} has no timer in the cloud, though the account is set up for one.",
                field="timer",
                value=machine.name,
                next="See the output of its launch for the reason; cloudgpu init creates its role again.",
            )
        return f"fires at {at:%Y-%m-%d %H:%M} UTC"

    def _check_nothing_left(self, machine: Machine) -> str:
        provider = self.session.provider_of(machine)
        if not isinstance(provider, HasResources):
            return "this provider has no resources besides machines"
        able, seen = provider, list[str]()

        def gone() -> bool:
            found = able.resources(machine.region)
            for gap in found.unanswered:
                raise ProviderUnavailable(f"{gap.scope} did not answer: {gap.why}", field="provider")
            seen[:] = [f"{one.kind} {one.id}" for one in found.items if one.tags.get(TAG_ID) == machine.id]
            return not seen

        self._until(gone, lambda: f"{machine.name} has left behind: {', '.join(seen)}.")
        return "none"

    def _until(self, done: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        """Wait until this is done; raise StopUnproved with the message of `otherwise` where it is not in time."""
        deadline, pause = self.session.clock() + LISTING_DELAY, 0.1
        while not done():
            if self.session.clock() >= deadline:
                raise StopUnproved(otherwise(), field="name", next="Run: cloudgpu ls --refresh")
            self.session.pause(pause)
            pause = min(5.0, pause * 1.5)

    def _machine(self) -> Machine | None:
        machines = (machine for machine in self.session.ledger.machines() if machine.key == self.prepared.key)
        return next((machine for machine in machines if machine.launch_status in ("made", "open")), None)

    def _step(self, name: str, act: Callable[[], Any], message: str = "") -> Any:
        """Do one stage and write down how it ended and how long it took; raise _FailedStage after a fault."""
        began = self.session.clock()
        self.begin(f"{self.prepared.plan.offer.available.instance_type}: {name}")
        try:
            answer = act()
        except CloudgpuError as error:
            seconds = _seconds(began, self.session.clock())
            self.stages.append(
                Stage(name, error.message, seconds, ok=False, next=error.next, exit_code=error.exit_code)
            )
            raise _FailedStage from error
        detail = answer if isinstance(answer, str) else message or _machine_text(answer)
        self.stages.append(Stage(name, detail, _seconds(began, self.session.clock())))
        return answer


def _machine_text(machine: Machine) -> str:
    return f"{machine.name}: {machine.instance_type} in {machine.zone}, {machine.state}"


def _seconds(began: datetime, now: datetime) -> float:
    return round((now - began).total_seconds(), 3)


def document(trials: Sequence[Trial], max_cost: Money, *, whole: bool) -> LiveCheck:
    """Return what `doctor --live` adds to the answer of `doctor`; `whole`: `max_cost` has every price in it."""
    return {
        "at_most_usd": usd(max_cost),
        "at_most_is_whole": whole,
        "machines": [_value(trial) for trial in trials],
        "ok": all(trial.ok for trial in trials),
    }


def _value(trial: Trial) -> LiveTrial:
    item = trial.prepared.plan.offer.available
    return {
        "name": trial.name,
        "instance_type": item.instance_type,
        "region": item.region,
        "zone": item.zone,
        "stages": [
            {
                "name": stage.name,
                "message": stage.message,
                "seconds": stage.seconds,
                "ok": stage.ok,
                "next": stage.next,
                "exit_code": stage.exit_code,
            }
            for stage in trial.stages
        ],
        "cost_usd": None if trial.cost is None else usd(trial.cost),
        "remaining": list(trial.remaining),
        "ok": trial.ok,
    }


# The cheapest current machine with 2 GB, in the order of trying; elsewhere the cheapest of all.
SMALL_TYPES: Mapping[str, Sequence[str]] = {
    "aws": ("t3.small", "t3a.small", "t2.small"),
    "azure": ("Standard_B1ms", "Standard_B2s"),
    "gcp": ("e2-small", "e2-medium"),
    "lambda": ("cpu_4x_general",),
}
# A small one may have no known price there: then the cheapest of all, too.
_WITH_FALLBACK = ("azure", "gcp", "lambda", "runpod", "vast")


def plan_trials(
    session: Session,
    *,
    provider: str | None = None,
    account: str | None = None,
    gpu: str | None = None,
    region: str | None = None,
) -> list[Prepared]:
    """Return the plans: a small machine without a GPU where there is one, and one with `gpu` where it is asked for.

    Asks providers what they have; launches and writes nothing. Raises what `prepare` raises.
    """
    request = UpRequest(
        Requirements(region=region), spot=False, provider=provider, account=account, template="bare", lease=LEASE,
        renew_until=LEASE, project="doctor",
    )  # fmt: skip
    kind = session.provider(account_of(session, account=account, provider=provider)).kind
    small = _small(session, request, SMALL_TYPES.get(kind, ()), or_any=kind in _WITH_FALLBACK)
    if gpu is None:
        return [small]
    model, count = parse_gpu(gpu)
    with_gpu = replace(request, requirements=replace(request.requirements, gpu=model, gpu_count=count or 1))
    return [small, _prepared(session, with_gpu, "gpu")]


def _small(session: Session, request: UpRequest, types: Sequence[str], *, or_any: bool) -> Prepared:
    for number, one in enumerate(types, 1):
        try:
            return _prepared(
                session, replace(request, requirements=replace(request.requirements, instance_type=one)), "cpu"
            )
        except (NoCapacity, InvalidRequest):  # a region may not have the type
            if number == len(types) and not or_any:
                raise
    return _prepared(session, request, "cpu")


def _prepared(session: Session, request: UpRequest, which: str) -> Prepared:
    """Return the plan under a key of this check's own: it launches one machine, once, and never finds an older one.

    Of one type alone, the cheapest that fits: whatever zone has it, the check costs no more than was agreed to.
    """
    request = replace(request, key=f"doctor-{which}-{epoch_text(session.clock())}")
    try:
        found = prepare(session, request)
    except InvalidRequest as error:
        if error.field == NO_GUARD_OPTION:  # an option of `up` alone: what is tried here has to be ended by somebody
            error.next = GUARD_REMEDY
        raise
    if len({offer.available.instance_type for offer in found.offers}) == 1:
        return found
    return prepare(
        session,
        replace(
            request, requirements=replace(request.requirements, instance_type=found.offers[0].available.instance_type)
        ),
    )


def max_cost_of(plans: Sequence[Prepared]) -> tuple[Money, bool]:
    """Return the most that these machines can cost, disks and addresses included; and whether a price is not known.

    Each machine for both its leases (of the launch, and of the start) at the most expensive offer, attached costs too.
    """
    total, whole = ZERO, True
    for prepared in plans:
        total += run_cost(prepared.plan.highest_price, 2 * LEASE)
        for extra in prepared.plan.extras:
            whole = whole and extra.per_month is not None
            total += (extra.per_month or ZERO).scaled(Fraction(2 * LEASE / HOUR) / MONTH_H)
    return total, not whole
