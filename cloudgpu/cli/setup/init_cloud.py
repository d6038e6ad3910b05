"""`cloudgpu init CLOUD`: shows what will be created in the account, asks, and creates it; `--remove` removes it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from cloudgpu.cli.common import Format, confirm, emit, tell
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.times import iso
from cloudgpu.errors import CloudgpuError, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudgpu.control.setup.cloud_account import Preparation
    from cloudgpu.core.model.account import BudgetAlert, RolePart
    from cloudgpu.views.documents.setup.init import AccountCredit, InitCloudDocument


# What a machine may do under its role, by cloud.
_ROLE_ALLOWS = {
    "aws": "write its own cloudgpu-last-active tag, and nothing else. It costs nothing.",
    "azure": "deallocate itself and write its own tags, and nothing else. It costs nothing.",
}
# The options of `init` that name an account of one cloud, by their keys in its table: the cloud, and the option.
_CLOUD_OF_KEY = {"profile": "aws", "subscription": "azure", "project": "gcp"}


def prepare(
    cloud: str,
    *,
    account: str | None,
    account_keys: Mapping[str, str | None],
    regions: Sequence[str],
    remove: bool,
    yes: bool,
    output: Format,
    budget: tuple[str | None, str | None] = (None, None),
    ssh_from: Sequence[str] = (),
) -> None:
    """Show what will be created or removed, ask once, do it, and say what exists then.

    `account_keys` is --profile, --subscription and --project, `budget` is --budget and --email.
    """
    from cloudgpu.control.setup import cloud_account as cloud_init
    from cloudgpu.control.setup.init import find_existing_setup

    setup, keys = find_existing_setup(os.environ), _named_keys(cloud, account_keys)
    if remove and ssh_from:
        raise InvalidRequest(
            "--ssh-from does not go with --remove: the rules of the account stay as they are.",
            field="--ssh-from",
            value=ssh_from[0],
            next="Leave one of the two out.",
        )
    if remove:
        preparation = cloud_init.plan_removal(setup, cloud, account=account, account_keys=keys)
        changes = [_part_text(preparation, part) for part in preparation.removable_parts] + ["budget"] * (
            preparation.existing_budget is not None
        )
        _show_plan(preparation, "takes away", changes)
    else:
        alert = _budget_alert(*budget)
        preparation = cloud_init.plan_preparation(
            setup, cloud, account=account, account_keys=keys, regions=regions, budget=alert, ssh_from=ssh_from
        )
        changes = [_part_text(preparation, part) for part in preparation.missing_parts] + [
            "budget"
        ] * preparation.changes_budget
        changes += ["SSH rules"] * preparation.changes_ssh + ["SSH key cloudgpu"] * preparation.creates_marker
        _show_plan(preparation, "makes", changes)
    if changes or preparation.draft.changed:
        changed_places = "your cloud account and config.toml" if changes else "config.toml"
        confirm("Do it?", yes=yes, why=f"This changes {changed_places}")
        (cloud_init.apply_removal if remove else cloud_init.apply_preparation)(preparation)
    document = _init_cloud_document(preparation, changes, removed=remove)
    emit(output, document, _result_text(document))


def _named_keys(cloud: str, account_keys: Mapping[str, str | None]) -> dict[str, str]:
    """Return the keys of the account's table that options give; raise InvalidRequest for another cloud's."""
    given_keys = {key: value for key, value in account_keys.items() if value is not None}
    for key, value in given_keys.items():
        if cloud in _CLOUD_OF_KEY.values() and _CLOUD_OF_KEY[key] != cloud:
            raise InvalidRequest(
                f"--{key} is about accounts of {_CLOUD_OF_KEY[key]}, not of {cloud}.",
                field=f"--{key}",
                value=value,
                next=f"Leave --{key} out.",
            )
    return given_keys


def _part_text(preparation: Preparation, part: RolePart) -> str:
    """Return what a part is, with its name if it does not belong to the machines' role."""
    return (
        part.description if preparation.role and part in preparation.role.parts else f"{part.description} {part.name}"
    )


def _budget_alert(amount: str | None, email: str | None) -> BudgetAlert | None:
    """Return the requested budget; raise InvalidRequest if only one of its two options is given."""
    from cloudgpu.control.setup.cloud_account import parse_budget_alert

    if amount is None and email is None:
        return None
    if amount is None or email is None:
        missing_option = "--budget" if amount is None else "--email"
        raise InvalidRequest(
            f"A budget of the cloud needs {missing_option} too.",
            field=missing_option,
            value=None,
            next="For example --budget 300 --email ada@example.org",
        )
    return parse_budget_alert(amount, email)


def _budget_line(preparation: Preparation, verb: str) -> str:
    if verb != "makes" or preparation.budget is None:
        return f"{verb} the budget that mails when the account costs too much"
    existing = preparation.existing_budget
    replaced_text = (
        f" in place of one of {existing.per_month.text()}, to {_emails_text(existing.emails)}" if existing else ""
    )
    return (
        f"makes a budget of {preparation.budget.per_month.text()} a month on the whole account{replaced_text}: "
        f"it mails {_emails_text(preparation.budget.emails)} at 80 % and 100 %, and when the forecast passes it. "
        "It stops nothing, and the cloud's figures are hours behind."
    )


def _ssh_line(preparation: Preparation) -> str:
    """Return how the account's rules for SSH change."""
    current_text, new_text = (
        ", ".join(preparation.current_ssh_from) or "nobody",
        ", ".join(preparation.ssh_from),
    )
    return (
        f"opens SSH on every machine of the account, those that run too, to {new_text} alone; now it is open to "
        f"{current_text}. Whoever connects from elsewhere is shut out."
    )


def _emails_text(emails: Sequence[str]) -> str:
    return ", ".join(emails) or "nobody"


def _show_plan(preparation: Preparation, verb: str, changes: Sequence[str]) -> None:
    """Print what will be done: `verb` is `makes` or `takes away`, `changes` are the parts that this is done to."""
    role_name = preparation.role.parts[0].name if preparation.role else ""
    tell(f"{preparation.account_in_cloud} (account {preparation.account} of config.toml)")
    _show_credit(preparation)
    for change in changes:
        part_name = change if change.split()[-1].startswith("cloudgpu") else f"{change} {role_name}"
        special_lines = {"budget": _budget_line(preparation, verb), "SSH rules": _ssh_line(preparation)}
        tell(special_lines.get(change, f"{verb} the {part_name}"))
    for part in preparation.parts:
        if not part.is_ours:
            tell(f"left alone: the {part.description} {part.name}, which lacks our tag and is somebody else's")
    if not changes:
        tell(_nothing_to_do(preparation, verb))
    if preparation.budget_error:
        tell(f"whether cloudgpu's budget exists is not known: {preparation.budget_error}")
    if verb == "makes":
        _show_uses(preparation, role_name)
    elif preparation.timer is not None and any(part.exists and part.is_ours for part in preparation.timer.parts):
        tell("Without the role, a machine that is launched or started later has no timer in the cloud.")
    changed_lines = [line for line in preparation.draft.diff[2:] if not line.startswith("@@")]
    sys.stderr.write(
        "".join(
            f"  {line}\n" for line in [f"{preparation.draft.setup.home.config_file}:", *changed_lines] if changed_lines
        )
    )


def _show_credit(preparation: Preparation) -> None:
    """Print the balance of a prepaid account, or that it is not known."""
    if isinstance(preparation.credit, CloudgpuError):
        tell(f"what is left of its credit is not known: {preparation.credit.message}")
    elif preparation.credit is not None:
        tell(f"credit: {preparation.credit.remaining.text()} left. Pay in at {preparation.credit.payment_page}")


def _nothing_to_do(preparation: Preparation, verb: str) -> str:
    if preparation.role is None:
        return "nothing is made there: machines of this cloud need no role to say when they were last in use"
    return f"nothing to do there: {_role_names_text(preparation)} {'there' if verb == 'makes' else 'not there'}"


def _show_uses(preparation: Preparation, role_name: str) -> None:
    """Print what the roles are for, problems in the account, and which document has the permissions for a launch."""
    if preparation.role is not None:
        tell(
            f"Under {role_name} a machine may "
            f"{_ROLE_ALLOWS.get(preparation.kind, 'say when it was last in use, and nothing else.')}"
        )
    if preparation.timer is not None:
        tell(
            f"Under {preparation.timer.parts[0].name} the cloud's own scheduler ends machines of cloudgpu at their "
            "renew-until, if everything else fails. Each costs far less than a cent."
        )
    for finding in preparation.findings:
        if not finding.is_ok and f"cloudgpu init {preparation.kind}" not in finding.next:  # that is being done
            tell(f"{finding.what}: {finding.message}" + (f" -> {finding.next}" if finding.next else ""))
    if preparation.role is None:
        from cloudgpu.control.setup.permissions import has_permissions_document, permissions_document

        if not has_permissions_document(preparation.kind):
            return
        tell(f"What a launch has to be allowed: {permissions_document(preparation.kind)} (docs/permissions.md).")


def _role_names_text(preparation: Preparation) -> str:
    role, timer_role = (plan.parts[0].name if plan else None for plan in (preparation.role, preparation.timer))
    return _names_with_verb(role, timer_role)


def _names_with_verb(role: str | None, timer_role: str | None) -> str:
    """Return the roles' names, and the verb that goes with them."""
    return f"{role} is" if timer_role is None else f"{role} and {timer_role} are"


def _init_cloud_document(preparation: Preparation, changes: Sequence[str], *, removed: bool) -> InitCloudDocument:
    return {
        "cloud": preparation.kind,
        "account": preparation.account,
        "where": preparation.account_in_cloud,
        "role": preparation.role.parts[0].name if preparation.role else None,
        "timer_role": preparation.timer.parts[0].name if preparation.timer else None,
        "created": [] if removed else list(changes),
        "removed": list(changes) if removed else [],
        "budget": None
        if removed or preparation.budget is None
        else {"usd_per_month": f"{preparation.budget.per_month.dollars:f}", "emails": list(preparation.budget.emails)},
        "findings": [
            {
                "what": finding.what,
                "ok": finding.is_ok,
                "message": finding.message,
                "next": finding.next,
                "needed": finding.needed,
            }
            for finding in preparation.findings
        ],
        "file": str(preparation.draft.setup.home.config_file),
        "written": preparation.draft.changed,
        "credit": _credit_document(preparation),
    }


def _credit_document(preparation: Preparation) -> AccountCredit | None:
    if preparation.credit is None or isinstance(preparation.credit, CloudgpuError):
        return None
    credit = preparation.credit
    return {"left_usd": usd(credit.remaining), "as_of": iso(credit.as_of), "page": credit.payment_page}


def _result_text(document: InitCloudDocument) -> str:
    cloud = document["cloud"]
    wrote_lines = [f"Wrote {document['file']}"] if document["written"] else []
    if not document["created"] and not document["removed"]:
        nothing_text = f"Nothing {'else ' * bool(wrote_lines)}to change."
        return "\n".join([*wrote_lines, nothing_text, *[_next_text(cloud)] * bool(wrote_lines)])
    if document["removed"]:
        left_text = (
            f"Left: [accounts.{document['account']}] in config.toml; machines, disks, images, keys and security groups"
        )
        roles_removed = document["role"] is not None and document["removed"] != ["budget"]
        gone_lines = [f"{_names_with_verb(document['role'], document['timer_role'])} gone."] * roles_removed
        gone_lines += ["The budget is gone."] * ("budget" in document["removed"])
        return "\n".join([*wrote_lines, *gone_lines, f"{left_text} (cloudgpu ls --refresh shows what costs)."])
    budget_lines = (
        [f"The budget is there: it mails {_emails_text(document['budget']['emails'])}."] if document["budget"] else []
    )
    ssh_lines = ["SSH is open to these networks alone."] * ("SSH rules" in document["created"])
    role_lines = [f"{_names_with_verb(document['role'], document['timer_role'])} there."] * (
        document["role"] is not None
    )
    return "\n".join([*wrote_lines, *role_lines, *ssh_lines, *budget_lines, _next_text(cloud)])


def _next_text(cloud: str) -> str:
    return f"Next: cloudgpu doctor --provider {cloud}, then cloudgpu up --provider {cloud} --dry-run"
