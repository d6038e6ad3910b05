"""Adopts machines with this ledger's tag that have no launch record in it, with their costs as far as known."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from ipaddress import ip_address

from cloudgpu.control.inventory.retention import is_silent
from cloudgpu.control.pricing.price_history import configuration_of_instance, list_price, spot_price_history
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.bodies import EndAbilities
from cloudgpu.core.events.launch_events import machine_adopted
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import spot_price_events
from cloudgpu.core.launch.plan_cost import AddedCost, attached_cost_of, machine_of_launch
from cloudgpu.core.model.instances import TAG_ID, Instance
from cloudgpu.core.model.offers import Market, Price
from cloudgpu.core.model.resources import Kind, ResourceListing
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.abilities import (
    AttachedResource,
    HasResources,
    Pausable,
    Resolved,
    can_keep_images,
    launch_safeguards,
)
from cloudgpu.providers.attached_costs import added_cost, address_kind
from cloudgpu.providers.base import Provider


def adoption_events(
    session: Session, instance: Instance, listing: ResourceListing | None, now: datetime
) -> list[Draft]:
    """Return the events that adopt a machine since its launch, with its price and attached costs.

    `listing` has the account's disks; None: they are queried here. A spot machine gets its prices since the launch if
    the provider remembers them, else the present price.
    """
    price_history = _spot_price_history(session, instance)
    price = price_history[0] if price_history else list_price(session, configuration_of_instance(instance))
    on_demand = price
    if instance.market is Market.SPOT:
        on_demand = list_price(session, replace(configuration_of_instance(instance), market=Market.ON_DEMAND))
    attached, unknown_text = _attached_costs(session, instance, listing)
    if price is None:
        session.report(f"{instance.tags[TAG_ID]}: its price is not known")
    provider = session.provider(instance.account)
    adoption_event = machine_adopted(
        instance,
        price,
        now,
        on_demand=on_demand,
        costs=list(map(attached_cost_of, attached)),
        able=abilities_of(provider),
        identity=provider.identity(instance.region),
        unknown_cost=unknown_text,
    )
    return [adoption_event, *spot_price_events(machine_of_launch(adoption_event), price_history[1:])]


def abilities_of(provider: Provider) -> EndAbilities:
    """Return what the ledger records of a provider's abilities, for a machine whose launch it does not have."""
    return {
        "stoppable": None if isinstance(provider, Pausable) else False,
        "parkable": can_keep_images(provider),
        "guards": launch_safeguards(provider, Resolved({})).to_json(),
    }


def _spot_price_history(session: Session, instance: Instance) -> Sequence[Price]:
    """Return a spot machine's prices since its launch, oldest first; empty if they are not known."""
    if instance.market is not Market.SPOT or instance.launched_at is None:
        return ()
    try:
        return spot_price_history(
            session, instance.account, [configuration_of_instance(instance)], instance.launched_at
        )[0]
    except CloudgpuError as error:
        session.report(f"{instance.tags[TAG_ID]}: what it has cost is not known yet ({error.message})")
        return ()


def _attached_costs(
    session: Session, instance: Instance, listing: ResourceListing | None
) -> tuple[list[AddedCost], str]:
    """Return a machine's attached costs as its provider shows them, and a text about those that cannot be known."""
    resources, unknown_text = _disks(session, instance, listing)
    host = instance.address.host if instance.address else ""
    kind = address_kind(instance.provider, instance.market)
    if kind and _is_public(host):
        resources.append(AttachedResource("public IPv4 address", kind, 1, while_stopped=False))
    elif kind and not host:
        unknown_text += "; whether it had a public address is not known"
    return [added_cost(instance.provider, instance.region, resource) for resource in resources], unknown_text


def _disks(session: Session, instance: Instance, listing: ResourceListing | None) -> tuple[list[AttachedResource], str]:
    """Return the system disks that are attached to the machine, and a text if they are not known."""
    provider = session.provider(instance.account)
    if not isinstance(provider, HasResources):
        return [], ""
    with suppress(CloudgpuError):
        listing = provider.resources(instance.region) if listing is None else listing
    if listing is None or is_silent(listing, instance.region, instance.account):
        return [], "; what its disks cost is not known"
    return [
        AttachedResource(f"system disk of {disk.size_gb} GB", disk.stored_as, disk.size_gb, while_stopped=True)
        for disk in listing.items
        if disk.attached_to == instance.id and disk.kind is Kind.DISK
    ], ""


def _is_public(host: str) -> bool:
    try:
        return ip_address(host).is_global
    except ValueError:
        return False
