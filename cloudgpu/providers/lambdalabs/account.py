"""What of a lambda account is not as it should be, and the key to it; and SSH closed to all but some, when asked.

Port 22 is open to the whole internet by the account's global rules (Lambda's documentation: so for every new account).
A set of rules of a machine's own would only add to them, as far as is known. So the global rules are what is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.account_abilities import Finding, Login
from cloudgpu.providers.lambdalabs import errors
from cloudgpu.providers.lambdalabs.client import Lambda
from cloudgpu.providers.lambdalabs.options import KIND, read_key

Rule = Mapping[str, Any]
ANYBODY = "0.0.0.0/0"
SSH, HIGHEST = 22, 65535
OURS = "cloudgpu"  # how the descriptions of our rules begin
NOT_THERE = "us-south-1"  # Lambda's documentation: the global rules do not count there


def login(lam: Lambda) -> Login:
    """Return where the key is; it lasts until somebody deletes it. Raises AuthFailed for none."""
    return Login(f"the API key from {read_key(lam.options)[1]}", None, lasts=True)


def findings(lam: Lambda) -> list[Finding]:
    """Return what was looked at: the key, who may reach SSH, and what Lambda cannot do at all. Reads only."""
    return [_account(lam), _firewall(lam), _ends()]


def _account(lam: Lambda) -> Finding:
    name = lam.identity().words
    return Finding("Lambda account", good=True, says=f"{name}, by the API key from {read_key(lam.options)[1]}")


def _firewall(lam: Lambda) -> Finding:
    what = "SSH at Lambda"
    try:
        rules = global_rules(lam)
    except CloudgpuError as error:
        return Finding(what, None, f"who may reach port 22 is not known: {error.message}", "Run doctor again.")
    if not any(_opens_ssh(one) for one in rules):
        says = f"the account's global rules do not open port 22 to everybody (not so in {NOT_THERE})"
        return Finding(what, good=True, says=says)
    says = "the account's global firewall rules open port 22 of every machine to the whole internet"
    return Finding(
        what,
        good=False,
        says=says,
        next=f"Run: cloudgpu init {KIND} --ssh-from ADDRESS/32 (it changes the rules for all)",
    )


def _ends() -> Finding:
    says = "nothing at Lambda ends a machine by itself: a shutdown does not end billing, and there is no stop or timer"
    return Finding("ends at Lambda", None, says, "Run: cloudgpu cron install, on a computer that is always on")


def global_rules(lam: Lambda) -> list[Rule]:
    """Return the account's global firewall rules."""
    found = lam.get("/firewall-rulesets/global", "global-firewall")
    rules = found.get("rules") if isinstance(found, dict) else None
    if not isinstance(rules, list):
        raise errors.unreadable("global-firewall")
    return rules


def ssh_sources(lam: Lambda) -> list[str]:
    """Return the networks from which the account's global rules open port 22."""
    return sorted({str(one.get("source_network")) for one in global_rules(lam) if _is_for_ssh(one)})


def narrow(lam: Lambda, cidrs: Sequence[str]) -> None:
    """Open port 22 to these networks alone, in the account's global rules; every other rule stays. Idempotent."""
    wanted = narrowed(global_rules(lam), cidrs)
    lam.change("PATCH", "/firewall-rulesets/global", "patch-global-firewall", {"rules": wanted}, again=True)


def narrowed(rules: Iterable[Rule], cidrs: Sequence[str]) -> list[Rule]:
    """Return rules without those that open SSH, and with one for each network.

    One for more ports than SSH's stays without that: its ports below 22 and above.
    """
    kept = [part for one in rules for part in (_without_ssh(one) if _is_for_ssh(one) else (one,))]
    ours: list[Rule] = [
        {"protocol": "tcp", "port_range": [SSH, SSH], "source_network": cidr, "description": f"{OURS}: SSH"}
        for cidr in cidrs
    ]
    return [*kept, *ours]


def _opens_ssh(rule: Rule) -> bool:
    return rule.get("source_network") == ANYBODY and _is_for_ssh(rule)


def _is_for_ssh(rule: Rule) -> bool:
    ports = rule.get("port_range")
    return rule.get("protocol") in ("tcp", "all") and (not ports or ports[0] <= SSH <= ports[-1])


def _without_ssh(rule: Rule) -> list[Rule]:
    """Return the rules for what a rule opens beside SSH."""
    low, high = rule.get("port_range") or (1, HIGHEST)
    others = [] if rule["protocol"] == "tcp" else [{**rule, "protocol": one} for one in ("udp", "icmp")]
    for one in others:
        if one["protocol"] == "icmp":
            one.pop("port_range", None)
    parts = [(first, last) for first, last in ((low, SSH - 1), (SSH + 1, high)) if first <= last]
    return [*others, *({**rule, "protocol": "tcp", "port_range": [first, last]} for first, last in parts)]
