"""How each provider bills each resource: granularity, minimum, month's length, and what is free, with its source.

By these rules, a usage is billed from when to when, and at which price at each moment: all in microseconds.
docs/billing.md shows the table; tests/core/billing/test_rules.py holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from cloudgpu.core.model.usage import Per, Resource, Usage
from cloudgpu.core.values.money import HOUR_MICROS
from cloudgpu.core.values.times import EPOCH, HOUR, from_iso

SECOND_US = 1_000_000  # microseconds
MINUTE_US = 60 * SECOND_US
ANY = "*"
GB = 10**9  # bytes
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Rule:
    """How a resource is billed. Lengths are microseconds.

    `granularity_us` is the billing increment, billed whole once started; `minimum_us` is the least that a run is
    billed. `month_hours` is the length of a month that a price per month is for; None: that of the calendar's month, in
    UTC. `gb_bytes` is what a GB of traffic is. `states` says when it is billed. `licence` is the system's, where that
    changes the rule. A run that the provider interrupts within `free_if_interrupted_us` of its start is free (0: no
    such rule); of a machine that is started again, that is certain only with `free_every_run`.
    `drops_part_if_interrupted`: the increment in which it was interrupted is free. Where sources disagree or are
    silent, `maybe_...` is the more expensive or the other reading: charges show it as a range. `from_running`: a
    machine that is only starting is not billed; `maybe_starting`: a part of that time is, and a sync cannot tell which.
    `status` is `verified` (the provider's own text), `secondary` (others' texts), `derived`, `unverified` (from memory)
    or `convention` (ours).
    """

    provider: str
    market: str
    resource: str
    granularity_us: int
    minimum_us: int
    month_hours: int | None
    states: str
    source: str
    as_of: str
    status: str
    licence: str = ""
    free_if_interrupted_us: int = 0
    free_every_run: bool = False
    drops_part_if_interrupted: bool = False
    maybe_granularity_us: int = 0
    maybe_minimum_us: int = 0
    maybe_month_hours: int = 0
    gb_bytes: int = GB
    from_running: bool = False
    maybe_starting: bool = False

    def billed_us(self, run_us: int, *, interrupted: bool) -> int:
        """Return how long a run of this length is billed for; `interrupted`: the provider ended it."""
        granule = self.granularity_us
        if interrupted and self.drops_part_if_interrupted:
            return max(0, run_us) // granule * granule
        return max(self.minimum_us, _round_up(run_us, granule))

    def max_billed_us(self, run_us: int, *, interrupted: bool) -> int:
        """Return how long it is billed for by the more expensive reading of the sources; never below `billed_us`."""
        rounded_up = _round_up(run_us, max(self.granularity_us, self.maybe_granularity_us))
        billed = self.billed_us(run_us, interrupted=interrupted)
        is_uncertain = self.maybe_granularity_us or self.maybe_minimum_us
        return max(billed, self.maybe_minimum_us, rounded_up) if is_uncertain else billed

    def why_free(self, usage: Usage, run_us: int) -> str:
        """Return why this run is free, empty where it is not; `run_us` is how long it may have run, not rounded."""
        return _IS_FREE if self._ended_early(usage, run_us) and (usage.first or self.free_every_run) else ""

    def why_maybe_free(self, usage: Usage, run_us: int) -> str:
        """Return why this run, that is not free for sure, may be free; `run_us` is how short it may have been."""
        if not self._ended_early(usage, run_us):
            return ""
        return _MAYBE_FREE_DURATION if usage.first or self.free_every_run else _MAYBE_FREE_RESTART

    def _ended_early(self, usage: Usage, run_us: int) -> bool:
        return usage.reason == "interrupted" and usage.end is not None and run_us < self.free_if_interrupted_us


_IS_FREE = "free: the provider interrupted it soon after its start"
_MAYBE_FREE_DURATION = "it may be free: how soon after its start it was interrupted is not known"
_MAYBE_FREE_RESTART = "it may be free: it was interrupted soon after a start that may not be its first"


def _round_up(run_us: int, granule: int) -> int:
    return -(-max(0, run_us) // granule) * granule


def rule_for(usage: Usage) -> Rule:
    """Return the rule by which a usage is billed."""
    return rule_of(usage.provider, usage.market, usage.resource, usage.licence)


@cache
def rule_of(provider: str, market: str, resource: str, licence: str = "") -> Rule:
    """Return the rule by which a provider bills a resource; the rule for plug-ins if cloudgpu has none for it."""
    fitting = (rule for rule in RULES if rule.provider in (provider, ANY))
    fitting = (rule for rule in fitting if rule.market in (market, ANY) and rule.resource in (resource, ANY))
    return next(rule for rule in fitting if rule.licence in ("", licence))


_EC2_STATES = "running; not pending, stopping, stopped, shutting-down, terminated"
_EC2_SPOT = "EC2 user guide, Billing for interrupted Spot Instances; whitepaper How Spot Instances Work"
_GCE_STATES = (
    "RUNNING and STOPPING; not PROVISIONING, STAGING, TERMINATED (stopped); SUSPENDED: its memory at a price that is "
    "not in the catalogue"
)
_AZURE_STATES = (
    "Starting, Running, Stopping, Stopped (shut down, not deallocated); not Creating, Deallocating, Deallocated"
)
_ALWAYS = "from its making to its removal, whatever the machine does"
_GCE_MONTH = (
    "the Billing Catalog's factors: 2,505,600 s for a month in 2020-02 (29 days), 2,678,400 s in 2020-10 (31 days)"
)

RULES = (
    Rule(
        "aws", ANY, Resource.INSTANCE, HOUR_MICROS, HOUR_MICROS, None, _EC2_STATES, _EC2_SPOT, "2026", "verified",
        licence="suse", free_if_interrupted_us=HOUR_MICROS, drops_part_if_interrupted=True, from_running=True,
    ),
    Rule(
        "aws", "spot", Resource.INSTANCE, SECOND_US, MINUTE_US, None, _EC2_STATES,
        f"{_EC2_SPOT}; one version of the page bills RHEL by the hour, the newest does not", "2026",
        "verified; RHEL: sources disagree", licence="rhel", free_if_interrupted_us=HOUR_MICROS,
        maybe_granularity_us=HOUR_MICROS, from_running=True,
    ),
    Rule(
        "aws", ANY, Resource.INSTANCE, SECOND_US, MINUTE_US, None, _EC2_STATES,
        "EC2 on-demand pricing; versions of the EC2 user guide disagree on RHEL", "2026",
        "verified; RHEL: sources disagree", licence="rhel", maybe_granularity_us=HOUR_MICROS, from_running=True,
    ),
    Rule(
        "aws", "spot", Resource.INSTANCE, SECOND_US, MINUTE_US, None, _EC2_STATES, _EC2_SPOT, "2026", "verified",
        free_if_interrupted_us=HOUR_MICROS, from_running=True,
    ),
    Rule(
        "aws", ANY, Resource.INSTANCE, SECOND_US, MINUTE_US, None, _EC2_STATES,
        "What's New 2017-10-02, Amazon EC2 per-second billing; API reference of StopInstances; "
        "EC2 user guide, Instance lifecycle", "2026", "verified", from_running=True,
    ),
    Rule(
        "aws", ANY, Resource.DISK, SECOND_US, MINUTE_US, None, _ALWAYS,
        "EBS pricing (per second, 60 s; its examples divide by the days of their month); "
        "Knowledge Center, EBS volume charges: 744 hours are a GB-month in a month of 31 days", "2025", "verified",
    ),
    Rule(
        "aws", ANY, Resource.SNAPSHOT, HOUR_MICROS, HOUR_MICROS, None, _ALWAYS,
        "What's New 2017-10-02: EBS snapshots are still billed by the hour; EBS pricing, example 7", "2025", "verified",
    ),
    Rule(
        "aws", ANY, Resource.IMAGE, HOUR_MICROS, HOUR_MICROS, None, _ALWAYS,
        "an AMI is billed as the snapshots of which it is made: as those", "2025", "verified",
    ),
    Rule(
        "aws", ANY, Resource.ADDRESS, SECOND_US, 0, None,
        "an automatic one while the machine runs; an Elastic IP until it is released",
        "EC2 on-demand pricing (per hour, pro rata); blog on public IPv4, since 2024-02-01",
        "2024-02-01", "secondary",
    ),
    Rule(
        "aws", ANY, Resource.TRAFFIC, 1, 0, None, "once, when it leaves the region",
        "EC2 on-demand pricing, data transfer; that a GB is 10^9 bytes is the costlier reading", "2024-07",
        "unverified",
    ),
    Rule(
        "gcp", "spot", Resource.INSTANCE, SECOND_US, MINUTE_US, None, _GCE_STATES,
        "Compute Engine, VM instance pricing; preempted in the first minute after a start: no charge "
        "(public copies of the page on Spot VMs)", "2024", "verified; the free minute: secondary",
        free_if_interrupted_us=MINUTE_US, free_every_run=True, from_running=True,
    ),
    Rule(
        "gcp", ANY, Resource.INSTANCE, SECOND_US, MINUTE_US, None, _GCE_STATES,
        "Compute Engine, VM instance pricing: at least 1 minute, then by the second", "2024-26", "verified",
        from_running=True,
    ),
    Rule(
        "gcp", ANY, Resource.DISK, SECOND_US, 0, None, _ALWAYS,
        f"Compute Engine, Disk and image pricing: prorated by seconds; month: {_GCE_MONTH}", "2025",
        "verified; month: derived",
    ),
    Rule(
        "gcp", ANY, Resource.SNAPSHOT, SECOND_US, 0, None, _ALWAYS,
        "Compute Engine, Disk and image pricing: prorated by seconds; month as disks", "2025",
        "verified; month: derived",
    ),
    Rule(
        "gcp", ANY, Resource.IMAGE, SECOND_US, 0, None, _ALWAYS, "as snapshots", "2025", "unverified",
    ),
    Rule(
        "gcp", ANY, Resource.ADDRESS, SECOND_US, 0, None,
        "an ephemeral one while the machine runs; a static one until it is released",
        "VPC pricing, per hour; that parts of an hour count as such is unverified", "2026-04", "unverified",
    ),
    Rule(
        "gcp", ANY, Resource.TRAFFIC, 1, 0, None, "once, when it leaves the zone",
        "Compute Engine, VM instance pricing: network usage is in GiB", "2024", "verified", gb_bytes=GIB,
    ),
    Rule(
        "azure", ANY, Resource.INSTANCE, SECOND_US, 0, None, _AZURE_STATES,
        "Microsoft Learn, States and billing status; by the second: others' texts, of which one has a minimum of 60 s "
        "and one has none", "2025", "verified; the second: secondary; the minimum: sources disagree",
        maybe_minimum_us=MINUTE_US, from_running=True, maybe_starting=True,
    ),
    Rule(
        "azure", ANY, Resource.DISK, HOUR_MICROS, HOUR_MICROS, None, _ALWAYS,
        "Microsoft Learn, Managed disk types: prorated hourly by the monthly price of the size; that a month is the "
        "calendar's is unverified, Microsoft's estimates use 730 hours", "2025", "verified; month: unverified",
        maybe_month_hours=730,
    ),
    Rule(
        "azure", ANY, Resource.SNAPSHOT, HOUR_MICROS, HOUR_MICROS, None, _ALWAYS,
        "Microsoft Learn, Understand Azure Disk Storage billing: for the used size; by the hour as disks", "2025",
        "verified; hour and month: unverified", maybe_month_hours=730,
    ),
    Rule(
        "azure", ANY, Resource.IMAGE, HOUR_MICROS, HOUR_MICROS, None, _ALWAYS, "as snapshots", "2025", "unverified",
        maybe_month_hours=730,
    ),
    Rule(
        "azure", ANY, Resource.ADDRESS, HOUR_MICROS, HOUR_MICROS, None, "a static one until it is removed",
        "IP address pricing, per hour; that a started hour counts whole is unverified", "2026-04", "unverified",
    ),
    Rule(
        "azure", ANY, Resource.TRAFFIC, 1, 0, None, "once, when it leaves the region",
        "Bandwidth pricing; that a GB is 10^9 bytes is the costlier reading", "2019-04", "unverified",
    ),
    Rule(
        "runpod", ANY, Resource.INSTANCE, SECOND_US, 0, None, "from the creation to a stop; not EXITED, TERMINATED",
        "RunPod docs, Pods, Pricing: by the second; not charged while the host is down", "2026-08", "verified",
    ),
    Rule(
        "runpod", ANY, Resource.DISK, SECOND_US, 0, None,
        "the container disk while the pod runs; /workspace always, at twice the price while the pod is stopped",
        "RunPod docs, Pods, Pricing: by the second, prices a month; that a month is the calendar's is unverified",
        "2026-08", "verified; month: unverified", maybe_month_hours=730,
    ),
    Rule(
        "vast", ANY, Resource.INSTANCE, SECOND_US, 0, None,
        "while the container runs; not while it loads, is stopped, or its host is offline",
        "vast.ai's guide to billing: GPUs by the second while running; that loading is free is unverified", "2026-08",
        "verified; loading: unverified", from_running=True,
    ),
    Rule(
        "vast", ANY, Resource.DISK, SECOND_US, 0, None,
        "from the contract's making to its end, stopped too; not while its host is offline, which is not taken off",
        "vast.ai's guide to billing: storage by the second for as long as the contract exists and its host is online; "
        "it does not give the length of a month", "2026-08", "verified; month: unverified", maybe_month_hours=730,
    ),
    Rule(
        "vast", ANY, Resource.TRAFFIC, 1, 0, None, "both ways, in any state",
        "vast.ai's guide to billing: bandwidth per byte; that a GB is 10^9 bytes is the costlier reading", "2026-08",
        "verified; GB: unverified",
    ),
    Rule(
        "lambda", ANY, Resource.INSTANCE, MINUTE_US, 0, None,
        "active, unhealthy, terminating; not booting, terminated: a shutdown from inside ends nothing",
        "Lambda documentation, On-Demand Cloud billing: by the minute, no minimum; that a started minute counts whole, "
        "and that a machine is billed while it is terminating, is the costlier reading", "2024-10",
        "secondary; rounding and terminating: unverified", from_running=True,
    ),
    Rule(
        "lambda", ANY, Resource.TRAFFIC, 1, 0, None, "never: traffic costs nothing",
        "Lambda's price page as quoted in public: no egress fees", "2026-09-20", "secondary",
    ),
    Rule(
        "local", ANY, ANY, 1, 0, None, "while cloudgpu runs on it", "your own computer: nobody sends a bill", "",
        "convention",
    ),
    Rule(
        "ssh", ANY, ANY, 1, 0, None, "while cloudgpu runs on it", "your own computer: nobody sends a bill", "",
        "convention",
    ),
    Rule(
        ANY, ANY, ANY, 1, 0, 730, "what the plug-in says is billed",
        "a provider that is none of ours: to the microsecond, a month of 730 hours", "", "convention",
    ),
)  # fmt: skip


# Hours of a month are 672, 696, 720, 744 (28 to 31 days) or 730: this many parts of a nano-dollar-hour divide by all.
PARTS_PER_NANO_HOUR = 661_520_160
PARTS_PER_NANO = PARTS_PER_NANO_HOUR * HOUR_MICROS  # parts of a nano-dollar in which amounts are exact
DAY_US = 24 * HOUR_MICROS
FAR_FUTURE_US = 2**62  # later than any time that can be written
RateInterval = tuple[int, int, int]  # (begin, end, exact parts per microsecond), in microseconds since 1970
MAX_CLOCK_DIFFERENCE_US = 5 * MINUTE_US  # a price recorded up to this long after a start holds since the start


def to_us(moment: datetime) -> int:
    """Return whole microseconds since 1970."""
    since = moment - EPOCH  # a division by MICRO takes twice as long, and a report makes hundreds of thousands
    return (since.days * 86_400 + since.seconds) * SECOND_US + since.microseconds


def parse_us(text: str) -> int:
    """Return a ledger time as whole microseconds since 1970."""
    return to_us(from_iso(text))


@dataclass(frozen=True, slots=True)
class BilledSpan:
    """When a usage is billed: from `begin` to `end`, certainly within the certain ones, at most `earliest` to `latest`.

    Times are microseconds since 1970. `run` is its known length in microseconds, `shortest_run` and `longest_run` its
    bounds.
    """

    earliest: int
    begin: int
    certain_begin: int
    certain_end: int
    end: int
    latest: int
    run: int
    shortest_run: int
    longest_run: int


def span_of(usage: Usage, rule: Rule, now: int) -> BilledSpan:
    """Return from when to when a usage is billed by its rule, in microseconds since 1970."""
    begin = parse_us(usage.begin)
    earliest = begin if usage.maybe_since is None else min(begin, parse_us(usage.maybe_since))
    stop = max(begin, now if usage.end is None else parse_us(usage.end))
    last = stop if usage.maybe_until is None else max(stop, parse_us(usage.maybe_until))
    certain = begin if usage.sure_from is None else min(stop, max(begin, parse_us(usage.sure_from)))
    interrupted = usage.reason == "interrupted" and usage.end is not None
    if usage.continues is not None:
        return _continued(usage, rule, (begin, stop, last))
    end = begin + rule.billed_us(stop - begin, interrupted=interrupted)
    certain_end = min(end, certain + rule.billed_us(stop - certain, interrupted=interrupted))
    latest = max(end, earliest + rule.max_billed_us(last - earliest, interrupted=interrupted))
    return BilledSpan(
        earliest, begin, min(certain, end), certain_end, end, latest, stop - begin, stop - certain, last - earliest
    )


def _continued(usage: Usage, rule: Rule, times: tuple[int, int, int]) -> BilledSpan:
    """Return the billed interval of a usage that continues an earlier one.

    Both are rounded up together, once; what is billed already is not billed again.
    """
    begin, stop, last = times
    origin = parse_us(usage.continues or usage.begin)
    billed_to = origin + rule.billed_us(begin - origin, interrupted=False)
    end = max(billed_to, origin + rule.billed_us(stop - origin, interrupted=False))
    latest = max(end, origin + rule.max_billed_us(last - origin, interrupted=False))
    return BilledSpan(billed_to, billed_to, billed_to, end, end, latest, stop - begin, stop - begin, last - begin)


def price_pieces(usage: Usage, begin: int, end: int, bound: int) -> Iterator[tuple[int, int, int]]:
    """Cut an interval where the price changed, or may have; the first price also holds for the time before it.

    Where the price is uncertain, `bound` -1 takes the lowest, 0 the expected, 1 the highest.
    """
    segments = usage.segments
    starts = [begin] + [min(end, max(begin, parse_us(segment.at))) for segment in segments[1:]] + [end]
    if bound and is_price_guessed(usage, parse_us(usage.begin)):
        known_from = min(end, max(begin, parse_us(segments[0].at)))
        yield begin, known_from, max(segments[0].nanos, usage.on_demand or 0) if bound > 0 else 0
        starts = [max(known_from, start) for start in starts]
    for number, segment in enumerate(segments):
        first, last = starts[number], starts[number + 1]
        next_segment = segments[number + 1] if bound and number + 1 < len(segments) else None
        if next_segment is not None and next_segment.maybe_from is not None:
            uncertain_from = min(last, max(first, parse_us(next_segment.maybe_from)))
            prices = (segment.nanos, next_segment.nanos)
            yield uncertain_from, last, max(prices) if bound > 0 else min(prices)
            last = uncertain_from
        yield first, last, segment.nanos


def is_price_guessed(usage: Usage, begin: int) -> bool:
    """Say whether a spot machine ran before its first known price: its price is a guess until then."""
    spot = usage.market == "spot" and usage.resource is Resource.INSTANCE
    return spot and parse_us(usage.segments[0].at) > begin + MAX_CLOCK_DIFFERENCE_US


def intervals_of(usage: Usage, rule: Rule, piece: tuple[int, int, int], bound: int) -> Iterator[tuple[int, int, int]]:
    """Yield a piece as (begin, end, exact parts per microsecond), cut at the months where its price is per month."""
    begin, end, nanos = piece
    if begin >= end:
        return
    rate = usage.quantity * nanos
    if usage.per is Per.HOUR:
        yield begin, end, rate * PARTS_PER_NANO_HOUR
    else:
        yield from ((first, last, rate * parts) for first, last, parts in _in_months(rule, begin, end, bound))


def _in_months(rule: Rule, begin: int, end: int, bound: int) -> Iterator[tuple[int, int, int]]:
    """Cut an interval at the months, each with the exact parts that a microsecond of it is of a price per month."""
    if rule.month_hours is not None:
        yield begin, end, PARTS_PER_NANO_HOUR // rule.month_hours
        return
    maybe_hours = rule.maybe_month_hours if bound else 0
    for first, last, hours in in_months(begin, end):
        if maybe_hours:
            hours = min(hours, maybe_hours) if bound > 0 else max(hours, maybe_hours)  # noqa: PLW2901
        yield first, last, PARTS_PER_NANO_HOUR // hours


def in_months(begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Cut an interval at the months of UTC, each with its hours."""
    while begin < end:
        last, hours = _month_of(begin // DAY_US)
        yield begin, min(end, last), hours
        begin = last


@cache
def _month_of(day: int) -> tuple[int, int]:
    """Return when the month of a day ends, and how many hours it has; days are counted from 1970 on, in UTC."""
    first = (EPOCH + timedelta(days=day)).replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    return to_us(following), (following - first) // HOUR


def intervals_cost(intervals: Iterable[RateInterval], begin: int, end: int) -> int:
    """Return what rate intervals cost within [begin, end), in exact parts."""
    total = 0
    for first, last, rate in intervals:
        first, last = max(first, begin), min(last, end)  # noqa: PLW2901  (the inner loop of every admission)
        if first < last:
            total += (last - first) * rate
    return total
