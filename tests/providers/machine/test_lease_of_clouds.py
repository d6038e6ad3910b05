"""The lease's script on Google Cloud and Azure, run by sh against stand-ins of their metadata services."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.providers.machine.machines import HOUR, NOW, OFF, SILENT, Machine
from tests.providers.machine.metadata import Azure, metadata

CURL = shutil.which("curl")


def made(kind, root):
    with metadata(kind) as imds:
        imds.tags(expires=NOW + HOUR, renew_until=NOW + 8 * HOUR)
        yield Machine(root, imds, kind)


@pytest.fixture(params=["gcp", "azure"])
def machine(request, tmp_path):
    yield from made(request.param, tmp_path)


@pytest.fixture
def google(tmp_path):
    yield from made("gcp", tmp_path)


@pytest.fixture
def azure_machine(tmp_path):
    yield from made("azure", tmp_path)


def read(machine, name):
    file = machine.run / name
    return json.loads(file.read_text()) if file.exists() else None


# Lease and hold


def test_a_lease_that_was_moved_outside_is_read_from_the_metadata(machine):
    machine.imds.tags(expires=NOW + 3 * HOUR)
    machine.now += 2 * HOUR
    assert machine.tick() == []
    assert read(machine, "tags.json")["cloudgpu-expires"] == str(NOW + 3 * HOUR)
    machine.imds.tags(expires=NOW - 1)
    assert machine.tick() == OFF


def test_a_hold_keeps_the_machine_until_it_is_over_or_taken_back(machine):
    machine.imds.tags(hold_until=NOW + 2 * HOUR)
    machine.now += HOUR + 1
    assert machine.tick() == []
    machine.imds.tags(hold_until=None)
    assert machine.tick() == OFF


def test_silence_leaves_what_was_read_last(machine):
    machine.imds.tags(expires=NOW + 3 * HOUR)
    assert machine.tick() == []
    machine.now += 2 * HOUR
    assert machine.tick(imds=SILENT) == []
    machine.now += HOUR
    assert machine.tick(imds=SILENT) == OFF


@pytest.mark.parametrize("garbage", ["", "12 34", '1"}, {"name": "cloudgpu-expires", "value": "99999999999'])
def test_what_is_no_time_is_as_it_was(machine, garbage):
    machine.imds.tags(expires=garbage)
    machine.now += HOUR - 1
    assert machine.tick() == []
    machine.now += 1
    assert machine.tick() == OFF


def test_a_request_without_the_cloud_s_header_is_silence(machine, tmp_path):
    cloud = tmp_path / "here" / "cloud"
    cloud.write_text(cloud.read_text().replace("Metadata", "Meta"))
    machine.imds.tags(expires=NOW + 3 * HOUR)
    machine.now += HOUR
    assert machine.tick() == OFF


# What the cloud has planned


def test_maintenance_of_google_s_is_passed_on_and_taken_back(google):
    google.imds.said["maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
    google.tick()
    assert read(google, "events.json") == {"events": [{"Code": "TERMINATE_ON_HOST_MAINTENANCE"}]}
    google.imds.said["maintenance-event"] = "NONE"
    google.tick()
    assert read(google, "events.json") is None


def event(kind, at="Fri, 15 Jan 2027 08:02:00 GMT"):
    """Return an event as Azure's documentation shows one."""
    return {
        "EventId": "602d9444-d2cd-49c7-8624-8643e7171297",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": ["g"],
        "EventStatus": "Scheduled",
        "NotBefore": at,
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


def test_events_of_azure_s_are_passed_on_as_they_are_and_taken_back(azure_machine):
    azure_machine.imds.events = [event("Reboot"), event("Freeze")]
    azure_machine.tick()
    assert read(azure_machine, "events.json") == {"events": azure_machine.imds.events}
    azure_machine.imds.events = []
    azure_machine.tick()
    assert read(azure_machine, "events.json") is None


# A spot notice, which is half a minute of time on both


def test_a_preemption_of_google_s_is_noticed_once_and_only_on_a_spot_machine(google):
    google.imds.said["preempted"] = "TRUE"
    google.tick()
    assert read(google, "notice.json") is None
    google.launched(spot="yes")
    google.tick()
    notice = {"action": "stop", "time": "2027-01-15T08:00:30Z"}
    assert read(google, "notice.json") == notice
    google.now += 20
    google.tick()
    assert read(google, "notice.json") == notice


def test_an_eviction_of_azure_s_is_noticed_with_its_time(azure_machine):
    azure_machine.launched(spot="yes")
    azure_machine.imds.events = [event("Freeze"), event("Preempt")]
    azure_machine.tick()
    assert read(azure_machine, "notice.json") == {"action": "stop", "time": "2027-01-15T08:02:00Z"}


def test_an_eviction_that_has_begun_is_now(azure_machine):
    azure_machine.launched(spot="yes")
    azure_machine.imds.events = [event("Preempt", at="")]
    azure_machine.tick()
    assert read(azure_machine, "notice.json") == {"action": "stop", "time": "2027-01-15T08:00:00Z"}


def test_a_notice_is_looked_out_for_until_it_comes(machine):
    machine.launched(spot="yes")
    evict = [event("Preempt")]
    place = machine.root / "asked"
    machine.stands_in("sleep", f"echo >>{place}; test $(wc -l <{place}) -lt 3 || touch {machine.run}/notice.json")
    assert machine.tick("watch") == []
    assert place.read_text() == "\n" * 3
    (machine.run / "notice.json").unlink()
    machine.imds.said["preempted"], machine.imds.events = "TRUE", evict
    machine.tick("watch")
    assert read(machine, "notice.json")["action"] == "stop"


# What the machine tells


def test_the_last_activity_is_told_once_per_change(machine):
    (machine.agent / "last-active").write_text("1800000000\n")
    machine.tick("report")
    machine.tick("report")
    (machine.agent / "last-active").write_text("1800000600\n")
    machine.tick("report")
    if isinstance(machine.imds, Azure):
        path = f"{Azure.id}/providers/Microsoft.Resources/tags/default"
        assert [(method, where) for method, where, _ in machine.imds.written] == [("PATCH", path)] * 2
        assert json.loads(machine.imds.written[1][2]) == {
            "operation": "Merge",
            "properties": {"tags": {"cloudgpu-last-active": "1800000600"}},
        }
    else:
        path = "guest-attributes/cloudgpu/last-active"
        assert machine.imds.written == [("PUT", path, "1800000000"), ("PUT", path, "1800000600")]


def test_what_was_refused_is_told_again(machine):
    (machine.agent / "last-active").write_text("1800000000\n")
    machine.imds.guest = machine.imds.manager = 403
    done = machine.ran("report")
    assert "not reported: 403" in done.stderr
    machine.imds.guest = machine.imds.manager = 200
    assert machine.tick("report") == []
    assert len(machine.imds.written) == 2


@pytest.mark.parametrize("last", [None, "never\n"])
def test_a_machine_where_nobody_worked_tells_nothing(machine, last):
    if last:
        (machine.agent / "last-active").write_text(last)
    machine.tick("report")
    assert machine.imds.written == []


# The end of a machine on Azure, which bills what is only shut down


def test_a_shutdown_has_azure_release_the_machine_first(azure_machine):
    azure_machine.launched(deallocates="yes")
    azure_machine.now += HOUR
    assert azure_machine.tick() == OFF
    assert azure_machine.imds.written == [("POST", f"{Azure.id}/deallocate", "")]


def test_without_an_identity_it_is_powered_off_and_asks_nobody(azure_machine):
    azure_machine.now += HOUR
    assert azure_machine.tick() == OFF
    assert azure_machine.imds.written == []


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["manager", "identity"])
def test_what_azure_does_not_release_stays_on_for_half_an_hour_and_asks_each_minute(azure_machine, fault):
    azure_machine.launched(deallocates="yes")
    setattr(azure_machine.imds, fault, 503 if fault == "manager" else False)
    azure_machine.now += HOUR
    assert [azure_machine.tick() for _ in range(2)] == [[], []]
    (azure_machine.run / "releases").write_text("29\n")
    assert azure_machine.tick("end", "idle") == []
    assert azure_machine.tick() == OFF, "powered off all the same: those outside release it"


@pytest.mark.soak
def test_what_azure_releases_at_last_is_powered_off_gently(azure_machine):
    azure_machine.launched(deallocates="yes")
    azure_machine.imds.manager = 503
    azure_machine.now += HOUR
    for _ in range(7):
        azure_machine.tick()
    azure_machine.imds.manager = 202
    assert azure_machine.tick() == OFF


def test_the_identity_s_token_is_in_no_process_list(azure_machine, tmp_path):
    azure_machine.launched(deallocates="yes")
    azure_machine.stands_in("curl", f'echo "$*" >>{tmp_path}/words; exec {CURL} "$@"')
    (azure_machine.agent / "last-active").write_text("1800000000\n")
    azure_machine.tick("report")
    azure_machine.tick("end")
    assert len(azure_machine.imds.written) == 2
    assert Azure.token not in (tmp_path / "words").read_text()
