"""Boot data: a multipart that cloud-init reads, made of an attempt and of what its cloud says."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import replace

import pytest

from cloudgpu.agent.program import source as agent_source
from cloudgpu.core.model.launch import BootPart, Volume
from cloudgpu.core.model.offers import Accelerator, MachineConfiguration, Market
from cloudgpu.providers.machine import source
from cloudgpu.providers.machine.user_data import BootOptions, boot_hook, user_data
from cloudgpu.providers.shared.python_environment import jupyter_command
from cloudgpu.testing import make_attempt
from tests.clouds.aws import userdata
from tests.providers.aws.attempts import USUAL

GIVEN = BootOptions("aws", ssh_port=2222, reports=True, volume="vol-0123456789abcdef0")
ITEM = MachineConfiguration("aws", "lab", "us-east-1", "us-east-1b", "p3.2xlarge", Market.SPOT)


def attempt(*parts, volume=None, **more):
    made = make_attempt(ITEM, parts=parts, agent_source=agent_source(), **more)
    return replace(made, request=replace(made.request, setup=replace(USUAL, volume=volume)))


def parts_of(made, given=GIVEN):
    text = user_data(made, given)
    assert text.isascii()  # cloud-init loses what is not
    return userdata.parts(base64.b64encode(text.encode()).decode())


def config_of(made, given=GIVEN):
    return userdata.cloud_config(base64.b64encode(user_data(made, given).encode()).decode())


def files_of(made, given=GIVEN):
    return {file["path"].rpartition("/")[2]: file for file in config_of(made, given)["write_files"]}


def test_the_lease_comes_first_and_does_not_need_the_rest():
    made = attempt(BootPart("cloud_init", "#cloud-config\nruncmd: [[broken\n"))
    first, *rest = parts_of(made)
    assert first.type == "text/cloud-boothook"
    assert [part.type for part in rest] == ["text/cloud-config", "text/cloud-config"]
    lines = first.text.splitlines()
    assert lines[:2] == ["#cloud-boothook", "#!/bin/sh"]
    assert lines[-1].startswith("systemctl start --no-block cloudgpu-lease.timer ")
    assert f"expires={made.tags['cloudgpu-expires']}" in lines
    assert f"renew_until={made.tags['cloudgpu-renew-until']}" in lines
    assert f"token={made.token}" in lines
    assert "OnUnitActiveSec=60" in lines


def test_the_boot_hook_is_a_script_of_the_shell():
    text = boot_hook(attempt(volume=Volume("data"), jupyter=("jupyter", "lab")), GIVEN).partition("\n")[2]
    subprocess.run(["/bin/sh", "-n"], input=text, text=True, check=True)


def test_the_user_the_keys_and_the_host_key_are_ours():
    made = attempt()
    config = config_of(made)
    (user,) = config["users"]
    assert (user["name"], user["sudo"], user["lock_passwd"]) == ("cloudgpu", "ALL=(ALL) NOPASSWD:ALL", True)
    assert user["ssh_authorized_keys"] == list(made.boot.client_public_keys)
    assert config["ssh_keys"]["ed25519_private"] == made.boot.host_private_key
    assert config["ssh_keys"]["ed25519_public"] == made.boot.host_public_key
    assert (config["ssh_deletekeys"], config["disable_root"], config["ssh_pwauth"]) == (True, True, False)


def test_the_agent_reads_its_lease_where_the_timer_writes_it_and_ends_by_the_same_script():
    made = attempt(jupyter=("jupyter", "lab", "--collaborative"))
    files = files_of(made)
    settings = json.loads(files["agent.json"]["content"])
    assert files["agent.py"]["content"] == made.boot.agent_source
    assert settings["id"] == made.machine
    assert settings["metadata"] == {"kind": "file", "path": "/run/cloudgpu/tags.json"}
    assert settings["end"] == ["sudo", "-n", "/usr/local/lib/cloudgpu/lease", "end"]
    assert settings["lease"]["cloudgpu-expires"] == made.tags["cloudgpu-expires"]
    assert settings["jupyter"] == ["/usr/local/lib/cloudgpu/jupyter", "jupyterlab", "--collaborative"]
    assert settings["made"] == made.made_at.timestamp()


def test_the_agent_is_told_its_policy_its_gpus_and_where_planned_events_are():
    made = attempt(policy={"after": 3600.0, "off": [1_800_000_000]})
    gpus = replace(made.offer.configuration, accelerators=(Accelerator("A100", 8), Accelerator("T4", 1)))
    made = replace(made, offer=replace(made.offer, configuration=gpus))
    settings = json.loads(files_of(made)["agent.json"]["content"])
    assert settings["policy"] == {"after": 3600.0, "off": [1_800_000_000]}
    assert settings["gpus"] == 9
    assert settings["events"] == {"kind": "file", "path": "/run/cloudgpu/events.json"}
    assert "own" not in settings, "the machine is the whole computer"
    assert "policy" not in json.loads(files_of(attempt())["agent.json"]["content"])


def test_parts_of_templates_are_carried_out():
    words = "print('grüße 😀 \u2028 \x07')\n"
    config = '#cloud-config\nwrite_files: [{path: /etc/motd, content: "grüße"}]\n'
    made = attempt(BootPart("packages", "git\ncurl"), BootPart("packages", "git"), BootPart("cloud_init", config))
    made = replace(made, boot=replace(made.boot, parts=(*made.boot.parts, BootPart("on_start", words))))
    merged = config_of(made)
    assert (merged["packages"], merged["package_update"]) == (["git", "curl"], True)
    assert files_of(made)["on_start.sh"]["content"] == words
    assert merged["write_files"][-1] == {"path": "/etc/motd", "content": "grüße"}
    assert "Merge-Type: list(append)+dict(no_replace,recurse_list)+str()" in user_data(made, GIVEN)


def test_what_is_not_wanted_is_not_sent():
    lean = BootOptions("aws")
    made = attempt()
    assert set(files_of(made, lean)) == {"agent.py", "agent.json", "agent", "settle", "start"}
    assert "packages" not in config_of(made, lean)
    hook = boot_hook(made, lean)
    assert "jupyter=''" in hook
    assert not any(word in hook for word in ("report.py", "cloudgpu-volume", "sshd_config"))


def test_ssh_listens_on_another_port_before_it_is_reachable():
    hook = boot_hook(attempt(), GIVEN)
    assert "echo 'Port 2222' >/etc/ssh/sshd_config.d/10-cloudgpu.conf" in hook


def test_a_volume_is_waited_for_by_its_id_where_that_is_known():
    made = attempt(volume=Volume("data", 10))
    assert "ExecStart=/usr/local/lib/cloudgpu/volume vol-0123456789abcdef0\n" in boot_hook(made, GIVEN)
    assert "ExecStart=/usr/local/lib/cloudgpu/volume\n" in boot_hook(made, replace(GIVEN, volume=""))


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ((), []),
        (("jupyter", "lab"), ["/usr/local/lib/cloudgpu/jupyter", "jupyterlab"]),
        (("jupyter-lab", "--debug"), ["/usr/local/lib/cloudgpu/jupyter", "jupyterlab", "--debug"]),
        (("jupyter", "notebook"), ["/usr/local/lib/cloudgpu/jupyter", "notebook"]),
        (("jupyter", "--version"), ["/usr/local/lib/cloudgpu/jupyter", "jupyter", "--version"]),
        (("code-server",), ["code-server"]),
    ],
)
def test_jupyter_runs_by_the_environment_that_the_first_start_makes(words, command):
    assert jupyter_command(words, "/usr/local/lib/cloudgpu/jupyter") == command


# What is another cloud's


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_each_cloud_brings_its_own_metadata_and_report(cloud):
    made, given = attempt(volume=Volume("data")), BootOptions(cloud, reports=True, volume="0")
    hook = boot_hook(made, given)
    subprocess.run(["/bin/sh", "-n"], input=hook.partition("\n")[2], text=True, check=True)
    assert source(f"cloud_{cloud}.sh").rstrip() in hook
    here = "/usr/local/lib/cloudgpu"
    report = f"/usr/bin/python3 {here}/report.py" if cloud == "aws" else f"{here}/lease report"
    assert f"ExecStartPost=-{report}\n" in hook
    assert ("report.py" in files_of(made, given)) == (cloud == "aws")
    assert "ExecStartPost" not in boot_hook(made, BootOptions(cloud))


def test_a_machine_is_told_whether_it_may_release_itself():
    assert "\ndeallocates=''\n" in boot_hook(attempt(), BootOptions("azure"))
    assert "\ndeallocates=yes\n" in boot_hook(attempt(), BootOptions("azure", can_deallocate=True))


def test_a_notice_is_watched_for_on_spot_machines_alone():
    paid = replace(attempt(), offer=replace(attempt().offer, configuration=replace(ITEM, market=Market.ON_DEMAND)))
    for made, cloud, watched in (
        (attempt(), "gcp", True),
        (paid, "gcp", False),
        (attempt(), "aws", True),
        (paid, "aws", False),
    ):
        hook = boot_hook(made, BootOptions(cloud))
        assert ("ExecStart=/usr/local/lib/cloudgpu/lease watch\n" in hook) == watched
        assert (" cloudgpu-notice.service" in hook) == watched


def test_an_agent_asks_about_its_gpus_before_their_driver_has_forgotten():
    """A driver keeps 14 seconds of a GPU's use, as seen on a real one."""
    for cloud in ("aws", "gcp", "azure"):
        assert json.loads(files_of(attempt(), BootOptions(cloud))["agent.json"]["content"])["interval"] < 14


def test_another_user_s_name_is_used_everywhere():
    made, given = attempt(), BootOptions("azure", user="ada")
    assert config_of(made, given)["users"][0]["name"] == "ada"
    assert json.loads(files_of(made, given)["agent.json"]["content"])["root"] == "/home/ada"
    hook = boot_hook(made, given)
    assert "user=ada\n" in hook
    assert "User=ada\n" in hook
    assert "/home/cloudgpu" not in hook


def host_key_line(cloud, marker):
    (line,) = (line for line in boot_hook(attempt(), BootOptions(cloud)).splitlines() if marker in line)
    return line


def test_nobody_else_on_a_google_image_replaces_the_host_key(tmp_path):
    file = tmp_path / "instance_configs.cfg.template"
    line = host_key_line("gcp", "set_host_keys").replace("/etc/default", str(tmp_path))
    for _ in range(2):  # at each boot
        subprocess.run(["/bin/sh", "-c", line], check=True)
    assert file.read_text() == "[InstanceSetup]\nset_host_keys = false\n"


def test_azure_s_agent_waits_for_the_host_key_that_there_will_be(tmp_path):
    file = tmp_path / "waagent.conf"
    file.write_text("Provisioning.Agent=auto\nProvisioning.SshHostKeyPairType=rsa\nLogs.Verbose=n\n")
    line = host_key_line("azure", "SshHostKeyPairType").replace("/etc", str(tmp_path))
    subprocess.run(["/bin/sh", "-c", line], check=True)
    assert file.read_text() == "Provisioning.Agent=auto\nProvisioning.SshHostKeyPairType=ed25519\nLogs.Verbose=n\n"
