"""All kinds of ledger lines, each with its subject and the type of its body."""

from __future__ import annotations

from dataclasses import dataclass

from cloudgpu.core.events import bodies, general_bodies, job_events

MACHINE, RESOURCE, EITHER = (
    "machine",
    "resource",
    "either",
)  # the subject of a line: the id of one of these (EITHER: of a machine or a resource), else a word like `budgets`


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of ledger line: its subject, and the type of its body."""

    subject: str
    body: type


KINDS = {
    "ledger_opened": Kind("ledger", general_bodies.LedgerOpened),
    "launch_intended": Kind(MACHINE, bodies.LaunchIntended),
    "launch_settled": Kind(MACHINE, bodies.LaunchSettled),
    "machine_adopted": Kind(MACHINE, bodies.MachineAdopted),
    "instance_observed": Kind(MACHINE, bodies.InstanceObserved),
    "instance_vanished": Kind(MACHINE, bodies.InstanceVanished),
    "stop_requested": Kind(MACHINE, bodies.Requested),
    "start_requested": Kind(MACHINE, bodies.StartRequested),
    "park_requested": Kind(MACHINE, bodies.Requested),
    "terminate_requested": Kind(MACHINE, bodies.TerminateRequested),
    "start_refused": Kind(MACHINE, bodies.StartRefused),
    "action_refused": Kind(MACHINE, bodies.ActionRefused),
    "resources_retained": Kind(MACHINE, bodies.ResourcesRetained),
    "price_observed": Kind(MACHINE, bodies.PriceObserved),
    "traffic_observed": Kind(MACHINE, bodies.TrafficObserved),
    "terms_set": Kind(MACHINE, bodies.TermsSet),
    "lease_set": Kind(MACHINE, bodies.LeaseSet),
    "hold_set": Kind(MACHINE, bodies.HoldSet),
    "interruption_simulated": Kind(MACHINE, bodies.InterruptionSimulated),
    "spot_interrupted": Kind(MACHINE, bodies.SpotInterrupted),
    "machine_shared": Kind(MACHINE, bodies.MachineShared),
    "machine_unshared": Kind(MACHINE, bodies.MachineUnshared),
    "decision_made": Kind(MACHINE, bodies.DecisionMade),
    "warning_sent": Kind(MACHINE, bodies.WarningSent),
    "warning_cleared": Kind(MACHINE, bodies.WarningCleared),
    "timer_set": Kind(MACHINE, bodies.TimerSet),
    "resource_observed": Kind(RESOURCE, bodies.ResourceObserved),
    "resource_vanished": Kind(RESOURCE, bodies.ResourceVanished),
    "orphan_removed": Kind(EITHER, bodies.OrphanRemoved),
    "reap_finished": Kind("reaper", general_bodies.ReapFinished),
    "account_synced": Kind("scope", general_bodies.AccountSynced),
    "alert_raised": Kind("alerts", general_bodies.AlertRaised),
    "alert_sent": Kind("alerts", general_bodies.AlertSent),
    "alert_cleared": Kind("alerts", general_bodies.AlertCleared),
    "budget_set": Kind("budgets", general_bodies.BudgetSet),
    "budget_removed": Kind("budgets", general_bodies.BudgetRemoved),
    "budget_overridden": Kind("budgets", general_bodies.BudgetOverridden),
    "policy_published": Kind("policies", general_bodies.PolicyPublished),
    "policy_withdrawn": Kind("policies", general_bodies.PolicyWithdrawn),
    "owner_claimed": Kind("people", general_bodies.OwnerNamed),
    "owner_assigned": Kind("people", general_bodies.OwnerNamed),
    "report_sent": Kind("reports", general_bodies.ReportSent),
    "team_set": Kind("team", general_bodies.TeamSet),
    "account_forgotten": Kind("accounts", general_bodies.AccountForgotten),
    "account_renamed": Kind("accounts", general_bodies.AccountRenamed),
    "ledger_doubted": Kind("ledger", general_bodies.LedgerDoubted),
    "ledger_settled": Kind("ledger", general_bodies.LedgerSettled),
    "ledger_moved": Kind("ledger", general_bodies.LedgerMoved),
    "ledger_moving": Kind("ledger", general_bodies.LedgerMoving),
    "ledger_arrived": Kind("ledger", general_bodies.LedgerArrived),
    "job_requested": Kind("jobs", job_events.JobRequested),
    "job_placed": Kind("jobs", job_events.JobPlaced),
    "job_machine": Kind("jobs", job_events.JobMachine),
    "job_began": Kind("jobs", job_events.JobBegan),
    "job_progressed": Kind("jobs", job_events.JobProgressed),
    "job_work_saved": Kind("jobs", job_events.JobWorkSaved),
    "job_move_requested": Kind("jobs", job_events.JobMoveRequested),
    "job_try_ended": Kind("jobs", job_events.JobTryEnded),
    "job_ended": Kind("jobs", job_events.JobEnded),
    "job_cancel_requested": Kind("jobs", job_events.JobCancelRequested),
    "job_results_fetched": Kind("jobs", job_events.JobResultsFetched),
    "job_resumed": Kind("jobs", job_events.JobResumed),
    "job_waits": Kind("jobs", job_events.JobWaits),
    "job_gang_refused": Kind("jobs", job_events.JobGangRefused),
    "job_in_slurm": Kind("jobs", job_events.JobInSlurm),
    "slurm_job_recorded": Kind("jobs", job_events.SlurmJobRecorded),
    "job_closed": Kind("jobs", job_events.JobClosed),
}
