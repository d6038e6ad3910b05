"""How a machine can end, and what ends it unattended: its agent, a timer of its provider, or runs of the reaper.

Pure. A provider says which of these it has (`Provider.guards`); a machine's record has them since its launch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

from cloudgpu.core.model.facts import MachineGuards, MachineSetup
from cloudgpu.core.model.machine import Machine, command_name, is_on_prem
from cloudgpu.core.model.records import GuardsRecord, ScheduledRunRecord
from cloudgpu.core.policies.policy import Policy, ReaperAction, Unknown, Unpausable
from cloudgpu.core.values.times import duration_text, from_iso, iso
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.core.model.launch import Setup
    from cloudgpu.core.model.offers import MachineConfiguration

# Parts of sentences about ends.
ERASES = "it is terminated then, and what is on its disk is deleted"
NOTHING_GENTLER = "it can be neither stopped nor kept as an image"
FIRES_WITHIN = timedelta(minutes=5)  # clouds fire to the minute, and a machine takes a while to be stopped
BY_TIMER = "renew-until: the timer in the cloud"  # the reason of an end that the timer must have made


def gentlest_ending(machine: Machine) -> ReaperAction:
    """Return the gentlest end of this machine that its provider can carry out."""
    if machine.stoppable is not False:
        return ReaperAction.STOP
    return ReaperAction.PARK if machine.parkable is not False else ReaperAction.TERMINATE


def automatic_ending(machine: Machine, policy: Policy | None) -> ReaperAction | None:
    """Return how its lease, idle time and schedules end it; None: not at all, as that would delete its disk.

    The launch has recorded whether the disk of a machine that cannot be stopped is to stay (`unpausable`). Where it is
    to stay and cannot, only `renew-until` and budgets end the machine.
    """
    end = gentlest_ending(machine)
    if end is ReaperAction.STOP or keeps_disk(machine, policy):
        return None if end is ReaperAction.TERMINATE else end
    return ReaperAction.TERMINATE


def ending_at_renew_until(machine: Machine, policy: Policy | None) -> ReaperAction:
    """Return how renew-until ends it: as agreed, else in the only way there is."""
    return automatic_ending(machine, policy) or ReaperAction.TERMINATE


def keeps_disk(machine: Machine, policy: Policy | None) -> bool:
    """Say whether the disk of a machine that cannot be stopped is to stay: as its launch says, else its policy."""
    if machine.setup is not None:
        return bool(machine.setup.keep_disk)
    return policy is None or policy.unpausable is not Unpausable.TERMINATE


def only_warns_to_keep_disk(machine: Machine, policy: Policy | None) -> bool:
    """Say whether its lease, idle time and schedules only warn, since they could only terminate it."""
    return automatic_ending(machine, policy) is None


def only_warned(machine: Machine, policy: Policy | None) -> bool:
    """Say whether idle time and schedules only warn: as its policy says, or since they could only terminate it."""
    by_policy = policy is not None and policy.only_warned(stoppable=machine.stoppable is not False)
    return by_policy or only_warns_to_keep_disk(machine, policy)


def subject_of_offer(configuration: MachineConfiguration, setup: Setup) -> Machine:
    """Return a machine to be launched, with only what says how it can end."""
    from cloudgpu.core.events.projection import unlaunched_machine
    from cloudgpu.core.model.launch import setup_to_json

    planned = MachineSetup.of(setup_to_json(setup))
    return unlaunched_machine()._replace(
        stoppable=configuration.stoppable, parkable=configuration.parkable, setup=planned
    )


def check_stop(machine: Machine) -> None:
    """Raise InvalidRequest for a machine of which nothing can be kept, or of which its policy keeps nothing.

    Who types `stop` did not ask to lose what is on its disk: that is what `down` is for.
    """
    if machine.stoppable is not False or machine.terminated_at is not None:
        return
    why = None
    if gentlest_ending(machine) is ReaperAction.TERMINATE:
        why = f"cannot be stopped: {machine.provider} can neither stop it nor keep an image of its disk."
    elif machine.setup is not None and not machine.setup.keep_disk:
        why = f"cannot be stopped, and its policy {machine.policy} terminates what cannot be stopped."
    if why is not None:
        raise InvalidRequest(
            f"{machine.name} {why}",
            field="name",
            value=machine.name,
            next=f"Run: cloudgpu down {command_name(machine)} (it ends the machine and deletes its disk)",
        )


class Agent(StrEnum):
    """What the agent on a machine can do."""

    ENDS = "ends"  # it runs there, and its shutdown ends what the machine costs
    TELLS = "tells"  # it runs there and only reports: its shutdown ends nothing that costs
    NONE = "none"  # none runs there: nobody can tell whether the machine is used


class Timer(StrEnum):
    """Which timer ends a machine at its renew-until, whatever else has died."""

    CLOUD = "cloud"  # of the provider: it needs nothing of the machine, nor of this computer
    OWN = "own"  # a process beside the machine, on the computer that runs it
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Safeguards:
    """What can end a machine besides runs of the reaper, which come from another computer.

    `follows`: the timer follows renew-until by itself, and nobody has to set it. `tagged`: a lease or a hold can be set
    in the machine's tags after its launch; else its tags are those of the launch, and the ledger decides. `alone`: its
    provider has neither agent nor timer that ends costs, so that only scheduled runs of the reaper do.
    """

    agent: Agent
    timer: Timer = Timer.NONE
    follows: bool = True
    tagged: bool = True
    alone: bool = False

    @property
    def only_reaper(self) -> bool:
        """Whether nothing but a run of the reaper ends it."""
        return self.agent is not Agent.ENDS and self.timer is Timer.NONE

    def to_json(self) -> GuardsRecord:
        """Return it as a ledger event stores it."""
        guards: GuardsRecord = {"agent": str(self.agent), "timer": str(self.timer), "follows": self.follows}
        if not self.tagged:
            guards["tagged"] = False
        if self.alone:
            guards["alone"] = True
        return guards


def safeguards_of(machine: Machine) -> Safeguards | None:
    """Return what guards a machine, by its launch; None where that is not known."""
    guards = machine.guards
    return None if guards is None else Safeguards(Agent(guards.agent), Timer(guards.timer), *guards[2:5])


def ends_itself(machine: Machine) -> bool:
    """Say whether the agent's shutdown ends what the machine costs; where its launch is not known, it may."""
    safeguards = safeguards_of(machine)
    return safeguards is None or safeguards.agent is Agent.ENDS


def agent_ends_at(machine: Machine) -> str | None:
    """Return when the agent ends a machine at the latest, if nobody uses it; None where its shutdown ends nothing.

    That is the end of its lease; or renew-until, where the lease only warns to keep the disk.
    """
    if not ends_itself(machine):
        return None
    return machine.renew_until if only_warns_to_keep_disk(machine, None) else machine.expires


def timer_fires_at(machine: Machine) -> str | None:
    """Return when its timer fires, as far as the ledger knows; None for none."""
    safeguards = safeguards_of(machine)
    follows = safeguards is not None and safeguards.follows and safeguards.timer is not Timer.NONE
    return machine.renew_until if follows else machine.timer


def needs_timer(machine: Machine, now: datetime) -> bool:
    """Say whether a machine needs a timer that the ledger does not know. A stopped one that is over needs none."""
    if machine.terminated_at is not None or machine.provider_id is None or machine.renew_until is None:
        return False
    is_off = machine.state in ("stopped", "deallocated") and not machine.billed
    return machine.timer != machine.renew_until and not (is_off and from_iso(machine.renew_until) <= now)


def end_reason_of(machine: Machine) -> str | None:
    """Return why a machine ended unrequested: its provider's reason, else its timer if that was due then."""
    at, since = machine.timer, machine.since
    if machine.state_reason is not None or machine.billed or at is None or since is None:
        return machine.state_reason
    return BY_TIMER if from_iso(at) <= from_iso(since) <= from_iso(at) + FIRES_WITHIN else None


def depends_on_reaper(machine: Machine) -> bool:
    """Say whether only scheduled runs of the reaper end what a machine costs, and nobody agreed to do without them.

    Where a timer can be set up (`init azure`), none is required: there the plan says what is missing.
    """
    guards = machine.guards
    if guards is None or guards.waived or not guards.alone:
        return False
    return is_billed(machine.provider, None if machine.price is None else machine.price.nanos_per_hour)


def is_billed(provider: str, nanos_per_hour: int | None) -> bool:
    """Say whether somebody bills such a machine: it is rented, and not known to be free."""
    return not is_on_prem(provider) and nanos_per_hour != 0


def has_no_agent(machine: Machine) -> bool:
    """Say whether no agent runs on a machine, as far as its launch says."""
    safeguards = safeguards_of(machine)
    return safeguards is not None and safeguards.agent is Agent.NONE


def lease_ends(machine: Machine, policy: Policy | None) -> bool:
    """Say whether a machine that nobody uses ends with its lease.

    Not where that would delete a disk that is to stay, nor where nobody can tell whether it is used and its policy
    renews such a machine.
    """
    renews = policy is None or policy.unknown is Unknown.RENEW
    return automatic_ending(machine, policy) is not None and not (has_no_agent(machine) and renews)


def guarded_offer(configuration: MachineConfiguration, setup: Setup, safeguards: Safeguards) -> Machine:
    """Return how a machine that is to be launched can end, and what guards it."""
    return subject_of_offer(configuration, setup)._replace(guards=MachineGuards.of(safeguards.to_json()))


LATE_FACTOR = 2  # a run older than so many of its intervals is not recent
MAX_HOMES = 16  # homes that are remembered


class ScheduledRun(NamedTuple):
    """The latest scheduled run of the reaper from one home, as the ledger records it.

    `home` is that home's id: two computers may have the same name, and one computer two homes. `host` is the
    name of its computer, for people. `at` is when it ended, `every` how often that home makes one. `battery`: it ran on
    one then; None: not known. `accounts` are those that answered it, by the subjects of their syncs
    (`core.values.naming.account_sync_subject`). `swept_at` is when that home last completed a full run (a sweep).
    """

    home: str
    host: str
    at: datetime
    every: timedelta
    battery: bool | None
    accounts: frozenset[str]
    swept_at: datetime | None = None

    @classmethod
    def of(cls, record: ScheduledRunRecord) -> Self:
        """Return the value of a record."""
        every = timedelta(seconds=record["every_s"])
        at, accounts = from_iso(record["at"]), frozenset(record["accounts"])
        swept_at = None if record["swept_at"] is None else from_iso(record["swept_at"])
        return cls(record["home"], record["host"], at, every, record["battery"], accounts, swept_at)

    def record(self) -> ScheduledRunRecord:
        """Return it as a ledger event stores it."""
        return {
            "home": self.home,
            "host": self.host,
            "at": iso(self.at),
            "every_s": round(self.every.total_seconds(), 3),
            "battery": self.battery,
            "accounts": sorted(self.accounts),
            "swept_at": None if self.swept_at is None else iso(self.swept_at),
        }


def is_recent(run: ScheduledRun, now: datetime) -> bool:
    """Say whether a run is within twice its own interval of `now`; one that is far ahead was made by a wrong clock."""
    return abs(now - run.at) <= LATE_FACTOR * run.every


def guarding_run(runs: Iterable[ScheduledRun], account: str, now: datetime) -> ScheduledRun | None:
    """Return the run that guards the machines of an account, the most frequent of several; None where none does."""
    guarding = [run for run in runs if account in run.accounts and run.battery is False and is_recent(run, now)]
    return min(guarding, key=lambda run: (run.every, abs(now - run.at), run.host, run.home), default=None)


def with_run(
    recorded: Iterable[ScheduledRun], scheduled_run: ScheduledRun | None, now: datetime
) -> tuple[ScheduledRun, ...]:
    """Return the runs that the next ledger entry has: `scheduled_run` in place of that home's last, recent ones first.

    At most `MAX_HOMES`: containers with a new home each time must not fill the ledger, nor push out a run that guards
    an account.
    """
    runs_of_others = [run for run in recorded if scheduled_run is None or run.home != scheduled_run.home]
    runs = [*([] if scheduled_run is None else [scheduled_run]), *runs_of_others]
    accounts = {account for run in runs for account in run.accounts}
    guarding_runs = {guarding_run(runs, account, now) for account in accounts}

    def sort_key(run: ScheduledRun) -> tuple[bool, bool, bool, timedelta, str]:
        return run is not scheduled_run, run not in guarding_runs, not is_recent(run, now), abs(now - run.at), run.home

    return tuple(sorted(runs, key=sort_key)[:MAX_HOMES])


def missing_for_guard(runs: Iterable[ScheduledRun], account: str, now: datetime) -> str:
    """Return what is missing for a run to guard an account, as the second half of a sentence."""
    heard = list(runs)
    if not heard:
        return "none has been heard yet"
    checking = [run for run in heard if account in run.accounts]
    if not checking:
        return f"those that were heard (on {_hosts(heard)}) do not check this account"
    recent = [run for run in checking if is_recent(run, now)]
    if not recent:
        last = max(checking, key=lambda run: run.at)
        return f"the last one, on {last.host}, {age_text(last, now)}"
    if any(run.battery for run in recent):
        return f"{_hosts(run for run in recent if run.battery)} runs on a battery, and sleeps when it is closed"
    return f"it is not known whether {_hosts(recent)} runs on a battery"


def age_text(run: ScheduledRun, now: datetime) -> str:
    """Return how old a run is beside how often it should come: `was 3h ago and should come every 10m`."""
    if run.at > now:
        return "is of a time that is still to come, by this computer's clock"
    return f"was {duration_text(now - run.at)} ago and should come every {duration_text(run.every)}"


def _hosts(runs: Iterable[ScheduledRun]) -> str:
    return ", ".join(dict.fromkeys(run.host for run in runs))
