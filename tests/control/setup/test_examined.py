"""`doctor` says what an account lacks, as its provider looks at it: what stands in the way, and what is a note."""

from __future__ import annotations

from cloudgpu.control.budgets.store import budgets_for_reaper_run
from cloudgpu.control.setup import permissions
from cloudgpu.control.setup.doctor import examine
from cloudgpu.core.model.account import Permission
from cloudgpu.core.model.checks import Verdict
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import AuthFailed


def checks(lab, **asked):
    found = examine({"CLOUDGPU_HOME": str(lab.home), "USER": "ada"}, clock=lab.clock, **asked)
    return {check.name: check for check in found}


def test_what_was_looked_at_and_is_good_is_one_line(make_lab):
    lab = make_lab("tells = true")
    found = checks(lab)["made-up rules lab"]
    assert (found.verdict, found.message, found.exit_code) == (Verdict.OK, "the fake cloud denies nothing", 0)


def test_what_a_launch_needs_stands_in_the_way_with_the_way_out(make_lab):
    lab = make_lab("tells = true")
    lab.cloud.deny("attach")
    found = checks(lab)["made-up rules lab"]
    assert (found.verdict, found.next, found.exit_code) == (Verdict.FAIL, "Permit them again.", 2)


def test_an_account_that_cannot_be_looked_at_is_a_fault(make_lab):
    lab = make_lab("tells = true")
    lab.cloud.fail_next("findings", AuthFailed("expired"))
    assert checks(lab)["account lab"].exit_code == 6


def test_a_credential_that_may_not_even_list_is_told_all_that_it_lacks(make_lab):
    """The error of a listing sends people to `doctor` for that."""
    lab = make_lab("tells = true")
    lab.cloud.deny("terminate")
    lab.cloud.fail_next("list", AuthFailed("may not do list", field="permission", value="list"))
    found = checks(lab, account="lab")
    assert (found["account lab"].verdict, found["permissions lab"].exit_code) == (Verdict.FAIL, 6)
    assert "terminate is denied" in found["permissions lab"].message


def test_any_provider_means_every_cloud_account(make_lab):
    lab = make_lab("tells = true")
    found = checks(lab, provider="any")
    assert "account lab" in found
    assert "account local" not in found


def test_limits_of_a_region_that_are_all_0_are_a_note_with_the_page_where_more_is_asked_for(make_lab):
    lab = make_lab("")
    assert "GPU limits lab" not in checks(lab)
    lab.cloud.set_quota("north", Market.SPOT, 0)
    found = checks(lab, account="lab", region="north")["GPU limits lab"]
    assert (found.verdict, found.message[:5]) == (Verdict.OK, "1 of ")
    lab.cloud.set_quota("north", Market.ON_DEMAND, 0)
    found = checks(lab, account="lab", region="north")["GPU limits lab"]
    assert (found.verdict, found.exit_code) == (Verdict.WARN, 0)
    assert found.next.startswith("Ask for more: ")
    assert checks(lab, account="lab", region="moon")["GPU limits lab"].exit_code == 2


def test_limits_of_which_none_is_readable_are_not_said_to_be_fine(make_lab, monkeypatch):
    lab = make_lab("")
    monkeypatch.setattr(permissions, "_CODES_NOT_ONLY_GPU", tuple(one.code for one in lab.cloud.quotas("north")))
    found = checks(lab, account="lab", region="north")["GPU limits lab"]
    assert (found.verdict, found.exit_code) == (Verdict.NOTE, 0)
    assert "no limit on GPUs is readable" in found.message


def test_what_is_not_known_to_be_allowed_is_said_with_the_reason_and_no_other():
    """A service may not have answered, or have no dry run: a machine of our own would not help there."""
    known, reasons = Permission("see", allowed=True, used_for="see"), ("AWS has no dry run of it", "ssm did not answer")
    unknown = [
        Permission("do", allowed=None, used_for="do", unknown_reason=reason) for reason in (*reasons, reasons[0])
    ]
    text = permissions._allowed_text([known, *unknown])
    assert text == f"1 of 4 actions are allowed, none is denied; 3 are not known: {'; '.join(reasons)}"
    assert permissions._allowed_text([known]).endswith("none is denied")


BUDGET = "amount: 100\nperiod: month\naction: [refuse, stop]\n"


def test_budgets_that_count_in_this_directory_alone_are_a_note(make_lab, tmp_path, monkeypatch):
    lab, project = make_lab(""), tmp_path / "project"
    budgets = project / ".cloudgpu" / "policies" / "budgets"
    budgets.mkdir(parents=True)
    (budgets / "vision.yaml").write_text(BUDGET)
    monkeypatch.chdir(project)
    assert [budget.name for budget in budgets_for_reaper_run(lab.session)[0]] == ["vision"]
    found = checks(lab)["project budgets"]
    assert (found.verdict, found.exit_code) == (Verdict.NOTE, 0)
    assert found.message.startswith(f"vision in {budgets}: only commands that run in this directory")
    monkeypatch.chdir(tmp_path)  # as cron's runs, which begin in the home directory
    assert budgets_for_reaper_run(lab.session)[0] == ()
    assert "project budgets" not in checks(lab)


def test_budgets_of_the_home_itself_count_everywhere_and_are_no_note(make_lab, tmp_path, monkeypatch):
    lab, budgets = make_lab(""), tmp_path / "home" / "policies" / "budgets"
    budgets.mkdir(parents=True)
    (budgets / "vision.yaml").write_text(BUDGET)
    (tmp_path / ".cloudgpu").symlink_to(lab.home)  # as in a login's home directory, with the default home
    monkeypatch.chdir(tmp_path)
    assert "project budgets" not in checks(lab)
    assert [budget.name for budget in budgets_for_reaper_run(lab.session)[0]] == ["vision"]
