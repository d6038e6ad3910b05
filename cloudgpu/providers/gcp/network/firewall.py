"""Makes, changes and deletes cloudgpu's firewall rules, which let addresses reach machines by SSH."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.gcp import operations
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute import listing
from cloudgpu.providers.gcp.compute.request import NETWORK_TAG
from cloudgpu.providers.gcp.compute.translate import labels_of
from cloudgpu.providers.gcp.error_codes import ALREADY_EXISTS, NOT_READY
from cloudgpu.providers.gcp.errors import code_of, is_gone
from cloudgpu.providers.gcp.network import firewall_rules
from cloudgpu.providers.gcp.network.firewall_rules import Rule
from cloudgpu.providers.gcp.network.network import relative_name
from cloudgpu.providers.gcp.storage.resources import change_and_wait, if_found
from cloudgpu.providers.shared.calls import retry
from cloudgpu.providers.shared.rules import OpenRule

MAX_PARALLEL = 8  # rules that are changed at once
MAX_TRIES, RETRY_PAUSE_S = 10, 2.0  # while a rule is being made or removed it takes no change


def allowed(gcp: Gcp, id: str) -> Mapping[str, str]:  # noqa: A002
    """Return the CIDR per label that may reach SSH; empty where somebody else's rules decide. Two calls.

    Raises InstanceNotFound.
    """
    machine = listing.read_machine(gcp, id)
    if not is_ours(machine):
        return {}
    port = str(gcp.options.ssh_port)
    return {
        machine_rule.label: machine_rule.cidr
        for machine_rule in machine_rules(gcp, id, network_of(machine))
        if port in machine_rule.ports
    }


def allow(gcp: Gcp, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
    """Let this CIDR in under this label in place of the one before; None removes that rule.

    Raises InstanceNotFound, InvalidRequest where somebody else's firewall rules decide.
    """
    machine = listing.read_machine(gcp, id)
    if not is_ours(machine):
        raise InvalidRequest(
            f"Somebody else's firewall rules decide who may connect to {id}: cloudgpu does not change them.",
            field="--security-group",
            value=id,
            next="Ask whoever keeps those rules to let the address in, or launch without --security-group.",
        )
    network = network_of(machine)
    if cidr is None:
        remove(gcp, project_of(network), firewall_rules.allow_rule_name(id, label))
    else:
        admit(gcp, network, id, {label: cidr}, labels_of(machine))


def is_ours(machine: Mapping[str, Any]) -> bool:
    """Say whether our own rules decide who may connect to a machine (in Google's format): it has our network tag."""
    return NETWORK_TAG in machine.get("tags", {}).get("items", ())


def ensure_deny_rule(gcp: Gcp, network: str) -> None:
    """Make sure that the network has the rule that lets nobody in to our machines; each machine has rules of its own.

    One call where it is there already. Raises the error of the call that fails.
    """
    body = firewall_rules.deny_rule(network)
    existing = find_rule(gcp, project_of(network), body["name"])
    if existing is None:
        write_rule(gcp, project_of(network), body)
    elif not firewall_rules.is_deny_rule(existing):
        _patch(gcp, project_of(network), body)


def admit(gcp: Gcp, network: str, machine_id: str, callers: Mapping[str, str], tags: Mapping[str, str]) -> None:
    """Let each of these in (CIDR by label); a rule that exists gets its new CIDR."""
    port = gcp.options.ssh_port
    bodies = [
        firewall_rules.allow_rule(network, machine_id, label, cidr, port, tags) for label, cidr in callers.items()
    ]
    with Pool(MAX_PARALLEL) as pool:
        list(pool.map(lambda body: write_rule(gcp, project_of(network), body), bodies))


def machine_rules(gcp: Gcp, machine_id: str, network: str = "") -> Sequence[Rule]:
    """Return our rules for a machine (our id), in the network's project: a call per 500 rules of the project."""
    ours = filter(None, map(firewall_rules.parse_rule, list_rules(gcp, project_of(network))))
    return [rule for rule in ours if rule.machine == machine_id]


def list_rules(gcp: Gcp, project: str = "") -> Iterator[Mapping[str, Any]]:
    """Yield the rules of a project (empty: the account's) in Google's format: a call per 500."""
    return gcp.items("compute.firewalls.list", **_project_field(project))


def open_rules(gcp: Gcp, network: str) -> Sequence[OpenRule]:
    """Return the rules, made by hand, by which everybody gets in to our machines in a network: a call per 500 rules."""
    project = project_of(network)
    return firewall_rules.open_rules(
        list(list_rules(gcp, project)), network, project or gcp.project, gcp.options.service_account
    )


def remove_all(gcp: Gcp, machine_id: str, network: str = "") -> None:
    """Ask to delete all our rules for a machine. Does not wait; none is no error."""
    rules = machine_rules(gcp, machine_id, network)
    if rules:
        with Pool(MAX_PARALLEL) as pool:
            list(pool.map(lambda rule: start_removal(gcp, project_of(network), rule.name), rules))


def remove(gcp: Gcp, project: str, name: str) -> None:
    """Delete a rule and wait until it is gone; one that does not exist is no error."""
    operation = start_removal(gcp, project, name)
    if operation is not None:
        operations.wait_for(gcp, operation, action="compute.firewalls.delete", value=name, project=project or None)


def start_removal(gcp: Gcp, project: str, name: str) -> Mapping[str, Any] | None:
    """Ask to delete a rule; return the operation, None where it does not exist or is being deleted. Does not wait."""
    try:
        return gcp.call("compute.firewalls.delete", value=name, firewall=name, **_project_field(project))
    except InvalidRequest as error:
        if is_gone(error) or code_of(error) in NOT_READY:
            return None
        raise


def project_of(network: str) -> str:
    """Return the project of a network, where its rules are; empty for the account's."""
    return network.split("/")[1] if network.startswith("projects/") else ""


def network_of(machine: Mapping[str, Any]) -> str:
    """Return the full name of a machine's network (`projects/P/global/networks/N`); empty where Google does not say."""
    return next(
        (
            relative_name(network_interface["network"])
            for network_interface in machine.get("networkInterfaces", ())
            if network_interface.get("network")
        ),
        "",
    )


def find_rule(gcp: Gcp, project: str, name: str) -> Mapping[str, Any] | None:
    """Return a rule in Google's format; None where there is none of this name. One call."""
    return if_found(lambda: gcp.call("compute.firewalls.get", value=name, firewall=name, **_project_field(project)))


def write_rule(gcp: Gcp, project: str, body: Mapping[str, Any]) -> None:
    """Make a rule, or change the one of that name; while that is being made or deleted, wait and try again."""
    retry(
        lambda: _insert_or_patch(gcp, project, body),
        MAX_TRIES,
        after=lambda error: code_of(error) in NOT_READY or (is_gone(error) and "/firewalls/" in error.message),
        pause=lambda _tries: gcp.pause(RETRY_PAUSE_S),
    )


def _insert_or_patch(gcp: Gcp, project: str, body: Mapping[str, Any]) -> None:
    parameters = {"firewallResource": dict(body), **_project_field(project)}
    try:
        change_and_wait(gcp, "compute.firewalls.insert", "", value=body["name"], **parameters)
    except InvalidRequest as error:
        if code_of(error) not in ALREADY_EXISTS:
            raise
        _patch(gcp, project, body)


def _patch(gcp: Gcp, project: str, body: Mapping[str, Any]) -> None:
    parameters = {"firewall": body["name"], "firewallResource": dict(body), **_project_field(project)}
    change_and_wait(gcp, "compute.firewalls.patch", "", value=body["name"], **parameters)


def _project_field(project: str) -> dict[str, Any]:
    return {"project": project} if project else {}
