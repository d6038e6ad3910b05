"""The ledger's bill of a pod against the model's own book, stopped time included; the calls of listings and passes."""

from __future__ import annotations

from decimal import Decimal

import pytest

import cloudgpu
from cloudgpu.errors import BudgetRefused, InvalidRequest, LaunchUncertain, NoCapacity, StopUnproved
from cloudgpu.providers.runpod import launch, pod_key
from tests.clouds.rest_faults import FOREVER
from tests.clouds.runpod.fixtures import runpod, runpod_process

__all__ = ["runpod", "runpod_process"]
HOUR = 3600


@pytest.fixture
def lab(runpod, tmp_path):
    """A home with an account at the model, as the library, on the model's clock."""
    home = tmp_path / "lab"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('provider = "runpod"\naddress_services = []\n')
    with cloudgpu.connect(home=home, clock=runpod.clock.now) as found:
        yield found


def up(lab, name="bear", **more):
    return lab.machines.up(gpu="h100", name=name, no_guard=True, wait=False, disk=50, **more)["machine"]


def test_a_pod_that_ran_for_ten_hours_and_was_stopped_for_twenty_costs_what_the_model_bills(lab, runpod):
    """By hand: 39.90 for the GPU, (40 + 50) x 0.10 x 10/720 = 0.125 and 50 x 0.20 x 20/720 = 0.278 for the disks."""
    up(lab, lease="12h")
    lab.machines.ls(refresh=True)
    runpod.advance(10 * HOUR)
    lab.machines.stop("bear")
    runpod.advance(20 * HOUR)
    lab.machines.down("bear")
    (pod,) = runpod.model.gone.values()
    assert float(pod.book.total) == pytest.approx(39.90 + 0.125 + 0.2778, abs=0.01)
    total = Decimal(lab.money.cost()["total"]["usd"])
    assert float(total) == pytest.approx(float(pod.book.total), abs=0.01)


def test_a_pod_of_a_lost_answer_that_is_gone_before_it_was_listed_is_given_up_after_five_minutes(
    lab, runpod, monkeypatch
):
    """Nothing shows it any more, and nothing tells what it has cost: less than five minutes. Its name is free again."""
    monkeypatch.setattr(launch, "LISTING_PAUSES_S", (0.0,))
    runpod.model.listed_after_s = 200
    runpod.faults.lose_reply("pods.create")
    with pytest.raises(LaunchUncertain, match="not known whether") as first:
        up(lab)
    runpod.model.end(*runpod.model.pods.values())
    with pytest.raises(LaunchUncertain, match="has not answered yet") as second:
        up(lab)
    for uncertain in (first, second):
        assert (
            "On this computer, cloudgpu up or cloudgpu reap finds out 5m after the launch, once" in uncertain.value.next
        )
    assert len(runpod.called("pods.create")) == 1
    runpod.advance(300)
    up(lab)
    assert len(runpod.model.pods) == 1
    assert len(runpod.called("pods.create")) == 2


def test_a_listing_costs_one_call_and_a_pass_two(lab, runpod):
    for name in ("bear", "wolf", "lynx"):
        up(lab, name, key=name)
    before = len(runpod.calls)
    lab.machines.ls(refresh=True)
    assert [call.action for call in runpod.calls[before:]] == ["pods.list"]
    before = len(runpod.calls)
    lab.automation.reap()
    assert [call.action for call in runpod.calls[before:]] == ["pods.list", "billing.balance"]


def test_down_right_after_up_is_proved_by_the_look_before_and_by_two_after_it(lab, runpod):
    up(lab)
    before = len(runpod.calls)
    lab.machines.down("bear")
    assert [call.action for call in runpod.calls[before:]] == ["pods.get", "pods.delete", "pods.get", "pods.list"]


def test_an_account_that_is_invoiced_has_no_credit_and_nothing_is_said_of_one(lab, runpod):
    runpod.model.mode = "POSTPAID"
    runpod.model.balance = 0
    said = []
    lab._session.report = said.append
    plan = lab.machines.plan(gpu="h100", no_guard=True)["plan"]
    up(lab)
    lab.automation.reap()
    assert "credit" not in str([plan, said])
    assert lab.money.cost()["prepaid"] == []


@pytest.mark.soak
def test_a_pass_ends_a_pod_whose_lease_is_over_and_terminates_it_after_its_renew_until(lab, runpod):
    up(lab, lease="2h", renew_until="4h")
    runpod.advance(3 * HOUR)
    lab.automation.reap()
    (pod,) = (runpod.pod(one) for one in runpod.pods())
    assert pod.status == "RUNNING"  # nobody knows whether it is used: the lease is renewed
    runpod.advance(2 * HOUR)
    lab.automation.reap()
    assert pod.status == "EXITED"
    lab.automation.reap()
    runpod.advance(25 * HOUR)
    lab.automation.reap()
    assert runpod.pods() == []


def test_credit_that_is_gone_deletes_pods_and_ends_the_bill_once_that_is_proved(lab, runpod):
    up(lab)
    lab.machines.ls(refresh=True)
    runpod.advance(HOUR)
    runpod.run_dry()
    assert lab.machines.ls(refresh=True)["machines"] == []
    (pod,) = runpod.model.gone.values()
    runpod.advance(10 * HOUR)
    assert Decimal(lab.money.cost()["total"]["low_usd"]) <= Decimal(str(float(pod.book.total))) + Decimal("0.01")
    with pytest.raises(BudgetRefused, match="credit of account runpod"):
        up(lab, "wolf")
    assert runpod.pods() == []


@pytest.mark.soak
def test_a_pod_of_which_a_proxy_says_404_is_not_gone_and_is_billed_on(lab, runpod):
    up(lab)
    runpod.advance(HOUR / 4)
    lab.machines.ls(refresh=True)
    for action in ("pods.get", "pods.delete"):
        runpod.faults.add(action, error="page", status=404, body="404 page not found", times=FOREVER)
    lab._session.pause = runpod.advance
    with pytest.raises(StopUnproved, match="is not from RunPod") as raised:
        lab.machines.down("bear")
    assert raised.value.exit_code == 9
    assert len(runpod.pods()) == 1
    assert [one["state"] for one in lab.machines.ls()["machines"]] == ["running"]


@pytest.mark.parametrize("words", [{"gpu": "h100"}, {"gpu": "rtx4090"}, {"instance_type": "1x-rtx-4090"}])
def test_who_accepts_a_clouds_own_computers_alone_is_told_that_runpods_are_trusted_less(lab, runpod, words):
    with pytest.raises(NoCapacity, match=r"trusted enough \(--trust cloud\); .* data centre: 1x-") as refused:
        lab.machines.up(name="bear", no_guard=True, wait=False, trust="cloud", **words)
    assert refused.value.next.startswith("Accept it with --trust datacenter")
    assert runpod.pods() == []


@pytest.mark.parametrize(("words", "size"), [({}, 64), ({"template": "bare"}, 50), ({"disk": 20}, 20)])
def test_the_workspace_is_as_large_as_typed_else_as_the_template_says_else_50_gb(lab, runpod, words, size):
    lab.machines.up(gpu="h100", name="bear", no_guard=True, wait=False, **words)
    (call,) = runpod.called("pods.create")
    assert call.body["mounts"]["persistent"]["size"] == size


def test_a_pod_that_ends_itself_is_held_in_the_ledger_alone_and_its_workspace_is_kept(lab, runpod):
    pod_key.write_record(lab._session.provider("runpod")._runpod, reads_no_other=True)
    assert up(lab, lease="2h", renew_until="4h")["guards"]["agent_is"] == "ends"
    lab.machines.ls(refresh=True)
    with pytest.raises(InvalidRequest, match="The agent on bear cannot learn of another lease"):
        lab.machines.extend("bear", "2h")
    assert lab.machines.hold("bear", "3h")["held_until"]
    lab.machines.stop("bear")
    assert lab.machines.hold("bear", "7d")["held_until"]
    runpod.advance(5 * HOUR)
    for _ in range(3):
        assert lab.automation.reap()["ended"] == []
        runpod.advance(48 * HOUR)
    assert [pod.status for pod in runpod.model.pods.values()] == ["EXITED"]
    lab.machines.extend("bear", "8h")


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ("h100", r"1x h100 is listed at .*, but runpod has none free now\."),
        ("h100:2", r"nothing with --gpu h100:2\."),
        ("rtx4090", r"nothing with --gpu rtx4090\."),
    ],
)
def test_what_is_sold_out_now_is_not_said_to_be_sold_no_more(lab, runpod, gpu, said):
    for one in runpod.model.types.values():
        one.stock.pop("SECURE", None)
    with pytest.raises(NoCapacity, match=said):
        lab.machines.up(gpu=gpu, name="bear", no_guard=True, wait=False)


def test_a_pod_that_costs_more_than_its_plan_said_is_in_the_ledger_at_its_own_price(lab, runpod):
    """The catalogue is a minute old at most; the pod keeps the price of its launch, whatever is asked later."""
    lab.machines.plan(gpu="h100", no_guard=True)
    runpod.model.types["NVIDIA H100 80GB HBM3"].secure = "4.99"
    assert up(lab, lease="12h")["price"]["usd_per_hour"] == "4.99"
    runpod.model.types["NVIDIA H100 80GB HBM3"].secure = "5.99"
    runpod.advance(10 * HOUR)
    lab.machines.ls(refresh=True)
    lab.machines.down("bear")
    (pod,) = runpod.model.gone.values()
    assert pod.book.total > Decimal("49.9")
    assert float(lab.money.cost()["total"]["usd"]) == pytest.approx(float(pod.book.total), abs=0.01)
