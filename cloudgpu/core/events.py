"""What can be written into the ledger: drafts, and the lines they become.

Every time inside a body is `times.iso` text; every amount is whole nano-dollars; nothing in a body is a secret.

kind                 subject  body
ledger_opened        ledger   ledger
launch_intended      machine  attempt seq token key request(fingerprint) name provider account region zone instance_type
                              market accelerators price owner project policy template expires renew_until renew_s
                              stoppable stop_means setup beside(what nanos_per_month at_most running kept)
launch_settled       machine  token outcome(made refused void) why
machine_adopted      machine  as launch_intended, read from tags; price may be null; why
instance_observed    machine  provider_id state billed since launched_at address reason expires renew_until
                              hold_until last_active
instance_vanished    machine  provider_id proof
stop_asked           machine  why        start_asked, end_asked, park_asked: the same
kept_observed        machine  kept (what stays without the machine: id kind region zone size_gb stored_as made_at ready
                              nanos_per_month)
price_observed       machine  price
lease_set            machine  expires renew_until why
hold_set             machine  until(null: released) why
interruption_asked   machine  at
scope_looked         scope    machines unanswered
ledger_doubted       ledger   why seq
ledger_settled       ledger   found why
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

OWN = "own"  # this client's clock
PROVIDER = "provider"  # the provider's word
MACHINE = "machine"  # the machine's own clock


@dataclass(frozen=True, slots=True)
class Draft:
    """A line before it is in the ledger. The same `dedupe` is written once, whoever tries again."""

    kind: str
    subject: str
    body: Mapping[str, Any]
    occurred_at: datetime
    dedupe: str
    clock: str = OWN


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the ledger. `seq` starts at 1 and has no holes; `prev_hash` is the hash of the line before."""

    seq: int
    occurred_at: str
    clock: str
    recorded_at: str
    actor: str
    kind: str
    subject: str
    dedupe: str
    prev_hash: str
    body: Mapping[str, Any]
