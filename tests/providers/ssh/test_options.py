"""The settings of an ssh account: what is wrong is named by its place, with the near word or an example."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.core.model.offers import Basis, Requirements
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.ssh.options import KEYS, ssh_hosts
from cloudgpu.providers.ssh.provider import make
from tests.providers.ssh.cards import Card, Cards
from tests.providers.ssh.hosts import now

BOX = {"name": "bigbox", "host": "10.0.0.5"}


def test_name_and_host_are_enough():
    (host,) = ssh_hosts("lab", {"hosts": [BOX]})
    assert (host.name, host.host, host.port, host.python, host.gpu) == ("bigbox", "10.0.0.5", 22, "python3", None)


def test_everything_is_read():
    line = new_host_key().public_line
    facts = {
        "port": 2222,
        "user": "ada",
        "key": "~/.ssh/id",
        "host_key": line,
        "python": "~/venv/bin/python",
        "gpu": "rtx3090",
        "gpu_count": 2,
        "gpu_memory_gib": 24,
        "watts": 450,
        "usd_per_kwh": 0.12,
        "usd_per_gpu_hour": 0.9,
    }
    assert {*BOX, *facts} == set(KEYS)
    (host,) = ssh_hosts("lab", {"hosts": [{**BOX, **facts}]})
    assert host.key.is_absolute()
    assert host.host_key == " ".join(line.split()[:2])
    assert (host.watts, host.usd_per_kwh, host.gpu_memory_gib) == (Decimal(450), Decimal("0.12"), 24.0)
    assert host.usd_per_gpu_hour == Decimal("0.9")


@pytest.mark.parametrize(
    ("options", "field", "way_out"),
    [
        ({"host": []}, "host", "Its settings are "),
        ({"hosts": "bigbox"}, "hosts", "hosts = [{name"),
        ({"hosts": ["bigbox"]}, "hosts[0]", "hosts = [{name"),
        ({"hosts": [{"host": "x"}]}, "hosts[0].name", "hosts = [{name"),
        ({"hosts": [BOX, {"name": "b"}]}, "hosts[1].host", "hosts = [{name"),
        ({"hosts": [BOX, BOX]}, "hosts[1].name", "own name"),
        ({"hosts": [{**BOX, "usr": "ada"}]}, "hosts[0].usr", "Its settings are name"),
        ({"hosts": [{**BOX, "name": "Big Box"}]}, "hosts[0].name", "A name is"),
        ({"hosts": [{**BOX, "host": "-oProxyCommand=x"}]}, "hosts[0].host", "one word"),
        ({"hosts": [{**BOX, "host": ""}]}, "hosts[0].host", "one word"),
        ({"hosts": [{**BOX, "user": "a b"}]}, "hosts[0].user", "one word"),
        ({"hosts": [{**BOX, "python": "python3; rm"}]}, "hosts[0].python", "one word"),
        ({"hosts": [{**BOX, "port": "22"}]}, "hosts[0].port", "without quotes"),
        ({"hosts": [{**BOX, "port": 0}]}, "hosts[0].port", "without quotes"),
        ({"hosts": [{**BOX, "port": 65536}]}, "hosts[0].port", "without quotes"),
        ({"hosts": [{**BOX, "port": True}]}, "hosts[0].port", "without quotes"),
        ({"hosts": [{**BOX, "key": 7}]}, "hosts[0].key", "id_ed25519"),
        ({"hosts": [{**BOX, "key": "id_rsa"}]}, "hosts[0].key", '"~/id_rsa"'),
        ({"hosts": [{**BOX, "key": "~nobody-like-this/id"}]}, "hosts[0].key", "full path"),
        ({"hosts": [{**BOX, "host_key": "SHA256:abc"}]}, "hosts[0].host_key", "ssh_host_ed25519_key.pub"),
        ({"hosts": [{**BOX, "gpu_count": 2}]}, "hosts[0].gpu_count", "Add gpu"),
        ({"hosts": [{**BOX, "gpu": "v100", "gpu_count": 1.5}]}, "hosts[0].gpu_count", "without quotes"),
        ({"hosts": [{**BOX, "watts": -1}]}, "hosts[0].watts", "without quotes"),
        ({"hosts": [{**BOX, "watts": float("nan")}]}, "hosts[0].watts", "without quotes"),
        ({"hosts": [{**BOX, "usd_per_kwh": "0.12"}]}, "hosts[0].usd_per_kwh", "without quotes"),
    ],
)
def test_what_cannot_be_is_named_with_the_way_out(options, field, way_out):
    with pytest.raises(InvalidRequest) as refused:
        ssh_hosts("lab", options)
    assert refused.value.field == f"accounts.lab.{field}"
    assert refused.value.field in refused.value.message
    assert way_out in refused.value.next


@pytest.mark.parametrize("people", ["ada", [7], ["ada; rm"], [""]])
def test_whom_a_queue_is_for_is_a_list_of_login_names(people):
    with pytest.raises(InvalidRequest) as refused:
        ssh_hosts("lab", {"hosts": [BOX], "queue_for": people})
    assert refused.value.field == "accounts.lab.queue_for"
    assert 'queue_for = ["ada", "ben"]' in refused.value.next
    assert len(ssh_hosts("lab", {"hosts": [BOX], "queue_for": ["ada", "ben-2"]})) == 1


def test_an_unknown_key_is_answered_with_the_close_one():
    with pytest.raises(InvalidRequest, match=r"hosts\[0\]\.usr is not a setting; did you mean 'user'\?$"):
        ssh_hosts("lab", {"hosts": [{**BOX, "usr": "ada"}]})


def account(tmp_path, *hosts):
    return make(ProviderSettings("lab", {"hosts": list(hosts)}, tmp_path, now))


def test_an_account_without_hosts_says_how_to_list_them(tmp_path):
    with pytest.raises(InvalidRequest) as refused:
        account(tmp_path).available(Requirements())
    assert "[accounts.lab]" in refused.value.next
    assert account(tmp_path).list().instances == ()


def offered(lab):
    return lab.provider.available(Requirements()).items[0]


def test_watts_and_tariff_make_the_price(lab, tmp_path):
    item = offered(lab)
    priced = account(tmp_path, {**lab.hosts[0].options, "watts": 450, "usd_per_kwh": 0.12})
    (price,) = priced.prices([item])
    assert (price.per_hour.text(4), price.basis) == ("$0.0540", Basis.SETTING)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("facts", "cost", "lacks"),
    [
        ({}, "$0.0120", "has no watts and no usd_per_kwh"),
        ({"watts": 450}, "$0.0540", "has no usd_per_kwh"),
        ({"usd_per_kwh": 0.5}, "$0.0500", "has no watts"),
    ],
)
def test_what_the_settings_do_not_say_is_assumed_and_marked_and_never_zero(lab, tmp_path, facts, cost, lacks):
    (price,) = account(tmp_path, {**lab.hosts[0].options, **facts}).prices([offered(lab)])
    assert (price.per_hour.text(4), price.basis) == (cost, Basis.ASSUMED)
    assert price.source.endswith(f"(accounts.lab.hosts[0] {lacks})")


@pytest.mark.soak
def test_the_gpus_of_the_settings_win_and_nvidia_smi_fills_in(lab, tmp_path, own):
    named = account(tmp_path, {**lab.hosts[0].options, "gpu": "rtx3090", "gpu_count": 2, "gpu_memory_gib": 24})
    (item,) = named.available(Requirements(gpu="rtx3090", gpu_count=2)).items
    assert [(gpu.name, gpu.count, gpu.memory_gib) for gpu in item.accelerators] == [("rtx3090", 2, 24.0)]
    cards = Cards(tmp_path / "driver")
    cards.cards = [Card(f"GPU-{number}", "Tesla V100-SXM2-16GB", 16384) for number in range(2)]
    cards.write()
    asked = own("with-gpus", path=f"{cards.path}:{lab.hosts[0].path}")
    (item,) = account(tmp_path, asked.options).available(Requirements(gpu="v100", gpu_count=2)).items
    assert [(gpu.name, gpu.count, gpu.memory_gib) for gpu in item.accelerators] == [("Tesla V100-SXM2-16GB", 2, 16.0)]
