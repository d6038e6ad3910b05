"""Machines looked at, stopped, started, tagged and ended at Azure: what is billed, what is proved, how many calls."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import (
    AuthFailed,
    EndRefused,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
)
from cloudgpu.providers.azure.compute import listing, translate
from tests.clouds.rest_faults import FOREVER
from tests.providers.azure.attempts import USUAL, attempt_at, calls, launched, offered, provider_of
from tests.providers.azure.launched import GROUP, ID, launch

STOP = "VirtualMachines.Deallocate"
OTHER_SUBSCRIPTION = "22222222-2222-4333-8444-555555555555"


@pytest.fixture
def provider(azure_arm, tmp_path):
    return provider_of(azure_arm, tmp_path)


# Looks


def test_a_listing_is_two_calls_and_one_page_more_for_each_page(azure_arm, provider, sdk):
    launch(sdk)
    launch(sdk, "cloudgpu-11111111111111111111", "westus2", ledger="led-2")
    sdk.launch("somebody-elses").result()
    with calls(azure_arm) as made:
        found = provider.list()
    assert made == ["VirtualMachines.ListAll"] * 2
    assert [(one.id, one.region, one.state) for one in found.instances] == [
        (ID, "eastus", State.RUNNING),
        ("westus2/cloudgpu-11111111111111111111", "westus2", State.RUNNING),
    ]
    assert found.unanswered == ()


def test_a_machine_of_ours_that_was_moved_is_named_and_not_lost(azure_arm, provider, sdk):
    sdk.launch("elsewhere", tags={"cloudgpu-id": "cg-1"}).result()
    found = provider.list()
    assert found.instances == ()
    assert [one.scope for one in found.unanswered] == ["eastus/elsewhere"]


def test_a_machine_whose_power_the_listing_does_not_tell_is_asked_by_itself_and_billed(azure_arm, provider, sdk):
    launch(sdk)
    azure_arm.resource(ID).hidden["power"] = ""
    with calls(azure_arm) as made:
        (found,) = provider.list().instances
    assert sorted(made) == ["VirtualMachines.Get", "VirtualMachines.ListAll", "VirtualMachines.ListAll"]
    assert (found.state, found.billed) == (State.UNKNOWN, True)


def test_a_listing_that_is_refused_is_no_empty_one(azure_arm, provider):
    azure_arm.faults.add("VirtualMachines.ListAll", error="InternalServerError", times=100)
    with pytest.raises(ProviderUnavailable):
        provider.list()


def test_a_shutdown_from_inside_is_stopped_and_billed_until_it_is_deallocated(azure_arm, provider, sdk):
    launch(sdk)
    azure_arm.shut_down(ID)
    for found in (provider.get(ID), *provider.list().instances):
        assert (found.state, found.billed, found.reason) == (State.STOPPED, True, "shut down, not deallocated")
    provider.stop(ID)
    assert (provider.get(ID).state, provider.get(ID).billed) == (State.DEALLOCATED, False)


def test_what_is_being_deallocated_is_billed_until_it_is_so(azure_arm, provider, sdk):
    launch(sdk)
    azure_arm.dwell(deallocating=60)
    provider.stop(ID)
    assert (provider.get(ID).state, provider.get(ID).billed) == (State.STOPPING, True)
    azure_arm.advance(61)
    assert (provider.get(ID).state, provider.get(ID).billed) == (State.DEALLOCATED, False)


def test_a_machine_whose_creation_failed_is_not_billed_and_says_why(azure_arm, provider, sdk):
    sdk.group(GROUP, "eastus")
    azure_arm.stockout(times=1)
    with pytest.raises(Exception, match="AllocationFailed"):
        launch(sdk)
    found = provider.get(ID)
    assert (found.state, found.billed) == (State.DEALLOCATED, False)
    assert "could not be made" in found.reason


def test_a_machine_whose_creation_failed_while_it_got_its_resources_is_not_pending_for_ever(provider, sdk):
    """`creating`, which Azure does not bill, is the last power state that it knows: nothing goes on there (belief)."""
    launch(sdk)
    (view,) = listing._list_all(provider._azure, status_only="true")
    view["properties"]["provisioningState"] = "Failed"
    statuses = [{"code": "ProvisioningState/failed/AllocationFailed"}, {"code": "PowerState/creating"}]
    found = translate.instance(view, statuses, account="lab")
    assert (found.state, found.billed) == (State.DEALLOCATED, False)
    assert found.reason == "could not be made (AllocationFailed)"
    view["properties"]["provisioningState"] = "Updating"  # somebody tries again
    again = translate.instance(view, statuses[1:], account="lab")
    assert (again.state, again.billed) == (State.PENDING, True)


def test_a_failed_machine_of_which_the_listing_of_power_says_nothing_is_asked_and_runs(azure_arm, provider, sdk):
    """An extension that failed makes it so, while it runs: what a listing lacks is no proof that nothing is billed."""
    launch(sdk)
    machine = azure_arm.resource(ID)
    machine.body["properties"]["provisioningState"] = "Failed"
    told, whole = listing._list_all, translate.statuses_of
    (view,) = told(provider._azure, status_only="true")
    assert whole(view)
    found = translate.instance(view, (), account="lab")
    assert (found.state, found.billed) == (State.UNKNOWN, True)
    unknown = [{"code": "ProvisioningState/failed/VMExtensionProvisioningError"}, {"code": "PowerState/unknown"}]
    assert translate.instance(view, unknown, account="lab").billed
    (seen,) = provider.list().instances
    assert (seen.state, seen.billed) == (State.RUNNING, True)


def test_another_subscription_or_login_proves_no_end(azure_arm, tmp_path, provider, monkeypatch):
    made = launched(provider, attempt_at(provider))
    other = provider_of(azure_arm, tmp_path, pause=azure_arm.advance, subscription=OTHER_SUBSCRIPTION)
    for look in (other.get, other.terminate):
        with pytest.raises(AuthFailed):
            look(made.id)
    monkeypatch.setattr(listing, "read_with_view", lambda *_: None)  # as a subscription answers that the login may read
    monkeypatch.setattr(listing, "call_or_none", lambda *_, **__: None)
    with pytest.raises(AuthFailed, match="was launched in the subscription 1111"):
        other.get(made.id)
    monkeypatch.setattr(listing, "list_ours", lambda _: ({}, []))
    assert [one.scope for one in other.list().unanswered] == [made.id.partition("/")[2]]
    monkeypatch.undo()


@pytest.mark.parametrize("body", ["<html>404 Not Found</html>", "", {"message": "no such route"}])
def test_a_404_that_is_not_azures_proves_no_end(azure_arm, provider, body):
    made = launched(provider, attempt_at(provider))
    faults = [
        azure_arm.faults.add(action, error="NotFound", status=404, body=body, times=FOREVER)
        for action in ("VirtualMachines.Get", "ResourceGroups.Get")
    ]
    with pytest.raises(ProviderUnavailable):
        provider.get(made.id)
    for fault in faults:
        azure_arm.faults.remove(fault)
    assert provider.get(made.id).state is State.RUNNING


def test_what_was_never_made_or_is_gone_is_no_machine_of_another_subscription(azure_arm, tmp_path, provider):
    azure_arm.stockout(times=1)
    with pytest.raises(NoCapacity):
        launched(provider, attempt_at(provider))
    made = launched(provider, attempt_at(provider))
    assert [one.name for one in (tmp_path / "owners").iterdir()] == [made.id.partition("/")[2]]
    provider.terminate(made.id)
    with pytest.raises(InstanceNotFound):
        provider.get(made.id)
    assert list((tmp_path / "owners").iterdir()) == []


def test_an_attempt_is_not_sent_again_in_another_subscription(azure_arm, tmp_path, provider):
    attempt = attempt_at(provider)
    launched(provider, attempt)
    other = provider_of(azure_arm, tmp_path, pause=azure_arm.advance, subscription=OTHER_SUBSCRIPTION)
    with calls(azure_arm) as made, pytest.raises(LaunchUncertain, match="was launched in the subscription 1111"):
        launched(other, attempt)
    assert made == []


def test_a_machine_with_the_address_is_two_calls_and_a_stopped_one_is_one(azure_arm, provider, sdk):
    launch(sdk)
    with calls(azure_arm) as made:
        assert provider.get(ID).address is not None
    assert made == ["VirtualMachines.Get", "PublicIPAddresses.List"]
    provider.stop(ID)
    with calls(azure_arm) as made:
        assert provider.get(ID).address is None
    assert made == ["VirtualMachines.Get"]


def test_many_are_looked_at_by_two_listings_and_a_missing_one_by_itself(azure_arm, provider, sdk):
    ids = [launch(sdk, f"cloudgpu-{number:020x}") for number in range(3)]
    gone = f"eastus/cloudgpu-{9:020x}"
    with calls(azure_arm) as made:
        found = provider.get_many([*ids, gone, "nonsense"])
    assert sorted(made) == ["ResourceGroups.Get", *["VirtualMachines.Get"], *["VirtualMachines.ListAll"] * 2]
    assert [found[one].state for one in ids] == [State.RUNNING] * 3
    assert isinstance(found[gone], InstanceNotFound)
    assert isinstance(found["nonsense"], InvalidRequest)


# Stops and starts


def test_a_stop_is_one_call_each_and_one_that_is_refused_keeps_no_other_on(azure_arm, provider, sdk):
    ids = [launch(sdk, f"cloudgpu-{number:020x}") for number in range(3)]
    azure_arm.faults.add(STOP, error="ScopeLocked", status=409, group=ids[1].partition("/")[2])
    with calls(azure_arm) as made:
        refused = provider.stop_many(ids)
    assert made == [STOP] * 3
    assert list(refused) == [ids[1]]
    assert [azure_arm.instance(one).state for one in ids] == ["deallocated", "running", "deallocated"]


def test_a_stop_waits_for_whatever_azure_is_still_at(azure_arm, provider, sdk):
    launch(sdk)
    azure_arm.faults.add(STOP, error="Conflict", status=409, times=2)
    provider.stop(ID)
    assert azure_arm.instance(ID).state == "deallocated"


def test_a_start_for_which_there_is_no_capacity_says_so_and_stays_free(azure_arm, provider, sdk):
    launch(sdk)
    provider.stop(ID)
    azure_arm.stockout(times=1)
    with pytest.raises(NoCapacity):
        provider.start(ID)
    assert (provider.get(ID).state, provider.get(ID).billed) == (State.DEALLOCATED, False)
    provider.start(ID)
    assert provider.get(ID).state is State.RUNNING


def test_what_is_just_stopping_is_not_started(azure_arm, provider, sdk):
    launch(sdk)
    azure_arm.dwell(deallocating=60)
    provider.stop(ID)
    with pytest.raises(InvalidRequest, match="just stopping"):
        provider.start(ID)


def test_a_machine_that_was_shut_down_from_inside_is_started_as_it_is(azure_arm, provider, sdk):
    launch(sdk)
    azure_arm.shut_down(ID)
    provider.start(ID)
    assert provider.get(ID).state is State.RUNNING


# Tags


def test_a_tag_is_merged_by_one_call_and_erases_no_hold(azure_arm, provider, sdk):
    launch(sdk)
    provider.tag(ID, {"cloudgpu-hold-until": "1800000000"})
    with calls(azure_arm) as made:
        provider.tag(ID, {"cloudgpu-expires": "1700000000"})
    assert made == ["Tags.UpdateAtScope"]
    assert (
        provider.get(ID).tags.items()
        >= {
            "cloudgpu-hold-until": "1800000000",
            "cloudgpu-expires": "1700000000",
            "cloudgpu-id": "cg-1",
        }.items()
    )


# Ends


def test_an_end_takes_the_whole_group_by_two_calls(azure_arm, provider):
    made = launched(provider, attempt_at(provider))
    with calls(azure_arm) as asked:
        provider.terminate(made.id)
    assert asked == ["Resources.ListByResourceGroup", "ResourceGroups.Delete"]
    assert azure_arm.resources() == []
    with pytest.raises(InstanceNotFound):
        provider.get(made.id)


def test_an_end_is_proved_when_the_group_has_gone_too(azure_arm, provider):
    azure_arm.dwell(deleting=10, group=60)
    attempt = attempt_at(provider, offered(provider, market=Market.SPOT), setup=USUAL)
    made = launched(provider, attempt)
    provider.terminate(made.id)
    assert provider.get(made.id).state is State.STOPPING
    azure_arm.advance(20)
    going = provider.get(made.id)  # the machine has gone, its group is going
    assert (going.state, going.billed, going.market) == (State.STOPPING, False, Market.SPOT)
    assert dict(going.tags) == dict(attempt.tags)
    azure_arm.advance(60)
    with pytest.raises(InstanceNotFound):
        provider.get(made.id)


def test_what_somebody_put_into_the_group_is_not_lost(azure_arm, provider, sdk):
    made = launched(provider, attempt_at(provider))
    group = made.id.partition("/")[2]
    body = {"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 10}}
    sdk.compute.disks.begin_create_or_update(group, "thesis", body).result()
    provider.terminate(made.id)
    with pytest.raises(InstanceNotFound):
        provider.get(made.id)
    assert azure_arm.billable() == [("disk", "thesis")]


def test_a_data_disk_that_the_portal_named_after_the_machine_is_not_lost(azure_arm, provider, sdk):
    made = launched(provider, attempt_at(provider))
    group = made.id.partition("/")[2]
    body = {"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 10}}
    sdk.compute.disks.begin_create_or_update(group, f"{group}_DataDisk_0", body).result()
    assert [one.id.rpartition("/")[2] for one in provider.resources().items] == [f"{group}-os"]
    provider.terminate(made.id)
    assert azure_arm.billable() == [("disk", f"{group}_DataDisk_0")]


@pytest.mark.parametrize(("on", "place"), [("machine", "virtualMachines"), ("group", "resourceGroups")])
def test_a_machine_that_a_lock_keeps_from_its_end_names_the_lock_and_what_lifts_it(azure_arm, provider, on, place):
    made = launched(provider, attempt_at(provider))
    lock = azure_arm.protect(made.id, on=on)
    with pytest.raises(EndRefused) as refused:
        provider.terminate(made.id)
    group = made.id.partition("/")[2]
    assert f"Locked by: keep (CanNotDelete) on {place}/{group}." in refused.value.message
    assert refused.value.lifts == f"az lock delete --ids {lock}"
    provider.stop(made.id)
    assert (provider.get(made.id).state, provider.get(made.id).billed) == (State.DEALLOCATED, False)


def test_a_read_only_lock_keeps_a_machine_from_its_stop_too_and_is_named(azure_arm, provider):
    made = launched(provider, attempt_at(provider))
    lock = azure_arm.protect(made.id, on="subscription", level="ReadOnly")
    for end in (provider.terminate, provider.stop):
        with pytest.raises(EndRefused) as refused:
            end(made.id)
        assert refused.value.lifts == f"az lock delete --ids {lock}"
    assert isinstance(provider.stop_many([made.id])[made.id], EndRefused)


def test_a_lock_that_cannot_be_looked_up_still_has_a_way_out(azure_arm, provider):
    made = launched(provider, attempt_at(provider))
    azure_arm.protect(made.id)
    azure_arm.faults.deny("ManagementLocks.ListByScope")
    with pytest.raises(EndRefused) as refused:
        provider.terminate(made.id)
    assert "az lock list" in refused.value.next


def test_a_lock_that_keeps_a_launch_off_is_no_refused_end(azure_arm, provider):
    attempt = attempt_at(provider)
    azure_arm.protect("x", on="subscription", level="ReadOnly")
    with pytest.raises(InvalidRequest) as refused:
        launched(provider, attempt)
    assert refused.value.field == "lock"
