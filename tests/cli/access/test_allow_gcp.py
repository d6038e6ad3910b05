"""Who may connect, from launch to end, by the command line on our model of Google Cloud with machines that answer SSH.

Who gets in is what all rules of the network say together: the default one has Google's own, which let everybody in.
"""

from __future__ import annotations

import pytest

from cloudgpu.access.ssh.client_files import new_host_key
from tests.address_service import AddressService
from tests.cli.gcp_line import CONFIG, Line
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.clouds.userdata import cloud_config

__all__ = ["gcp", "gcp_process"]
HOME, CAFE, ADAS = "203.0.113.7", "198.51.100.4", "192.0.2.9"
UP = "up --gpu t4 --template bare --name fox --yes"


@pytest.fixture
def service():
    made = AddressService(HOME.encode())
    yield made
    made.end()


@pytest.fixture
def line(own_home, capfd, gcp, service):
    gcp.dwell(operation=-1)  # an operation is done when it is answered: nothing is waited for
    line = Line(own_home, capfd, gcp)
    line.machines = gcp.serve_ssh()
    services = f'address_services = ["{service.url}"]'
    line.config(CONFIG.replace("address_services = []", services) + f"ssh_port = {gcp.ssh_port}\n")
    yield line
    line("down --all --yes")


def gets_in(gcp, *addresses):
    (id_,) = gcp.instances()
    return [gcp.allows(id_, address, gcp.ssh_port) for address in addresses]


@pytest.mark.soak
def test_a_machine_is_reached_by_its_own_host_key_and_a_caller_who_moves_moves_the_rule(line, gcp, service, tmp_path):
    made = line(UP)
    assert made.code == 0, made.err
    (id_,) = gcp.instances()
    given = cloud_config(gcp.user_data(id_))
    assert given["ssh_keys"]["ed25519_private"]
    assert line.whole("exec", "fox", "--", "echo", "hello").out == "hello\n"
    assert gets_in(gcp, HOME, CAFE, "8.8.8.8") == [True, False, False]

    service.said = CAFE.encode()
    said = line("allow")
    assert f"fox: SSH is open to {CAFE} now, and no longer to {HOME}." in said.out, said.out + said.err
    assert gets_in(gcp, HOME, CAFE) == [False, True]

    (tmp_path / "ada.pub").write_text(new_host_key().public_line)
    base = line.machines.home(id_) / ".cloudgpu"
    assert base.is_dir()
    shared = line.whole("share", "fox", "--key", str(tmp_path / "ada.pub"), "--from", ADAS)
    assert shared.code == 0, shared.err
    assert gets_in(gcp, CAFE, ADAS, HOME) == [True, True, False]
    assert line.whole("share", "fox", "--key", str(tmp_path / "ada.pub"), "--remove").code == 0
    assert gets_in(gcp, CAFE, ADAS) == [True, False]

    # What a machine does to itself: it says when it was last in use, and powers off.
    gcp.say(id_, "cloudgpu/last-active", "1700000000")
    line.whole("exec", "fox", "--", "sudo", "shutdown", "-h", "now")
    assert gcp.status(id_) == "TERMINATED"
    assert line("ls --refresh -o json").json["machines"][0]["billed"] is False
    assert line("down fox --yes").code == 0
    assert [name for name in gcp.firewalls() if not name.startswith("cloudgpu-shut-")] == []
