"""Makes the ledger lines that are not about one machine: one function for each kind.

Each has its body and its dedupe text: a second line with the same text is not written. `after` is the
number of the ledger's last line, so that what was undone can be done again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from cloudgpu.core.events import general_bodies as bodies
from cloudgpu.core.events.log import FORMAT, Draft
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.records import CreditRecord, ScheduledRunRecord
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import tag_value
from cloudgpu.core.values.times import iso


def _line(kind: str, subject: str, body: Mapping[str, object], now: datetime, dedupe_key: object) -> Draft:
    """Return a line; a second one of this kind with the same `dedupe_key` is not written."""
    return Draft(kind, subject, body, now, f"{kind}:{dedupe_key}")


# -- syncs, runs and accounts


def account_synced(
    scope: str,
    machines: int,
    unanswered: Iterable[Unanswered],
    now: datetime,
    *,
    unseen: Sequence[str] = (),
    resources: bool = False,
    pinned: bool = False,
) -> Draft:
    """Return the line of a sync of one account; without a complete answer, the account's data stays old.

    `unseen` are machines that were not in the answer and are not known to be gone: the sync proves nothing about them.
    `resources`: disks and images were listed, too; `pinned`: all prices were queried, and answered.
    """
    body: bodies.AccountSynced = {
        "machines": machines,
        "unanswered": [{"scope": scope_gap.scope, "why": scope_gap.why} for scope_gap in unanswered],
        "unseen": sorted(unseen),
        "resources": resources,
        "pinned": pinned,
    }
    subject = f"gap:{scope}" if body["unanswered"] else scope
    return Draft("account_synced", subject, body, now, f"synced:{scope}:{iso(now)}")


def reap_finished(
    result: bodies.RunResult,
    now: datetime,
    *,
    ok: bool,
    host: str,
    home: str,
    cron: bool,
    sweep: bool,
    ok_at: str | None,
    sweep_at: str | None,
    runs: Iterable[ScheduledRunRecord] = (),
    credit_readings: Iterable[CreditRecord] = (),
) -> Draft:
    """Return the line that a run of the reaper has ended, and how; `ok_at`, `sweep_at`: when one last was ok, or full.

    `result` is what it did, or why it was aborted before it decided anything. `runs` are the latest scheduled runs of
    all homes, with this one where it was scheduled; `credit_readings` the latest readings
    of prepaid accounts.
    """
    body: bodies.ReapFinished = {
        "verb": "reap",
        "ok": ok,
        **result,
        "host": host,
        "home": home,
        "cron": cron,
        "sweep": sweep,
        "ok_at": ok_at,
        "sweep_at": sweep_at,
        "scheduled": list(runs),
        "credits": list(credit_readings),
    }
    return Draft("reap_finished", "reaper", body, now, f"reap:{home}:{iso(now)}")


def account_renamed(
    account: str, region: str | None, new: str, machines: Iterable[Machine], host: str, now: datetime
) -> Draft:
    """Return the line that renames an account, or its host `region`, to `new`.

    `machines` are those of the account in the ledger; `host` is the computer on which it was renamed.
    """
    body: bodies.AccountRenamed = {
        "account": account,
        "region": region,
        "new": new,
        "identities": _identities(machines),
        "why": "asked",
        "host": host,
    }
    return Draft("account_renamed", "accounts", body, now, f"renamed:{account}:{region}:{new}:{iso(now)}")


def account_forgotten(account: str, provider: str, machines: Iterable[Machine], host: str, now: datetime) -> Draft:
    """Return the line that retires an account; `machines` are those of the account in the ledger."""
    body: bodies.AccountForgotten = {
        "account": account,
        "provider": provider,
        "identities": _identities(machines),
        "why": "asked",
        "host": host,
    }
    return Draft("account_forgotten", "accounts", body, now, f"forgotten:{account}:{iso(now)}")


def _identities(machines: Iterable[Machine]) -> list[str]:
    return sorted({str(machine.identity.id) for machine in machines if machine.identity})


# -- budgets


def budget_set(budget: bodies.BudgetSet, now: datetime, after: int) -> Draft:
    """Return the line that sets a budget."""
    return _line("budget_set", "budgets", budget, now, f"{budget['name']}:{after}")


def budget_removed(name: str, now: datetime, after: int) -> Draft:
    """Return the line that removes a budget."""
    return _line("budget_removed", "budgets", bodies.BudgetRemoved(name=name), now, f"{name}:{after}")


def budget_overridden(
    subject: Machine, reason: str, passed: Iterable[tuple[str, Money]], now: datetime, host: str
) -> Draft:
    """Return the line that says who overrode which budgets, by how much at most, why, and from which computer."""
    body: bodies.BudgetOverridden = {
        "machine": subject.id,
        "name": subject.name,
        "reason": reason,
        "passed": [{"name": name, "nanos": amount.nanos} for name, amount in passed],
        "host": host,
    }
    return _line("budget_overridden", "budgets", body, now, f"{subject.id}:{iso(now)}")


# -- alerts and reports


def alert_raised(alert: bodies.AlertRaised, now: datetime) -> Draft:
    """Return the line that raises an alert; two runs that raise the same one at once write it once."""
    return _line("alert_raised", "alerts", alert, now, f"{alert['key']}:{alert['number']}")


def alert_cleared(key: str, number: int, now: datetime) -> Draft:
    """Return the line that the cause of an alert is gone."""
    return _line("alert_cleared", "alerts", bodies.AlertCleared(key=key, number=number), now, f"{key}:{number}")


def alert_sent(receiver: str, alert_ids: Iterable[tuple[str, int]], now: datetime) -> Draft:
    """Return the line that a receiver has accepted alerts, each with its key and number."""
    ids: list[list[str | int]] = [[key, number] for key, number in alert_ids]
    body: bodies.AlertSent = {"receiver": receiver, "news": ids}
    return _line("alert_sent", "alerts", body, now, f"{receiver}:{iso(now)}:{ids[0]}")


def report_sent(month: str, receiver: str, now: datetime) -> Draft:
    """Return the line that a receiver has accepted a month's report; it is written once."""
    body: bodies.ReportSent = {"month": month, "receiver": receiver}
    return _line("report_sent", "reports", body, now, f"{month}:{receiver}")


# -- policies and people


def policy_published(name: str, text: str, tz: str, now: datetime, after: int) -> Draft:
    """Return the line that publishes a policy or the limits."""
    body: bodies.PolicyPublished = {"name": name, "text": text, "tz": tz}
    return _line("policy_published", "policies", body, now, f"{name}:{after}")


def policy_withdrawn(name: str, now: datetime, after: int) -> Draft:
    """Return the line that withdraws a published policy or the limits."""
    return _line("policy_withdrawn", "policies", bodies.PolicyWithdrawn(name=name), now, f"{name}:{after}")


def owner_claimed(owner: str, person: str, now: datetime, after: int) -> Draft:
    """Return the line by which a person claims an owner's name that nobody has."""
    return _owner_named("owner_claimed", owner, person, now, after)


def owner_assigned(owner: str, person: str, now: datetime, after: int) -> Draft:
    """Return the line by which a payer assigns an owner's name to a person."""
    return _owner_named("owner_assigned", owner, person, now, after)


def _owner_named(kind: str, owner: str, person: str, now: datetime, after: int) -> Draft:
    body = bodies.OwnerNamed(owner=owner, person=person)
    return _line(kind, "people", body, now, f"{tag_value(owner) or owner}:{after}")


def team_set(members: str, payers: str, now: datetime, after: int) -> Draft:
    """Return the line that makes the ledger a team's, with the database roles of members and payers."""
    return _line("team_set", "team", bodies.TeamSet(members=members, payers=payers), now, after + 1)


# -- the ledger


def ledger_opened(ledger: str, now: datetime) -> Draft:
    """Return the first line of a ledger."""
    return Draft("ledger_opened", "ledger", bodies.LedgerOpened(ledger=ledger, format=FORMAT), now, "ledger_opened")


def ledger_doubted(why: str, seq: int, now: datetime) -> Draft:
    """Return the line that the ledger may lack lines before `seq`; 0: how many is not known."""
    return Draft(
        "ledger_doubted", "ledger", bodies.LedgerDoubted(why=why, seq=seq), now, f"doubt:{seq or why}:{iso(now)}"
    )


def ledger_restored(why: str, seq: int, head_hash: str, now: datetime) -> Draft:
    """Return the line that the ledger is a restored copy that ends with line `seq` of this hash, and may lack lines."""
    return Draft(
        "ledger_doubted",
        "ledger",
        bodies.LedgerDoubted(why=why, seq=seq),
        now,
        f"restored:{head_hash}:{now.timestamp()}",
    )


def ledger_settled(found: str | None, why: str, now: datetime, after: int) -> Draft:
    """Return the line that the ledger counts as complete again; `found` is the problem that was resolved."""
    return _line("ledger_settled", "ledger", bodies.LedgerSettled(found=found, why=why), now, after + 1)


def ledger_moved(to: str, goes_on: str, now: datetime, after: int) -> Draft:
    """Return the last line of a ledger that continues at `to`; `goes_on` is the hash of its next line there."""
    return _line("ledger_moved", "ledger", bodies.LedgerMoved(to=to, goes_on=goes_on), now, after + 1)


def ledger_moving(came_from: str, to: str, now: datetime, after: int) -> Draft:
    """Return the line after the copy of a ledger that is being moved to `to`: only its arrival may follow."""
    body: bodies.LedgerMoving = {"from": came_from, "to": to}
    return _line("ledger_moving", "ledger", body, now, after + 1)


def ledger_arrived(came_from: str, now: datetime, after: int) -> Draft:
    """Return the line that a moved ledger is in use at its new location."""
    body: bodies.LedgerArrived = {"from": came_from}
    return _line("ledger_arrived", "ledger", body, now, after + 1)
