"""A full disk, a held lock, a missing extra, odd directories, foreign processes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import psutil
import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.errors import AuthFailed, InvalidRequest, MissingExtra, NoCapacity, ProviderUnavailable
from cloudgpu.providers.local.processes import MARKER_VARIABLE, end_all, find_processes, wait_for
from cloudgpu.providers.local.store import cloud_lock, system_errors
from tests.providers.local.cloud import PATIENCE_S, Cloud, now, processes_under, words_of

pytestmark = pytest.mark.usefixtures("no_bytecode")  # a limit on files would cut it off


@pytest.fixture
def full_disk():
    """Let no file of this process grow beyond 100 bytes, as on a disk that is full."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, most))

    yield fill
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_a_full_disk_refuses_the_launch_and_leaves_nothing(cloud, full_disk):
    attempt = cloud.attempt()
    full_disk()
    with pytest.raises(NoCapacity, match="no room left on the disk") as refused:
        cloud.provider.launch(attempt, deadline=now())
    assert refused.value.next == "free some space and try again"
    assert cloud.empty
    assert processes_under(cloud.home) == []


def test_a_disk_that_fills_up_later_does_not_hide_the_machine(cloud, full_disk):
    machine = cloud.running()
    full_disk()
    assert [one.state for one in cloud.provider.list().instances] == [State.RUNNING]
    with pytest.raises(ProviderUnavailable) as refused:
        cloud.provider.tag(machine.id, {"cloudgpu-hold-until": "1800000000"})
    assert not isinstance(refused.value, NoCapacity)
    assert cloud.provider.get(machine.id).tags == machine.tags


@pytest.mark.soak
def test_a_full_disk_keeps_no_machine_on(cloud, full_disk):
    one, two = cloud.running("one"), cloud.running("two")
    full_disk()
    with pytest.raises(ProviderUnavailable, match="cannot be reached"):
        cloud.provider.stop(one.id)
    assert wait_for(lambda: processes_under(cloud.home / one.id) == [], PATIENCE_S)
    cloud.provider.terminate(two.id)
    assert processes_under(cloud.home) == []
    assert [seen.id for seen in cloud.provider.list().instances] == [one.id]
    cloud.provider.terminate(one.id)
    assert cloud.empty


def test_damaged_tags_of_one_machine_hide_no_other_one_and_do_not_keep_it_on(cloud):
    damaged, whole = cloud.running("one"), cloud.running("two")
    cloud.layout(damaged.id).tags.write_text("{")
    listing = cloud.provider.list()
    assert [one.id for one in listing.instances] == [whole.id]
    assert [one.scope.rpartition("/")[2] for one in listing.unanswered] == [damaged.id]
    for call in (cloud.provider.get, cloud.provider.timer, lambda id_: cloud.provider.tag(id_, {"a": "b"})):
        with pytest.raises(ProviderUnavailable, match=damaged.id):
            call(damaged.id)
    cloud.provider.terminate(damaged.id)
    assert [one.id for one in cloud.provider.list().instances] == [whole.id]


def test_a_forbidden_directory_is_a_matter_of_permission(tmp_path):
    with pytest.raises(AuthFailed, match="may not write"), system_errors(tmp_path):
        raise PermissionError(13, "Permission denied", str(tmp_path))


def test_a_file_where_the_machines_should_be_is_said(tmp_path):
    (tmp_path / "home").write_text("in the way")
    with pytest.raises(ProviderUnavailable, match="cannot be reached"):
        Cloud(tmp_path / "home").launch()


def test_a_held_cloud_is_waited_for_and_then_said(tmp_path):
    with (
        cloud_lock(tmp_path / "home"),
        pytest.raises(ProviderUnavailable, match="has held the local machines"),
        cloud_lock(tmp_path / "home", wait_s=0.1),
    ):
        pytest.fail("two at once")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("missing", ["asyncssh", "psutil"])
def test_a_missing_extra_is_answered_with_the_line_that_installs_it(cloud, monkeypatch, missing):
    attempt = cloud.attempt()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=missing) as refused:
        cloud.provider.launch(attempt, deadline=now())
    monkeypatch.undo()
    assert refused.value.next == "pip install 'cloudgpu[local]'"
    assert cloud.empty


def test_a_machine_lives_under_a_path_with_spaces_and_quotes(cloud):
    odd = Cloud(cloud.home / 'it\'s "here" $HOME')
    machine = odd.running(script="pwd > where")
    where = odd.layout(machine.id).home / "where"
    assert wait_for(lambda: where.exists() and where.read_text() != "", PATIENCE_S)
    assert where.read_text().strip() == str(where.parent)
    assert wait_for(lambda: [one for one in processes_under(odd.home) if words_of(one)[-1:] == ["run"]], PATIENCE_S)
    odd.provider.terminate(machine.id)
    assert processes_under(odd.home) == []


def test_a_machine_that_is_ending_cannot_be_started(cloud):
    machine = cloud.running()
    record = cloud.layout(machine.id).record
    number = int(cloud.layout(machine.id).lifetime_lock.read_text())
    os.kill(number, signal.SIGSTOP)
    record.write_text(record.read_text().replace('"running"', f'"stopped", "asked_at": "{now().isoformat()}"'))
    assert cloud.provider.get(machine.id).state is State.STOPPING
    with pytest.raises(InvalidRequest, match="just ending"):
        cloud.provider.start(machine.id)
    os.kill(number, signal.SIGCONT)


@pytest.mark.soak
def test_what_a_dead_machine_process_left_is_ended_from_inside_too(cloud):
    machine = cloud.running(script="touch begun; sleep 1000")
    layout = cloud.layout(machine.id)
    assert wait_for((layout.home / "begun").exists, PATIENCE_S)
    os.kill(int(layout.lifetime_lock.read_text()), signal.SIGKILL)
    assert processes_under(cloud.home) != []
    command = [sys.executable, "-m", "cloudgpu.providers.local.machine", "--power-off", str(layout.root), "lease"]
    subprocess.run(command, check=True, timeout=30)
    assert wait_for(lambda: processes_under(cloud.home) == [], PATIENCE_S)
    assert cloud.provider.get(machine.id).state is State.STOPPED


def test_only_the_marked_and_their_children_are_found_and_ended():
    mark = f"i-test@{os.getpid()}"
    # a marked parent with a plain child, a child that cleaned its environment, and one of another machine
    script = f"sleep 1001 & env -i sleep 1002 & {MARKER_VARIABLE}=i-other@1 sleep 1003 & wait"
    family = subprocess.Popen(["sh", "-c", script], env={**os.environ, MARKER_VARIABLE: mark})
    stranger = subprocess.Popen(["sleep", "1004"], env={**os.environ, MARKER_VARIABLE: mark + "0"})
    parent = psutil.Process(family.pid)

    def sleeps(processes):
        return sorted(one.cmdline()[-1] for one in processes if one.cmdline()[:1] == ["sleep"])

    try:
        assert wait_for(lambda: sleeps(parent.children()) == ["1001", "1002", "1003"], PATIENCE_S)
        other = next(one for one in parent.children() if one.cmdline()[-1] == "1003")
        assert sleeps(find_processes(mark)) == ["1001", "1002"]
        end_all(mark)
        assert family.wait(10) == -signal.SIGKILL
        assert find_processes(mark) == []
        assert other.is_running()
        assert stranger.poll() is None
    finally:
        end_all(mark)
        end_all("i-other@1")
        stranger.kill()
        stranger.wait()
        family.wait()
