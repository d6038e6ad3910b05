"""The user's own machine through the real command line: up, exec, tunnel with a cell, share, down, and nothing left."""

from __future__ import annotations

import json
import os
import resource
from datetime import UTC, datetime

import psutil
import pytest

from cloudgpu.access.jupyter.notebook import run_cell
from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.testing import write_plugin
from tests.cli.many import QuickProgram, shared
from tests.cli.program import Program, until
from tests.providers.ssh.homes import everything, furnish

pytestmark = pytest.mark.usefixtures("no_bytecode")  # a limit on files would cut it off


@pytest.fixture
def host(own):
    return own()


@pytest.fixture
def cloudgpu(tmp_path, host):
    """The command line with an account of one host; the provider is offered as an installed package would."""
    plugin = write_plugin(tmp_path / "plugin", {"ssh": "cloudgpu.providers.ssh.provider:make"})
    path = os.pathsep.join([str(plugin), os.environ.get("PYTHONPATH", "")])
    program = QuickProgram(tmp_path / "home", {"PYTHONPATH": path}, shared())
    program.config(config(host))
    yield program
    if host.process is None:
        host.start()
    program("down", "--all", "--yes", timeout=120)


def config(host, **changes):
    facts = {key: value for key, value in {**host.options, **changes}.items() if value is not None}
    table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in facts.items())
    return f'provider = "ssh"\n[accounts.lab]\nprovider = "ssh"\nhosts = [{{{table}}}]\n'


@pytest.mark.soak
def test_an_own_machine_is_launched_used_and_left_as_it_was(cloudgpu, host):
    host.keys.write_bytes(host.keys.read_bytes() + b"# caf\xe9, and no newline at the end")
    furnish(host.home)
    before = everything(host.home)
    up = cloudgpu("up", "--yes", "--name", "amber-fox", "-o", "json", timeout=90)
    assert up.code == 0, up.err
    said = " ".join(up.json["plan"]["notes"])
    assert all(place in said for place in ("~/.cloudgpu", "~/.ssh/authorized_keys", "~/cloudgpu-amber-fox"))
    done = cloudgpu("exec", "amber-fox", "--", "sh", "-c", "echo $((6*7)); pwd")
    assert (done.code, done.out.split()) == (0, ["42", str(host.home)])
    tunnel = cloudgpu("tunnel", "--background", "-o", "json", timeout=90)
    assert tunnel.code == 0, tunnel.err
    result = run_cell(tunnel.json["port"], tunnel.json["url"].rpartition("token=")[2], "6 * 7")
    assert (result.text.strip(), result.ok) == ("42", True)
    again = cloudgpu("up", "--yes", "--name", "amber-fox", "-o", "json", timeout=90)
    assert (again.json["found"], again.json["machine"]["id"]) == (True, up.json["machine"]["id"])
    down = cloudgpu("down", "--yes", timeout=90)
    assert down.code == 0, down.err
    assert host.processes() == []
    assert everything(host.home) == before


OF_A_CLOUD = ("billed", "on-demand", "market", "the cloud", "cloud id", "bigbox/bigbox")


@pytest.mark.soak
def test_a_shared_key_goes_with_the_machine_of_which_no_word_is_a_clouds(cloudgpu, host, tmp_path):
    before = host.files()
    up = cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90)
    assert up.code == 0, up.err
    shown = up.err + up.out + cloudgpu("show").out + cloudgpu("ls", "-v").out
    assert [word for word in OF_A_CLOUD if word in shown] == [], shown
    guest = tmp_path / "guest.pub"
    guest.write_text(new_host_key().public_line)
    assert cloudgpu("share", "--key", str(guest), "-o", "json").json["changed"] is True
    assert guest.read_text().split()[1] in host.keys.read_text()
    assert cloudgpu("down", "--yes", timeout=90).code == 0
    assert host.files() == before


def test_a_second_machine_on_a_busy_host_is_refused_with_its_name(cloudgpu, host):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    second = cloudgpu("up", "--yes", "--name", "other", "-o", "json", timeout=90)
    assert second.code == 4
    assert "bigbox is in use by amber-fox" in second.json["error"]["message"]
    assert "cloudgpu down amber-fox" in second.json["error"]["next"]


@pytest.mark.soak
def test_whose_machine_keeps_a_host_busy_is_said_to_another_person_on_the_same_login(cloudgpu, host, tmp_path):
    assert cloudgpu("up", "--yes", "--name", "fox", "--owner", "ada", "--template", "bare", timeout=90).code == 0
    bob = QuickProgram(tmp_path / "bob", cloudgpu.environ, shared())
    bob.config(config(host))
    error = bob("up", "--yes", "--owner", "bob", "--template", "bare", "-o", "json").json["error"]
    launched = datetime.fromtimestamp(json.loads((host.place / "record.json").read_text())["launched_at"], UTC)
    assert error["message"] == f"bigbox is in use by ada's fox (running, launched {launched:%Y-%m-%d %H:%M} UTC)."
    assert error["next"] == "Ask ada to end it, or take another host: your ledger does not have that machine."
    error = bob("up", "--yes", "--owner", "ada", "--template", "bare", "-o", "json").json["error"]
    assert error["next"].startswith("End it from the home that launched it")


def test_an_up_that_was_killed_is_settled_by_the_next(cloudgpu, host):
    words = ("up", "--yes", "--name", "amber-fox", "--template", "bare")
    killed = cloudgpu.start(*words)
    until(host.place.exists)
    killed.kill()
    killed.communicate()
    done = cloudgpu(*words, "-o", "json", timeout=90)
    assert done.code == 0, done.err
    assert len(cloudgpu.machines()) == 1
    assert host.keys.read_bytes().count(b"cloudgpu:cg-") == 1


@pytest.mark.soak
def test_a_host_that_does_not_answer_is_said(cloudgpu, host):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    host.off()
    for command in (["up", "--yes", "--name", "other"], ["exec", "amber-fox", "--", "true"]):
        said = cloudgpu(*command, "-o", "json") if command[0] == "up" else cloudgpu(*command)
        assert said.code == (10 if command[0] == "up" else 255)
        assert command[0] != "up" or said.json["error"]["next"].startswith("Switch it on")
        assert "does not answer" in said.out + said.err
    listed = cloudgpu("ls", "--refresh", "-o", "json")
    assert listed.code == 8
    assert listed.json["unanswered"][0]["scope"] == "lab/bigbox"
    host.start()
    assert cloudgpu("exec", "amber-fox", "--", "true").code == 0


@pytest.mark.soak
@pytest.mark.parametrize(
    ("changes", "code", "field", "words"),
    [
        ({"host_key": None}, 2, "accounts.lab.hosts[0].host_key", "host key of bigbox"),
        ({"key": "~/nothing"}, 2, "key", "cannot be used"),
        ({"python": "python-4711"}, 2, "accounts.lab.hosts[0].python", "There is no python-4711 on bigbox"),
        ({"gpu_cout": 2}, 2, "accounts.lab.hosts[0].gpu_cout", "is not a setting"),
        ({"user": "eve"}, 6, "key", "does not let eve in"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_launched(cloudgpu, host, changes, code, field, words):
    cloudgpu.config(config(host, **changes))
    said = cloudgpu("up", "--yes", "-o", "json")
    error = said.json["error"]
    assert (said.code, error["field"]) == (code, field), error
    assert words in error["message"]
    assert error["next"]
    assert cloudgpu.machines() == []


@pytest.mark.soak
def test_another_host_key_than_the_confirmed_one_is_refused(cloudgpu, own, host):
    other = own("other")
    cloudgpu.config(config(host, host_key=other.host_key.public_line))
    said = cloudgpu("up", "--yes", "-o", "json")
    assert said.code == 10
    assert said.json["error"]["kind"] == "wrong_host_key"


@pytest.mark.soak
def test_a_changed_host_key_is_confirmed_by_the_command_that_is_named_and_the_machine_goes_on(cloudgpu, host):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    host.off()
    host.host_key = new_host_key()
    host.start()
    way = f"cloudgpu init --host bigbox=ada@127.0.0.1:{host.port}"
    for words in (("exec", "amber-fox", "--", "true"), ("ls", "--refresh"), ("down", "amber-fox", "--yes")):
        said = cloudgpu(*words)
        assert (said.code in (8, 10, 255), way in said.err) == (True, True), said.err
    shown = cloudgpu(*way.split()[1:], "--yes", "-o", "json").json["error"]["next"].rpartition(" ")[2]
    assert cloudgpu(*way.split()[1:], "--yes", "--fingerprint", shown).code == 0
    for told in (True, False):  # the new key is pinned for the machine, once
        done = cloudgpu("exec", "amber-fox", "--", "echo", "on")
        assert (done.code, done.out, "which you have confirmed" in done.err) == (0, "on\n", told), done.err
    assert cloudgpu("ls", "--refresh").code == 0


@pytest.mark.soak
def test_a_confirmed_key_is_pinned_for_no_machine_of_another_computer(cloudgpu, own, host):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    other, before = own("other"), (cloudgpu.home / "known_hosts").read_bytes()
    cloudgpu.config(config(host, host_key=other.host_key.public_line, port=other.port))
    assert cloudgpu("exec", "amber-fox", "--", "true").code == 0, "it is still where it was"
    host.off()
    assert cloudgpu("exec", "amber-fox", "--", "true").code == 255
    assert (cloudgpu.home / "known_hosts").read_bytes() == before
    host.start()
    cloudgpu.config(config(host))


@pytest.mark.soak
def test_the_users_known_hosts_confirms_a_host(cloudgpu, host):
    ssh = cloudgpu.home.parent / ".ssh"
    ssh.mkdir()
    key = " ".join(host.host_key.public_line.split()[:2])
    (ssh / "known_hosts").write_text(f"# mine\n[127.0.0.1]:{host.port} {key}\n")
    cloudgpu.config(config(host, host_key=None))
    assert cloudgpu("up", "--yes", "--template", "bare", timeout=90).code == 0
    assert host.files()[".ssh/authorized_keys"].count(b"cloudgpu:cg-") == 1


@pytest.mark.soak
def test_down_names_what_still_runs_there_and_ends_it(cloudgpu, host):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    job = "nohup sleep 1000 >/dev/null 2>&1 & echo $!"
    for verb, after in (("stop", "start"), ("down", None)):
        pid = int(cloudgpu("exec", "amber-fox", "--", "sh", "-c", job).out)
        ended = cloudgpu(verb, "amber-fox", "--yes", *(["-o", "json"] if verb == "down" else []), timeout=90)
        assert ended.code == 0, ended.err
        lines = ended.err.splitlines()
        heading = lines.index("  amber-fox: this still runs there and ends now:")
        assert (lines[heading + 1].split()[0], lines[heading + 1].split()[-2:]) == (str(pid), ["sleep", "1000"])
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        if after:
            assert cloudgpu(after, "amber-fox", "--yes", timeout=90).code == 0
    (said,) = ended.json["running"]
    (process,) = said["processes"]
    assert (said["name"], said["error"], process["pid"], process["command"]) == ("amber-fox", None, pid, "sleep 1000")


@pytest.mark.soak
def test_where_the_host_does_not_answer_down_says_that_it_is_not_known(cloudgpu, host):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    host.off()
    refused = cloudgpu("down", "amber-fox", timeout=90)  # nobody is asked: there is no terminal
    assert refused.code == 2
    assert "amber-fox: it is not known what still runs there: bigbox does not answer" in refused.err


def test_an_end_that_a_host_cannot_be_told_of_is_kept_and_finished_by_the_next_run(cloudgpu, host):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    host.off()
    down = cloudgpu("down", "amber-fox", "--yes", "-o", "json")
    assert down.code == 8
    error = down.json["error"]
    assert "bigbox" in error["message"]
    assert error["next"].endswith(
        "Its end is requested: the first run of cloudgpu reap that reaches amber-fox finishes it; "
        "until then cloudgpu hold amber-fox 1h cancels it."
    )
    listed = cloudgpu("ls")
    assert "its end was requested and is not done; cloudgpu down amber-fox or the next run of" in " ".join(
        listed.out.split()
    )
    assert cloudgpu("reap", timeout=90).code == 8
    assert [one["pending_action"] for one in cloudgpu.machines()] == ["terminate"]
    host.start()
    reap = cloudgpu("reap", "-o", "json", timeout=90)
    assert reap.code == 0, reap.err
    assert [one["name"] for one in reap.json["ended"]] == ["amber-fox"], reap.out
    assert host.processes() == []
    assert not host.place.exists()
    assert cloudgpu.machines() == []


def test_a_stop_that_a_host_cannot_be_told_of_is_kept_and_finished_by_the_next_run(cloudgpu, host):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    host.off()
    stop = cloudgpu("stop", "amber-fox", "--yes", "-o", "json")
    assert stop.code == 8
    assert stop.json["error"]["next"].endswith(
        "Its stop is requested: the first run of cloudgpu reap that reaches amber-fox finishes it; "
        "until then cloudgpu hold amber-fox 1h cancels it."
    )
    assert [one["pending_action"] for one in cloudgpu.machines()] == ["stop"]
    host.start()
    reap = cloudgpu("reap", "-o", "json", timeout=90)
    assert [one["name"] for one in reap.json["ended"]] == ["amber-fox"], reap.out
    assert [(one["state"], one["pending_action"]) for one in cloudgpu.machines()] == [("stopped", None)]


def test_an_end_that_waits_for_a_host_is_taken_back_while_it_is_off_as_down_says(cloudgpu, host):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    host.off()
    assert cloudgpu("down", "amber-fox", "--yes").code == 8
    assert [one["pending_action"] for one in cloudgpu.machines()] == ["terminate"]
    hold = cloudgpu("hold", "amber-fox", "1h", "--yes")
    assert hold.code == 8  # its agent cannot be told
    assert "amber-fox: its requested end is taken back" in hold.err
    assert [one["pending_action"] for one in cloudgpu.machines()] == [None]
    host.start()
    assert cloudgpu("reap", "-o", "json", timeout=90).json["ended"] == []
    assert [one["state"] for one in cloudgpu.machines()] == ["running"]


def test_a_job_for_which_a_host_has_no_room_says_why_once_and_begins_when_there_is_room(cloudgpu, host, tmp_path):
    """A limit on the size of files stands for the full disk: every write there is refused as on one."""
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("print('hello')")
    server = psutil.Process(host.process.pid)
    server.rlimit(psutil.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    words = ("run", "otter", "--on", "amber-fox", "--yes", "--workdir", str(tmp_path / "work"), "--", "echo", "hello")
    run = Program(cloudgpu.home, cloudgpu.environ).start(*words)
    try:
        waits = until(lambda: [one["waits"] for one in cloudgpu("jobs", "-o", "json").json["jobs"] if one["waits"]])
        assert "The disk of amber-fox is full" in waits[0]["why"]
        assert "Free space there" in waits[0]["why"]
        assert "otter waits to begin since" in " ".join(cloudgpu("jobs").out.split())
    finally:
        server.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, b"hello\n"), err
    assert (err.count(b"sending 1 file"), err.count(b"The disk of amber-fox is full")) == (1, 1)
    assert cloudgpu("jobs", "--all", "-o", "json").json["jobs"][0]["waits"] is None
