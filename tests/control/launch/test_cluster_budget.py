"""Clusters that are launched at once against one budget: each is admitted whole or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.control.clusters.engine import check_engine_installed
from cloudgpu.control.launch.budget_preview import budgets_document, check_budgets, sync_for_budgets
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.errors import BudgetRefused, InvalidRequest
from tests.control.budgets.test_admission import budget

HOUR = timedelta(hours=1)


def test_of_ten_clusters_of_four_at_once_a_budget_for_eight_machines_admits_exactly_two(lab):
    spans = {"lease": HOUR, "renew_until": HOUR, "nodes": 4, "engine": "none"}
    one = lab.prepare(**spans, name="any").plan.to_renew_until.amount.nanos // 4
    budget(lab, Decimal(one * 9) / 10**9)

    def up(number):
        try:
            return len(lab.up(**spans, name=f"team{number}").nodes)
        except BudgetRefused:
            return 0

    with ThreadPoolExecutor(10) as pool:
        made = sorted(pool.map(up, range(10)))
    assert made == [0] * 8 + [4] * 2
    assert len(lab.machines()) == len(lab.rows()) == 8


def test_a_budget_of_one_node_is_synced_and_shown_before_the_question(lab):
    spans = {"lease": HOUR, "renew_until": HOUR, "nodes": 2, "engine": "none"}
    budget(lab, 0.01, scope="instance=train-1")
    prepared = lab.prepare(**spans, name="train")
    before_sync = lab.cloud.calls["list"]
    sync_for_budgets(lab.session, prepared)
    assert lab.cloud.calls["list"] > before_sync
    (shown,) = budgets_document(lab.session, prepared)
    assert (shown["scope"], shown["fits"]) == ("instance=train-1", False)
    with pytest.raises(BudgetRefused) as before:
        check_budgets(lab.session, prepared)
    with pytest.raises(BudgetRefused) as at_launch:
        lab.up(**spans, name="train")
    assert before.value.message == at_launch.value.message
    assert "does not allow train-1 (of the 2 machines of train) until" in before.value.message
    assert " for train-1 = " in before.value.message
    assert "does not cover account" not in before.value.next
    assert lab.machines() == []


def test_a_budget_of_one_node_in_another_account_is_synced_before_its_cluster_is_launched(make_lab):
    lab = make_lab("")
    with (lab.home / "config.toml").open("a") as file:
        file.write(f'[accounts.second]\nprovider = "fake"\nstate_file = "{lab.home.parent / "second.json"}"\n')
    lab.session = lab.opened()
    other = lab.session.provider("second")
    budget(lab, 0.01, scope="instance=train-1")
    with pytest.raises(BudgetRefused):
        lab.up(lease=HOUR, renew_until=HOUR, nodes=2, engine="none", name="train", account="lab")
    assert other.calls["list"] == 1


def test_an_engine_that_this_computer_lacks_is_refused_before_anything_is_launched(monkeypatch, tmp_path):
    cluster = ClusterNode("train", "cg-1", 0, 4, "slurm")
    monkeypatch.setattr("shutil.which", lambda name, path: None if name == "munged" else f"{path}/{name}")
    with pytest.raises(InvalidRequest, match="munged") as refused:
        check_engine_installed("local", cluster)
    assert "--engine none" in refused.value.next
    check_engine_installed("aws", cluster)  # it installs what it needs
    check_engine_installed("local", cluster._replace(engine="none"))
