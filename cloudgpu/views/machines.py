"""Machines as plain values, and when each safeguard would end one.

`-o json` prints these values, and the library returns them. The safeguards are those of the machine's record: the agent
on it, its timer in the cloud, the reaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.core.billing.charges import spent_until_now, unpriced_of
from cloudgpu.core.model.facts import record_of
from cloudgpu.core.model.identity import cloud_id
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.guards import (
    agent_ends_at,
    end_reason_of,
    only_warns_to_keep_disk,
    safeguards_of,
    timer_fires_at,
)
from cloudgpu.core.values.money import Money, usd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudgpu.core.model.facts import (
        AttachedCost as AttachedRecord,
        HourlyPrice,
        MachineGpus,
        RecordedIdentity,
        Retained,
    )
    from cloudgpu.core.model.identity import QueriedAccount, Unanswered
    from cloudgpu.core.model.instances import Instance
    from cloudgpu.views.documents.machines.machines import (
        ForeignMachine,
        Guards,
        MachineDocument,
        RetainedPart,
    )
    from cloudgpu.views.documents.machines.plans import AttachedCost
    from cloudgpu.views.documents.parts import AccountCoverage, Gpu, Identity, Price as PriceDocument

NO_RULE = "none"  # the rule of a warning that a machine's activity is unknown: nothing ends it for that


def guards_document(machine: Machine) -> Guards:
    """Return when each safeguard would end the machine as things stand (null if it would not), and its kind.

    The agent may end an idle machine sooner. The reaper's time is what its last run has decided.
    """
    safeguards, has_ended = safeguards_of(machine), machine.terminated_at is not None or not machine.billed
    return {
        "agent": None if has_ended else agent_ends_at(machine),
        "timer": None if has_ended else timer_fires_at(machine),
        "reaper": machine.decision.at if machine.decision and not has_ended else None,
        "agent_is": None if safeguards is None else str(safeguards.agent),
        "timer_is": None if safeguards is None else str(safeguards.timer),
        "waived": safeguards is not None and machine.guards is not None and machine.guards.waived,
    }


def activity_unknown_reason(machine: Machine) -> str | None:
    """Return why the reaper cannot tell whether a machine is in use, once a warning was sent; None otherwise."""
    warning = machine.warnings.get(NO_RULE)
    return str(warning.why) if warning is not None and machine.terminated_at is None and machine.billed else None


def machine_document(
    machine: Machine,
    now: datetime,
    *,
    reachable: bool | None = None,
    absent: str | None = None,
    gpu_users: Sequence[str] = (),
) -> MachineDocument:
    """Return one machine: times as UTC text, money as decimal text in USD, `price` null where none is known.

    `spent_usd` is what it has cost up to `now` with its disks and attached costs, as of the last sync; `unpriced` are
    its resources without a known price, which are in no sum. `launch_uncertain`: its launch was interrupted, and it is
    not known yet whether it exists. `retained` are resources that outlive it, with their highest monthly cost.
    `cloud_id` is its id at the provider, null before that is known. `stopped_usd_per_month` is the part of
    `attached_costs` that is paid while it is stopped; both are null where its launch did not record them. `taken_at` is
    when a rehearsed spot interruption takes it, null without one. `shared` are keys that were let in after the launch.
    `guards` is when each safeguard would end it, `activity_unknown_reason` why the reaper cannot tell whether it is
    used. `identity` is the account or the computer that it is in; `reachable` whether that is an account of this home.
    `absent` is why it cannot be queried if config.toml no longer has its account or host, and what to do. `gpu_users`
    are the users of its computer's GPUs, where that was just queried.
    """
    return {
        "id": machine.id,
        "name": machine.name,
        "state": machine.state,
        "billed": machine.billed,
        "provider": machine.provider,
        "account": machine.account,
        "region": machine.region,
        "zone": machine.zone,
        "instance_type": machine.instance_type,
        "market": machine.market,
        "owner": machine.owner,
        "project": machine.project,
        "policy": machine.policy,
        "template": machine.template,
        "key": machine.key,
        "launched_at": machine.launched_at,
        "expires": machine.expires,
        "lease_ends": not only_warns_to_keep_disk(machine, None),
        "renew_until": machine.renew_until,
        "held_until": machine.hold_until,
        "last_active_at": machine.last_active,
        "reason": end_reason_of(machine),
        "seen_at": machine.seen_at,
        "address": None if machine.address is None else record_of(machine.address),
        "terminated_at": machine.terminated_at,
        "cloud_id": cloud_id(machine.provider_id, machine.region, machine.zone),
        "gpus": [_gpu(gpu) for gpu in machine.accelerators or ()],
        "gpu_users": list(gpu_users),
        "price": _price_document(machine.price),
        "spent_usd": None if machine.unpriced else usd(spent_until_now(machine, now)),
        "unpriced": unpriced_of(machine),
        "launch_uncertain": machine.launch_status == "open",
        "pending_action": machine.pending_action,
        "taken_at": machine.taken_at,
        "shared": [
            {"key": key, "label": access.label, "from": access.network, "at": access.at}
            for key, access in machine.shared.items()
        ],
        "parked": machine.parked,
        "retained": [retained_document(entry) for entry in machine.retained],
        "retained_usd_per_month": _retained_usd_per_month(machine),
        "attached_costs": None
        if machine.attached_costs is None
        else [_attached_document(entry) for entry in machine.attached_costs],
        "stopped_usd_per_month": _stopped_usd_per_month(machine),
        "guards": guards_document(machine),
        "identity": _identity(machine.identity),
        "reachable": reachable,
        "absent": absent,
        "activity_unknown_reason": activity_unknown_reason(machine),
        "cluster": None if machine.cluster is None else record_of(machine.cluster),
        "trust": machine.trust or "cloud",
    }


def _identity(identity: RecordedIdentity | None) -> Identity | None:
    return None if identity is None else {"kind": identity.kind, "id": identity.id, "text": identity.display_name}


def retained_document(entry: Retained) -> RetainedPart:
    """Return a retained resource with its monthly price, null where that is not known."""
    return {
        "id": entry.id,
        "kind": entry.kind,
        "region": entry.region,
        "zone": entry.zone,
        "size_gb": entry.size_gb,
        "created_at": entry.made_at,
        "ready": entry.ready,
        "usd_per_month": _monthly(entry.nanos_per_month),
    }


def _attached_document(entry: AttachedRecord) -> AttachedCost:
    return {
        "what": entry.what,
        "at_most": entry.at_most,
        "while_running": entry.running,
        "while_stopped": entry.kept,
        "usd_per_month": _monthly(entry.nanos_per_month),
    }


def named_volume_costs(machine: Machine) -> list[AttachedCost]:
    """Return the attached costs of named volumes, which stay when the machine ends."""
    return [_attached_document(entry) for entry in machine.attached_costs or () if entry.named]


def _retained_usd_per_month(machine: Machine) -> str | None:
    """Return the monthly cost of retained resources; right after a park that is the machine's disk."""
    if not machine.parked or machine.terminated_at is None or machine.retained:
        return _sum_of(machine.retained)
    disks = [entry for entry in machine.attached_costs or () if entry.kept]
    return _sum_of(disks) if disks else None


def _stopped_usd_per_month(machine: Machine) -> str | None:
    entries = machine.attached_costs
    return None if entries is None else _sum_of([entry for entry in entries if entry.kept])


def _sum_of(entries: Sequence[AttachedRecord] | Sequence[Retained]) -> str | None:
    """Return the monthly cost of all entries; None where one has no known price."""
    prices = [price for entry in entries if (price := entry.nanos_per_month) is not None]
    return usd(Money(sum(prices))) if len(prices) == len(entries) else None


def _monthly(nanos: int | None) -> str | None:
    return None if nanos is None else usd(Money(nanos))


def foreign_document(instance: Instance) -> ForeignMachine:
    """Return a machine that belongs to another ledger: shown, never touched."""
    return {
        "provider_id": instance.id,
        "cloud_id": cloud_id(instance.id, instance.region, instance.zone),
        "provider": instance.provider,
        "account": instance.account,
        "region": instance.region,
        "zone": instance.zone,
        "state": str(instance.state),
        "billed": instance.billed,
        "name": instance.tags.get("cloudgpu-name"),
        "ledger": instance.tags.get("cloudgpu-ledger"),
        "owner": instance.tags.get("cloudgpu-owner"),
    }


def _price_document(price: HourlyPrice | None) -> PriceDocument | None:
    if price is None:
        return None
    return {
        "usd_per_hour": usd(Money(price.nanos_per_hour)),
        "source": price.source,
        "as_of": price.as_of,
        "basis": price.basis,
        "negotiated": bool(price.is_negotiated),
    }


def _gpu(gpu: MachineGpus) -> Gpu:
    return {
        "name": gpu.name,
        "count": gpu.number,
        "memory_gib": gpu.memory_gib,
        "share": gpu.share,
        "of": gpu.out_of,
    }


def queried_accounts_document(
    queried: Iterable[QueriedAccount] = (), not_queried: Iterable[Unanswered] = ()
) -> AccountCoverage:
    """Return the accounts that were queried, and those that a credential here names but gives no access to.

    Both are empty for an answer from the ledger alone.
    """
    return {
        "queried": [{"account": account.account, "provider": account.provider} for account in queried],
        "not_queried": [{"scope": unanswered.scope, "why": unanswered.why} for unanswered in not_queried],
    }
