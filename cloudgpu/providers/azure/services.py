"""Azure's services (resource providers) that a subscription has to switch on before they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.providers.azure.ask import ask

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

COMPUTE, NETWORK, TIMERS, QUOTA = (
    "Microsoft.Compute",
    "Microsoft.Network",
    "Microsoft.ComputeSchedule",
    "Microsoft.Quota",
)
ON = ("registered", "registering")


def state(azure: Azure, namespace: str) -> str:
    """Return how it stands with a service: `Registered`, `NotRegistered`, ... One call."""
    action, providers = "Microsoft.Resources/subscriptions/providers/read", azure.resources.providers
    return str(ask(azure, action, lambda: providers.get(namespace), value=namespace).registration_state or "")


def is_on(azure: Azure, namespace: str) -> bool:
    """Say whether a service is switched on, or is just being so. One call."""
    return state(azure, namespace).lower() in ON


def switch_on(azure: Azure, namespace: str) -> None:
    """Switch a service on for the subscription, where it is not. It is free, and takes a minute at Azure."""
    if not is_on(azure, namespace):
        ask(azure, f"{namespace}/register/action", lambda: azure.resources.providers.register(namespace))


def way_on(namespace: str) -> str:
    """Return the command that switches a service on."""
    return f"az provider register --namespace {namespace}"
