"""What an account at RunPod has: its key, its credit, and what its pods may do by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.core.model.account import Credit
from cloudgpu.core.values.money import Money
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.providers.account_abilities import Finding, Login
from cloudgpu.providers.runpod import options, pod_key
from cloudgpu.providers.runpod.errors import BILLING

if TYPE_CHECKING:
    from cloudgpu.providers.runpod.client import Runpod

POD_KEY = "the pod's own key"


def login() -> Login:
    """Return where the key is from: it lasts until somebody deletes it. Raises AuthFailed for none."""
    options.login()
    return Login(f"the API key of {options.key_from()}", None, lasts=True)


def findings(runpod: Runpod) -> Sequence[Finding]:
    """Return what was looked at: what a pod may do by its own key, as far as that was proved. Reads only."""
    if pod_key.is_proved(runpod):
        return (Finding(POD_KEY, good=True, says="it reads no other pod, so that pods stop themselves at their lease"),)
    return (Finding(POD_KEY, good=None, says=pod_key.TELLS, next="Run: cloudgpu doctor --live --provider runpod"),)


def credit(runpod: Runpod) -> Credit:
    """Return what is left of what was paid in; at zero, RunPod deletes pods (docs, Pods, Pricing).

    Raises ProviderUnavailable for an account that is invoiced, and for an answer without a balance.
    """
    as_of = runpod.clock()
    said = runpod.balance()
    try:
        left, mode = Money.usd(str(Decimal(str(said["balanceAmount"])))), said["billingMode"]
    except (KeyError, TypeError, ArithmeticError, ValueError) as error:
        message = "RunPod's answer has no balance."
        raise ProviderUnavailable(message, field="provider", value=options.KIND, next=f"See {BILLING}") from error
    if mode != "PREPAID":
        message = "This account of RunPod is invoiced, so it has no credit that could end."
        raise ProviderUnavailable(message, field="provider", value=options.KIND)
    return Credit(left, as_of, None, BILLING)
