"""The timer in the cloud, the rehearsal of an eviction, and what Azure's log says of a spot machine's end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.providers.azure.compute import interruption as evicted, power, schedules as timer
from tests.providers.azure.launched import ID, OTHER, SPOT, launch

HOURS = timedelta(hours=1)


@pytest.fixture
def azure(account):
    """Return an account with timers."""
    return account(timers=True)


def in_hours(azure, hours):
    return (azure.clock() + hours * HOURS).replace(microsecond=0)


def test_a_timer_is_where_it_was_set_last_and_the_one_before_is_cancelled(azure, azure_arm, sdk):
    launch(sdk)
    for hours in (5, 9, 3):
        at = in_hours(azure, hours)
        timer.set_timer(azure, ID, at)
        assert timer.timer(azure, ID) == at
        assert timer.timers(azure) == timer.timers(azure, "eastus") == {ID: at}
    open_ = [one for one in azure_arm.model.timers.values() if one["state"] == "PendingScheduling"]
    assert len(open_) == 1
    assert timer.timers(azure, "westus2") == {}


def test_it_fires_while_nobody_asks_and_the_machine_is_billed_no_more(azure, azure_arm, sdk):
    launch(sdk)
    timer.set_timer(azure, ID, in_hours(azure, 1))
    azure_arm.advance(2 * 3600)
    assert azure_arm.instance(ID).state == "deallocated"
    assert "machine" not in dict(azure_arm.billable())
    assert timer.timer(azure, ID) is None
    assert timer.timers(azure) == {}


def test_setting_it_to_where_it_is_submits_nothing(azure, azure_arm, sdk):
    launch(sdk)
    at = in_hours(azure, 1)
    for _ in range(2):
        timer.set_timer(azure, ID, at)
    assert len(azure_arm.model.timers) == 1


def test_one_that_somebody_cancelled_is_set_again(azure, azure_arm, sdk):
    launch(sdk)
    at = in_hours(azure, 1)
    timer.set_timer(azure, ID, at)
    for one in azure_arm.model.timers.values():
        one["state"] = "Cancelled"
    assert timer.timer(azure, ID) is None
    timer.set_timer(azure, ID, at)
    assert timer.timer(azure, ID) == at


def test_a_crash_after_the_submission_leaves_a_machine_that_ends_at_the_earlier_time(azure, azure_arm, sdk):
    launch(sdk)
    timer.set_timer(azure, ID, in_hours(azure, 1))
    azure_arm.faults.add("Tags.UpdateAtScope", error="InternalServerError", status=500, times=99)
    with pytest.raises(Exception, match="tags/write"):
        timer.set_timer(azure, ID, in_hours(azure, 9))
    azure_arm.faults.clear()
    azure_arm.advance(2 * 3600)
    assert azure_arm.instance(ID).state == "deallocated"


def test_a_time_that_is_over_means_soon(azure, azure_arm, sdk):
    launch(sdk)
    timer.set_timer(azure, ID, in_hours(azure, -1))
    azure_arm.advance(600)
    assert azure_arm.instance(ID).state == "deallocated"


def test_dropping_is_fine_twice_and_of_what_is_gone(azure, azure_arm, sdk):
    launch(sdk)
    timer.set_timer(azure, ID, in_hours(azure, 1))
    for _ in range(2):
        timer.drop_timer(azure, ID)
        assert timer.timer(azure, ID) is None
    timer.drop_timer(azure, f"eastus/{OTHER}")
    azure_arm.advance(2 * 3600)
    assert azure_arm.instance(ID).state == "running"


def test_a_hold_outlives_the_moving_of_a_timer(azure, azure_arm, sdk):
    launch(sdk)
    power.tag(azure, ID, {"cloudgpu-hold-until": "1"})
    timer.set_timer(azure, ID, in_hours(azure, 1))
    assert azure_arm.instance(ID).tags["cloudgpu-hold-until"] == "1"


def test_what_is_unknown_gets_none(azure, azure_arm):
    with pytest.raises(InstanceNotFound):
        timer.set_timer(azure, ID, in_hours(azure, 1))
    assert azure_arm.model.timers == {}


def test_a_time_that_azure_does_not_take_is_refused(azure, azure_arm, sdk):
    launch(sdk)
    azure_arm.model.timer_limit_s = 3600
    with pytest.raises(InvalidRequest):
        timer.set_timer(azure, ID, in_hours(azure, 9))


def test_another_ledgers_timers_are_not_told(azure, azure_arm, sdk):
    launch(sdk, ledger="led-2")
    timer.set_timer(azure, ID, in_hours(azure, 1))
    assert timer.timers(azure) == {}


def test_without_timers_nothing_is_asked(account, azure_arm):
    plain = account()
    assert "cloudgpu init azure" in timer.why_no_timer(plain)
    assert timer.timers(plain) == {}
    timer.drop_timer(plain, ID)
    with pytest.raises(InvalidRequest, match="init azure"):
        timer.set_timer(plain, ID, in_hours(plain, 1))
    assert azure_arm.calls == []


# Evictions


def seen(azure, **facts):
    usual = {"state": State.DEALLOCATED, "billed": False, "market": Market.SPOT, **facts}
    return Instance("azure", "azure", ID, tags={}, region="eastus", zone="eastus", instance_type="x", **usual)


def test_a_rehearsal_takes_a_spot_machine_after_its_notice_and_is_told_as_an_interruption(account, azure_arm, sdk):
    azure = account()
    launch(sdk, **SPOT)
    taken = power.interrupt(azure, ID)
    assert abs(taken - azure.clock() - power.EVICTION_NOTICE) < timedelta(seconds=5)
    azure_arm.advance(120)
    assert azure_arm.instance(ID).state == "deallocated"
    (found,) = evicted.with_end_causes(azure, [seen(azure)])
    assert found.reason == "interrupted"
    assert found.since is not None
    assert found.since <= azure.clock()


def test_only_a_spot_machine_that_is_there_can_be_interrupted(account, sdk):
    launch(sdk)
    with pytest.raises(InvalidRequest, match="it is not a spot machine"):
        power.interrupt(account(), ID)
    with pytest.raises(InstanceNotFound):
        power.interrupt(account(), f"eastus/{OTHER}")


def test_a_machine_that_somebody_stopped_is_not_called_interrupted(account, azure_arm, sdk):
    azure = account()
    launch(sdk, **SPOT)
    power.stop(azure, ID)
    azure_arm.advance(600)
    assert evicted.with_end_causes(azure, [seen(azure)])[0].reason is None


def test_the_log_is_asked_of_spot_machines_without_a_known_cause_alone(account, azure_arm):
    azure = account()
    others = [
        seen(azure, market=Market.ON_DEMAND),
        seen(azure, state=State.RUNNING, billed=True),
        seen(azure, reason="lease"),
    ]
    assert evicted.with_end_causes(azure, others) == others
    assert azure_arm.calls == []


def test_a_log_that_does_not_answer_changes_nothing(account, azure_arm, sdk):
    azure = account()
    launch(sdk, **SPOT)
    azure_arm.interrupt(ID)
    azure_arm.faults.deny("ActivityLogs.List")
    assert evicted.with_end_causes(azure, [seen(azure)]) == [seen(azure)]


def test_a_log_whose_pages_do_not_end_changes_nothing(account, azure_arm, sdk):
    azure = account()
    launch(sdk, **SPOT)
    azure_arm.interrupt(ID)
    azure_arm.advance(600)
    path = f"/subscriptions/{azure.subscription}/providers/Microsoft.Insights/eventtypes/management/values"
    page = {"value": [], "nextLink": f"{azure_arm.url}{path}?api-version=2015-04-01&$skiptoken=again"}
    azure_arm.faults.add("ActivityLogs.List", status=200, body=page, times=50)
    assert evicted.with_end_causes(azure, [seen(azure)]) == [seen(azure)]
    assert len(azure_arm.called("ActivityLogs.List")) < 10


def event(name, hour, status="Succeeded"):
    at = datetime(2026, 11, 21, hour, tzinfo=UTC)
    operation = {"value": f"Microsoft.Compute/virtualMachines/{name}/action"}
    return {"eventTimestamp": at.isoformat(), "operationName": operation, "status": {"value": status}}


@pytest.mark.parametrize(
    ("events", "hour"),
    [
        ([], None),
        ([event("evictSpotVM", 3)], 3),
        ([event("evictSpotVM", 3), event("deallocate", 5)], None),
        ([event("deallocate", 2), event("evictSpotVM", 3)], 3),
        ([event("evictSpotVM", 3, "Failed")], None),
        ([event("start", 3)], None),
        ([event("evictSpotVM", 3), event("evictSpotVM", 4) | {"eventTimestamp": None}], 3),
        ([event("evictSpotVM", 3), event("deallocate", 4) | {"eventTimestamp": "soon"}], 3),
        ([event("evictSpotVM", 3), event("deallocate", 4) | {"eventTimestamp": "0001-01-01T00:00:00+14:00"}], 3),
    ],
)
def test_the_last_end_in_the_log_counts(events, hour):
    found = evicted.last_eviction(events)
    assert (found and found.hour) == hour
