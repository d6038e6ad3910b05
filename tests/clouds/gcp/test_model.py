"""Our model of Google Cloud does what is documented: operations, names, limits, ends; Google's own client on it."""

from __future__ import annotations

import math
import uuid

import pytest
from google.api_core import exceptions
from requests.exceptions import ConnectionError  # noqa: A004

from tests.clouds.gcp.plain import PROJECT, ZONE, Plain, gpu, launching

HERE = f"projects/{PROJECT}/zones/{ZONE}"
BOX = f"{ZONE}/box"


@pytest.fixture
def plain(gcp):
    return Plain(gcp)


def codes(operation):
    return [one.code for one in operation.error.errors]


def spot(**more):
    return {"scheduling": {"provisioning_model": "SPOT", **more}}


def test_a_machine_is_made_with_its_disk_and_has_its_address_while_it_runs(gcp, plain):
    assert codes(plain.launch()) == []
    found = plain.look()
    address = found.network_interfaces[0].access_configs[0].nat_i_p
    assert (found.status, address.startswith("127.22.")) == ("RUNNING", True)
    assert plain("Disks", "get", disk="box").labels == {"a": "b"}
    assert gcp.billable() == [f"{HERE}/disks/box", f"{HERE}/instances/box"]
    plain("Instances", "stop_unary", instance="box")
    assert plain.look().network_interfaces[0].access_configs[0].nat_i_p == ""
    assert gcp.billable() == [f"{HERE}/disks/box"]
    plain("Instances", "start_unary", instance="box")
    assert plain.look().network_interfaces[0].access_configs[0].nat_i_p not in {"", address}
    plain("Instances", "delete_unary", instance="box")
    assert gcp.billable() == []


def test_a_disk_without_auto_delete_outlives_its_machine(gcp, plain):
    disk = {"boot": True, "initialize_params": {"source_image": "projects/debian-cloud/global/images/family/debian-12"}}
    plain.launch(disks=[disk])
    with pytest.raises(exceptions.BadRequest, match="already being used"):
        plain("Disks", "delete_unary", disk="box")
    plain("Instances", "delete_unary", instance="box")
    assert gcp.billable() == [f"{HERE}/disks/box"]


def test_the_same_request_id_makes_one_machine_for_an_hour(gcp, plain):
    request = launching(request_id=str(uuid.uuid4()))
    first = plain.begun("Instances", "insert_unary", **request)
    again = plain.begun("Instances", "insert_unary", **request)
    assert (again.name, len(gcp.instances())) == (first.name, 1)
    other = {**request, "instance_resource": {**request["instance_resource"], "description": "other"}}
    with pytest.raises(exceptions.BadRequest, match="another request"):
        plain.begun("Instances", "insert_unary", **other)
    gcp.advance(3601)
    with pytest.raises(exceptions.Conflict, match="already exists"):
        plain.begun("Instances", "insert_unary", **request)
    with pytest.raises(exceptions.BadRequest, match="UUID"):
        plain.begun("Instances", "insert_unary", **{**request, "request_id": "x"})


def test_an_operation_goes_through_its_states(gcp, plain):
    gcp.dwell(operation=60)
    begun = plain.begun("Instances", "insert_unary", **launching())
    states = [begun.status.name, plain.ended(begun).status.name]
    assert (gcp.status(BOX), gcp.instances(live=True)) == ("PROVISIONING", [BOX])
    gcp.advance(61)
    assert [*states, plain.ended(begun).status.name] == ["PENDING", "RUNNING", "DONE"]
    gcp.dwell(stop=math.inf)
    plain("Instances", "stop_unary", instance="box")
    assert gcp.status(BOX) == "STOPPING"
    gcp.finish(BOX)
    assert gcp.status(BOX) == "TERMINATED"


def test_no_capacity_comes_inside_the_operation_and_leaves_nothing(gcp, plain):
    gcp.stockout(zone=ZONE, gpu="nvidia-tesla-t4", times=1)
    ended = plain.launch()
    assert (codes(ended), ended.http_error_status_code) == (["ZONE_RESOURCE_POOL_EXHAUSTED"], 503)
    assert ended.error.errors[0].error_details[0].error_info.metadatas["attachment"] == "nvidia-tesla-t4:1"
    assert gcp.billable() == []
    plain.launch()
    plain("Instances", "stop_unary", instance="box")
    gcp.stockout(market="on-demand", times=1)
    assert codes(plain("Instances", "start_unary", instance="box")) == ["ZONE_RESOURCE_POOL_EXHAUSTED"]
    assert gcp.status(BOX) == "TERMINATED"


@pytest.mark.parametrize(
    ("metric", "region", "more"),
    [
        ("NVIDIA_T4_GPUS", "us-central1", {}),
        ("PREEMPTIBLE_NVIDIA_T4_GPUS", "us-central1", spot()),
        ("GPUS_ALL_REGIONS", "", {}),
    ],
)
def test_a_limit_is_counted_by_region_market_and_over_all(gcp, plain, metric, region, more):
    gcp.limit(metric, 1, region)
    assert codes(plain.launch("first", **more)) == []
    ended = plain.launch("second", **more)
    assert codes(ended) == ["QUOTA_EXCEEDED"]
    assert f"Quota '{metric}' exceeded.  Limit: 1.0" in ended.error.errors[0].message
    plain("Instances", "stop_unary", instance="first")
    assert codes(plain.launch("second", **more)) == []


def test_limits_are_shown_with_their_use(gcp, plain):
    gcp.limit("NVIDIA_T4_GPUS", 3, "us-central1")
    plain.launch()
    region = plain("Regions", "get", at="", region="us-central1")
    shown = {one.metric: (one.limit, one.usage) for one in region.quotas}
    assert (shown["NVIDIA_T4_GPUS"], shown["PREEMPTIBLE_NVIDIA_T4_GPUS"]) == ((3, 1), (8, 0))
    project = plain("Projects", "get", at="")
    assert [(one.limit, one.usage) for one in project.quotas if one.metric == "GPUS_ALL_REGIONS"] == [(8, 1)]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scheduling": {}}, "live migration"),
        (spot(automatic_restart=True), "automatic restart"),
        ({"machine_type": f"zones/{ZONE}/machineTypes/g2-standard-4"}, "not compatible"),
        ({"machine_type": f"zones/{ZONE}/machineTypes/n1-standard-32"}, None),
        ({"machine_type": f"zones/{ZONE}/machineTypes/n1-standard-9"}, "not found"),
        (
            {"guest_accelerators": [{"accelerator_type": gpu(ZONE, "nvidia-tesla-p100"), "accelerator_count": 1}]},
            "found",
        ),
        ({"guest_accelerators": [{"accelerator_type": gpu(ZONE, "nvidia-l4"), "accelerator_count": 1}]}, "compatible"),
        (
            {"scheduling": {"on_host_maintenance": "TERMINATE", "max_run_duration": {"seconds": 60}}},
            "termination action",
        ),
        (spot(max_run_duration={"seconds": 29}), "maxRunDuration"),
        (spot(max_run_duration={"seconds": 120 * 86400 + 1}), "maxRunDuration"),
        ({"labels": {"Name": "x"}}, "Label key"),
        ({"labels": {"name": "Ada@x"}}, "Label value"),
        ({"metadata": {"items": [{"key": "user-data", "value": "x" * 262_145}]}}, "too large"),
        ({"disks": []}, "boot disk"),
        ({"network_interfaces": []}, "network interface"),
    ],
)
def test_what_google_refuses_is_refused(gcp, plain, more, words):
    if words is None:
        assert codes(plain.launch(**more)) == []
        return
    with pytest.raises(exceptions.ClientError, match=words):
        plain.launch(**more)
    assert gcp.billable() == []


def test_a_machine_ends_at_its_run_duration(gcp, plain):
    ends = {"max_run_duration": {"seconds": 3600}, "instance_termination_action": "STOP"}
    plain.launch(scheduling={"on_host_maintenance": "TERMINATE", **ends})
    assert plain.look().resource_status.scheduling.termination_timestamp
    gcp.advance(3500)
    assert gcp.status(BOX) == "RUNNING"
    gcp.advance(101)
    assert gcp.status(BOX) == "TERMINATED"
    changed = {"on_host_maintenance": "TERMINATE", **ends, "max_run_duration": {"seconds": 60}}
    plain("Instances", "set_scheduling_unary", instance="box", scheduling_resource=changed)
    plain("Instances", "start_unary", instance="box")
    with pytest.raises(exceptions.BadRequest, match="not ready"):
        plain("Instances", "set_scheduling_unary", instance="box", scheduling_resource=changed)
    gcp.advance(61)
    assert gcp.status(BOX) == "TERMINATED"


@pytest.mark.parametrize(("action", "left"), [("STOP", ["disks/box"]), ("DELETE", [])])
def test_a_spot_machine_is_taken_back_with_an_operation_that_says_so(gcp, plain, action, left):
    plain.launch(**spot(instance_termination_action=action))
    gcp.interrupt(BOX)
    assert gcp.billable() == [f"{HERE}/{one}" for one in left]
    found = plain("ZoneOperations", "list", filter='operationType="compute.instances.preempted"')
    assert [(one.target_link.rpartition("/")[2], one.user) for one in found] == [("box", "system")]


def test_a_shutdown_from_inside_ends_the_billing_of_the_machine_alone(gcp, plain):
    plain.launch()
    gcp.shut_down(BOX)
    assert (gcp.status(BOX), gcp.billable()) == ("TERMINATED", [f"{HERE}/disks/box"])


def test_a_stop_asks_what_becomes_of_local_ssd(gcp, plain):
    kind = {"machine_type": f"zones/{ZONE}/machineTypes/a2-ultragpu-1g", "guest_accelerators": []}
    plain.launch(**kind)
    assert [one.type_ for one in plain.look().disks] == ["PERSISTENT", "SCRATCH"]
    with pytest.raises(exceptions.BadRequest, match="discard-local-ssd"):
        plain("Instances", "stop_unary", instance="box")
    plain("Instances", "stop_unary", instance="box", discard_local_ssd=False)
    assert gcp.billable() == [f"{HERE}/disks/box", f"{HERE}/instances/box#local-ssd"]
    plain("Instances", "start_unary", instance="box")
    plain("Instances", "stop_unary", instance="box", discard_local_ssd=True)
    assert gcp.billable() == [f"{HERE}/disks/box"]


def test_labels_and_metadata_change_by_their_fingerprint_only(plain):
    plain.launch()
    held = plain.look()
    new = {"labels": {"b": "c"}, "label_fingerprint": held.label_fingerprint}
    plain("Instances", "set_labels_unary", instance="box", instances_set_labels_request_resource=new)
    with pytest.raises(exceptions.PreconditionFailed):
        plain("Instances", "set_labels_unary", instance="box", instances_set_labels_request_resource=new)
    assert plain.look().labels == {"b": "c"}
    metadata = {"fingerprint": held.metadata.fingerprint, "items": [{"key": "k", "value": "v"}]}
    plain("Instances", "set_metadata_unary", instance="box", metadata_resource=metadata)
    with pytest.raises(exceptions.PreconditionFailed):
        plain("Instances", "set_metadata_unary", instance="box", metadata_resource=metadata)


def test_guest_attributes_are_read_where_the_machine_may_write_them(gcp, plain):
    plain.launch("quiet")
    plain.launch(metadata={"items": [{"key": "enable-guest-attributes", "value": "TRUE"}]})
    asked = {"instance": "box", "query_path": "cloudgpu/last-active"}
    with pytest.raises(exceptions.NotFound):
        plain("Instances", "get_guest_attributes", **asked)
    gcp.say(BOX, "cloudgpu/last-active", "1700000000")
    gcp.say(f"{ZONE}/quiet", "cloudgpu/last-active", "1700000000")
    found = plain("Instances", "get_guest_attributes", **asked).query_value.items
    assert [(one.namespace, one.key, one.value) for one in found] == [("cloudgpu", "last-active", "1700000000")]
    with pytest.raises(exceptions.NotFound):
        plain("Instances", "get_guest_attributes", **{**asked, "instance": "quiet"})


def test_a_list_over_all_zones_has_pages_warnings_and_filters(gcp, plain):
    for number in range(5):
        plain.launch(f"box{number}", labels={"mine": "yes" if number else "no"}, guest_accelerators=[])
    asked = {"at": "", "filter": "labels.mine=yes", "max_results": 2}
    every = [one.name for _, part in plain("Instances", "aggregated_list", **asked) for one in part.instances]
    assert every == ["box1", "box2", "box3", "box4"]
    assert len(gcp.called("compute.instances.aggregatedList")) == 2
    empty = dict(plain("Instances", "aggregated_list", at=""))["zones/us-east1-b"]
    assert empty.warning.code == "NO_RESULTS_ON_PAGE"


def test_a_silent_zone_is_named_in_the_list_over_all(gcp, plain):
    plain.launch()
    gcp.faults.offline(zone=ZONE)
    found = dict(plain("Instances", "aggregated_list", at=""))
    assert (found[f"zones/{ZONE}"].warning.code, list(found[f"zones/{ZONE}"].instances)) == ("UNREACHABLE", [])
    with pytest.raises(ConnectionError):
        plain("Instances", "stop_unary", instance="box")


def test_who_gets_in_is_decided_by_priority_and_denial_wins(gcp, plain):
    plain.launch(tags={"items": ["cg"]})
    assert gcp.allows(BOX, "203.0.113.9")  # the default network lets everybody in
    ours = {"network": "global/networks/default", "target_tags": ["cg"]}
    rules = {
        "deny": {"priority": 900, "denied": [{"I_p_protocol": "tcp"}], "source_ranges": ["0.0.0.0/0"]},
        "let": {
            "priority": 800,
            "allowed": [{"I_p_protocol": "tcp", "ports": ["22"]}],
            "source_ranges": ["198.51.100.7/32"],
        },
    }
    for name, rule in rules.items():
        plain("Firewalls", "insert_unary", at="", firewall_resource={"name": name, **ours, **rule})
    seen = [
        gcp.allows(BOX, address, port)
        for address, port in (("198.51.100.7", 22), ("198.51.100.7", 8888), ("8.8.8.8", 22))
    ]
    assert seen == [True, False, False]
    assert gcp.firewalls() == ["deny", "let"]
    plain("Firewalls", "patch_unary", at="", firewall="let", firewall_resource={"name": "let", "priority": 900})
    assert not gcp.allows(BOX, "198.51.100.7")


def test_a_volume_is_attached_to_one_machine_of_its_zone(plain):
    for name in ("box", "other"):
        plain.launch(name)
    plain("Disks", "insert_unary", disk_resource={"name": "data", "size_gb": 20})
    source = {"source": f"zones/{ZONE}/disks/data", "device_name": "data"}
    plain("Instances", "attach_disk_unary", instance="box", attached_disk_resource=source)
    with pytest.raises(exceptions.BadRequest, match="already being used"):
        plain("Instances", "attach_disk_unary", instance="other", attached_disk_resource=source)
    plain("Instances", "delete_unary", instance="box")
    plain("Instances", "attach_disk_unary", instance="other", attached_disk_resource=source)
    plain("Instances", "detach_disk_unary", instance="other", device_name="data")
    plain("Disks", "delete_unary", disk="data")


def test_an_image_is_made_of_a_disk_at_rest_and_a_machine_of_the_image(gcp, plain):
    plain.launch()
    image = {"name": "kept", "source_disk": f"zones/{ZONE}/disks/box", "labels": {"a": "b"}, "family": "mine"}
    with pytest.raises(exceptions.BadRequest, match="already being used"):
        plain("Images", "insert_unary", at="", image_resource=image)
    plain("Instances", "stop_unary", instance="box")
    gcp.dwell(image=math.inf)
    plain("Images", "insert_unary", at="", image_resource=image)
    assert plain("Images", "get", at="", image="kept").status == "PENDING"
    gcp.finish("image kept")
    assert plain("Images", "get_from_family", at="", family="mine").name == "kept"
    disk = {"boot": True, "auto_delete": True, "initialize_params": {"source_image": "global/images/kept"}}
    plain.launch("again", disks=[disk])
    assert plain("Disks", "get", disk="again").size_gb == 50


def test_faults_come_as_google_says_them(gcp, plain):
    gcp.faults.add("compute.instances.get", error="rateLimitExceeded", retry_after=7, times=1)
    with pytest.raises(exceptions.TooManyRequests) as limited:
        plain.look()
    assert limited.value.response.headers["Retry-After"] == "7"
    gcp.faults.deny("compute.instances.insert", times=1)
    with pytest.raises(exceptions.Forbidden, match=r"Required 'compute\.instances\.create' permission"):
        plain.launch()
    gcp.faults.lose_reply("compute.instances.insert")
    with pytest.raises(ConnectionError, match="Remote end closed connection"):
        plain.launch()
    assert gcp.instances() == [BOX]
    gcp.model.granted = {"compute.instances.get"}
    assert plain.look().name == "box"
    with pytest.raises(exceptions.Forbidden, match=r"compute\.instances\.delete"):
        plain("Instances", "delete_unary", instance="box")
