"""Makes the ledger lines of launches and of adopted machines: one function for each kind.

Each has its body and its dedupe text: a second line with the same text is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cloudgpu.core.events import bodies
from cloudgpu.core.events.bodies import Outcome
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import tag_time
from cloudgpu.core.model.cluster import node_of_tags
from cloudgpu.core.model.facts import AttachedCost
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import (
    TAG_EXPIRES,
    TAG_ID,
    TAG_KEY,
    TAG_NAME,
    TAG_OWNER,
    TAG_POLICY,
    TAG_PROJECT,
    TAG_RENEW_UNTIL,
    TAG_SEQ,
    Instance,
)
from cloudgpu.core.model.launch import Attempt, setup_to_json
from cloudgpu.core.model.offers import Price, Trust, accelerator_to_json, price_to_json
from cloudgpu.core.model.records import GuardsRecord
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.values.times import iso


def launch_intended(
    attempt: Attempt,
    fingerprint: str,
    stop_effect: str,
    now: datetime,
    *,
    costs: Sequence[AttachedCost] = (),
    on_demand: Price | None = None,
    licence: str = "",
    identity: AccountIdentity,
    guards: GuardsRecord | None = None,
) -> Draft:
    """Return the line that says what is about to be launched, before the call is sent.

    `costs` are the attached costs: what the stopped machine will cost is known only from this line. `on_demand` is the
    on-demand price of the same machine, `licence` that of an operating system with billing rules of its own. `identity`
    is the provider's own id of the account, whose name may differ between computers; `guards` are its safeguards.
    """
    request, configuration = attempt.request, attempt.offer.configuration
    max_price = request.requirements.max_price
    body: bodies.LaunchIntended = {
        "attempt": attempt.number,
        "seq": int(attempt.tags[TAG_SEQ]),
        "token": attempt.token,
        "key": request.key,
        "request": fingerprint,
        "name": request.name,
        "provider": configuration.provider,
        "account": configuration.account,
        "identity": identity.to_json(),
        "region": configuration.region,
        "zone": configuration.zone,
        "instance_type": configuration.instance_type,
        "market": str(configuration.market),
        "accelerators": [accelerator_to_json(gpu) for gpu in configuration.accelerators],
        "price": price_to_json(attempt.offer.price),
        "on_demand": None if on_demand is None else price_to_json(on_demand),
        "max_price": None if max_price is None else max_price.nanos,
        "owner": request.owner,
        "project": request.project,
        "policy": request.policy,
        "policy_by": request.policy_by,
        "terms": request.terms,
        "template": request.template,
        "expires": iso(attempt.expires),
        "renew_until": iso(attempt.renew_until),
        "renew_s": request.renew_s,
        "stoppable": configuration.stoppable,
        "parkable": configuration.parkable,
        "setup": setup_to_json(request.setup),
        "stop_effect": stop_effect,
        "attached_costs": [cost.record() for cost in costs],
        "licence": licence,
    }
    if guards is not None:
        body["guards"] = guards
    if configuration.trust is not Trust.CLOUD:
        body["trust"] = str(configuration.trust)
    if configuration.traffic is not None:
        body["traffic_prices"] = {"out": configuration.traffic.out.nanos, "into": configuration.traffic.into.nanos}
    if request.cluster is not None:
        body["cluster"] = request.cluster.record()
    return Draft("launch_intended", attempt.machine, body, now, f"intent:{attempt.token}")


def launch_settled(machine: str, token: str, outcome: Outcome, why: str, now: datetime) -> Draft:
    """Return the line that ends an attempt: `made`, `refused` by the provider, or `void` (never made)."""
    body: bodies.LaunchSettled = {"token": token, "outcome": outcome, "why": why}
    return Draft("launch_settled", machine, body, now, f"settled:{token}:{outcome}")


def machine_adopted(
    instance: Instance,
    price: Price | None,
    now: datetime,
    *,
    on_demand: Price | None = None,
    costs: Sequence[AttachedCost] = (),
    able: bodies.EndAbilities,
    identity: AccountIdentity,
    unknown_cost: str = "",
) -> Draft:
    """Return the line that adopts a machine with this ledger's tag of which the ledger has no launch.

    `able` says how it can be ended and its safeguards; `unknown_cost` is a clause about the part of its cost that is
    not known.
    """
    since = "" if instance.launched_at else "; since when it runs is not known, so it is billed from now on"
    body: bodies.MachineAdopted = {
        **_tagged(instance),
        "provider": instance.provider,
        "account": instance.account,
        "identity": identity.to_json(),
        "region": instance.region,
        "zone": instance.zone,
        "instance_type": instance.instance_type,
        "market": str(instance.market),
        "accelerators": [accelerator_to_json(gpu) for gpu in instance.accelerators],
        "price": None if price is None else price_to_json(price),
        "on_demand": None if on_demand is None else price_to_json(on_demand),
        "max_price": None,
        "attached_costs": [cost.record() for cost in costs],
        "stoppable": able["stoppable"],
        "parkable": able["parkable"],
        "guards": able["guards"],
        "why": f"it bears this ledger's tag and the ledger had no launch of it{unknown_cost}{since}",
    }
    machine = instance.tags[TAG_ID]
    return Draft("machine_adopted", machine, body, instance.launched_at or now, f"adopted:{machine}:{instance.id}")


def machine_adopted_by_resource(resource: ProviderResource, identity: AccountIdentity, now: datetime) -> Draft:
    """Return the line that adopts a machine of which only a disk or an image exists, and no launch is recorded."""
    body: bodies.AdoptedByResource = {
        **_tagged(resource),
        "provider": resource.provider,
        "account": resource.account,
        "identity": identity.to_json(),
        "region": resource.region,
        "zone": resource.zone or None,
        "instance_type": None,
        "market": "on_demand",
        "accelerators": [],
        "price": None,
        "why": "its disk or image bears this ledger's tag and the ledger had no launch of it",
    }
    machine = resource.tags[TAG_ID]
    return Draft("machine_adopted", machine, body, now, f"adopted:{machine}:{resource.id}")


def _tagged(instance: Instance | ProviderResource) -> bodies.TaggedLaunch:
    tags = instance.tags
    launch: bodies.TaggedLaunch = {
        "key": tags.get(TAG_KEY, ""),
        "request": tags.get(TAG_KEY, ""),
        "name": tags.get(TAG_NAME) or tags[TAG_ID],
        "owner": tags.get(TAG_OWNER, ""),
        "project": tags.get(TAG_PROJECT, ""),
        "policy": tags.get(TAG_POLICY, ""),
        "template": None,
        "expires": tag_time(tags, TAG_EXPIRES),
        "renew_until": tag_time(tags, TAG_RENEW_UNTIL),
        "stoppable": None,
        "setup": None,
        "stop_effect": None,
    }
    node = node_of_tags(tags)
    return launch if node is None else {**launch, "cluster": node.record()}
