"""What an account at RunPod has: its key, its credit, and what its pods may do by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.account_abilities import Finding, Login
from cloudgpu.providers.runpod import options, pod_key
from cloudgpu.providers.runpod.errors import BILLING

if TYPE_CHECKING:
    from cloudgpu.providers.runpod.client import Runpod

CREDIT, POD_KEY = "credit", "the pod's own key"


def login() -> Login:
    """Return where the key is from: it lasts until somebody deletes it. Raises AuthFailed for none."""
    options.login()
    return Login(f"the API key of {options.key_from()}", None, lasts=True)


def findings(runpod: Runpod) -> Sequence[Finding]:
    """Return what was looked at. Reads only."""
    return (_credit(runpod), _pod_key(runpod))


def _credit(runpod: Runpod) -> Finding:
    try:
        said = runpod.balance()
        left, mode = Decimal(str(said["balanceAmount"])), str(said["billingMode"])
    except (CloudgpuError, KeyError, ArithmeticError) as error:
        why = error.message if isinstance(error, CloudgpuError) else "RunPod's answer has no balance"
        return Finding(CREDIT, good=None, says=f"it could not be read: {why.rstrip('.')}", next=f"Look at {BILLING}")
    says = f"{left:.2f} USD are left ({mode.lower()})"
    if mode == "PREPAID" and left <= 0:
        lost = "at 0, RunPod deletes pods with their /workspace, and starts none"
        return Finding(CREDIT, good=False, says=f"{says}: {lost}", next=f"Add credit: {BILLING}", needed=True)
    return Finding(CREDIT, good=True, says=says)


def _pod_key(runpod: Runpod) -> Finding:
    if pod_key.is_proved(runpod):
        return Finding(POD_KEY, good=True, says="it reads no other pod, so that pods stop themselves at their lease")
    return Finding(POD_KEY, good=None, says=pod_key.TELLS, next="Run: cloudgpu doctor --live --provider runpod")
