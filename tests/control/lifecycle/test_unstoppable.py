"""Machines of a cloud that cannot stop them, or keep their disks: what their passes, plans and verbs do and say."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lease import hold_caveat
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.policies.guards import check_stop
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.testing import make_attempt
from cloudgpu.views.plans import plan_document
from tests.control.conftest import Lab
from tests.control.reaper.test_reap_proofs import Elsewhere

OWN = "lease: 1h\nrenew_until: 4h\nunknown: end\nspot: {{unpausable: {}}}\n"
ABLE = {
    "all": (),
    "no stop": ("Pausable",),
    "no images": ("Imageable",),
    "neither": ("Pausable", "Imageable"),
    "nothing": ("Pausable", "Imageable", "Taggable"),
}


@pytest.fixture
def lacking(tmp_path, monkeypatch):
    """Make a lab whose cloud lacks abilities, and whose timers end nothing; with a policy `own`."""

    def make(*lacks, unpausable="park", more=""):
        names = ", ".join(f'"{one}"' for one in (*lacks, "HasTimer"))
        lab = Lab(tmp_path, monkeypatch, f"lacks = [{names}]\n{more}")
        lab.session.home.policies.mkdir(parents=True, exist_ok=True)
        (lab.session.home.policies / "own.yaml").write_text(OWN.format(unpausable))
        return lab

    return make


def passed(lab, **span):
    lab.later(**span)
    return reap(lab.session, ReapOptions())


def ends(found):
    return [(str(one.do), str(one.rule)) for one in found.ended]


@pytest.mark.parametrize(
    ("able", "unpausable", "spot"), list(product(ABLE, ("park", "terminate", "warn"), (False, True)))
)
def test_passes_end_every_machine_by_its_renew_until_and_never_fail(lacking, able, unpausable, spot):
    lab = lacking(*ABLE[able], unpausable=unpausable)
    lab.up(policy="own", spot=spot)
    codes, done = [], []
    for _ in range(5):
        found = passed(lab, minutes=61)
        codes.append(found.exit_code)
        done += ends(found)
    assert codes == [0] * 5
    assert lab.machines() == []
    one_time = spot or "Pausable" in ABLE[able]
    gentler = "Imageable" not in ABLE[able]
    if not one_time:
        assert done == [("stop", "lease")]
    elif unpausable == "terminate":
        assert done == [("terminate", "lease")]
    else:
        assert done == [("park", "lease") if gentler else ("terminate", "renew-until")]


def test_a_budget_that_stops_terminates_where_nothing_gentler_exists(lacking):
    from cloudgpu.control.budgets.commands import BudgetOptions, check_budgets, set_budget_document
    from cloudgpu.views.documents.money.budgets import BudgetAction

    lab = lacking("Pausable", "Imageable")
    lab.up(policy="own", name="fox")
    lab.later(minutes=30)
    asked = BudgetOptions("lab", "0.01", "month", action="stop")
    assert set_budget_document(lab.session, asked, overwrite=False)["terminates"] == ["fox"]
    (said,) = check_budgets(lab.session, None)["stops"]
    assert (said["do"], said["why"][-48:]) == ("terminate", "; it can be neither stopped nor kept as an image")
    assert said["do"] in get_args(BudgetAction.__metadata__[0])  # the values that the reference lists
    assert ends(passed(lab, minutes=1)) == [("terminate", "budget")]
    assert lab.machines() == []


def test_the_plan_says_before_the_launch_what_ends_it_and_what_is_lost(lacking):
    lab = lacking("Pausable", "Imageable")
    plan = lab.prepare(policy="own").plan
    assert plan_document(plan)["ends"] == {"lease": None, "renew_until": "terminate", "budget": "terminate"}
    said = " ".join(plan.remarks)
    assert "fake can neither stop this machine nor keep an image of its disk" in said
    assert "its lease, idle time and schedules only warn: policy own keeps disks" in said
    assert plan.stop_effect.startswith("it can be neither stopped nor kept as an image")
    (lab.session.home.policies / "own.yaml").write_text(OWN.format("terminate"))
    plan = lab.prepare(policy="own").plan
    assert plan_document(plan)["ends"] == dict.fromkeys(("lease", "renew_until", "budget"), "terminate")
    assert "at the end of its lease" in " ".join(plan.remarks)


def test_no_disk_is_priced_that_could_not_stay(lacking):
    from cloudgpu.core.model.launch import Setup

    assert [one.kept for one in lacking().prepare(setup=Setup(disk_gb=100)).plan.added_costs] == [True]


def test_no_disk_is_priced_that_goes_with_its_machine(lacking):
    from cloudgpu.core.model.launch import Setup

    lab = lacking("Pausable", "Imageable")
    assert [one.kept for one in lab.prepare(setup=Setup(disk_gb=100)).plan.added_costs] == [False]


def test_a_stop_by_hand_is_refused_with_the_way_out(lacking):
    lab = lacking("Pausable", "Imageable")
    row = lab.up(policy="own", name="fox").machine
    for act in (lambda: check_stop(row), lambda: stop(lab.session, row, why="test")):
        with pytest.raises(InvalidRequest, match="fake can neither stop it nor keep an image of its disk") as caught:
            act()
        assert caught.value.exit_code == 2
        assert "cloudgpu down fox" in caught.value.next
    assert len(lab.machines()) == 1


def test_a_hold_says_that_renew_until_deletes_the_disk(lacking):
    lab = lacking("Pausable", "Imageable")
    row = lab.up(policy="own").machine
    said = hold_caveat(lab.session, row, from_iso(row.renew_until).replace(year=2030))
    assert "UTC all the same and deletes its disk" in said


def test_a_found_spot_machine_that_refuses_its_stop_is_terminated_at_last(lacking):
    """Whether it can be stopped is not known before it is asked; no image of it can be kept."""
    lab = lacking("Imageable")
    lab.up(policy="own")
    item = next(one for one in lab.cloud.available(Requirements(market=Market.SPOT)).items)
    tags = {"cloudgpu-ledger": lab.session.ledger.id, "cloudgpu-id": "cg-stray"}
    lab.cloud.launch(make_attempt(item, tags=tags, now=lab.clock()), deadline=lab.clock())
    sync_all(lab.session)
    stray = lab.session.find("cg-stray")
    assert (stray.stoppable, stray.parkable) == (None, False)
    found = passed(lab, seconds=(from_iso(stray.renew_until) - lab.clock()).total_seconds() + 1)
    assert (found.exit_code, lab.session.ledger.machine("cg-stray").state) == (0, "terminated")


def test_a_found_machine_of_a_cloud_that_stops_none_is_known_as_that(lacking):
    lab = lacking("Pausable", "Imageable")
    lab.up(policy="own")
    item = next(one for one in lab.cloud.available(Requirements()).items)
    tags = {"cloudgpu-ledger": lab.session.ledger.id, "cloudgpu-id": "cg-stray"}
    lab.cloud.launch(make_attempt(item, tags=tags, now=lab.clock()), deadline=lab.clock())
    sync_all(lab.session)
    stray = lab.session.find("cg-stray")
    assert (stray.stoppable, stray.parkable) == (False, False)


def test_the_payers_reaper_terminates_what_can_only_be_terminated(lacking, tmp_path):
    lab = lacking("Pausable", "Imageable")
    home = tmp_path / "eve"
    (home / "policies").mkdir(parents=True)
    (home / "config.toml").write_text((lab.home / "config.toml").read_text())
    other = Elsewhere(lab, home)
    other.up(name="hen")
    (lab.session.home.policies / "limits.yaml").write_text("payers: [ada]\n")
    found = passed(lab, days=5)
    assert [(one.name, one.now) for one in found.ended] == [("hen", "terminated")]
    assert [one.id for one in lab.cloud.list().instances if one.state is State.RUNNING] == []
