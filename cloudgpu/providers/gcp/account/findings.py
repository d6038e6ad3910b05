"""doctor's findings about a Google project: what keeps cloudgpu from working, or is not safe. Three calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, ProviderUnavailable
from cloudgpu.parallel import Pool
from cloudgpu.providers.account_abilities import AccountFinding
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.errors import is_gone
from cloudgpu.providers.gcp.market.quotas import ALL_REGIONS, quota_metrics, quota_page
from cloudgpu.providers.gcp.network.firewall_rules import open_rules
from cloudgpu.providers.shared.calls import result_or_error
from cloudgpu.providers.shared.rules import is_open_to_all, open_rules_finding, unknown_finding

Raw = Mapping[str, Any]
Answers = Mapping[str, Any]  # by the name of the call: its answer, or the error in its place
# Titles of the findings; three are also the keys of the answers (OPEN_SSH: the firewall rules of the project).
PROJECT, LOGIN, QUOTA, NETWORK, OPEN_SSH = "project", "OS Login", "GPU quota", "network", "SSH from anywhere"
_ON = "true"
_TCP = ("tcp", "6", "all")  # how a rule may write a protocol that TCP is part of; 6 is its number at IANA


def findings(gcp: Gcp, region: str | None = None) -> Sequence[AccountFinding]:
    """Return the findings, good or not; reads only. All are about the project, whatever the region.

    Raises AuthFailed for credentials that do not work at all.
    """
    try:
        project = gcp.project
    except InvalidRequest as error:
        return [_no_project(error.message, error.next)]
    answers = _read_project(gcp)
    errors_by_field = {answer.field: answer for answer in answers.values() if isinstance(answer, AuthFailed)}
    if "credentials" in errors_by_field:
        raise errors_by_field["credentials"]
    if "project" in errors_by_field:
        return [_no_project(errors_by_field["project"].message, errors_by_field["project"].next)]
    raw = answers[PROJECT]
    if isinstance(raw, CloudgpuError) and is_gone(raw):
        message = f"Google Cloud has no project {project!r}, or this login may not see it"
        return [_no_project(message, "See yours: gcloud projects list")]
    if all(isinstance(answer, ProviderUnavailable) for answer in answers.values()):
        return [unknown_finding(title, raw) for title in (PROJECT, LOGIN, QUOTA, NETWORK, OPEN_SSH)]
    project_finding = AccountFinding(PROJECT, is_ok=True, message=f"{project}: Compute Engine answers")
    if isinstance(raw, CloudgpuError):
        of_project = [unknown_finding(title, raw) for title in (LOGIN, QUOTA)]
    else:
        of_project = [_os_login_finding(gcp, raw), _quota_finding(gcp, raw, region or "us-central1")]
    return [project_finding, *of_project, *_network_findings(gcp, answers)]


def _no_project(message: str, remedy: str | None) -> AccountFinding:
    return AccountFinding(PROJECT, is_ok=False, message=message, next=remedy or "", needed=True)


def _read_project(gcp: Gcp) -> Answers:
    network = gcp.options.network
    calls = {
        PROJECT: lambda: gcp.call("compute.projects.get"),
        NETWORK: lambda: gcp.call("compute.networks.get", value=network, network=network),
        OPEN_SSH: lambda: list(gcp.items("compute.firewalls.list")),
    }
    with Pool(len(calls)) as pool:
        return dict(zip(calls, pool.map(result_or_error, calls.values()), strict=True))


def _os_login_finding(gcp: Gcp, project: Raw) -> AccountFinding:
    """Return the finding about OS Login in the project's metadata, with which SSH keys come from Google accounts."""
    items = project.get("commonInstanceMetadata", {}).get("items", ())
    setting = next((item.get("value", "") for item in items if item.get("key") == "enable-oslogin"), "")
    if setting.lower() != _ON:
        return AccountFinding(LOGIN, is_ok=True, message="the project does not switch it on")
    message = (
        "the project switches OS Login on, under which keys in metadata are ignored. cloudgpu switches it off for its "
        "own machines; where the organisation requires it (compute.requireOsLogin), Google refuses them"
    )
    remedy = f"gcloud compute project-info remove-metadata --keys enable-oslogin --project {gcp.project}"
    return AccountFinding(LOGIN, is_ok=False, message=message, next=f"If nobody needs it: {remedy}")


def _quota_finding(gcp: Gcp, project: Raw, region: str) -> AccountFinding:
    limit_and_usage = dict(quota_metrics(project)).get(ALL_REGIONS)
    remedy = f"Request more: {quota_page(gcp, region, ALL_REGIONS)}"
    if limit_and_usage is None:
        return AccountFinding(
            QUOTA, is_ok=None, message=f"the project does not tell its quota {ALL_REGIONS}", next=remedy
        )
    usage_text = f"{ALL_REGIONS} is {limit_and_usage[0]:g}, of which {limit_and_usage[1]:g} are used"
    if limit_and_usage[0] > 0:
        return AccountFinding(QUOTA, is_ok=True, message=usage_text)
    return AccountFinding(
        QUOTA, is_ok=False, message=f"{usage_text}: no machine with a GPU can be launched", next=remedy, needed=True
    )


def _network_findings(gcp: Gcp, answers: Answers) -> Iterator[AccountFinding]:
    network_name, network, rules = gcp.options.network, answers[NETWORK], answers[OPEN_SSH]
    if isinstance(network, CloudgpuError) and not is_gone(network):
        yield unknown_finding(NETWORK, network)
    elif isinstance(network, CloudgpuError):
        remedy = f"gcloud compute networks create {network_name} --project {gcp.project}"
        message = f"the project has no network {network_name!r}, and no --subnet is always named"
        setting = f"or name another: accounts.{gcp.account}.network in config.toml"
        yield AccountFinding(NETWORK, is_ok=False, message=message, next=f"Make it: {remedy}, {setting}", needed=True)
    else:
        yield AccountFinding(NETWORK, is_ok=True, message=f"{network_name} is there")
    if isinstance(rules, CloudgpuError):
        yield unknown_finding(OPEN_SSH, rules)
        return
    yield _open_ssh_finding(gcp, rules)
    rules_ahead = open_rules(rules, network_name, gcp.project, gcp.options.service_account)
    yield open_rules_finding(
        rules_ahead, f"no rule of {network_name} is ahead of the one by which cloudgpu shuts its machines"
    )


def _open_ssh_finding(gcp: Gcp, rules: Sequence[Raw]) -> AccountFinding:
    """Return the finding about rules that let everybody connect by SSH; Google's default network has one."""
    network, port = gcp.options.network, gcp.options.ssh_port
    names = sorted(
        rule["name"] for rule in rules if ids.last_part(rule.get("network", "")) == network and _is_open(rule, port)
    )
    if not names:
        return AccountFinding(OPEN_SSH, is_ok=True, message=f"no rule of {network} lets everybody in")
    message = (
        f"{' and '.join(names)} of {network} lets everybody reach port {port}; machines of cloudgpu are shut to it by "
        "a rule of a higher priority, others are not"
    )
    remedy = f"gcloud compute firewall-rules delete {' '.join(names)} --project {gcp.project}"
    return AccountFinding(OPEN_SSH, is_ok=False, message=message, next=f"If nobody needs it: {remedy}")


def _is_open(rule: Raw, port: int) -> bool:
    """Say whether a rule lets every address reach a TCP port of every machine in its network."""
    if rule.get("direction", "INGRESS") != "INGRESS" or rule.get("disabled"):
        return False
    if rule.get("targetTags") or rule.get("targetServiceAccounts"):
        return False
    from_anywhere = any(map(is_open_to_all, rule.get("sourceRanges", ())))
    return from_anywhere and any(_allows_port(allowed, port) for allowed in rule.get("allowed", ()))


def _allows_port(allowed: Raw, port: int) -> bool:
    ports = allowed.get("ports", ())
    return allowed.get("IPProtocol") in _TCP and (
        not ports or any(_includes_port(port_range, port) for port_range in ports)
    )


def _includes_port(port_range: str, port: int) -> bool:
    first, _, last = port_range.partition("-")
    return first.isdigit() and int(first) <= port <= int(last if last.isdigit() else first)
