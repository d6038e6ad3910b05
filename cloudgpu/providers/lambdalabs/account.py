"""What `doctor` finds in a Lambda account, where its API key is, and who may reach SSH_PORT.

Port 22 is open to the whole internet by the account's global rules (Lambda's documentation: so for every new account).
A ruleset of a single machine would only add to them, as far as is known. So the global rules are changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.account_abilities import AccountFinding, Login
from cloudgpu.providers.lambdalabs import errors
from cloudgpu.providers.lambdalabs.client import Lambda
from cloudgpu.providers.lambdalabs.options import PROVIDER, read_key
from cloudgpu.providers.shared.rules import is_open_to_all

Rule = Mapping[str, Any]
SSH_PORT, MAX_PORT = 22, 65535
_TERMINATION_FINDING = AccountFinding(
    "ends at Lambda",
    None,
    "nothing at Lambda ends a machine by itself: a shutdown does not end billing, and there is no stop or timer",
    "Run: cloudgpu cron install, on a computer that is always on",
)
OUR_DESCRIPTION = "cloudgpu"  # how the description of each of our rules begins
REGION_WITHOUT_GLOBAL_RULES = "us-south-1"  # Lambda's documentation: the global rules do not count there


def login(lam: Lambda) -> Login:
    """Return where the API key is; it lasts until somebody deletes it. Raises AuthFailed where there is none."""
    return Login(f"the API key from {read_key(lam.options)[1]}", None, lasts=True)


def findings(lam: Lambda) -> list[AccountFinding]:
    """Return the findings: the account, who may reach SSH_PORT, and what Lambda cannot do at all. Reads only."""
    account_text = f"{lam.identity().display_name}, by the API key from {read_key(lam.options)[1]}"
    return [
        AccountFinding("Lambda account", is_ok=True, message=account_text),
        _firewall_finding(lam),
        _TERMINATION_FINDING,
    ]


def _firewall_finding(lam: Lambda) -> AccountFinding:
    title = "SSH at Lambda"
    try:
        rules = global_rules(lam)
    except CloudgpuError as error:
        return AccountFinding(title, None, f"who may reach port 22 is not known: {error.message}", "Run doctor again.")
    if not any(is_open_to_all(str(rule.get("source_network"))) and _includes_ssh(rule) for rule in rules):
        message = (
            f"the account's global rules do not open port 22 to everybody (not so in {REGION_WITHOUT_GLOBAL_RULES})"
        )
        return AccountFinding(title, is_ok=True, message=message)
    return AccountFinding(
        title,
        is_ok=False,
        message="the account's global firewall rules open port 22 of every machine to the whole internet",
        next=f"Run: cloudgpu init {PROVIDER} --ssh-from ADDRESS/32 (it changes the rules for all)",
    )


def global_rules(lam: Lambda) -> list[Rule]:
    """Return the account's global firewall rules."""
    ruleset = lam.get("/firewall-rulesets/global", "global-firewall")
    rules = ruleset.get("rules") if isinstance(ruleset, dict) else None
    if not isinstance(rules, list):
        raise errors.unreadable_error("global-firewall")
    return rules


def ssh_sources(lam: Lambda) -> list[str]:
    """Return the networks from which the account's global rules open port 22."""
    return sorted(
        {str(global_rule.get("source_network")) for global_rule in global_rules(lam) if _includes_ssh(global_rule)}
    )


def narrow_ssh(lam: Lambda, cidrs: Sequence[str]) -> None:
    """Open port 22 to these networks only, in the account's global rules; every other rule stays. Idempotent."""
    rules = restricted_rules(global_rules(lam), cidrs)
    lam.change("PATCH", "/firewall-rulesets/global", "patch-global-firewall", {"rules": rules}, idempotent=True)


def restricted_rules(rules: Iterable[Rule], cidrs: Sequence[str]) -> list[Rule]:
    """Return these rules, but with SSH_PORT open to these networks only.

    A rule for more ports than 22 is replaced by rules for the ports below and above.
    """
    other_rules = [
        remaining for rule in rules for remaining in (_without_ssh(rule) if _includes_ssh(rule) else (rule,))
    ]
    ours: list[Rule] = [
        {
            "protocol": "tcp",
            "port_range": [SSH_PORT, SSH_PORT],
            "source_network": cidr,
            "description": f"{OUR_DESCRIPTION}: SSH",
        }
        for cidr in cidrs
    ]
    return [*other_rules, *ours]


def _includes_ssh(rule: Rule) -> bool:
    ports = rule.get("port_range")
    return rule.get("protocol") in ("tcp", "all") and (not ports or ports[0] <= SSH_PORT <= ports[-1])


def _without_ssh(rule: Rule) -> list[Rule]:
    """Return the rules that open what this rule opens, except SSH_PORT."""
    low, high = rule.get("port_range") or (1, MAX_PORT)
    udp_and_icmp = [] if rule["protocol"] == "tcp" else [{**rule, "protocol": protocol} for protocol in ("udp", "icmp")]
    for rule_without_ssh in udp_and_icmp:
        if rule_without_ssh["protocol"] == "icmp":
            rule_without_ssh.pop("port_range", None)
    port_ranges = [(first, last) for first, last in ((low, SSH_PORT - 1), (SSH_PORT + 1, high)) if first <= last]
    return [*udp_and_icmp, *({**rule, "protocol": "tcp", "port_range": [first, last]} for first, last in port_ranges)]
