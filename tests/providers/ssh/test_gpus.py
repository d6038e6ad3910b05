"""Some of a host's GPUs for one machine, who uses them, and what they cost: by a stand-in for nvidia-smi."""

from __future__ import annotations

import getpass
import json
import os
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.agent.own import Energy
from cloudgpu.core.catalog.matching import by_preference, price_offers
from cloudgpu.core.model.offers import Basis, Requirements
from cloudgpu.errors import NoCapacity
from cloudgpu.providers.ssh.provider import make
from cloudgpu.testing import make_attempt
from tests.providers.ssh.cards import Cards
from tests.providers.ssh.hosts import Lab, OwnHost

ME = os.getpid()  # a process that lives, and is no machine's


@pytest.fixture(scope="module")
def of_module(tmp_path_factory):
    """One host for all tests, and the driver's program there."""
    root = tmp_path_factory.mktemp("host")
    cards, host = Cards(root / "driver"), OwnHost(root, "bigbox")
    host.path = f"{cards.path}:{host.path}"
    yield cards, host.start()
    host.off()


@pytest.fixture
def cards(of_module):
    """Eight GPUs that nobody uses."""
    of_module[0].renew()
    return of_module[0]


@pytest.fixture
def lab(of_module, cards, tmp_path):
    """An account with that host, as if new; at the end nothing may run there."""
    host = of_module[1]
    host.renew()
    yield Lab(tmp_path, host)
    cards.renew()
    for instance in Lab(tmp_path, host).provider.list().instances:
        Lab(tmp_path, host).provider.terminate(instance.id)
    assert not host.ended()


def provider(lab, *hosts):
    """Return the account with this host under other names and settings."""
    tables = [{**lab.hosts[0].options, **settings} for settings in hosts]
    return make(replace(lab.settings, options={"hosts": tables}))


def wanted(lab, gpu="a100", count=2):
    """Return the attempt to launch with so many GPUs on the account's host."""
    want = Requirements(gpu=gpu, gpu_count=count)
    (item,) = offered(lab, want)
    attempt = make_attempt(item, key="one", name="one", client_public_keys=[lab.client.public_line])
    return replace(attempt, request=replace(attempt.request, requirements=want))


def offered(lab, want, **settings):
    return provider(lab, settings).available(want).items


def price(lab, want, **settings):
    account = provider(lab, settings)
    (found,) = account.prices(account.available(want).items)
    return found


def record(lab):
    return json.loads((lab.hosts[0].place / "record.json").read_text())


@pytest.mark.soak
def test_two_of_eight_are_the_two_that_are_used_least_and_stay_the_machines(lab, cards):
    for number in (0, 3, 4, 5):
        cards.use(number, ME)
    cards.cards[1].used = 900  # a picture on its screen, say: free, and not the first choice
    cards.write()
    made = lab.send(wanted(lab))
    (gpu,) = made.accelerators
    assert (gpu.name, gpu.count, gpu.out_of) == ("NVIDIA A100-SXM4-80GB", 2, 8)
    assert record(lab)["devices"] == ["GPU-2", "GPU-6"]
    lab.provider.stop(made.id)
    cards.cards[7].used = 0
    cards.write()
    lab.provider.start(made.id)
    assert record(lab)["devices"] == ["GPU-2", "GPU-6"]


@pytest.mark.soak
def test_one_is_taken_where_no_number_was_said_and_all_where_no_gpu_was(lab):
    (one,) = offered(lab, Requirements(gpu="a100"))
    assert [(gpu.count, gpu.out_of) for gpu in one.accelerators] == [(1, 8)]
    (all_,) = offered(lab, Requirements())
    assert [(gpu.count, gpu.out_of) for gpu in all_.accelerators] == [(8, None)]
    (eight,) = offered(lab, Requirements(gpu="a100", gpu_count=8))
    assert [(gpu.count, gpu.out_of) for gpu in eight.accelerators] == [(8, None)]
    assert offered(lab, Requirements(gpu="a100", gpu_count=9)) == ()
    assert offered(lab, Requirements(gpu="v100")) == ()
    (named,) = offered(lab, Requirements(gpu="mine", gpu_count=3), gpu="mine", gpu_count=8)
    assert [(gpu.name, gpu.count, gpu.out_of) for gpu in named.accelerators] == [("mine", 3, 8)]


@pytest.mark.soak
def test_a_launch_with_fewer_free_than_asked_for_is_refused_with_who_uses_them(lab, cards):
    attempt = wanted(lab)
    for number in range(7):
        cards.use(number, ME)
    before = lab.hosts[0].files()
    with pytest.raises(NoCapacity) as refused:
        lab.send(attempt)
    said = refused.value.message
    assert "1 of 8 GPUs is free, and 2 are wanted" in said
    assert f"GPU 0 (97% busy): {getpass.getuser()} (python3 {ME}, 38.2 GiB)" in said
    assert "GPU 7" not in said
    assert refused.value.exit_code == 4
    assert lab.hosts[0].files() == before


@pytest.mark.soak
def test_a_gpu_in_mig_mode_is_offered_to_nobody_as_a_whole_one(lab, cards):
    """The format is NVIDIA's for MIG: the GPU's own line, its load not told. No such GPU was seen."""
    for card in cards.cards[:6]:
        card.mig, card.percent = "Enabled", "[N/A]"
    cards.write()
    assert offered(lab, Requirements(gpu="a100", gpu_count=3)) == ()
    made = lab.send(wanted(lab))
    assert record(lab)["devices"] == ["GPU-6", "GPU-7"]
    lab.provider.terminate(made.id)
    attempt = wanted(lab)
    for card in cards.cards:
        card.mig, card.percent = "Enabled", "[N/A]"
    cards.write()
    with pytest.raises(NoCapacity, match=r"0 of 8 GPUs are free.*GPU 0 is divided into parts \(MIG\)") as refused:
        lab.send(attempt)
    assert "leave --gpu out" in refused.value.next


def test_a_start_whose_gpus_others_took_meanwhile_is_refused_with_who_uses_them(lab, cards):
    made = lab.send(wanted(lab))
    lab.provider.stop(made.id)
    cards.use(int(record(lab)["devices"][0][-1]), ME)
    with pytest.raises(NoCapacity, match=getpass.getuser()):
        lab.provider.start(made.id)
    assert record(lab)["wanted"] == "stopped"
    cards.processes.clear()
    cards.cards[0].percent = 0
    cards.write()
    lab.provider.start(made.id)


@pytest.mark.soak
def test_the_machine_and_its_agent_see_its_gpus_alone(lab, cards):
    made = lab.send(wanted(lab))
    settings = json.loads((lab.hosts[0].place / "agent.json").read_text())
    assert (settings["gpus"], settings["smi"]) == (2, ["-i", "GPU-0,GPU-1"])
    assert "export CUDA_VISIBLE_DEVICES=GPU-0,GPU-1\n" in (lab.hosts[0].place / "environment").read_text()
    lab.provider.terminate(made.id)
    made = lab.launch("two")
    settings = json.loads((lab.hosts[0].place / "agent.json").read_text())
    assert (settings["smi"], record(lab)["devices"]) == ([], [])
    assert "CUDA" not in (lab.hosts[0].place / "environment").read_text()


def test_the_agent_counts_the_gpus_that_work_and_not_all_of_them(of_module, cards, monkeypatch):
    cards.use(5, ME)
    monkeypatch.setenv("PATH", f"{cards.path}:{os.environ['PATH']}")
    meter, found = Energy(), []
    for now in (0, 10, 20, 30, 40):
        found.append(meter.step(now, uses_gpus=True, marks=[]).get("gpus"))
        assert meter.smi is None or meter.smi.wait(30) == 0
    assert found == [None, None, 0.0, 10.0, 20.0]


@pytest.mark.soak
def test_an_offer_and_a_look_say_who_uses_the_gpus(lab, cards):
    (free,) = offered(lab, Requirements())
    assert (free.gpus_now, free.after) == (("nobody uses them",), ())
    cards.use(3, ME)
    (item,) = offered(lab, Requirements())
    assert item.gpus_now == (f"GPU 3 (97% busy): {getpass.getuser()} (python3 {ME}, 38.2 GiB)",)
    assert item.after == ("others use 1 of its 8 GPUs (host bigbox): hosts that nobody uses are tried before it",)
    (part,) = offered(lab, Requirements(gpu="a100", gpu_count=7))
    assert part.after == ()
    lab.launch()
    (seen,) = lab.provider.list().instances
    assert seen.gpus_now == item.gpus_now
    (held,) = offered(lab, Requirements())
    assert "bigbox is in use by one (running)" in held.after[0]


@pytest.mark.soak
def test_what_nvidia_smi_does_not_say_is_not_known(lab, cards):
    cards.answer("#!/bin/sh\nexit 9\n")
    (item,) = offered(lab, Requirements(gpu="a100", gpu_count=8), gpu="a100", gpu_count=8)
    assert item.gpus_now == ("not known: nvidia-smi has no answer there",)
    assert offered(lab, Requirements(gpu="a100", gpu_count=2), gpu="a100", gpu_count=8) == ()


# -- prices


@pytest.mark.soak
def test_gpus_whose_processes_nvidia_smi_does_not_tell_are_not_taken_for_free(lab, cards):
    cards.answer((cards.path / "nvidia-smi").read_text().replace('elif kind == "query-compute-apps"', "elif not kind"))
    attempt = wanted(lab)
    assert attempt.offer.configuration.gpus_now == ("not known: nvidia-smi has no answer there",)
    with pytest.raises(NoCapacity, match="Which GPUs of bigbox are free is not known"):
        lab.send(attempt)


@pytest.mark.soak
def test_a_part_of_a_host_costs_its_part(lab):
    two = Requirements(gpu="a100", gpu_count=2)
    whole = price(lab, Requirements(), watts=4000, usd_per_kwh=0.2)
    part = price(lab, two, watts=4000, usd_per_kwh=0.2)
    assert (whole.per_hour.text(4), part.per_hour.text(4)) == ("$0.8000", "$0.2000")
    assert "2 of 8 GPUs of 4000 W" in part.source
    assert part.basis is Basis.SETTING
    guessed = price(lab, two)  # 2 x 400 W and a quarter of 100 W
    assert (guessed.per_hour.text(4), guessed.basis) == ("$0.0990", Basis.ASSUMED)
    assert "2 x 400 W for NVIDIA A100-SXM4-80GB + 25 W for the rest x 0.12 $/kWh" in guessed.source
    assert "has no watts and no usd_per_kwh" in guessed.source


@pytest.mark.soak
def test_what_its_gpus_drew_makes_the_price_where_the_settings_leave_that_open(lab):
    (item,) = offered(lab, Requirements(gpu="a100", gpu_count=2))
    measured = (item, Decimal(212), timedelta(hours=3, minutes=20))
    price = provider(lab, {"usd_per_kwh": 0.2}).metered_price(*measured)  # with a quarter of 100 W
    assert (price.per_hour.text(4), price.basis) == ("$0.0474", Basis.MEASURED)
    assert "measured: 212 W on average over 3h 20m + 25 W assumed for the rest, x 0.2 $/kWh" in price.source
    assert provider(lab, {}).metered_price(*measured) is None
    assert provider(lab, {"usd_per_kwh": 0.2, "watts": 900}).metered_price(*measured) is None
    assert provider(lab, {"usd_per_kwh": 0.2}).metered_price(replace(item, accelerators=()), *measured[1:]) is None


@pytest.mark.soak
def test_a_host_whose_draw_nobody_knows_is_neither_free_nor_the_first(lab, tmp_path):
    odd = {"name": "odd", "gpu": "wonder9000", "gpu_count": 8}
    hosts = [odd, {"name": "even", "watts": 9000, "usd_per_kwh": 0.5}]
    account, want = provider(lab, *hosts), Requirements()
    items = account.available(want).items
    offers, unpriced = price_offers(items, account.prices(items))
    first, last = by_preference(offers, want.market)
    assert (unpriced, first.configuration.zone, last.configuration.zone) == ([], "even", "odd")
    assert last.price.per_hour.nanos > 0
    assert "8 x 300 W as a guess for wonder9000" in last.price.source
    assert "what the GPUs of odd draw is not known" in last.configuration.after[0]


@pytest.mark.soak
def test_a_busy_host_comes_after_a_free_one_that_is_dearer(lab, cards):
    cards.use(0, ME)
    account = provider(lab, {"name": "cheap", "watts": 10, "usd_per_kwh": 0.1})
    (item,) = account.available(Requirements()).items
    free = replace(item, zone="dear", instance_type="dear", after=())
    (cheap,) = account.prices([item])
    offers, _ = price_offers([item, free], [cheap, replace(cheap, per_hour=cheap.per_hour.scaled(100))])
    assert [one.configuration.zone for one in by_preference(offers, Requirements().market)] == ["dear", "cheap"]
