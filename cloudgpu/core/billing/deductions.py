"""What comes off a bill: credits, day by day, and Google's sustained use discount, month by month. Both estimates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from cloudgpu.core.billing.charges import billed_span, charge, money
from cloudgpu.core.billing.discounts import AfterCredits, Credit, CreditUse, Spent, credits_used
from cloudgpu.core.billing.sustained_use import Discount, may_count, sustained_use
from cloudgpu.core.billing.totals import billed
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.usage import Usage
from cloudgpu.core.values.periods import periods
from cloudgpu.core.values.times import from_iso, iso

Ended = Callable[[datetime | None], Iterable[tuple[str, Usage]]]


def after_credits(
    given: Sequence[Credit],
    machines: Sequence[Machine],
    ended: Ended,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
) -> AfterCredits:
    """Return what credits take off what was spent in [`since`, `until`), and what is left of each at its end.

    What was spent before uses them up first. Days are those of UTC. `ended` gives the uses that ended since a time.
    """
    spent = list(_spent(machines, ended(None), now, until))
    whole = credits_used(given, spent)
    if since is None:
        return whole
    earlier = credits_used(given, list(_spent(machines, ended(None), now, since)))
    pairs = zip(whole.uses, earlier.uses, strict=True)
    uses = tuple(CreditUse(one.credit, one.used - before.used, one.left) for one, before in pairs)
    return AfterCredits(whole.before - earlier.before, whole.after - earlier.after, uses)


def _spent(
    machines: Sequence[Machine], ended: Iterable[tuple[str, Usage]], now: datetime, until: datetime | None
) -> Iterator[Spent]:
    """Yield what each account spent on each day of UTC, before `until`."""
    known = {machine.id: machine for machine in machines}
    sums: dict[tuple[str, str, datetime], int] = defaultdict(int)
    for machine, use in (*((known[subject], use) for subject, use in ended), *_running(machines)):
        first, last = billed_span(use, now)
        last = last if until is None else min(last, until)
        for day in periods("day", first, last, UTC) if first <= last else ():
            end = day.end if until is None else min(day.end, until)
            sums[use.provider, machine.account or "", day.begin] += charge(use, now, since=day.begin, until=end).amount
    for (provider, account, at), amount in sums.items():
        yield Spent(provider, account, at, money(amount))


def _running(machines: Iterable[Machine]) -> Iterator[tuple[Machine, Usage]]:
    return ((machine, use) for machine in machines for use in machine.open_usage)


def sustained(
    machines: Sequence[Machine],
    ended: Ended,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Discount]:
    """Return the sustained use discounts of every month of UTC that lies whole in [`since`, `until`), or up to now.

    A month that the period cuts has none here: what it gets off depends on all of it. Without a machine of Google's,
    no use is read.
    """
    began = [from_iso(machine.first_at) for machine in machines if machine.provider == "gcp"]
    if not began:
        return []
    first = max(filter(None, (min(began), since)))
    known = [one for one in ended(first) if may_count(one[1])]  # read once: a ledger has many uses, and many months
    there = [
        machine._replace(open_usage=tuple([use for use in machine.open_usage if may_count(use)]))
        for machine in machines
    ]
    found: list[Discount] = []
    for month in periods("month", first, min(filter(None, (until, now))), UTC):
        over = until is not None and until < month.end and until < now
        if not over and (since is None or since <= month.begin):
            bill = billed(there, _within(known, month.begin, month.end), now, since=month.begin, until=month.end)
            found += sustained_use(bill, month.begin)
    return found


def _within(known: Iterable[tuple[str, Usage]], begin: datetime, end: datetime) -> list[tuple[str, Usage]]:
    """Return the uses of which anything may be billed in a period; what is rounded up goes on for less than a day."""
    first, last = iso(begin - timedelta(days=1)), iso(end)
    return [
        one for one in known if one[1].begin < last and max(not_none(one[1].end), one[1].maybe_until or "") >= first
    ]
