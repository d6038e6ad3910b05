"""The program that runs on a host, part by part and without SSH: carried out here, in a home of its own."""

from __future__ import annotations

import ast
import errno
import json
import os
import signal
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest

from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.providers.ssh import client
from cloudgpu.providers.ssh.options import ssh_hosts
from tests.providers.ssh.cards import Cards

ID, ME = "1" * 32, os.getpid()
RECORD = {
    "id": "bigbox.1",
    "token": "t",
    "machine": "cg-1",
    "name": "one",
    "wanted": "running",
    "computer": ID,
    "node": "here",
    "launched_at": 7.0,
}


@pytest.fixture(scope="module")
def code():
    return compile(client.program(), "<stdin>", "exec")


@pytest.fixture
def there(code, tmp_path, monkeypatch):
    """The program as it stands on a host whose home is `HOME`, on a computer with this machine id."""
    for name in [one for one in os.environ if one.startswith("JUPYTER")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    names = {"__name__": "program"}
    exec(code, names)  # noqa: S102  (as a host's Python does)
    (tmp_path / "id").write_text(f"{ID}\n")
    names |= {
        "MACHINE_IDS": (tmp_path / "id",),
        "TRANSIENT_ID_FILE": tmp_path / "boot",
        "_is_container": lambda: False,
    }
    return names


@pytest.fixture
def of(there):
    return SimpleNamespace(**there)


def made(there, **facts):
    """Write the record of a machine, and return it."""
    there["ROOT"].mkdir(exist_ok=True)
    return there["update_record"]({**RECORD, **facts})


# -- which GPUs a machine gets


@pytest.fixture
def cards(tmp_path, monkeypatch):
    found = Cards(tmp_path / "driver")
    monkeypatch.setenv("PATH", f"{found.path}:{os.environ['PATH']}")
    return found


def test_the_gpus_that_are_used_least_are_chosen_of_those_that_nobody_uses(of, cards):
    for number in (0, 3, 4, 5):
        cards.use(number, ME)
    cards.cards[1].used = 900
    cards.write()
    wanted = {"name": None, "count": 2, "part": True}
    assert of.choose_gpus(wanted, set) == ["GPU-2", "GPU-6"]
    with pytest.raises(of.Fault, match="4 of 8 GPUs are free, and 5 are wanted: GPU 0") as refused:
        of.choose_gpus({**wanted, "count": 5}, set)
    assert refused.value.kind == "taken"
    assert of.choose_gpus(None, set) == []


def test_a_start_looks_whether_others_use_the_machines_gpus_by_now(of, cards):
    cards.use(2, ME)
    with pytest.raises(of.Fault, match="1 of 2 GPUs is free, and 2 are wanted: GPU 2"):
        of.check_gpus_free(["GPU-2", "GPU-6"], set)
    of.check_gpus_free(["GPU-2", "GPU-6"], lambda: {ME})  # its own


def test_gpus_of_which_nobody_tells_who_uses_them_are_not_taken_for_free(of, cards):
    cards.answer((cards.path / "nvidia-smi").read_text().replace('elif kind == "query-compute-apps"', "elif not kind"))
    with pytest.raises(of.Fault, match="nvidia-smi has no answer") as refused:
        of.choose_gpus({"name": None, "count": 2, "part": True}, set)
    assert refused.value.kind == "unseen"


def test_all_that_is_started_from_a_machine_sees_its_gpus_alone(there, of):
    of.ROOT.mkdir()
    of.save(of.ROOT / "login", "")
    body = {"agent": {}, "jupyter": [], "record": {**RECORD, "devices": ["GPU-2", "GPU-6"]}}
    assert "export CUDA_VISIBLE_DEVICES=GPU-2,GPU-6\n" in of.export_lines(body["record"])
    assert of.agent_settings(body, "python3")["smi"] == ["-i", "GPU-2,GPU-6"]
    whole = {**body, "record": {**RECORD, "devices": []}}
    assert "CUDA" not in of.export_lines(whole["record"])
    assert of.agent_settings(whole, "python3")["smi"] == []


# -- which computer it is


def test_a_computer_is_known_by_what_it_keeps_and_a_container_by_its_name_too(there, of, tmp_path):
    assert of.lasting_id() == ID
    there["_is_container"] = lambda: True
    assert of.lasting_id() == f"{ID}:{os.uname().nodename}"
    (tmp_path / "boot").touch()  # what systemd makes up at each boot
    assert of.lasting_id() is None


def test_a_machine_of_another_computer_that_shares_the_home_is_left_alone(there, of, tmp_path):
    made(there, keys=[], authorized=True, spawned=1, boots=1)
    of.update_record(of.read_record(), wanted="stopped", ended={"reason": "asked", "at": 7.0})
    assert of.answer("look", {})["machine"]["name"] == "one"
    (tmp_path / "id").write_text("2" * 32)
    seen = of.answer("look", {})
    assert (seen["machine"], seen["elsewhere"]) == (None, RECORD["id"])
    for verb in ("stop", "start", "terminate", "tag"):
        assert of.answer(verb, {"id": RECORD["id"], "tags": {}})["fault"] == "elsewhere"
    refused = of.answer("launch", {"record": {**RECORD, "token": "another"}})
    assert (refused["fault"], json.loads(refused["said"])["name"]) == ("busy", "one")


# -- what is the owner's


def test_a_directory_that_somebody_else_has_made_is_never_taken(of):
    of.ROOT.mkdir()
    (of.ROOT / "mine").write_text("keep")
    assert of.answer("launch", {"record": RECORD})["fault"] == "foreign"
    assert [path.name for path in of.ROOT.iterdir()] == ["mine"]


def test_keys_are_let_in_and_taken_out_again_and_the_owners_file_is_as_it_was(there, of):
    key = new_host_key().public_line
    record = made(there, keys=[key])
    record = of.authorize(record)
    assert f"{' '.join(key.split()[:2])} cloudgpu:cg-1\n" in of.AUTHORIZED_KEYS.read_text()
    of.revoke(record)
    assert not of.AUTHORIZED_KEYS.parent.exists()  # neither was there before
    real = of.HOME / "dotfiles"
    real.write_bytes(b"# my keys\r\n\xff no newline")
    of.AUTHORIZED_KEYS.parent.mkdir()
    of.AUTHORIZED_KEYS.symlink_to(real)
    record = of.authorize(made(there, keys=[key]))
    assert real.read_bytes().endswith(b"cloudgpu:cg-1\n# my keys\r\n\xff no newline")
    of.revoke(record)
    assert of.AUTHORIZED_KEYS.is_symlink()
    assert real.read_bytes() == b"# my keys\r\n\xff no newline"


def test_what_the_owner_changed_or_added_beside_a_templates_files_stays_and_is_named(there, of):
    record = made(there)
    (of.WORK_DIRECTORY / "book").mkdir(parents=True)
    for name in ("a", "b"):
        (of.WORK_DIRECTORY / "book" / f"{name}.ipynb").write_text(name)
    of.publish(record)
    shown = of.HOME / "cloudgpu-one"
    (shown / "book" / "b.ipynb").write_text("edited")
    (shown / "book" / "mine.txt").write_text("added")
    kept = of.remove_unchanged(of.read_record())
    assert kept == {"where": str(shown), "files": ["book/b.ipynb", "book/mine.txt"], "count": 2}
    assert sorted(path.name for path in (shown / "book").iterdir()) == ["b.ipynb", "mine.txt"]


def test_a_clone_that_the_owner_worked_on_stays_whole_and_another_one_goes(there, of):
    record = made(there)
    for name in ("worked", "as_it_was"):
        (of.WORK_DIRECTORY / name / ".git").mkdir(parents=True)
        (of.WORK_DIRECTORY / name / ".git" / "HEAD").write_text("one")
        (of.WORK_DIRECTORY / name / ".git" / "index").write_text("one")
    of.publish(record)
    shown = of.HOME / "cloudgpu-one"
    (shown / "worked" / ".git" / "HEAD").write_text("the owner's commit")
    (shown / "as_it_was" / ".git" / "index").write_text("a look at its state")
    assert of.remove_unchanged(of.read_record())["files"] == ["worked/"]
    assert [path.name for path in shown.iterdir()] == ["worked"]


def test_a_full_disk_is_named_with_what_to_do(there, of):
    made(there, wanted="stopped", ended={"reason": "asked", "at": 7.0})

    def save(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    there["save"] = save
    said = of.answer("tag", {"id": RECORD["id"], "tags": {"cloudgpu-expires": "9"}})
    (host,) = ssh_hosts("lab", {"hosts": [{"name": "bigbox", "host": "10.0.0.5"}]})
    fault = client._host_error(host, said["fault"], said["said"], {})
    assert fault.message == f"The disk of bigbox is full: No space left on device ({of.HOME})."
    assert fault.next == "Free some space there, then try again."


def test_a_full_disk_keeps_no_machine_whose_agent_has_died(there, of, monkeypatch):
    made(there, authorized=True, boots=1, spawned=1, revivals=0, boot=of.boot_id(), boot_at=7.0, keys=[])

    def save(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(there, "save", save)
    assert "fault" not in of.answer("terminate", {"id": RECORD["id"]})
    assert not of.ROOT.exists()


# -- what runs


def test_an_agent_that_dies_again_and_again_is_given_up(there, of):
    record = made(there, authorized=True, boots=1, spawned=1, revivals=0, boot=of.boot_id(), boot_at=7.0)
    of.save(of.ROOT / "agent", "#!/bin/sh\nexit 1\n", 0o700)
    number = of.MAX_REVIVALS - 1
    of.update_record(record, revivals=number)
    deadline = time.monotonic() + 30  # the agent is a process: a busy computer takes a while to run and end it
    while of.read_record()["wanted"] != "stopped" and time.monotonic() < deadline:
        of.complete_pending()
        time.sleep(0.01)
    assert (of.read_record()["ended"], of.read_record()["revivals"]) == ({"reason": "died", "at": 7.0}, of.MAX_REVIVALS)


def test_an_agent_that_had_started_well_is_started_again_however_often_it_was_before(there, of):
    """A job may run for months: it does not end because its agent was killed once in a while."""
    was = {"authorized": True, "boots": 1, "spawned": 1, "boot": of.boot_id(), "boot_at": 7.0}
    record = made(there, **was, revivals=of.MAX_REVIVALS, revived_at=1000.0)
    of.save(of.ROOT / "agent", "#!/bin/sh\nexit 1\n", 0o700)
    of.save(of.ROOT / "heartbeat.json", "{}")
    os.utime(of.ROOT / "heartbeat.json", (1060.0, 1060.0))
    of.complete_running(record)
    assert (of.read_record()["wanted"], of.read_record()["revivals"]) == ("running", 1)
    assert of.read_record()["revived_at"] > 1060.0


def test_the_users_own_logins_are_no_sign_of_the_machines_life(there, of):
    body = {"agent": {}, "jupyter": [], "record": RECORD}
    (mark,) = of.agent_settings(body, "python3")["own"]
    assert mark == f"CLOUDGPU_MACHINE=bigbox.1@{of.ROOT.resolve()}"


def test_what_still_runs_is_told_without_the_agent_and_what_belongs_to_it(there, of):
    made(there)
    env = {**os.environ, "CLOUDGPU_MACHINE": f"bigbox.1@{of.ROOT.resolve()}"}
    below = "exec 3<&0; cat <&3 & exec 3<&-; echo; wait"  # it says when its child is there
    agent = subprocess.Popen(["sh", "-c", below], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    assert agent.stdout.readline() == b"\n"
    other = subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=env)
    there["agent_pids"] = lambda: {agent.pid}
    try:
        assert [one["command"] for one in of.processes({"id": RECORD["id"]})["processes"]] == ["cat"]
    finally:
        for process in (agent, other):
            process.communicate()


def test_what_does_not_end_is_said_and_no_end_is_proved(there, of):
    there["our_processes"], there["TERM_S"], there["KILL_S"] = (
        lambda: {2**31 - 1},
        0.0,
        0.0,
    )  # a process that nobody has
    with pytest.raises(of.Fault, match=f"do not end: {2**31 - 1}") as said:
        of.end_our_processes()
    assert said.value.kind == "unproved"


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM], ids=["an older kernel", "a container's filter"])
def test_a_process_ends_also_where_the_kernel_gives_no_handle_of_it(there, of, monkeypatch, refusal):
    def refuse(_pid, _flags=0):
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    mark = of.mark_line(made(there)).partition("=")
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, mark[0]: mark[2]})
    reaper = threading.Thread(target=process.wait)
    reaper.start()
    try:
        of.end_our_processes()
        reaper.join(10)
        assert process.returncode == -signal.SIGTERM
    finally:
        process.kill()
        reaper.join()


# -- what time it is


@pytest.mark.parametrize(("wrong", "apart"), [(0.0, 0.0), (50.0, 0.0), (-3600.0, 3600.0), (7200.0, -7200.0)])
def test_what_a_host_with_a_wrong_clock_dates_is_dated_by_the_callers(there, of, monkeypatch, wrong, apart):
    true = 1_800_000_000.0
    monkeypatch.setitem(there, "time", SimpleNamespace(time=lambda: true + wrong, monotonic=of.time.monotonic))
    made(there, boot_at=true, why="asked", ended=None, wanted="stopped", apart=apart)
    monkeypatch.setitem(there, "end_our_processes", lambda: None)
    assert there["answer"]("look", {"now": true})["machine"]["ended"]["at"] == true + wrong + apart
    assert there["clock_offset"]({"now": true}) == apart
    there["CALLER_CLOCK_OFFSET"].clear()
    assert there["caller_time"](there["read_record"]()) == true + wrong + apart  # of its agent, which nobody has called
    beat = there["ROOT"] / "heartbeat.json"
    beat.write_text("{}")
    os.utime(beat, (true + wrong + 60, true + wrong + 60))
    assert there["last_heartbeat"](there["read_record"]()) == true + wrong + apart + 60


def test_it_is_python_3_8():
    ast.parse(client.program(), feature_version=(3, 8))
