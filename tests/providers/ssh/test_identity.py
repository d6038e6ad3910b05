"""Which computer, user and home a host is: by its own word, on the connection that a look makes anyhow."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from cloudgpu.agent.program import source
from cloudgpu.core.model.instances import State
from cloudgpu.errors import InstanceNotFound, NoCapacity, ProviderUnavailable
from cloudgpu.providers.ssh import client
from cloudgpu.providers.ssh.provider import _PendingQuery, make
from tests.providers.ssh.hosts import Lab

ID, OTHER_ID = "1" * 32, "2" * 32


@pytest.fixture(autouse=True)
def own_ids(monkeypatch):
    """Let each host of a test have its machine id in its home: they are all on this computer."""
    text = client.program().replace('Path("/etc/machine-id"), Path("/var/', 'Path.home() / "machine-id", Path("/no/')
    text = text.replace("machine_id and _is_container()", "(HOME / 'container').exists()")
    monkeypatch.setattr(client, "program", lambda: text)


@pytest.fixture
def host(lab):
    (lab.hosts[0].home / "machine-id").write_text(f"{ID}\n")
    return lab.hosts[0]


def called(host, name):
    """Return the provider of an account that calls this host `name`."""
    return make(replace(Lab(host.root.parent, host).settings, options={"hosts": [{**host.options, "name": name}]}))


@pytest.mark.soak
def test_a_look_says_which_computer_it_was_without_asking_again(lab, host, monkeypatch):
    visits = []
    monkeypatch.setattr(client, "log_in", lambda *a, visit=client.log_in, **k: visits.append(a) or visit(*a, **k))
    provider = lab.provider
    provider.list()
    found = provider.identity("bigbox")
    assert (found.kind, found.id.split("/", 1)[0], len(visits)) == ("ssh host", ID, 1)
    assert found.id.endswith(str(host.home))
    assert "(user ada, at 127.0.0.1)" in found.display_name
    assert lab.provider.identity("bigbox") == found
    assert len(visits) == 2


@pytest.mark.soak
def test_who_asks_for_it_during_a_look_waits_for_that(lab, host, monkeypatch):
    visits, there, go_on = [], Event(), Event()

    def visit(*args, real=client.log_in, **more):
        visits.append(args)
        there.set()
        assert go_on.wait(60)
        return real(*args, **more)

    class Waited(_PendingQuery):
        def result(self, host):
            go_on.set()
            return super().result(host)

    monkeypatch.setattr(client, "log_in", visit)
    monkeypatch.setattr("cloudgpu.providers.ssh.provider._PendingQuery", Waited)
    provider = lab.provider
    with ThreadPoolExecutor(1) as pool:
        listed = pool.submit(provider.list)
        assert there.wait(60)
        assert provider.identity("bigbox").id.startswith(ID)
        assert listed.result(60).identities == {"bigbox": provider.identity("bigbox")}
    assert len(visits) == 1


def test_a_host_that_does_not_answer_has_no_identity(lab, host):
    host.off()
    with pytest.raises(ProviderUnavailable):
        lab.provider.identity("bigbox")
    with pytest.raises(ProviderUnavailable, match="not in the settings"):
        lab.provider.identity("another")


@pytest.mark.soak
def test_two_computers_of_one_name_are_told_apart(lab, host, own):
    other = own("bigger")
    (other.home / "machine-id").write_text(f"{OTHER_ID}\n")
    assert called(other, "bigbox").identity("bigbox").id != lab.provider.identity("bigbox").id


@pytest.mark.soak
def test_two_users_of_one_computer_are_told_apart(lab, host, own):
    other = own("eve")
    (other.home / "machine-id").write_text(f"{ID}\n")
    theirs = Lab(host.root.parent, other).provider.identity("eve")
    assert theirs.id != lab.provider.identity("bigbox").id
    assert theirs.id.startswith(f"{ID}/")


@pytest.mark.soak
def test_one_computer_under_two_names_is_one_and_its_machine_is_reached_by_both(lab, host):
    made = lab.launch()
    provider = called(host, "gpu1")
    assert provider.identity("gpu1").id == lab.provider.identity("bigbox").id == provider.identity("bigbox").id
    (seen,) = provider.list().instances
    assert (seen.id, seen.region, seen.instance_type) == (made.id, "bigbox", "bigbox")
    assert called(host, "gpu1").get(made.id).state is State.RUNNING
    provider.terminate(made.id)
    with pytest.raises(InstanceNotFound):
        provider.get(made.id)


@pytest.mark.soak
def test_a_host_is_not_another_one_on_which_a_machine_bears_its_name(lab, host, own):
    other = own("other")
    (other.home / "machine-id").write_text(f"{OTHER_ID}\n")
    lab.launch()
    tables = [{**other.options, "name": "bigbox"}, {**host.options, "name": "gpu1"}]
    found = make(replace(lab.settings, options={"hosts": tables})).list().identities
    assert found["gpu1"].id == lab.provider.identity("bigbox").id
    assert found["bigbox"].id.startswith(f"{OTHER_ID}/")


@pytest.mark.soak
def test_containers_of_one_image_are_told_apart(lab, host):
    plain = lab.provider.identity("bigbox").id
    (host.home / "container").touch()
    assert lab.provider.identity("bigbox").id.startswith(f"{ID}:")
    (host.home / "machine-id").write_text("\n")
    without = lab.provider.identity("bigbox").id
    assert without.partition("/")[2] == plain.partition("/")[2]
    assert without.partition(":")[2]  # the host key, and the name


@pytest.mark.soak
def test_a_host_that_was_installed_anew_is_another_computer_and_nothing_is_said_of_the_old_one(lab, host):
    made = lab.launch()
    provider = lab.provider
    before = provider.identity("bigbox")
    lab.provider.terminate(made.id)
    (host.home / "machine-id").write_text(f"{OTHER_ID}\n")
    assert lab.provider.identity("bigbox").id != before.id
    with pytest.raises(ProviderUnavailable, match="than a moment ago") as said:
        provider.get(made.id)
    assert not isinstance(said.value, InstanceNotFound)
    found = provider.list()
    assert (found.instances, found.unanswered) == ((), ())


@pytest.mark.soak
def test_a_home_that_two_computers_share_has_its_machine_at_one_of_them(lab, host):
    made = lab.launch(agent_source=source())
    (host.home / "machine-id").write_text(f"{OTHER_ID}\n")
    assert lab.provider.list().instances == ()
    for act in (lab.provider.stop, lab.provider.start, lab.provider.terminate):
        with pytest.raises(ProviderUnavailable, match="whose home this is"):
            act(made.id)
    with pytest.raises(ProviderUnavailable, match="shares that home"):
        lab.provider.get(made.id)
    with pytest.raises(NoCapacity, match="in use by one"):
        lab.launch("two")
    (host.home / "machine-id").write_text(f"{ID}\n")
    assert lab.provider.get(made.id).state is State.RUNNING
