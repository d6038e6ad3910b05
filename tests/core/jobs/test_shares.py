"""The bill of machines by job: rows add up to the machines' bill exactly, whoever ran on what, and when."""

from __future__ import annotations

from datetime import UTC, timedelta

from hypothesis import given, settings, strategies as st

from cloudgpu.core.billing.assignments import charges_by_key, cut_times
from cloudgpu.core.billing.charges import charge, money, period_charges
from cloudgpu.core.billing.cost_groups import CostQuery, Grouping, costs
from cloudgpu.core.billing.line_items import line_items
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.jobs.shares import (
    IDLE,
    SHARED,
    job_cost,
    launched_for,
    machine_assignments,
    on_existing_machines_since,
)
from cloudgpu.core.values.money import ZERO, Money
from tests.core.costing import NOW, START, ledgers, row, use
from tests.core.jobs.writing import attempt, in_slurm, job, slurm_run
from tests.examples import some

DOLLAR = 10**9 * PARTS_PER_NANO
HOUR = 3600
BY_JOB = CostQuery(Grouping.JOB, UTC)
SUMS = ("low", "amount", "high", "billed_us", "all_billed_us", "list_cost", "cost_of_runs_with_list_price")
seconds = st.integers(-86_400, 41 * 86_400)
moments = st.one_of(st.none(), seconds.map(lambda second: START + timedelta(seconds=second)))
A, B = "job-0000000001", "job-0000000002"


@st.composite
def many_jobs(draw):
    """Return any jobs on the machines of `ledgers`: at once or not, placed and launched, open or not."""
    found = []
    for number in range(draw(st.integers(0, 5))):
        tries = [
            attempt(
                draw(st.sampled_from([None, "cg-0", "cg-1", "cg-2", "cg-3", "not there"])),
                draw(seconds),
                draw(st.one_of(st.none(), seconds)),
                on=draw(st.booleans()),
                number=count,
            )
            for count in range(1, draw(st.integers(0, 3)) + 1)
        ]
        found.append(job(number, *tries))
    for number in range(5, 5 + draw(st.integers(0, 4))):
        names = st.lists(st.sampled_from(["cg-0", "cg-1", "cg-2", "not there"]), max_size=3, unique=True)
        often = range(draw(st.integers(0, 3)))
        runs = [slurm_run(draw(seconds), draw(seconds | st.none()), *draw(names), id=str(one)) for one in often]
        members = ("cg-0", "cg-1", "cg-2", "cg-3")
        found.append(in_slurm(number, *runs, members=members, cluster=draw(st.sampled_from(["c1", None]))))
    return found


def in_dollars(found):
    return {key: tally.amount / DOLLAR for key, tally in found.groups.items()}


@settings(max_examples=some(150), deadline=None)
@given(ledgers(), many_jobs(), moments, moments)
def test_rows_by_job_add_up_to_the_bill_exactly_and_none_is_negative(ledger, jobs, since, until):
    rows, ended = ledger
    found = costs(rows, ended, NOW, CostQuery(Grouping.JOB, UTC, since, until), machine_assignments(jobs))
    plain = costs(
        rows, ended, NOW, CostQuery(Grouping.MARKET, UTC, since, until)
    ).total  # from every use, none of them cut
    for name in SUMS:
        parts = [getattr(tally, name) for tally in found.groups.values()]
        assert sum(parts) == getattr(found.total, name) == getattr(plain, name), name
        assert min(parts, default=0) >= 0, name
    for name in ("without_price", "runs_without_list_price", "interrupted", "failed", "price_marks"):
        assert getattr(found.total, name) == getattr(plain, name), name
    assert set(found.groups) <= {one.id for one in jobs} | {"", SHARED, IDLE}


@settings(max_examples=some(60), deadline=None)
@given(ledgers(), many_jobs(), moments, moments)
def test_the_lines_of_the_bill_by_job_are_the_rows_by_job(ledger, jobs, since, until):
    rows, ended = ledger
    shares = machine_assignments(jobs)
    bill = list(period_charges(rows, ended, NOW, since=since, until=until))
    items = list(line_items(bill, NOW, since=since, until=until, assigned=shares))
    groups = costs(rows, ended, NOW, CostQuery(Grouping.JOB, UTC, since, until), shares).groups
    exact: dict[str, int] = {}
    for item in items:
        exact[item.job] = exact.get(item.job, 0) + item.charge.amount
    assert exact == {key: tally.amount for key, tally in groups.items()}
    assert sum((item.amount for item in items), ZERO) == money(sum(exact.values()))


@settings(max_examples=some(60), deadline=None)
@given(ledgers(), many_jobs())
def test_what_one_job_has_cost_is_its_row(ledger, jobs):
    rows, ended = ledger
    shares = machine_assignments(jobs)
    groups = costs(rows, ended, NOW, BY_JOB, shares).groups
    for one in jobs:
        expected = money(groups[one.id].amount) if one.id in groups else ZERO
        assert job_cost(one.id, shares, rows, ended, NOW) == expected


@settings(max_examples=some(100), deadline=None)
@given(many_jobs())
def test_the_time_of_a_machine_is_assigned_from_end_to_end_without_a_gap(jobs):
    for there in machine_assignments(jobs).values():
        assert there[0].since is None
        assert there[-1].until is None
        assert [one.until for one in there[:-1]] == [one.since for one in there[1:]] == cut_times(there)
        assert cut_times(there) == sorted(set(cut_times(there)))


def test_a_machine_that_was_launched_for_a_job_is_the_jobs_also_while_it_is_kept():
    made, ended = row(use(0, 10 * HOUR))
    found = costs([made], ended, NOW, BY_JOB, machine_assignments([job(1, attempt("cg-1", HOUR, 2 * HOUR))]))
    assert in_dollars(found) == {A: 10}


def test_a_restarted_job_pays_for_each_machine_that_was_launched_for_it():
    first, gone = row(use(0, HOUR), id="cg-1")
    second, _ = row(use(2 * HOUR, 5 * HOUR), id="cg-2")
    jobs = [job(1, attempt("cg-1", 0, HOUR), attempt("cg-2", HOUR, None, number=2))]
    ended = [*gone, *row(use(2 * HOUR, 5 * HOUR), id="cg-2")[1]]
    assert in_dollars(costs([first, second], ended, NOW, BY_JOB, machine_assignments(jobs))) == {A: 4}
    assert launched_for(jobs) == {"cg-1": A, "cg-2": A}


def test_two_jobs_at_once_on_one_machine_share_that_time_and_nobody_has_the_rest():
    made, ended = row(use(0, 10 * HOUR))
    jobs = [
        job(1, attempt("cg-1", HOUR, 5 * HOUR, on=True)),
        job(2, attempt("cg-1", 4 * HOUR, 8 * HOUR, on=True)),
    ]
    assert in_dollars(costs([made], ended, NOW, BY_JOB, machine_assignments(jobs))) == {A: 3, B: 3, SHARED: 1, IDLE: 3}
    within = CostQuery(Grouping.JOB, UTC, START + timedelta(hours=2), START + timedelta(hours=6))
    assert in_dollars(costs([made], ended, NOW, within, machine_assignments(jobs))) == {A: 2, B: 1, SHARED: 1}


def test_a_machine_without_any_job_is_in_the_group_without_a_name():
    made, ended = row(use(0, HOUR))
    assert in_dollars(costs([made], ended, NOW, BY_JOB, machine_assignments([]))) == {"": 1}


def test_a_job_that_runs_still_has_the_machine_up_to_now():
    made, _ = row(use(0, None))
    jobs = [job(1, attempt("cg-1", HOUR, None, on=True))]
    hours = 40 * 24
    assert in_dollars(costs([made], [], NOW, BY_JOB, machine_assignments(jobs))) == {A: hours - 1, IDLE: 1}
    assert job_cost(A, machine_assignments(jobs), [made], [], NOW) == Money((hours - 1) * 10**9)


def test_a_machine_launched_for_one_job_is_not_a_guests():
    made, ended = row(use(0, 4 * HOUR))
    jobs = [job(1, attempt("cg-1", 0, HOUR)), job(2, attempt("cg-1", 2 * HOUR, 3 * HOUR, on=True))]
    assert in_dollars(costs([made], ended, NOW, BY_JOB, machine_assignments(jobs))) == {A: 4}
    assert on_existing_machines_since(jobs[0]) is None
    assert on_existing_machines_since(jobs[1]) == START + timedelta(hours=2)


def test_an_attempt_whose_end_is_in_no_line_ends_with_what_came_after_it():
    made, ended = row(use(0, 8 * HOUR))
    tries = (attempt("cg-1", HOUR, None, on=True), attempt("cg-1", 3 * HOUR, None, on=True, number=2))
    over = job(1, *tries, closed_at=START + timedelta(hours=5))
    assert in_dollars(costs([made], ended, NOW, BY_JOB, machine_assignments([over]))) == {A: 4, IDLE: 4}
    assert SHARED not in costs([made], ended, NOW, BY_JOB, machine_assignments([over])).groups


def test_the_minimum_of_a_short_use_belongs_to_whoever_has_the_machine_then():
    short = use(0, 10, provider="aws")  # billed for a minute
    there = machine_assignments([job(1, attempt("cg-1", 0, 10, on=True))])["cg-1"]
    parts = charges_by_key(short, NOW, there)
    assert parts[A].billed_us == 10_000_000
    assert parts[IDLE].billed_us == 50_000_000
    assert parts[A].amount + parts[IDLE].amount == charge(short, NOW).amount


def test_jobs_in_slurm_have_the_nodes_that_slurm_gave_them_and_the_rest_of_the_cluster_is_idle():
    rows = [row(use(0, 10 * HOUR), id=f"cg-{node}") for node in range(3)]
    made, ended = [one for one, _ in rows], [two for _, uses in rows for two in uses]
    members = ("cg-0", "cg-1", "cg-2")
    jobs = [
        in_slurm(1, slurm_run(HOUR, 3 * HOUR, "cg-0", "cg-1"), members=members),
        in_slurm(2, slurm_run(2 * HOUR, 5 * HOUR, "cg-1", id="2"), members=members),
    ]
    found = costs(made, ended, NOW, BY_JOB, machine_assignments(jobs))
    assert in_dollars(found) == {A: 3, B: 2, SHARED: 1, IDLE: 24}
    assert job_cost(A, machine_assignments(jobs), made, ended, NOW) == Money(3 * 10**9)


def test_the_elements_of_an_array_are_one_jobs_and_waiting_costs_it_nothing():
    made, ended = row(use(0, 10 * HOUR))
    runs = [slurm_run(HOUR, 2 * HOUR, "cg-1"), slurm_run(4 * HOUR, 5 * HOUR, "cg-1", id="2"), slurm_run(None, None)]
    jobs = [in_slurm(1, *runs, members=("cg-1",))]
    assert in_dollars(costs([made], ended, NOW, BY_JOB, machine_assignments(jobs))) == {A: 2, IDLE: 8}


def test_somebody_elses_slurm_costs_nothing_of_the_machine_that_submits_to_it():
    made, ended = row(use(0, 10 * HOUR))
    one = in_slurm(1, slurm_run(HOUR, 2 * HOUR, "gpu-7"), members=("cg-1",), cluster=None)
    assert A not in costs([made], ended, NOW, BY_JOB, machine_assignments([one])).groups
