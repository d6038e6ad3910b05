"""How a machine can end, and what ends it when nobody looks on: its agent, a timer of its provider, or runs. Pure.

A provider says which of these it has (`Provider.guards`); a machine's row has them since its launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from cloudgpu.core.model.facts import MachineGuards, MachineSetup
from cloudgpu.core.model.machine import BudgetSubject, Endable, EndSubject, Machine, command_name, is_owned
from cloudgpu.core.model.records import GuardsRecord
from cloudgpu.core.policies.policy import Do, Policy, Unknown, Unpausable
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.core.model.launch import Setup
    from cloudgpu.core.model.offers import Available

ERASES = "it is terminated then, and what is on its disk is deleted"
NOTHING_GENTLER = "it can be neither stopped nor kept as an image"
FIRES_WITHIN = timedelta(minutes=5)  # clouds fire to the minute, and a machine takes a while to be stopped
BY_TIMER = "renew-until: the timer in the cloud"


def gentlest_ending(row: Endable) -> Do:
    """Return the gentlest end of this machine that its provider can carry out."""
    if row.stoppable is not False:
        return Do.STOP
    return Do.PARK if row.parkable is not False else Do.TERMINATE


def agreed_ending(row: Endable, policy: Policy | None) -> Do | None:
    """Return how its lease, idle time and schedules end it; None: not at all, as that would delete its disk.

    The launch has settled whether the disk of a machine that cannot be stopped is to stay (`unpausable`). Where it is
    to stay and cannot, only `renew-until` and budgets end the machine.
    """
    end = gentlest_ending(row)
    if end is Do.STOP or keeps_disk(row, policy):
        return None if end is Do.TERMINATE else end
    return Do.TERMINATE


def at_last(row: Endable, policy: Policy | None) -> Do:
    """Return how renew-until ends it: as agreed, else in the only way there is."""
    return agreed_ending(row, policy) or Do.TERMINATE


def keeps_disk(row: Endable, policy: Policy | None) -> bool:
    """Say whether the disk of a machine that cannot be stopped is to stay: as its launch says, else its policy."""
    if row.setup is not None:
        return bool(row.setup.keep_disk)
    return policy is None or policy.unpausable is not Unpausable.TERMINATE


def is_spared(row: Endable, policy: Policy | None) -> bool:
    """Say whether its lease, idle time and schedules only warn, since they could only terminate it."""
    return agreed_ending(row, policy) is None


def only_warned(row: Endable, policy: Policy | None) -> bool:
    """Say whether idle time and schedules only warn: as its policy says, or since they could only terminate it."""
    by_policy = policy is not None and policy.only_warned(stoppable=row.stoppable is not False)
    return by_policy or is_spared(row, policy)


def of_offer(item: Available, setup: Setup) -> EndSubject:
    """Return of a machine that is to be launched what is asked for here of a row."""
    from cloudgpu.core.model.launch import setup_to_json

    return EndSubject(item.stoppable, item.parkable, MachineSetup.of(setup_to_json(setup)))


def check_stop(machine: Machine) -> None:
    """Raise InvalidRequest for a machine of which nothing can be kept, or of which its policy keeps nothing.

    Who types `stop` did not ask to lose what is on its disk: that is what `down` is for.
    """
    if machine.stoppable is not False or machine.terminated_at is not None:
        return
    why = None
    if gentlest_ending(machine) is Do.TERMINATE:
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
    TELLS = "tells"  # it runs there and can be asked; its shutdown ends nothing that costs
    NONE = "none"  # none runs there: nobody can tell whether the machine is used


class Timer(StrEnum):
    """Which timer ends a machine at its renew-until, whatever else has died."""

    CLOUD = "cloud"  # of the provider: it needs nothing of the machine, nor of this computer
    OWN = "own"  # a process beside the machine, on the computer that runs it
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Safeguards:
    """What can end a machine beside runs from outside.

    `follows`: the timer follows renew-until by itself, and is set by nobody. `tagged`: a lease or a hold can be set on
    the machine's tags after its launch; else those tell of the launch alone, and the ledger decides. `alone`: its place
    has no such layer, whatever is set up there, so a launch there asks for a scheduled run of the reaper.
    """

    agent: Agent
    timer: Timer = Timer.NONE
    follows: bool = True
    tagged: bool = True
    alone: bool = False

    @property
    def only_passes(self) -> bool:
        """Whether nothing but a run from outside ends it."""
        return self.agent is not Agent.ENDS and self.timer is Timer.NONE

    def to_json(self) -> GuardsRecord:
        """Return it as a ledger event stores it."""
        found: GuardsRecord = {"agent": str(self.agent), "timer": str(self.timer), "follows": self.follows}
        if not self.tagged:
            found["tagged"] = False
        if self.alone:
            found["alone"] = True
        return found


def guards_of(row: Machine | BudgetSubject | EndSubject) -> Safeguards | None:
    """Return what guards a machine, by its launch; None where that is not known."""
    said = row.guards
    return None if said is None else Safeguards(Agent(said.agent), Timer(said.timer), *said[2:5])


def ends_itself(machine: Machine) -> bool:
    """Say whether the agent's shutdown ends what the machine costs; where its launch is not known, it may."""
    found = guards_of(machine)
    return found is None or found.agent is Agent.ENDS


def agents_end(machine: Machine) -> str | None:
    """Return when the agent ends a machine at the latest, if nobody uses it; None where its shutdown ends nothing.

    Its lease may be no reason for that.
    """
    if not ends_itself(machine):
        return None
    return machine.renew_until if is_spared(machine, None) else machine.expires


def timers_end(machine: Machine) -> str | None:
    """Return when its timer fires, as far as the ledger knows; None for none."""
    found = guards_of(machine)
    follows = found is not None and found.follows and found.timer is not Timer.NONE
    return machine.renew_until if follows else machine.timer


def timer_is_due(machine: Machine, now: datetime) -> bool:
    """Say whether a machine needs a timer that the ledger does not know. A stopped one that is over needs none."""
    if machine.terminated_at is not None or machine.provider_id is None or machine.renew_until is None:
        return False
    rests = machine.state in ("stopped", "deallocated") and not machine.billed
    return machine.timer != machine.renew_until and not (rests and from_iso(machine.renew_until) <= now)


def reason_of(machine: Machine) -> str | None:
    """Return why a machine is over, where that was not asked: its provider's word, else its timer's time."""
    at, since = machine.timer, machine.since
    if machine.state_reason is not None or machine.billed or at is None or since is None:
        return machine.state_reason
    return BY_TIMER if from_iso(at) <= from_iso(since) <= from_iso(at) + FIRES_WITHIN else None


def needs_runs(machine: Machine) -> bool:
    """Say whether only scheduled runs of the reaper end what a machine costs, and nobody agreed to do without them.

    At a place where a layer can be set up (`init azure`) no run is asked for: there the plan says what is missing.
    """
    found = machine.guards
    if found is None or found.waived or not found.alone:
        return False
    return is_billed(machine.provider, None if machine.price is None else machine.price.nanos_per_hour)


def is_billed(provider: str, nanos_per_hour: int | None) -> bool:
    """Say whether somebody bills such a machine: it is rented, and not known to be free."""
    return not is_owned(provider) and nanos_per_hour != 0


def has_no_agent(row: Endable) -> bool:
    """Say whether no agent runs on a machine, as far as its launch says."""
    found = guards_of(row)
    return found is not None and found.agent is Agent.NONE


def lease_ends(row: Endable, policy: Policy | None) -> bool:
    """Say whether a machine that nobody uses ends with its lease.

    Not where that would delete a disk that is to stay, nor where nobody can tell whether it is used and its policy
    renews such a machine.
    """
    renews = policy is None or policy.unknown is Unknown.RENEW
    return agreed_ending(row, policy) is not None and not (has_no_agent(row) and renews)


def guarded_offer(item: Available, setup: Setup, guards: Safeguards) -> EndSubject:
    """Return how a machine that is to be launched can end, and what guards it."""
    return of_offer(item, setup)._replace(guards=MachineGuards.of(guards.to_json()))
