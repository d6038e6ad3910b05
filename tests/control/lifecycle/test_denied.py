"""A key that was taken back ends no bill: `down` and `stop` say so first, with the price, the place and the way out."""

from __future__ import annotations

import pytest

import cloudgpu
from cloudgpu.control.lifecycle.lifecycle import explain_refused_credential, stop, terminate_one
from cloudgpu.errors import AuthFailed, RoleNeeded
from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process
from tests.core.machines import machine

__all__ = ["lambdalabs", "lambdalabs_process", "runpod", "runpod_process", "vast", "vast_process"]
OTHER = "rpa_TAKEN_BACK_0123456789"
CONFIG = 'provider = "{}"\naddress_services = []\n'
PLACES = {
    "lambda": ("lambdalabs", "a10", "https://cloud.lambda.ai/instances", "cloud.lambda.ai/api-keys"),
    "runpod": ("runpod", "h100", "https://console.runpod.io/pods?id=", "https://console.runpod.io/user/settings"),
    "vast": ("vast", "rtx4090", "https://cloud.vast.ai/instances/", "https://cloud.vast.ai/manage-keys/"),
}


def take_back(kind, server, monkeypatch):
    """Let the cloud know the key no more."""
    if kind == "lambda":
        monkeypatch.setattr(server, "key", OTHER)
    elif kind == "vast":
        server.keys.clear()
    else:
        monkeypatch.setenv("RUNPOD_API_KEY", OTHER)


@pytest.mark.parametrize(
    ("kind", "verb"), [("lambda", "down"), ("runpod", "down"), ("runpod", "stop"), ("vast", "down"), ("vast", "stop")]
)
def test_a_key_that_was_taken_back_leaves_a_machine_that_is_billed_and_that_is_said_first(
    kind, verb, request, tmp_path, monkeypatch
):
    fixture, gpu, page, keys = PLACES[kind]
    server = request.getfixturevalue(fixture)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG.format(kind))
    with cloudgpu.connect(home=home, clock=server.clock.now) as opened:
        made = opened.machines.up(gpu=gpu, name="bear", no_guard=True, wait=False)["machine"]
        price = opened.machines.ls(refresh=True)["machines"][0]["price"]["usd_per_hour"]
        take_back(kind, server, monkeypatch)
    with cloudgpu.connect(home=home, clock=server.clock.now) as opened, pytest.raises(AuthFailed) as raised:
        getattr(opened.machines, verb)("bear")
    error, done, do = raised.value, *{"down": ("ended", "End"), "stop": ("stopped", "Stop")}[verb]
    assert error.exit_code == 6
    assert error.message.startswith(f"bear was not {done}: it runs on and is billed at ${float(price):.2f} an hour. ")
    assert error.next.startswith(f"{do} it by hand at {page}")
    assert f"(there it is {made['cloud_id']})" in error.next
    assert keys in error.next
    assert f"into {kind.upper()}_API_KEY" in error.next
    assert error.next.endswith(f"Then run: cloudgpu {verb} bear")


def refused(session, row, error=None, verb="down"):
    with pytest.raises(AuthFailed) as raised, explain_refused_credential(session, row, verb):
        raise error or AuthFailed("It may not.", next="Renew it.")
    return raised.value


def test_the_fake_clouds_machine_is_ended_once_the_permission_is_back(lab):
    row = lab.up(name="fox").machine
    for verb, act, done, do in (("terminate", terminate_one, "ended", "End"), ("stop", stop, "stopped", "Stop")):
        lab.cloud.fail_next(verb, AuthFailed("The key may not do it.", field="permission"))
        with pytest.raises(AuthFailed, match=f"^fox was not {done}: it runs on and is billed at") as raised:
            act(lab.session, row, why="test")
        assert raised.value.next.startswith(f"{do} it by hand in the console of fake (there it is ")
    assert terminate_one(lab.session, row, why="test").terminated_at is not None


def test_a_stopped_one_is_billed_for_its_disk_and_one_that_is_gone_for_nothing(lab):
    row = stop(lab.session, lab.up(name="fox").machine, why="test")
    assert refused(lab.session, row).message.startswith("fox was not ended: it is stopped, and its disk is still bil")
    row = terminate_one(lab.session, row, why="test")
    assert refused(lab.session, row).message == "It may not."


def test_one_that_is_shut_down_and_billed_does_not_run_and_is_to_be_stopped_by_hand_not_ended(lab):
    row = machine(name="fox", provider="azure", provider_id="westeurope/fox", state="stopped", billed=True)
    found = refused(lab.session, row, verb="stop")
    assert found.message.startswith(
        "fox was not stopped: it is stopped, and still billed at a price that is not known. "
    )
    assert found.next.startswith("Stop it by hand at https://portal.azure.com/")


def test_no_page_is_named_whose_region_is_not_known(lab):
    row = machine(name="fox", provider="aws", provider_id=None, region=None, launch_status="open")
    assert refused(lab.session, row).next.startswith("End it by hand in the console of aws. Or")


def test_what_is_not_known_is_said_to_be_unknown(lab):
    row = machine(name="fox", provider="lambda", state="unknown", price=None, provider_id=None, launch_status="open")
    found = refused(lab.session, row)
    assert "whether it was launched is not known, so it may run and be billed at a price that is not k" in found.message
    assert found.next.startswith("End it by hand at https://cloud.lambda.ai/instances. Or")


def test_the_page_of_a_large_cloud_is_that_of_the_machine(lab):
    row = machine(name="fox", provider="aws", provider_id="us-east-2/i-0123456789abcdef0", region="us-east-2")
    page = "https://us-east-2.console.aws.amazon.com/ec2/home?region=us-east-2#InstanceDetails:instanceId="
    way = f"End it by hand at {page}i-0123456789abcdef0 (there it is i-0123456789abcdef0). Or"
    assert refused(lab.session, row).next.startswith(way)


def test_a_role_that_is_missing_and_a_computer_of_ones_own_are_no_such_case(lab):
    row = machine(name="fox", provider="aws")
    assert refused(lab.session, row, RoleNeeded("Ask ada.")).message == "Ask ada."
    assert refused(lab.session, machine(name="box", provider="ssh")).message == "It may not."
