"""What a launch would do and cost, as a value: what `up` shows before it acts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.core.events.projection import unlaunched_machine
from cloudgpu.core.launch.plan_cost import AddedCost, RunCost, attached_cost_of, cost_between, costs_while_running
from cloudgpu.core.model.cluster import node_name
from cloudgpu.core.model.facts import HourlyPrice, MachineGuards, MachineSetup
from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_HOLD_UNTIL, TAG_RENEW_UNTIL
from cloudgpu.core.model.launch import LaunchRequest, Setup, setup_to_json
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Market, Note, NoteKind, Offer, Price, price_to_json
from cloudgpu.core.policies.description import DescribedRule, rules_for, schedule_notes
from cloudgpu.core.policies.guards import (
    Agent,
    Safeguards,
    ScheduledRun,
    Timer,
    automatic_ending,
    ending_at_renew_until,
    gentlest_ending,
    guarded_offer,
    lease_ends,
    subject_of_offer,
)
from cloudgpu.core.policies.policy import Origin, Policy, ReaperAction, Rule, RuleAction, Unpausable
from cloudgpu.core.values.money import Money, charge
from cloudgpu.core.values.times import epoch_text, iso
from cloudgpu.errors import NoCapacity

# Texts of the safeguards that a plan lists: what ends a machine that nobody ends.
REPORTS_ONLY = "the agent on the machine, which reports whether it is used, and cannot end billing"
OWN_TIMER = "its own timer, a process on the same computer (renew-until)"
AGENT_PREFIX = "the agent on the machine (idle time, lease"  # every text of an agent that ends machines begins so
EACH_AGENT = "the agent on each node (renew-until)"
BY_REAPER = "cloudgpu reap or watch (idle time and lease, for all nodes at once)"
ONLY_REAPER = "only cloudgpu reap or watch ends it"
_PLANNED_RULES = (
    Rule.BUDGET,
    Rule.SCHEDULE,
    Rule.IDLE,
    Rule.UNLABELLED,
)  # lease and renew-until have lines of their own
ALL_GUARDS = Safeguards(Agent.ENDS, Timer.CLOUD)


@dataclass(frozen=True, slots=True)
class OffersOfAccount:
    """How many of the offers are of one account, and the one of them that is tried first."""

    offer_count: int
    first: Offer


@dataclass(frozen=True, slots=True)
class EndActions:
    """How a machine ends: by lease, idle time and schedules (None: they only warn), at renew-until, for a budget."""

    lease: ReaperAction | None
    renew_until: ReaperAction
    budget: ReaperAction


@dataclass(frozen=True, slots=True)
class IdleEnd:
    """What idle time does to a machine: after how long, and how long the warning before it is waited out.

    `action` None: it is only warned of. `spares_scratch`: so too while disks that a stop would erase hold data.
    """

    action: ReaperAction | None
    after: timedelta
    grace: timedelta
    spares_scratch: bool = False


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A launch before it happens.

    `further_offers` counts the offers that are tried if `offer` fails. `to_lease_end` and `to_renew_until` are what it
    costs with all attached costs if it runs that long, at today's price. `left_out` names the kinds of template parts
    that this provider does not run. `safeguard_texts` has a text for each of the `safeguards`. `added_costs` are billed
    with the machine. `lease_origin` and `renew_origin`: who said how long the lease is, and how far it may be renewed.
    `ends` is how it ends. `lease_ends`: its lease ends it where nobody uses it; else it goes on to renew-until.
    `remarks` are sentences that the user has to read: which placement is fixed, what is lost, what could not be
    checked. `licence` is that of the image's system where it changes how the machine is billed. `rules` are the
    policy's other than lease and renew-until. `by_account` has the offers of each account, the cheapest first, if
    offers of all accounts were requested; else it is empty.
    """

    request: LaunchRequest
    offer: Offer
    further_offers: int
    highest_price: Money  # per hour, of all the offers that may be tried
    expires: datetime
    renew_until: datetime
    to_lease_end: RunCost
    to_renew_until: RunCost
    stop_effect: str
    left_out: tuple[str, ...]
    safeguard_texts: tuple[str, ...]
    added_costs: tuple[AddedCost, ...] = ()
    remarks: tuple[str, ...] = ()
    lease_origin: Origin = Origin.POLICY
    renew_origin: Origin = Origin.POLICY
    licence: str = ""
    rules: tuple[DescribedRule, ...] = ()
    by_account: tuple[OffersOfAccount, ...] = ()
    ends: EndActions = EndActions(ReaperAction.STOP, ReaperAction.STOP, ReaperAction.STOP)
    safeguards: Safeguards = ALL_GUARDS
    lease_ends: bool = True
    idle: IdleEnd | None = None  # None: idle time does nothing to it
    scheduled_run: ScheduledRun | None = None  # the scheduled run that it relies on, where nothing else ends it
    waived: bool = False  # nothing else ends it, and --no-guard was typed

    @property
    def nodes(self) -> int:
        """How many machines are launched, all or none; `offer`, `highest_price`, `added_costs` are of one of them."""
        return nodes_of(self.request)


def nodes_of(request: LaunchRequest) -> int:
    """Return how many machines a request is for."""
    return 1 if request.cluster is None else request.cluster.nodes


def launch_plan(
    request: LaunchRequest,
    offers: Sequence[Offer],
    *,
    left_out: tuple[str, ...],
    safeguard_texts: tuple[str, ...],
    now: datetime,
    added_costs: tuple[AddedCost, ...] = (),
    remarks: tuple[str, ...] = (),
    lifetime_origins: tuple[Origin, Origin] = (Origin.POLICY, Origin.POLICY),
    licence: str = "",
    volume_there: bool = False,
    any_provider: bool = False,
    policy: Policy | None = None,
    safeguards: Safeguards = ALL_GUARDS,
    scheduled_run: ScheduledRun | None = None,
    waived: bool = False,
) -> LaunchPlan:
    """Return the plan for the first of `offers` (in the order of trying, at least one), as of `now`.

    `lifetime_origins` is who said how long the lease is, and how far it may be renewed. `licence` is that of the
    image's system where it changes how the machine is billed. `volume_there`: its volume is there and billed already.
    `any_provider`: the offers are of all accounts that have any. `policy` is what it is under; None: its name cannot be
    resolved. `scheduled_run` is that of the reaper which is to end it where nothing else does; `waived`: the user does
    without.
    """
    offer = offers[0]
    guarded_subject = guarded_offer(offer.configuration, request.setup, safeguards)
    ends, subject = end_actions_of(request, offer, policy), subject_of_offer(offer.configuration, request.setup)
    running_costs = tuple(costs_while_running(added_costs, volume_there=volume_there))
    lease, renew = timedelta(seconds=request.lease_s), timedelta(seconds=request.renew_s)
    return LaunchPlan(
        request=request,
        offer=offer,
        further_offers=len(offers) - 1,
        highest_price=max(each.price.per_hour for each in offers),
        expires=now + lease,
        renew_until=now + renew,
        to_lease_end=cost_between(offer, running_costs, now, now + lease, licence).times(nodes_of(request)),
        to_renew_until=cost_between(offer, running_costs, now, now + renew, licence).times(nodes_of(request)),
        stop_effect=stop_effect(request, offer),
        left_out=left_out,
        safeguard_texts=safeguard_texts,
        added_costs=added_costs,
        remarks=(
            *remarks,
            *offer.configuration.after,
            *end_remarks(request, offer, ends),
            *schedule_notes(policy, subject, now),
        ),
        lease_origin=lifetime_origins[0],
        renew_origin=lifetime_origins[1],
        licence=licence,
        rules=()
        if policy is None
        else tuple(rule for rule in rules_for(policy, now, guarded_subject) if rule.rule in _PLANNED_RULES),
        by_account=_shares(offers) if any_provider else (),
        ends=ends,
        safeguards=safeguards,
        lease_ends=lease_ends(guarded_subject, policy),
        idle=idle_of(policy, safeguards, ends),
        scheduled_run=scheduled_run,
        waived=waived,
    )


def node_offers(nodes: int, offer: Offer, offers: Sequence[Offer]) -> list[Offer]:
    """Return the offer of each node of a launch that begins at this offer: own machines have one node each.

    `offers` are all, in the order of trying. Raises NoCapacity where fewer hosts than nodes fit.
    """
    if nodes == 1 or offer.configuration.provider != "ssh":
        return [offer] * nodes
    remaining_offers = offers[offers.index(offer) :] if offer in offers else (offer,)
    hosts = {
        candidate.configuration.region: candidate
        for candidate in reversed(remaining_offers)
        if candidate.configuration.account == offer.configuration.account
    }
    if len(hosts) < nodes:
        raise NoCapacity(
            f"{nodes} nodes need as many machines of yours that fit, and there are {len(hosts)} from "
            f"{offer.configuration.region} on.",
            field="--nodes",
            value=str(nodes),
            next="Ask for fewer nodes, or add a host: cloudgpu init ssh",
        )
    return [offer, *(host for region, host in reversed(hosts.items()) if region != offer.configuration.region)][:nodes]


def safeguard_texts_of(safeguards: Safeguards, looked_up: tuple[str, ...], nodes: int) -> tuple[str, ...]:
    """Return a text for each safeguard of a plan's machines: what its provider `looked_up`, else `safeguards` in words.

    On a cluster's node, the agent alone decides nothing: it only ends the node at renew-until.
    """
    texts = (looked_up or _safeguard_texts(safeguards)) + (ONLY_REAPER,) * safeguards.only_reaper
    if nodes == 1:
        return texts
    return (BY_REAPER, *(EACH_AGENT if layer.startswith(AGENT_PREFIX) else layer for layer in texts))


def _safeguard_texts(safeguards: Safeguards) -> tuple[str, ...]:
    agents = {Agent.ENDS: "the agent on the machine (idle time, lease)", Agent.TELLS: REPORTS_ONLY}
    timers = {Timer.CLOUD: "a timer on the provider's side (renew-until)", Timer.OWN: OWN_TIMER}
    return tuple(filter(None, (agents.get(safeguards.agent), timers.get(safeguards.timer))))


def idle_of(policy: Policy | None, safeguards: Safeguards, ends: EndActions) -> IdleEnd | None:
    """Return what idle time does to a machine with these safeguards and ends; None: nothing, or its use is not seen."""
    if policy is None or policy.idle.do is RuleAction.DISABLED or safeguards.agent is Agent.NONE:
        return None
    idle = policy.idle
    return IdleEnd(
        ends.lease if idle.do is RuleAction.STOP else None, idle.after, idle.grace, idle.scratch is RuleAction.WARN
    )


def _shares(offers: Sequence[Offer]) -> tuple[OffersOfAccount, ...]:
    """Return what each account has in these offers, in the order of trying."""
    first_offers: dict[str, Offer] = {}
    for offer in offers:
        first_offers.setdefault(offer.configuration.account, offer)
    offer_counts = Counter(offer.configuration.account for offer in offers)
    return tuple(OffersOfAccount(offer_counts[account], offer) for account, offer in first_offers.items())


def duration_cost(per_hour: Money, span: timedelta) -> Money:
    """Return what running for `span` costs at `per_hour`."""
    return charge(per_hour, max(0, span // timedelta(microseconds=1)))


def stop_effect(request: LaunchRequest, offer: Offer) -> str:
    """Return the sentence that says what `stop` does to this machine."""
    if gentlest_ending(subject_of_offer(offer.configuration, request.setup)) is ReaperAction.TERMINATE:
        return "it can be neither stopped nor kept as an image: down ends it and deletes its disk"
    if not offer.configuration.stoppable and not request.setup.keep_disk:
        return (
            f"it cannot be stopped, and policy {request.policy} keeps nothing of such a machine: "
            "its system disk is deleted when it ends"
        )
    if offer.configuration.stop_effect:
        return offer.configuration.stop_effect
    return "what stop keeps and costs is not known for this provider"


def end_actions_of(request: LaunchRequest, offer: Offer, policy: Policy | None) -> EndActions:
    """Return how this machine would end, by what its provider can do and what its policy agrees to lose."""
    subject = subject_of_offer(offer.configuration, request.setup)
    return EndActions(
        automatic_ending(subject, policy), ending_at_renew_until(subject, policy), gentlest_ending(subject)
    )


def end_remarks(request: LaunchRequest, offer: Offer, ends: EndActions) -> Iterator[str]:
    """Yield remarks on data and clusters that are lost when the machine ends."""
    if ends.renew_until is ReaperAction.PARK and nodes_of(request) > 1:
        yield (
            "a cluster of such machines is not stopped: what ends it keeps each node's disk as an image, which costs "
            "money until cloudgpu down. up --image launches from it; start does not bring the cluster back"
        )
    if ends.budget is not ReaperAction.TERMINATE:
        return
    yield f"{offer.configuration.provider} can neither stop this machine nor keep an image of its disk"
    if ends.lease is ReaperAction.TERMINATE:
        yield Note(
            "at the end of its lease, when it is idle, at renew-until or for a budget it is terminated, and what is on "
            "its disk is deleted",
            NoteKind.ERASURE,
        )
        return
    yield Note(
        "at renew-until, or once a budget that stops is spent, it is terminated, and what is on its disk is deleted",
        NoteKind.ERASURE,
    )
    yield (
        f"its lease, idle time and schedules only warn: policy {request.policy} keeps disks, and this one cannot be "
        "kept. With --policy throwaway, or any with unpausable: terminate, they terminate it"
    )


def setup_remarks(setup: Setup) -> tuple[str, ...]:
    """Return remarks on how a machine of this setup is reached."""
    if setup.network.public_ip:
        return ()
    fetch_remark = "without a public address it can fetch packages only if its subnet has a NAT gateway or Cloud NAT"
    reach_remark = (
        "without a public address you reach it only from inside its network (a VPN, say) or through --jump HOST"
    )
    return (fetch_remark,) if setup.network.jump else (reach_remark, fetch_remark)


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a machine may live: both ends aware UTC, `expires` never after `renew_until`."""

    expires: datetime
    renew_until: datetime

    def tags(self) -> dict[str, str]:
        """Return the lease as the machine's tags carry it."""
        return {TAG_EXPIRES: epoch_text(self.expires), TAG_RENEW_UNTIL: epoch_text(self.renew_until)}


def extend_lease(expires: datetime, renew_until: datetime, by: timedelta, now: datetime) -> Lease:
    """Return the lease made longer by `by`, counted from its end, or from `now` when it is over.

    Past `renew_until`, renew-until moves along: the caller has to ask the budgets again.
    """
    end = max(expires, now) + by
    return Lease(end, max(renew_until, end))


def hold_tags(until: datetime | None) -> dict[str, str]:
    """Return the tag of a hold; an ended or released one is `0`."""
    return {TAG_HOLD_UNTIL: epoch_text(until) if until else "0"}


def keeps_disk(policy: Policy, setup: Setup, market: Market, *, pausable: bool) -> bool:
    """Say whether the system disk of such a machine is to stay when it ends: always, where it can be stopped.

    `pausable`: its provider can stop machines at all.
    """
    stoppable = pausable and (market is not Market.SPOT or setup.persistent)
    return stoppable or policy.unpausable is not Unpausable.TERMINATE


def budget_subjects(
    plan: LaunchPlan, name: str | None, offer: Offer | None = None, *, on_demand: Price | None = None
) -> list[Machine]:
    """Return `budget_subject` of each machine of the plan: a cluster's nodes have their own names, if it has one."""
    machine, cluster = budget_subject(plan, name, offer, on_demand=on_demand), plan.request.name or name
    if plan.nodes == 1 or not cluster:
        return [machine] * plan.nodes
    return [machine._replace(name=node_name(cluster, node)) for node in range(plan.nodes)]


def budget_subject(
    plan: LaunchPlan, name: str | None, offer: Offer | None = None, *, on_demand: Price | None = None
) -> Machine:
    """Return what budgets need to know of the plan's machine, or of the same at another offer.

    `name` is what the machine is called where its request does not say.
    """
    request, offer = plan.request, offer or plan.offer
    configuration = offer.configuration
    return unlaunched_machine()._replace(
        provider=configuration.provider,
        account=configuration.account,
        region=configuration.region,
        zone=configuration.zone,
        instance_type=configuration.instance_type,
        market=str(configuration.market),
        price=HourlyPrice.of(price_to_json(offer.price)),
        name=request.name or name or "this machine",
        on_demand=None if on_demand is None else HourlyPrice.of(price_to_json(on_demand)),
        max_price=request.requirements.max_price.nanos if request.requirements.max_price else None,
        owner=request.owner,
        project=request.project,
        setup=MachineSetup.of(setup_to_json(request.setup)),
        attached_costs=tuple([attached_cost_of(extra) for extra in plan.added_costs]),
        licence=plan.licence,
        renew_until=iso(plan.renew_until),
        guards=MachineGuards.of(plan.safeguards.to_json()),
        launch_status="open",
    )
