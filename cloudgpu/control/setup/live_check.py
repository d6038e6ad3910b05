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
from cloudgpu.control.inventory.unrecorded_termination import EndedUnrecorded
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import PreparedLaunch, prepare
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.session.accounts import account_of
from cloudgpu.control.session.base import report_nothing
from cloudgpu.control.session.guarding import GUARD_REMEDY, NO_GUARD_OPTION
from cloudgpu.control.session.session import Session
from cloudgpu.control.setup.permissions import denied_error
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.billing.rates import MONTH_H
from cloudgpu.core.launch.plan import duration_cost
from cloudgpu.core.model.instances import TAG_ID
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.values.money import ZERO, Money, usd
from cloudgpu.core.values.times import HOUR, epoch_text
from cloudgpu.core.values.typed import parse_gpu
from cloudgpu.errors import (
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    StopUnproved,
)
from cloudgpu.providers.abilities import HasResources, Pausable, SetsTimer
from cloudgpu.providers.account_abilities import ChecksPermissions

if TYPE_CHECKING:
    from cloudgpu.views.documents.setup.doctor import LiveCheck, LiveTrial

LEASE = timedelta(minutes=30)  # of the machine, at its launch and again at its start
LISTING_DELAY = timedelta(minutes=2)  # how long a cloud may take until a listing shows what has just changed


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a trial: its message and duration; after an error, its remedy (`next`) and exit code."""

    name: str
    message: str
    seconds: float
    ok: bool = True
    next: str | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of one machine. `cost` is by the ledger, with disks; None: nothing was launched, or a price is missing.

    `remaining` names what still exists, each with the command that ends it.
    """

    prepared: PreparedLaunch
    name: str | None
    stages: tuple[Stage, ...]
    cost: Money | None
    remaining: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every stage went well and nothing is left."""
        return not self.remaining and all(stage.ok for stage in self.stages)


def run_trial(
    session: Session, prepared: PreparedLaunch, report_stage: Callable[[str], None] = report_nothing
) -> Trial:
    """Launch, stop, start and end one machine, which is ended whatever happens; return how each stage ended.

    `report_stage` gets a text for each stage as it begins. An interruption of the command is raised after the machine's
    end.
    """
    trial = _TrialInProgress(session, prepared, report_stage)
    try:
        trial.run_stages()
    finally:
        trial.end_machine()
    return trial.result()


class _FailedStage(Exception):
    """A stage failed, so the following ones are skipped; the stage has recorded why."""


@dataclass
class _TrialInProgress:
    """A trial that is under way."""

    session: Session
    prepared: PreparedLaunch
    report_stage: Callable[[str], None]
    stages: list[Stage] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)
    launched: Machine | None = None  # the machine as last known, for when the ledger cannot be read

    def run_stages(self) -> None:
        """Launch, list, check permissions that need a machine, check its timer, connect, stop, start, connect again.

        After a stage that fails, the others are skipped.
        """
        try:
            machine = self._run_stage("launch", lambda: launch(self.session, self.prepared, wait=False).machine)
            self.launched = machine
            self._run_stage("listed", lambda: self._check_listed(machine))
            self._run_stage("permitted", lambda: self._check_permissions(machine))
            if self._has_timer(machine):
                self._run_stage("timer", lambda: self._check_timer(machine))
            machine = self._run_stage(
                "ssh", lambda: wait_until_ready(self.session, machine), "answers with the pinned host key"
            )
            if machine.stoppable is False or not isinstance(self.session.provider_of(machine), Pausable):
                return
            self._run_stage(
                "stop", lambda: stop(self.session, machine, why="the live check"), "proved not to be billed"
            )
            machine = self._run_stage(
                "start", lambda: start(self.session, machine, new_lease(self.session, machine, LEASE))
            )
            self._run_stage("ssh again", lambda: wait_until_ready(self.session, machine), "the same host key")
        except _FailedStage:
            pass

    def end_machine(self) -> None:
        """End the machine, if there is one, and check that no resources of it are left."""
        machine = self._machine()
        if machine is None:
            return
        try:
            if machine.terminated_at is None:
                self.session.report(f"{machine.name}: ending what the check has launched")
                self._run_stage(
                    "down", lambda: terminate_one(self.session, machine, why="the live check is over"), "proved gone"
                )
            self._run_stage("leftovers", lambda: self._check_nothing_left(machine))
        except _FailedStage as failed:
            if isinstance(failed.__cause__, EndedUnrecorded):  # it has ended; only the ledger does not know it
                return
            self.remaining.append(
                f"what {machine.name} has left may still be billed: cloudgpu orphans"
                if self.stages[-1].name == "leftovers"  # the machine itself has ended, and `down` would refuse it
                else f"{machine.name} may still be billed: cloudgpu down {machine.name}"
            )
        except BaseException:
            self.session.report(f"{machine.name} may still be billed. Run: cloudgpu down {machine.name}")
            raise

    def result(self) -> Trial:
        """Return the stages of the trial, and its cost."""
        machine = self._machine()
        cost = None if machine is None or machine.unpriced else spent_until_now(machine, self.session.clock())
        return Trial(self.prepared, machine.name if machine else None, tuple(self.stages), cost, tuple(self.remaining))

    def _check_listed(self, machine: Machine) -> str:
        """Wait until the provider's listing, on which all other commands rely, has the machine with its tag."""
        provider = self.session.provider_of(machine)

        def is_listed() -> bool:
            return any(instance.tags.get(TAG_ID) == machine.id for instance in provider.list().instances)

        self._wait_until(is_listed, lambda: f"{machine.name} is missing from the provider's listing.")
        return "in the listing, with its tags"

    def _check_permissions(self, machine: Machine) -> str:
        provider = self.session.provider_of(machine)
        if not isinstance(provider, ChecksPermissions):
            return "this provider has no way to check"
        permissions = provider.permissions(machine.region)
        for permission in permissions:
            if permission.needed and permission.allowed is False:
                raise denied_error(permission, machine.provider)
        answered_count = sum(permission.allowed is not None for permission in permissions)
        return f"{answered_count} of {len(permissions)} actions could be asked, none that is needed is denied"

    def _has_timer(self, machine: Machine) -> bool:
        """Say whether the provider sets timers in the cloud, and this account is set up for them."""
        provider = self.session.provider_of(machine)
        return isinstance(provider, SetsTimer) and not provider.why_no_timer()

    def _check_timer(self, machine: Machine) -> str:
        """Return when the machine's timer in the cloud fires, as text; raise InvalidRequest where it has none."""
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
        list_resources, leftovers = provider.resources, list[str]()

        def nothing_left() -> bool:
            listing = list_resources(machine.region)
            for gap in listing.unanswered:
                raise ProviderUnavailable(f"{gap.scope} did not answer: {gap.why}", field="provider")
            leftovers[:] = [f"{left.kind} {left.id}" for left in listing.items if left.tags.get(TAG_ID) == machine.id]
            return not leftovers

        self._wait_until(nothing_left, lambda: f"{machine.name} has left behind: {', '.join(leftovers)}.")
        return "none"

    def _wait_until(self, condition: Callable[[], bool], timeout_message: Callable[[], str]) -> None:
        """Wait until the condition holds; raise StopUnproved with this message after LISTING_DELAY."""
        deadline, pause_s = self.session.clock() + LISTING_DELAY, 0.1
        while not condition():
            if self.session.clock() >= deadline:
                raise StopUnproved(timeout_message(), field="name", next="Run: cloudgpu ls --refresh")
            self.session.pause(pause_s)
            pause_s = min(5.0, pause_s * 1.5)

    def _machine(self) -> Machine | None:
        """Return the machine that the trial has launched, or may have launched; as last known without the ledger."""
        try:
            machines = [machine for machine in self.session.ledger.machines() if machine.key == self.prepared.key]
        except LedgerUnavailable:
            return self.launched
        return next((machine for machine in machines if machine.launch_status in ("made", "open")), None)

    def _run_stage(self, name: str, action: Callable[[], Any], message: str = "") -> Any:
        """Do one stage (`action`), record how it ended and how long it took, and return what `action` does.

        `message` describes its success, unless `action` returns a text. Raises _FailedStage after an error.
        """
        began_at = self.session.clock()
        self.report_stage(f"{self.prepared.plan.offer.configuration.instance_type}: {name}")
        try:
            result = action()
        except CloudgpuError as error:
            seconds = _seconds(began_at, self.session.clock())
            self.stages.append(
                Stage(name, error.message, seconds, ok=False, next=error.next, exit_code=error.exit_code)
            )
            raise _FailedStage from error
        detail = result if isinstance(result, str) else message or _machine_text(result)
        self.stages.append(Stage(name, detail, _seconds(began_at, self.session.clock())))
        return result


def _machine_text(machine: Machine) -> str:
    return f"{machine.name}: {machine.instance_type} in {machine.zone}, {machine.state}"


def _seconds(began_at: datetime, now: datetime) -> float:
    return round((now - began_at).total_seconds(), 3)


def document(trials: Sequence[Trial], max_cost: Money, *, is_complete: bool) -> LiveCheck:
    """Return what `doctor --live` adds to the answer of `doctor`; `is_complete`: `max_cost` has every price in it."""
    return {
        "at_most_usd": usd(max_cost),
        "at_most_is_whole": is_complete,
        "machines": [_trial_document(trial) for trial in trials],
        "ok": all(trial.ok for trial in trials),
    }


def _trial_document(trial: Trial) -> LiveTrial:
    configuration = trial.prepared.plan.offer.configuration
    return {
        "name": trial.name,
        "instance_type": configuration.instance_type,
        "region": configuration.region,
        "zone": configuration.zone,
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


# By provider: the cheapest current instance types with 2 GB of memory, in the order of trying. For any other provider,
# the cheapest of all is tried.
SMALL_TYPES: Mapping[str, Sequence[str]] = {
    "aws": ("t3.small", "t3a.small", "t2.small"),
    "azure": ("Standard_B1ms", "Standard_B2s"),
    "gcp": ("e2-small", "e2-medium"),
    "lambda": ("cpu_4x_general",),
}
# Providers where a small type may be without a known price: then the cheapest of all is tried.
_WITH_FALLBACK = ("azure", "gcp", "lambda", "runpod", "vast")


def plan_trials(
    session: Session,
    *,
    provider: str | None = None,
    account: str | None = None,
    gpu: str | None = None,
    region: str | None = None,
) -> list[PreparedLaunch]:
    """Return the plans: of a small machine, without a GPU if possible, and of one with `gpu` if that is requested.

    Queries the provider; launches and writes nothing. Raises what `prepare` raises.
    """
    request = UpRequest(
        Requirements(region=region), spot=False, provider=provider, account=account, template="bare", lease=LEASE,
        renew_until=LEASE, project="doctor",
    )  # fmt: skip
    kind = session.provider(account_of(session, account=account, provider=provider)).kind
    small_machine = _plan_small_machine(session, request, SMALL_TYPES.get(kind, ()), or_any=kind in _WITH_FALLBACK)
    if gpu is None:
        return [small_machine]
    model, count = parse_gpu(gpu)
    with_gpu = replace(request, requirements=replace(request.requirements, gpu=model, gpu_count=count or 1))
    return [small_machine, _plan_machine(session, with_gpu, "gpu")]


def _plan_small_machine(session: Session, request: UpRequest, types: Sequence[str], *, or_any: bool) -> PreparedLaunch:
    """Return the plan of the first of these types that can be had; else, or with `or_any`, of the cheapest of all."""
    for number, one in enumerate(types, 1):
        try:
            return _plan_machine(
                session, replace(request, requirements=replace(request.requirements, instance_type=one)), "cpu"
            )
        except (NoCapacity, InvalidRequest):  # a region may not have the type
            if number == len(types) and not or_any:
                raise
    return _plan_machine(session, request, "cpu")


def _plan_machine(session: Session, request: UpRequest, key_part: str) -> PreparedLaunch:
    """Return the plan with a new launch key: it launches one machine, once, and never finds an older one.

    The plan has only one instance type, the cheapest that fits: so the check costs no more than the user agreed to,
    whatever zone has capacity.
    """
    request = replace(request, key=f"doctor-{key_part}-{epoch_text(session.clock())}")
    try:
        prepared = prepare(session, request)
    except InvalidRequest as error:
        if error.field == NO_GUARD_OPTION:  # `doctor` does not have that option, so another remedy is named
            error.next = GUARD_REMEDY
        raise
    if len({offer.configuration.instance_type for offer in prepared.offers}) == 1:
        return prepared
    return prepare(
        session,
        replace(
            request,
            requirements=replace(request.requirements, instance_type=prepared.offers[0].configuration.instance_type),
        ),
    )


def max_cost_of(plans: Sequence[PreparedLaunch]) -> tuple[Money, bool]:
    """Return the most that these machines can cost, disks and addresses included; and whether a price is not known.

    Each machine for both its leases (of the launch, and of the start) at the most expensive offer, attached costs too.
    """
    total, is_complete = ZERO, True
    for prepared in plans:
        total += duration_cost(prepared.plan.highest_price, 2 * LEASE)
        for added_cost in prepared.plan.added_costs:
            is_complete = is_complete and added_cost.per_month is not None
            total += (added_cost.per_month or ZERO).scaled(Fraction(2 * LEASE / HOUR) / MONTH_H)
    return total, not is_complete
