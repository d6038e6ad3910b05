"""Every kind of line that a ledger can hold: what its subject is, and the type of its body."""

from __future__ import annotations

from dataclasses import dataclass

from cloudgpu.core.events import bodies, lab_bodies

MACHINE, THING, EITHER = "machine", "thing", "either"  # the subject is one of these, or of the lab


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind of line is about, and the type of its body."""

    subject: str
    body: type


KINDS = {
    "ledger_opened": Kind("ledger", lab_bodies.LedgerOpened),
    "launch_intended": Kind(MACHINE, bodies.LaunchIntended),
    "launch_settled": Kind(MACHINE, bodies.LaunchSettled),
    "machine_adopted": Kind(MACHINE, bodies.MachineAdopted),
    "instance_observed": Kind(MACHINE, bodies.InstanceObserved),
    "instance_vanished": Kind(MACHINE, bodies.InstanceVanished),
    "stop_asked": Kind(MACHINE, bodies.AskedFor),
    "start_asked": Kind(MACHINE, bodies.AskedFor),
    "park_asked": Kind(MACHINE, bodies.AskedFor),
    "end_asked": Kind(MACHINE, bodies.EndAsked),
    "start_refused": Kind(MACHINE, bodies.StartRefused),
    "end_refused": Kind(MACHINE, bodies.EndRefused),
    "kept_observed": Kind(MACHINE, bodies.KeptObserved),
    "price_observed": Kind(MACHINE, bodies.PriceObserved),
    "traffic_observed": Kind(MACHINE, bodies.TrafficObserved),
    "terms_set": Kind(MACHINE, bodies.TermsSet),
    "lease_set": Kind(MACHINE, bodies.LeaseSet),
    "hold_set": Kind(MACHINE, bodies.HoldSet),
    "interruption_asked": Kind(MACHINE, bodies.InterruptionAsked),
    "machine_shared": Kind(MACHINE, bodies.MachineShared),
    "machine_unshared": Kind(MACHINE, bodies.MachineUnshared),
    "decision_made": Kind(MACHINE, bodies.DecisionMade),
    "warning_given": Kind(MACHINE, bodies.WarningGiven),
    "warning_lifted": Kind(MACHINE, bodies.WarningLifted),
    "timer_set": Kind(MACHINE, bodies.TimerSet),
    "thing_observed": Kind(THING, bodies.ThingObserved),
    "thing_vanished": Kind(THING, bodies.ThingVanished),
    "orphan_removed": Kind(EITHER, bodies.OrphanRemoved),
    "pass_ended": Kind("reaper", lab_bodies.PassEnded),
    "scope_looked": Kind("scope", lab_bodies.ScopeLooked),
    "alert_raised": Kind("alerts", lab_bodies.AlertRaised),
    "alert_sent": Kind("alerts", lab_bodies.AlertSent),
    "alert_cleared": Kind("alerts", lab_bodies.AlertCleared),
    "budget_set": Kind("budgets", lab_bodies.BudgetSet),
    "budget_removed": Kind("budgets", lab_bodies.BudgetRemoved),
    "budget_overridden": Kind("budgets", lab_bodies.BudgetOverridden),
    "policy_published": Kind("policies", lab_bodies.PolicyPublished),
    "policy_withdrawn": Kind("policies", lab_bodies.PolicyWithdrawn),
    "owner_claimed": Kind("people", lab_bodies.OwnerNamed),
    "owner_assigned": Kind("people", lab_bodies.OwnerNamed),
    "report_sent": Kind("reports", lab_bodies.ReportSent),
    "team_set": Kind("team", lab_bodies.TeamSet),
    "account_forgotten": Kind("accounts", lab_bodies.AccountForgotten),
    "account_renamed": Kind("accounts", lab_bodies.AccountRenamed),
    "ledger_doubted": Kind("ledger", lab_bodies.LedgerDoubted),
    "ledger_settled": Kind("ledger", lab_bodies.LedgerSettled),
    "ledger_moved": Kind("ledger", lab_bodies.LedgerMoved),
    "ledger_moving": Kind("ledger", lab_bodies.LedgerMoving),
    "ledger_arrived": Kind("ledger", lab_bodies.LedgerArrived),
}
