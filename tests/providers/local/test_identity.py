"""Whose machines these are: a home that moves keeps them, a copy of it and another computer do not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from cloudgpu.access import computer
from cloudgpu.agent import program
from cloudgpu.core.model.instances import State
from cloudgpu.core.values.times import from_epoch
from cloudgpu.errors import InstanceNotFound, ProviderUnavailable, StopUnproved
from cloudgpu.providers.local.build import rewrite_paths
from cloudgpu.providers.local.layout import Layout
from cloudgpu.providers.local.machine import MAX_DEATHS, Agent
from cloudgpu.providers.local.processes import wait_for
from tests.providers.local.cloud import PATIENCE_S, Cloud, processes_under


class Node(NamedTuple):
    """What `os.uname` says."""

    nodename: str


def at(cloud, home):
    """Return the same cloud with its files at `home`."""
    other = Cloud(home)
    other.public, other.private = cloud.public, cloud.private
    return other


def logs(layout):
    """What a machine's processes wrote: why nothing is at work there."""
    return {file.name: file.read_text() for file in [*layout.logs.iterdir(), layout.run]}


@pytest.fixture
def machine_id(tmp_path, monkeypatch):
    """Let this computer be another one from now on."""

    def be(text):
        file = tmp_path / "machine-id"
        file.write_text(f"{text}\n")
        monkeypatch.setattr(computer, "MACHINE_IDS", (tmp_path / "none", file))

    be("1" * 32)
    return be


@pytest.fixture
def moved(cloud):
    """A cloud with a running machine whose directory was moved; ended at the end wherever it is."""
    machine = cloud.running(agent_source=program.source())
    found = cloud.provider.identity()
    new = at(cloud, cloud.home.with_name("elsewhere"))
    cloud.home.rename(new.home)
    yield new, machine, found
    new.provider.terminate(machine.id)
    assert processes_under(cloud.home) == []
    assert processes_under(new.home) == []


def test_two_places_of_one_user_on_one_computer_are_two_accounts(tmp_path):
    ada, bob = Cloud(tmp_path / "ada").provider, Cloud(tmp_path / "bob").provider
    assert ada.identity() == Cloud(tmp_path / "ada").provider.identity()
    assert ada.identity().id.rpartition("/")[0] == bob.identity().id.rpartition("/")[0]
    assert ada.identity().id != bob.identity().id
    assert str(tmp_path / "ada") in ada.identity().display_name


def test_a_computer_keeps_its_identity_under_another_host_name(tmp_path, machine_id, monkeypatch):
    cloud = Cloud(tmp_path / "home").provider
    before = cloud.identity()
    monkeypatch.setattr(computer, "_is_container", lambda: False)
    before = cloud.identity()
    monkeypatch.setattr("os.uname", lambda: Node("renamed"))
    assert cloud.identity().id == before.id
    assert "renamed" in cloud.identity().display_name


@pytest.mark.parametrize("text", ["", "uninitialized", "0" * 32])
def test_containers_of_one_image_are_told_apart_by_their_names(machine_id, monkeypatch, text):
    """Whether they lack a machine id, or share that of the image or of the host."""
    machine_id(text)
    names = set()
    for name in ("3f2a", "77ab"):
        monkeypatch.setattr("os.uname", lambda name=name: Node(name))
        names.add(computer.computer_id())
        machine_id("2" * 32)
        monkeypatch.setattr(computer, "_is_container", lambda: True)
        names.add(computer.computer_id())
        machine_id(text)
    assert names == {"name:3f2a", "name:77ab", f"{'2' * 32}:3f2a", f"{'2' * 32}:77ab"}


def test_a_machine_id_that_each_boot_makes_up_counts_for_nothing(machine_id, tmp_path, monkeypatch):
    monkeypatch.setattr("os.uname", lambda: Node("node7"))
    monkeypatch.setattr(computer, "TRANSIENT_ID_FILE", tmp_path / "machine-id")
    assert computer.computer_id() == "name:node7"


def test_a_root_directory_of_layers_is_a_container(tmp_path, monkeypatch):
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(computer, "CONTAINER_FILES", ())
    monkeypatch.setattr(computer, "MOUNTS", mounts)
    mounts.write_text("1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n9 1 0:9 / /mnt rw - overlay overlay rw\n")
    assert computer._is_container() is False
    mounts.write_text("1 0 0:52 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a,upperdir=/b\n")
    assert computer._is_container() is True


@pytest.mark.soak
def test_a_moved_home_still_reaches_its_machines(moved):
    cloud, machine, found = moved
    assert [one.state for one in cloud.provider.list().instances] == [State.RUNNING]
    assert cloud.provider.identity().id == found.id
    until = time.time() + 5000
    cloud.provider.tag(machine.id, {"cloudgpu-renew-until": str(int(until))})
    assert cloud.provider.timer(machine.id) == from_epoch(str(int(until)))
    sign = cloud.layout(machine.id).agent / "heartbeat.json"
    sign.unlink(missing_ok=True)
    assert wait_for(sign.exists, PATIENCE_S), logs(cloud.layout(machine.id))
    cloud.provider.stop(machine.id)
    assert processes_under(cloud.home) == []
    cloud.provider.start(machine.id)
    again = cloud.wait(machine.id, State.RUNNING)
    assert again.address is not None
    settings = json.loads((cloud.layout(machine.id).agent / "agent.json").read_text())
    assert settings["root"] == str(cloud.layout(machine.id).home)


@pytest.mark.soak
def test_the_timer_of_a_moved_machine_follows_its_tags(moved):
    cloud, machine, _ = moved
    soon = {"cloudgpu-renew-until": str(int(time.time()) - 1)}
    cloud.provider.tag(machine.id, soon)
    assert wait_for(lambda: cloud.provider.get(machine.id).state is State.STOPPED, PATIENCE_S)
    assert cloud.provider.get(machine.id).reason == "renew-until"


def test_a_copy_of_a_home_says_nothing_of_the_machines_of_the_original(cloud, tmp_path):
    machine = cloud.running()
    original = cloud.provider.identity()
    shutil.copytree(cloud.home, tmp_path / "copy", symlinks=True)
    copy = at(cloud, tmp_path / "copy")
    assert copy.provider.identity().id != original.id
    assert copy.provider.list().instances == ()
    for ask in (copy.provider.get, copy.provider.stop, copy.provider.terminate):
        with pytest.raises(ProviderUnavailable, match="is not at this place") as said:
            ask(machine.id)
        assert not isinstance(said.value, InstanceNotFound)
    assert cloud.provider.identity() == original
    assert cloud.provider.get(machine.id).state is State.RUNNING


@pytest.mark.soak
def test_a_home_at_another_computer_says_nothing_of_the_machines_here(cloud, machine_id):
    """Copied there, or shared by both over the network."""
    machine = cloud.running()
    here = cloud.provider.identity()
    machine_id("2" * 32)
    assert cloud.provider.identity().id != here.id
    assert cloud.provider.list().instances == ()
    with pytest.raises(ProviderUnavailable):
        cloud.provider.terminate(machine.id)
    there = cloud.launch("two")
    machine_id("1" * 32)
    assert cloud.provider.identity() == here
    assert [one.id for one in cloud.provider.list().instances] == [machine.id]
    cloud.provider.terminate(machine.id)
    machine_id("2" * 32)
    cloud.provider.terminate(there.id)


def test_root_in_somebodys_home_leaves_no_file_there(tmp_path, monkeypatch):
    mine = Cloud(tmp_path / "home").provider.identity()
    file = tmp_path / "home" / "place.json"
    before = file.read_bytes()
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    other = Cloud(tmp_path / "home").provider.identity()
    assert other.id != mine.id
    assert other.id.endswith("/of-another-user")
    assert file.read_bytes() == before


def test_a_machine_that_lives_out_of_sight_is_never_said_to_have_ended(cloud, monkeypatch):
    """In another container, say: its lock is held, and no process of it can be seen."""
    machine = cloud.running()
    with monkeypatch.context() as blind:
        blind.setattr("cloudgpu.providers.local.store.end_all", lambda _: None)
        blind.setattr("cloudgpu.providers.local.store.terminate_process", lambda *_: None)
        blind.setattr("cloudgpu.providers.local.store.STOP_TIMEOUT_S", 0.1)
        with pytest.raises(StopUnproved, match="where this one cannot see it"):
            cloud.provider.terminate(machine.id)
    assert Path(cloud.layout(machine.id).record).exists()


def test_an_agent_that_was_being_started_while_its_directory_moved_is_started_anew_there(tmp_path, monkeypatch):
    old, new = Layout(tmp_path / "old"), Layout(tmp_path / "new")
    for made in (old.agent, old.logs):
        made.mkdir(parents=True)
    (old.agent / "agent").write_text("#!/bin/sh\nexec sleep 600\n")
    (old.agent / "agent").chmod(0o700)
    agent, start, started, again = Agent(old), asyncio.create_subprocess_exec, [], asyncio.Event()

    async def start_slowly(*command, **more):
        started.append(await start(*command, **more))
        if old.root.exists():
            old.root.rename(new.root)
            agent.move(new)
        else:
            again.set()
        return started[-1]

    async def keep_until_it_runs_there():
        kept = asyncio.create_task(agent.keep_running())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(again.wait(), PATIENCE_S)
        kept.cancel()
        for one in started[1:]:
            one.kill()
        return [one.returncode for one in started[:1]]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_slowly)
    assert asyncio.run(keep_until_it_runs_there()) in ([-9], [2])  # ended, or its script had moved before it began
    assert len(started) == 2


def test_an_agent_whose_log_cannot_be_opened_does_not_count_as_one_that_watches_the_lease(tmp_path, monkeypatch):
    layout = Layout(tmp_path / "without-logs")
    layout.agent.mkdir(parents=True)
    (layout.agent / "agent").touch()
    agent, watched = Agent(layout), []

    async def pause(_seconds):
        watched.append(agent.watches_lease())
        if len(watched) == MAX_DEATHS:
            (layout.agent / "agent").unlink()

    monkeypatch.setattr(asyncio, "sleep", pause)
    asyncio.run(agent.keep_running())
    assert watched == [True, True, False]


@pytest.mark.parametrize("name", ["josé", "ann"])
@pytest.mark.parametrize("is_longer", [True, False])
def test_the_files_of_a_machine_name_where_its_directory_was_moved_to(tmp_path, name, is_longer):
    layout = Layout(tmp_path / name / "i-1")
    new = str(layout.root)
    old = f"/mnt{new}" if is_longer else "/" + new.split("/", 2)[2]  # one path is a part of the other one
    layout.agent.mkdir(parents=True)
    settings, profile = layout.agent / "agent.json", layout.home / ".profile"
    settings.write_text(json.dumps({"root": f"{old}/home"}))
    profile.write_text(f"PATH={old}/python/bin\n")
    for _ in range(2):  # as after a kill in between
        rewrite_paths(layout, old)
        assert json.loads(settings.read_text()) == {"root": f"{new}/home"}
        assert profile.read_text() == f"PATH={new}/python/bin\n"
