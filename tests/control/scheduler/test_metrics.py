"""What Prometheus reads: its own parser takes it, the sums are the ledger's, and what is not known is not there."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cloudgpu.control.budgets.commands import BudgetOptions, set_budget_document
from cloudgpu.control.scheduler.metrics import MetricFamily, _family_text, exposition
from cloudgpu.control.session.last_run import totals_after_run
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.facts import record_of
from cloudgpu.core.values.times import iso
from cloudgpu.providers.shared.calls import count_request, request_counts
from cloudgpu.testing.fake.market import MACHINE_TYPES


def read(lab, ran=None, faults=None):
    text = exposition(lab.session, ran or {}, faults or {})
    assert text.endswith("\n")
    return {one.name: one for one in text_string_to_metric_families(text)}


def values(family):
    return {tuple(one.labels.values()): one.value for one in family.samples}


def test_machines_and_what_they_burn_are_those_of_the_ledger(lab):
    lab.up(name="one")
    lab.up(name="two")
    found = read(lab)
    assert values(found["cloudgpu_machines"]) == {("fake", "lab", "running"): 2.0}
    price = Decimal(MACHINE_TYPES[lab.rows()[0].instance_type].usd)
    assert values(found["cloudgpu_burn_usd_per_hour"]) == {("fake", "lab"): float(2 * price)}
    assert values(found["cloudgpu_unpriced_machines"]) == {(): 0.0}


def test_idle_time_is_there_only_where_a_sign_of_life_is_known(lab):
    lab.up(name="one")
    assert "cloudgpu_idle_seconds" not in read(lab)
    (row,) = lab.rows()
    body = {name: getattr(row, name) for name in "provider_id state billed since launched_at".split()}
    body |= {"address": record_of(row.address), "reason": row.state_reason, "last_active": iso(lab.clock())}
    lab.session.ledger.append([Draft("instance_observed", row.id, body, lab.clock(), "seen")])
    lab.later(minutes=7)
    (sample,) = read(lab)["cloudgpu_idle_seconds"].samples
    assert (sample.labels, sample.value) == ({"machine": row.id, "name": "one"}, 420.0)


def test_a_budget_says_what_is_spent_and_its_limit(lab):
    set_budget_document(lab.session, BudgetOptions("lab", "1000", "month"), overwrite=False)
    lab.up(name="one")
    lab.later(hours=2)
    found = read(lab)
    assert values(found["cloudgpu_budget_limit_usd"]) == {("lab",): 1000.0}
    assert values(found["cloudgpu_budget_spent_usd"])[("lab",)] > 0


def test_a_budget_that_cannot_be_read_hides_no_other_number(lab):
    lab.up()
    file = lab.home / "policies" / "budgets" / "bad.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("amount: much\n")
    found = read(lab)
    assert "cloudgpu_machines" in found
    assert "cloudgpu_budget_spent_usd" not in found


def test_a_pass_that_failed_does_not_move_the_last_success(lab):
    for ok in (True, False):
        now = lab.clock()
        body = {"ok": ok, "took_s": 1.5}
        body["ok_at"], body["sweep_at"] = totals_after_run(lab.session, ok=ok, sweep=False, now=now)[:2]
        lab.session.ledger.append([Draft("reap_finished", "reaper", body, now, f"pass:{ok}")])
        lab.later(minutes=10)
    found = read(lab)
    assert values(found["cloudgpu_pass_ok"]) == {(): 0.0}
    assert values(found["cloudgpu_pass_duration_seconds"]) == {(): 1.5}
    ended, succeeded = (
        found[f"cloudgpu_pass_{name}_timestamp_seconds"].samples[0].value for name in ("end", "success")
    )
    assert ended - succeeded == timedelta(minutes=10).total_seconds()


def test_jobs_faults_and_calls_are_counters(lab):
    count_request("aws", "DescribeInstances")
    found = read(lab, {"pass": 3}, {"pass": 1})
    assert values(found["cloudgpu_watch_jobs"]) == {("pass",): 3.0}
    assert values(found["cloudgpu_watch_faults"]) == {("pass",): 1.0}
    sent = values(found["cloudgpu_api_calls"])
    assert sent["aws", "DescribeInstances"] == request_counts()["aws", "DescribeInstances"] >= 1


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "ä"])
def test_a_name_with_quotes_is_one_label(name):
    text = _family_text(MetricFamily("cloudgpu_x", "gauge", "A made-up one.", [({"name": name}, 1)]))
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"name": name}
