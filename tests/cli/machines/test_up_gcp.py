"""`up` on our model of Google Cloud by the command line, from the headline command to nothing left."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.cli.gcp_line import Line
from tests.cli.line import on_time_of, told_id
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.clouds.gcp.plain import Plain

__all__ = ["gcp", "gcp_process"]
CALLER = "203.0.113.7"
FROM = f"--ssh-from {CALLER}"
UP = f"up --gpu t4 --yes --no-wait {FROM} --name otter"


@pytest.fixture
def line(own_home, capsys, gcp, monkeypatch):
    on_time_of(monkeypatch, gcp)
    return Line(own_home, capsys, gcp)


@pytest.fixture
def bare(line):
    """A home without a config.toml."""
    (line.home / "config.toml").unlink()
    return line


def nothing_left(gcp):
    """Nothing costs money, and no rule lets anybody in."""
    assert gcp.billable() == []
    assert [name for name in gcp.firewalls() if not name.startswith("cloudgpu-shut-")] == []


def test_the_headline_command_needs_no_settings(bare, gcp):
    said = bare(f"up --provider gcp --gpu t4 --spot --yes --no-wait {FROM} -o json")
    assert said.code == 0, said.out + said.err
    machine, plan = said.json["machine"], said.json["plan"]
    assert (machine["provider"], machine["account"], machine["market"]) == ("gcp", "gcp", "spot")
    assert (machine["instance_type"], machine["gpus"][0]["name"]) == ("n1-standard-4+t4:1", "T4")
    (id_,) = gcp.instances(live=True)
    assert plan["price"]["usd_per_hour"]
    shown = bare("ls --refresh -o json").json["machines"][0]
    assert (shown["state"], shown["zone"]) == ("running", id_.partition("/")[0])
    assert bare("down --yes").code == 0
    nothing_left(gcp)


def test_a_machine_is_made_as_the_plan_says_and_closed_to_all_but_the_caller(line, gcp):
    said = line(UP, "--spot --disk 100 -o json")
    assert said.code == 0, said.err
    machine = said.json["machine"]
    (id_,) = gcp.instances()
    made = gcp.instance(id_)
    assert made["labels"]["cloudgpu-id"] == machine["id"]
    (disk,) = gcp.model.of("disks").values()
    assert (disk["sizeGb"], disk["labels"]["cloudgpu-id"]) == ("100", machine["id"])
    schedule = made["scheduling"]
    assert (schedule["provisioningModel"], schedule["instanceTerminationAction"]) == ("SPOT", "STOP")
    assert "serviceAccounts" not in made
    assert made["shieldedInstanceConfig"]["enableVtpm"] is True
    given = gcp.metadata(id_)
    assert (given["enable-oslogin"], given["block-project-ssh-keys"]) == ("FALSE", "TRUE")
    assert "serial-port-enable" not in given
    asked = [CALLER, "203.0.113.8", "8.8.8.8"]
    assert [gcp.allows(id_, address) for address in asked] == [True, False, False]
    assert not gcp.allows(id_, CALLER, 8888)


def test_the_same_command_again_returns_the_same_machine(line, gcp):
    first, second = line(UP, "-o json").json, line(UP, "-o json").json
    assert (first["found"], second["found"]) == (False, True)
    assert first["machine"]["id"] == second["machine"]["id"]
    assert len(gcp.called("compute.instances.insert")) == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    ("words", "kind", "gpu"),
    [
        ("--instance-type a2-highgpu-1g", "a2-highgpu-1g", ""),
        ("--instance-type g2-standard-4", "g2-standard-4", ""),
        ("--instance-type n1-standard-8+v100:1", "n1-standard-8", "nvidia-tesla-v100"),
        ("--instance-type a3-highgpu-8g --spot", "a3-highgpu-8g", ""),
    ],
)
def test_every_sort_of_machine_is_launched_as_google_sells_it(line, gcp, words, kind, gpu):
    said = line(f"up --yes --no-wait {FROM} {words} -o json")
    assert said.code == 0, said.out + said.err
    (made,) = (gcp.instance(one) for one in gcp.instances())
    attached = [one["acceleratorType"].rpartition("/")[2] for one in made.get("guestAccelerators", [])]
    assert (made["machineType"].rpartition("/")[2], attached) == (kind, [gpu] if gpu else [])
    assert made["scheduling"]["onHostMaintenance"] == "TERMINATE"


def test_a_stop_keeps_the_disk_and_says_what_it_costs_and_a_start_brings_it_back(line, gcp):
    assert line(UP).code == 0
    (id_,) = gcp.instances()
    disk = [path for path in gcp.billable() if "/disks/" in path]
    stopped = line("stop --yes")
    assert stopped.code == 0, stopped.err
    assert (gcp.status(id_), gcp.billable()) == ("TERMINATED", disk)
    assert "a month" in stopped.out
    (machine,) = line("ls -o json").json["machines"]
    assert (machine["state"], machine["billed"]) == ("stopped", False)
    assert float(machine["stopped_usd_per_month"]) > 0
    assert "free" not in line("ls").out
    started = line("start --yes --no-wait")
    assert started.code == 0, started.err
    assert (gcp.instances(live=True), gcp.status(id_)) == ([id_], "RUNNING")
    assert line("down --yes").code == 0
    nothing_left(gcp)


def test_a_stop_of_local_ssd_says_that_its_data_are_lost_and_leaves_none_of_it_billed(line, gcp):
    made = line(f"up --yes --no-wait {FROM} --instance-type a3-highgpu-8g --spot -o json")
    assert "GB of scratch disks (local SSD)" in made.json["plan"]["stop_effect"]
    stopped = line("stop --yes")
    assert stopped.code == 0, stopped.err
    (call,) = gcp.called("compute.instances.stop")
    assert call.query["discardLocalSsd"] == "true"
    assert [path for path in gcp.billable() if "local-ssd" in path] == []


def test_the_lease_is_moved_where_the_machine_reads_it(line, gcp):
    assert line(UP).code == 0
    (id_,) = gcp.instances()
    before = gcp.metadata(id_)
    said = line("extend otter 2h --yes")
    assert said.code == 0, said.err
    after = gcp.metadata(id_)
    assert int(after["cloudgpu-expires"]) > int(before["cloudgpu-expires"])
    assert gcp.instance(id_)["labels"]["cloudgpu-expires"] == after["cloudgpu-expires"]
    assert {name: text for name, text in after.items() if "cloudgpu" not in name} == {
        name: text for name, text in before.items() if "cloudgpu" not in name
    }
    assert line("hold otter 1h --yes").code == 0
    assert int(gcp.metadata(id_)["cloudgpu-hold-until"]) > 0


def test_an_image_of_a_machine_is_saved_and_launched_and_taken_away(line, gcp):
    assert line(UP).code == 0
    line("ls --refresh")
    saved = line("image save otter --name trained --yes")
    assert "may be damaged" in saved.out
    assert saved.code == 0, saved.err
    (image,) = line("image ls -o json").json["images"]
    assert image["name"] == "trained"
    again = line(f"up --gpu t4 --yes --no-wait {FROM} --name fox --image trained -o json")
    assert again.code == 0, again.out + again.err
    assert line("down --all --yes").code == 0
    assert [path.split("/")[-2] for path in gcp.billable()] in (["images"], ["machineImages"], ["snapshots"])
    removed = line("image rm trained --yes")
    assert removed.code == 0, removed.err
    nothing_left(gcp)


def test_a_volume_outlives_its_machine_and_binds_the_next(line, gcp):
    first = line(f"up --gpu t4 --yes --no-wait {FROM} --name otter --volume data:50 -o json")
    assert first.code == 0, first.out + first.err
    zone = first.json["machine"]["zone"]
    assert line("down --yes").code == 0
    (left,) = gcp.billable()
    assert "/disks/" in left
    second = line(f"up --gpu t4 --yes --no-wait {FROM} --name fox --volume data -o json")
    assert second.code == 0, second.out + second.err
    assert second.json["machine"]["zone"] == zone


def test_up_asks_google_no_more_than_it_needs(line, gcp):
    assert line(UP).code == 0
    _, called = line.calls(f"up --gpu t4 --yes --no-wait {FROM} --name fox --new --zone us-central1-a")
    made = Counter(one.removeprefix("compute.") for one in called)
    changes = {name: number for name, number in made.items() if name.endswith((".insert", ".patch", ".delete"))}
    assert changes == {"firewalls.insert": 1, "instances.insert": 1}
    assert made["instances.get"] == 2  # the machine, and whether its timer is set
    assert sum(made.values()) <= 16, made


def test_the_plan_fits_a_terminal_and_names_every_layer(line):
    said = line(f"up --gpu v100 --spot --dry-run {FROM} --volume data:50 -v")
    assert said.code == 0, said.err
    text = " ".join(said.out.split())
    assert max(map(len, said.out.splitlines())) <= 80
    for words in ("system disk of", "volume data of 50 GB", f"from {CALLER}/32"):
        assert words in text
    plan = line(f"up --gpu v100 --spot --dry-run {FROM} -o json").json["plan"]
    assert any("Google" in guard for guard in plan["guards"]), json.dumps(plan["guards"])


def test_every_answer_names_the_machine_as_the_console_does(line, gcp):
    told_id(line, lambda: gcp.instances(live=True)[0].partition("/")[2], UP)


def test_a_type_that_is_sold_as_spot_alone_says_so_and_no_later_try_helps(line):
    said = line(f"up --gpu h100 --on-demand --dry-run {FROM} -o json")
    error = said.json["error"]
    assert (said.code, error["field"], error["value"]) == (2, "--on-demand", "on_demand")
    assert error["message"] == "gcp sells 1x h100 only as a spot machine in the regions of account lab."
    assert line(f"up --gpu h100 --spot --dry-run {FROM} -o json").json["plan"]["market"] == "spot"


def interactive(gcp, **more):
    """Make a firewall rule as somebody does in the console: ahead of all others, for everybody."""
    usual = {"name": "mine", "network": "global/networks/default", "priority": 50, "source_ranges": ["0.0.0.0/0"]}
    usual |= {"direction": "INGRESS", "allowed": [{"I_p_protocol": "tcp", "ports": ["22"]}]}
    Plain(gcp)("Firewalls", "insert_unary", at="", firewall_resource={**usual, **more})


@pytest.mark.soak
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "lets everybody (0.0.0.0/0) reach port 22"),
        ({"allowed": [{"I_p_protocol": "all"}]}, "reach every port"),
        (
            {"allowed": [{"I_p_protocol": "tcp", "ports": ["8888"]}], "source_ranges": ["::/0"]},
            "(::/0) reach port 8888",
        ),
        ({"target_tags": ["cloudgpu"]}, "reach port 22"),
        ({"target_tags": ["machine"]}, "reach port 22"),  # the tag of one machine of ours
        ({"priority": 1000}, ""),  # after the rule that shuts our machines: it opens none of them
        ({"target_tags": ["web"]}, ""),
        ({"target_service_accounts": ["web@cloudgpu-test.iam.gserviceaccount.com"]}, ""),
        ({"source_ranges": ["10.0.0.0/8"]}, ""),
        ({"disabled": True}, ""),
    ],
)
def test_a_rule_ahead_of_ours_that_lets_everybody_in_is_told_with_the_command_that_removes_it(line, gcp, more, says):
    assert line(UP).code == 0
    if more.get("target_tags") == ["machine"]:
        more = {"target_tags": [gcp.instances(live=True)[0].partition("/")[2]]}
    interactive(gcp, **more)
    risks = [one for one in line(f"{UP} --new --dry-run -o json").json["plan"]["notes"] if one.startswith("RISK")]
    (check,) = [one for one in line("doctor -o json").json["checks"] if one["name"].startswith("rules made by hand")]
    if not says:
        assert (risks, check["verdict"]) == ([], "ok")
        return
    (risk,) = risks
    assert says in risk
    assert risk.endswith("gcloud compute firewall-rules delete mine --project cloudgpu-test")
    assert (check["verdict"], says in check["message"]) == ("warn", True)
