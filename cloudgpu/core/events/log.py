"""What can be written into the ledger: drafts, and the lines they become.

Every time inside a body is `times.iso` text; every amount is whole nano-dollars; nothing in a body is a secret.

kind                 subject  body
ledger_opened        ledger   ledger
launch_intended      machine  attempt seq token key request(fingerprint) name provider account region zone instance_type
                              market accelerators price on_demand(price, null: not known) max_price(nanos per hour)
                              owner project policy policy_by(who chose it) template expires renew_until renew_s
                              terms(the texts that it is under: home policy(place, null: published; text tz; null: a
                              shipped one) limits(of each: place text) price_jump)
                              stoppable(it can be stopped) parkable(its disk can be kept as an image) stop_means setup
                              licence(suse, rhel: the system's, where that changes how it is billed)
                              beside(what resource stored_as quantity per nanos nanos_per_month at_most why_at_most
                              running kept named(a volume, billed as a thing of its own) by_size source as_of basis)
launch_settled       machine  token outcome(made refused void) why
machine_adopted      machine  as launch_intended, read from tags; price may be null; why
                              `per` is hour, month or gb; `nanos` is for one of `quantity`, null: no price is known
instance_observed    machine  provider_id state billed since launched_at address reason expires renew_until
                              hold_until last_active alive_at(where it is billed no more, and nobody says since when;
                              or runs only since later than it ran before: when it was last known to be there)
                              billed_at(where its cloud tells since when it is billed no more: when it was last known
                              to be billed) asked_at(when we had asked for its end, where no other cause is told)
                              resized(it is of another type or market than before: instance_type market accelerators
                              prices(none: not known) on_demand after(when it was last seen to be as before))
instance_vanished    machine  provider_id proof alive_at(when it was last known to be there) ended_at(the cloud's word)
stop_asked           machine  why host(the computer on which it was)        start_asked, park_asked: the same
                              whose right(owner payer members pass: by which right; in a team alone, both)
start_refused        machine  why(a start that was asked has surely not begun)
end_refused          machine  asked(end or stop: what the provider refused, as something protects the machine) why next
end_asked            machine  why host failed(it never came up) whose right
kept_observed        machine  kept (what stays without the machine: id kind region zone size_gb stored_as made_at ready
                              nanos_per_month per nanos by_size why_at_most source as_of basis)
                              alive_at(where others removed something: when it was last known to be there)
price_observed       machine  price maybe_from on_demand; it occurred when the price began to hold
traffic_observed     machine  bytes_out since until counted(by the machine in all) stored_as nanos why_at_most
                              source as_of basis
thing_observed       thing    id kind name provider account region zone size_gb stored_as made_at ready owner project
                              attached_to nanos_per_month per nanos by_size why_at_most source as_of basis
thing_vanished       thing    id proof alive_at ended_at whose right(where somebody of a team has removed it)
terms_set            machine  terms (a file of the home that launched it says something else by now)
lease_set            machine  expires renew_until why host whose right
hold_set             machine  until(null: released) why host whose right
interruption_asked   machine  at
machine_shared       machine  key(fingerprint of the public key that was let in) label(whose it is) from(the network
                              that they connect from, null: no such rule) host_key(OpenSSH line that the machine showed
                              when it was shared) host whose right; holds until the next launch
machine_unshared     machine  key(null: every one) host whose right
decision_made        machine  do rule why activity at(when it would be ended if nothing changes, null: nothing says so)
                              host; written where do, rule, at or activity is not what it was
warning_given        machine  rule due(null: it is only told) why how(the ways it was told) host
warning_lifted       machine  rule why host
timer_set            machine  at(null: it has none any more) why
orphan_removed       either   what id why host
pass_ended           reaper   verb ok machines decided(do: how many) stopped warned unproved unanswered took_s host
                              cron sweep
scope_looked         scope    machines unanswered unseen(ids of what was not in the answer, though it is not known to
                              be gone) things(they were asked for, too) pinned(all prices were asked for)
alert_raised         alerts   key number(how often the key has appeared) kind title text facts urgent to(receivers)
alert_sent           alerts   receiver news(of each: key number)
alert_cleared        alerts   key number
budget_set           budgets  name nanos paid_in(amount code per_usd as_of source) period scope thresholds forecast
                              actions tz allow_override
budget_removed       budgets  name
budget_overridden    budgets  machine name reason passed(of each: name, nanos too much) host
policy_published     policies name(limits: those of the lab) text(YAML) tz(of schedules that name none)
policy_withdrawn     policies name
owner_claimed        people   owner person(the user of the database whose name this is; the line's own writer)
owner_assigned       people   owner person(as a payer says)
report_sent          reports  month receiver
team_set             team     members payers(the database's roles of those who write, and of those who decide)
account_forgotten    accounts account provider why host; it is asked no more unless it is configured, or used, again
account_renamed      accounts account region(the host that was renamed; null: the account) new identities why host
ledger_doubted       ledger   why seq
ledger_settled       ledger   found why
ledger_moved         ledger   to goes_on(the hash of its next line there); always the last line here
ledger_moving        ledger   from to; the copy is whole, and nothing but ledger_arrived follows
ledger_arrived       ledger   from
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

BUDGET_SET, BUDGET_REMOVED, BUDGET_OVERRIDDEN = "budget_set", "budget_removed", "budget_overridden"
LEDGER_MOVED, LEDGER_MOVING, LEDGER_ARRIVED = "ledger_moved", "ledger_moving", "ledger_arrived"
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


class Said(NamedTuple):
    """What a line says, without what proves it: all that a fold of a whole ledger reads, and quickly made."""

    seq: int
    occurred_at: str
    kind: str
    subject: str
    dedupe: str
    body: Mapping[str, Any]


Line = Event | Said
