"""`init aws` against our model of AWS: it shows what it makes, makes it once, and takes away what is its own.

Conditions of policies are not evaluated there: that a machine may set its own tag alone is held by nothing here.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import boto3
import pytest

from cloudgpu.cli.app import run
from cloudgpu.config.files.user_files import data_dir
from cloudgpu.control.setup.cloud_account import apply_removal, plan_removal
from cloudgpu.control.setup.init import find_existing_setup
from cloudgpu.errors import InvalidRequest
from tests.clouds.aws.fixtures import aws, aws_process  # noqa: F401

MACHINE = data_dir("policies") / "permissions" / "aws-machine.json"
CHANGES = {"CreateRole", "PutRolePolicy", "CreateInstanceProfile", "AddRoleToInstanceProfile"}
NAME, TIMERS = "cloudgpu-machine", "cloudgpu-timer"
TIMER_ROLE = f"arn:aws:iam::123456789012:role/{TIMERS}"
TIMER = data_dir("policies") / "permissions" / "aws-timer.json"
OURS = [{"Key": "cloudgpu-made-by", "Value": "init"}]


@pytest.fixture
def iam(aws):  # noqa: F811
    return boto3.client("iam", region_name="us-east-1")


@pytest.fixture
def config(own_home):
    return Path(own_home) / "config.toml"


def changes(aws):  # noqa: F811
    return [
        call.action for call in aws.calls if call.service == "iam" and not call.action.startswith(("Get", "Simulate"))
    ]


@pytest.mark.soak
def test_it_makes_the_role_its_policy_and_the_profile_with_our_tag(aws, iam, config):  # noqa: F811
    assert run(["init", "aws", "--yes"]) == 0
    role = iam.get_role(RoleName=NAME)["Role"]
    assert role["Tags"] == OURS
    assert role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"Service": "ec2.amazonaws.com"}
    assert iam.get_role_policy(RoleName=NAME, PolicyName=NAME)["PolicyDocument"] == json.loads(MACHINE.read_text())
    assert iam.list_attached_role_policies(RoleName=NAME)["AttachedPolicies"] == []
    profile = iam.get_instance_profile(InstanceProfileName=NAME)["InstanceProfile"]
    assert [one["RoleName"] for one in profile["Roles"]] == [NAME]
    assert profile["Tags"] == OURS


def test_it_makes_the_role_of_timers_that_schedules_of_this_account_alone_may_take(iam, config):
    assert run(["init", "aws", "--yes"]) == 0
    role = iam.get_role(RoleName=TIMERS)["Role"]
    assert role["Tags"] == OURS
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "scheduler.amazonaws.com"}
    group = "arn:aws:scheduler:*:123456789012:schedule-group/cloudgpu"
    assert statement["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "123456789012"},
        "ArnLike": {"aws:SourceArn": group},
    }
    assert iam.get_role_policy(RoleName=TIMERS, PolicyName=TIMERS)["PolicyDocument"] == json.loads(TIMER.read_text())


def test_a_role_of_timers_that_is_somebody_elses_is_neither_used_nor_removed(aws, iam, config, capsys):  # noqa: F811
    iam.create_role(RoleName=TIMERS, AssumeRolePolicyDocument="{}")
    before = changes(aws)
    assert run(["init", "aws", "--yes", "-o", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["field"] == "timer_role"
    assert run(["init", "aws", "--remove", "--yes"]) == 0
    assert changes(aws) == before


def test_the_account_stands_in_config_toml_afterwards(iam, config):
    config.write_text('# mine\nowner = "ada"\n')
    assert run(["init", "aws", "--account", "lab", "--region", "eu-west-1", "--region", "us-east-1", "--yes"]) == 0
    assert config.read_text().startswith('# mine\nowner = "ada"\n')
    assert tomllib.loads(config.read_text())["accounts"]["lab"] == {
        "provider": "aws",
        "home_region": "eu-west-1",
        "regions": ["eu-west-1", "us-east-1"],
        "instance_profile": NAME,
        "timer_role": TIMER_ROLE,
    }


def test_of_two_accounts_the_one_that_is_meant_has_to_be_named(aws, iam, config, capsys):  # noqa: F811
    config.write_text('[accounts.a]\nprovider = "aws"\n[accounts.b]\nprovider = "aws"\n')
    assert run(["init", "aws", "--yes"]) == 2
    assert "--account NAME" in capsys.readouterr().err
    assert changes(aws) == []


@pytest.mark.soak
def test_a_second_time_changes_nothing(aws, iam, config):  # noqa: F811
    run(["init", "aws", "--yes"])
    before, made = config.read_text(), len(changes(aws))
    assert run(["init", "aws"]) == 0  # nothing to ask about
    assert (config.read_text(), len(changes(aws))) == (before, made)


def test_it_shows_what_it_makes_before_it_asks_and_makes_nothing_unasked(aws, iam, config, capsys):  # noqa: F811
    assert run(["init", "aws"]) == 2
    said = capsys.readouterr().err
    for sentence in (
        "AWS account 123456789012",
        "makes the IAM role",
        "makes the policy",
        "makes the instance profile",
    ):
        assert sentence in said
    assert 'instance_profile = "cloudgpu-machine"' in said
    assert "Add --yes" in said
    assert changes(aws) == []
    assert not config.exists()


@pytest.mark.soak
def test_what_a_broken_off_run_has_made_is_taken_up(aws, iam, config):  # noqa: F811
    aws.faults.deny("AddRoleToInstanceProfile", service="iam", times=1)
    assert run(["init", "aws", "--yes"]) == 6
    assert not config.exists()  # a table never names what does not work
    assert run(["init", "aws", "--yes"]) == 0
    assert len(iam.get_instance_profile(InstanceProfileName=NAME)["InstanceProfile"]["Roles"]) == 1
    assert sorted(one["RoleName"] for one in iam.list_roles()["Roles"]) == [NAME, TIMERS]


@pytest.mark.soak
def test_a_policy_that_somebody_widened_is_put_right(aws, iam, config):  # noqa: F811
    run(["init", "aws", "--yes"])
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_role_policy(RoleName=NAME, PolicyName=NAME, PolicyDocument=json.dumps(everything))
    assert run(["init", "aws", "--yes"]) == 0
    assert iam.get_role_policy(RoleName=NAME, PolicyName=NAME)["PolicyDocument"] == json.loads(MACHINE.read_text())


@pytest.mark.soak
def test_a_role_that_its_service_may_not_assume_is_named_before_and_put_right(aws, iam, config, capsys):  # noqa: F811
    run(["init", "aws", "--yes"])
    right = iam.get_role(RoleName=TIMERS)["Role"]["AssumeRolePolicyDocument"]
    of_machines = iam.get_role(RoleName=NAME)["Role"]["AssumeRolePolicyDocument"]
    iam.update_assume_role_policy(RoleName=TIMERS, PolicyDocument=json.dumps(of_machines))
    capsys.readouterr()
    assert run(["init", "aws"]) == 2
    shown = capsys.readouterr().err
    assert f"makes the trust policy of the role {TIMERS}" in shown
    assert "Add --yes" in shown
    assert run(["init", "aws", "--yes"]) == 0
    assert iam.get_role(RoleName=TIMERS)["Role"]["AssumeRolePolicyDocument"] == right


@pytest.mark.soak
def test_a_role_of_somebody_elses_is_neither_used_nor_removed(aws, iam, config, capsys):  # noqa: F811
    iam.create_role(RoleName=NAME, AssumeRolePolicyDocument="{}")
    before = changes(aws)
    assert run(["init", "aws", "--yes"]) == 2
    assert "did not create" in capsys.readouterr().err
    assert run(["init", "aws", "--remove", "--yes"]) == 0
    assert "left alone: the IAM role" in capsys.readouterr().err
    assert changes(aws) == before
    assert len(iam.list_roles()["Roles"]) == 1


@pytest.mark.soak
def test_remove_takes_all_of_it_away_and_says_what_it_leaves(aws, iam, config, capsys):  # noqa: F811
    run(["init", "aws", "--yes"])
    capsys.readouterr()
    assert run(["init", "aws", "--remove", "--yes"]) == 0
    assert (iam.list_roles()["Roles"], iam.list_instance_profiles()["InstanceProfiles"]) == ([], [])
    assert tomllib.loads(config.read_text())["accounts"]["aws"] == {"provider": "aws"}
    assert "Left: [accounts.aws]" in capsys.readouterr().out
    assert run(["init", "aws", "--remove"]) == 0  # again: nothing is there, and nothing is asked


def test_the_roles_stay_while_a_machine_runs_that_needs_them(
    aws,  # noqa: F811
    iam,
    config,
    capsys,
):
    """A colleague's machine would have run on, if all else failed."""
    run(["init", "aws", "--yes"])
    kept, before = config.read_text(), changes(aws)
    from_here = ["--ssh-from", "203.0.113.7", "--no-wait", "--yes"]
    assert run(["up", "--provider", "aws", "--gpu", "t4", "--name", "fox", "--owner", "ada", *from_here]) == 0
    capsys.readouterr()
    assert run(["init", "aws", "--remove", "--yes", "-o", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["field"], error["value"], "fox of ada" in error["message"]) == ("--remove", "fox of ada", True)
    assert (config.read_text(), changes(aws)) == (kept, before)
    assert run(["down", "--all", "--yes"]) == 0
    silence = aws.faults.offline("eu-north-1")
    capsys.readouterr()
    assert run(["init", "aws", "--remove", "--yes"]) == 8  # one may run there
    assert "eu-north-1 did not answer" in capsys.readouterr().err
    aws.faults.remove(silence)
    assert changes(aws) == before
    assert run(["init", "aws", "--remove", "--yes"]) == 0
    assert iam.list_roles()["Roles"] == []


def test_a_machine_in_a_region_that_the_table_leaves_out_keeps_the_roles_too(
    aws,  # noqa: F811
    iam,
    config,
    capsys,
):
    """The roles are the account's: a colleague's table names other regions."""
    run(["init", "aws", "--yes"])
    removal = plan_removal(find_existing_setup(os.environ), "aws")
    up = "up --provider aws --gpu t4 --name fox --owner ada --region us-west-2 --ssh-from 203.0.113.7 --no-wait --yes"
    assert run(up.split()) == 0
    before = changes(aws)
    with pytest.raises(InvalidRequest, match="fox of ada"):  # launched while the question was on the screen
        apply_removal(removal)
    run(["init", "aws", "--region", "us-east-1", "--yes"])
    capsys.readouterr()
    assert run(["init", "aws", "--remove", "--yes"]) == 2
    assert "fox of ada" in capsys.readouterr().err
    assert [one for one in changes(aws)[len(before) :] if one.startswith(("Delete", "Remove"))] == []
    config.write_text(config.read_text().replace("[accounts.aws]", '[accounts.aws]\nexclude_regions = ["us-west-2"]'))
    assert run(["init", "aws", "--remove", "--yes"]) == 0
    assert iam.list_roles()["Roles"] == []


@pytest.mark.soak
def test_what_somebody_attached_to_the_role_stops_the_removal_with_the_sentence(aws, iam, config, capsys):  # noqa: F811
    run(["init", "aws", "--yes"])
    arn = iam.create_policy(PolicyName="more", PolicyDocument=MACHINE.read_text())["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=NAME, PolicyArn=arn)
    capsys.readouterr()
    assert run(["init", "aws", "--remove", "--yes"]) == 2
    assert "DeleteConflict" in capsys.readouterr().err


def test_a_missing_permission_is_named(aws, iam, config, capsys):  # noqa: F811
    aws.faults.deny("CreateRole", service="iam")
    assert run(["init", "aws", "--yes", "-o", "json"]) == 6
    fault = json.loads(capsys.readouterr().out)["error"]
    assert (fault["field"], fault["value"]) == ("permission", "iam:CreateRole")


def test_the_answer_as_a_document(aws, iam, config, capsys):  # noqa: F811
    assert run(["init", "aws", "--yes", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    timers = [f"IAM role {TIMERS}", f"policy of the role {TIMERS}"]
    assert answer["created"] == ["IAM role", "policy of the role", "instance profile", *timers]
    assert (answer["role"], answer["timer_role"]) == (NAME, TIMERS)
    assert (answer["account"], answer["role"], answer["removed"], answer["written"]) == ("aws", NAME, [], True)


BUDGET = ("--budget", "300", "--email", "ada@example.org")


@pytest.fixture
def budgets(aws):  # noqa: F811
    return boto3.client("budgets", region_name="us-east-1")


def test_it_makes_the_clouds_own_budget_with_its_three_mails_and_takes_it_away_again(aws, budgets, config, capsys):  # noqa: F811
    assert run(["init", "aws", *BUDGET, "--yes", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["budget"] == {"usd_per_month": "300", "emails": ["ada@example.org"]}
    assert answer["created"][-1] == "budget"
    (budget,) = budgets.describe_budgets(AccountId="123456789012")["Budgets"]
    assert (budget["BudgetName"], budget["TimeUnit"], budget["BudgetType"]) == ("cloudgpu-backstop", "MONTHLY", "COST")
    assert budget["BudgetLimit"] == {"Amount": "300", "Unit": "USD"}
    assert budget["CostTypes"]["IncludeCredit"] is False  # a credit that runs out is no news too late
    asked = {"AccountId": "123456789012", "BudgetName": "cloudgpu-backstop"}
    mails = budgets.describe_notifications_for_budget(**asked)["Notifications"]
    assert [(one["NotificationType"], one["Threshold"], one["ThresholdType"]) for one in mails] == [
        ("ACTUAL", 80, "PERCENTAGE"),
        ("ACTUAL", 100, "PERCENTAGE"),
        ("FORECASTED", 100, "PERCENTAGE"),
    ]
    told = [one["Subscribers"] for one in aws.called("CreateBudget")[0].parameters["NotificationsWithSubscribers"]]
    assert told == [[{"SubscriptionType": "EMAIL", "Address": "ada@example.org"}]] * 3
    assert run(["init", "aws", "--remove", "--yes"]) == 0
    assert budgets.describe_budgets(AccountId="123456789012")["Budgets"] == []


@pytest.mark.soak
def test_the_budget_is_made_once_and_shown_before(aws, budgets, config, capsys):  # noqa: F811
    assert run(["init", "aws", *BUDGET]) == 2
    said = capsys.readouterr().err
    assert "makes a budget of $300.00 a month on the whole account: it mails ada@example.org at 80 %" in said
    assert "It stops nothing" in said
    assert aws.called("CreateBudget") == []
    for _ in range(2):
        assert run(["init", "aws", *BUDGET, "--yes"]) == 0
    assert len(aws.called("CreateBudget")) == 1
    assert run(["init", "aws", *BUDGET]) == 0  # nothing to ask about


@pytest.mark.soak
def test_another_amount_replaces_it_and_says_what_stood_before(aws, budgets, config, capsys):  # noqa: F811
    run(["init", "aws", *BUDGET, "--yes"])
    capsys.readouterr()
    assert run(["init", "aws", "--budget", "49.99", "--email", "lab@example.org", "--yes"]) == 0
    assert "in place of one of $300.00, to ada@example.org" in capsys.readouterr().err
    (budget,) = budgets.describe_budgets(AccountId="123456789012")["Budgets"]
    assert budget["BudgetLimit"]["Amount"] == "49.99"


@pytest.mark.soak
def test_a_budget_that_somebody_changed_is_put_right(aws, budgets, config):  # noqa: F811
    run(["init", "aws", *BUDGET, "--yes"])
    which = {"AccountId": "123456789012", "BudgetName": "cloudgpu-backstop"}
    (first, *_) = budgets.describe_notifications_for_budget(**which)["Notifications"]
    budgets.delete_notification(**which, Notification=first)
    assert run(["init", "aws", *BUDGET, "--yes"]) == 0
    assert len(budgets.describe_notifications_for_budget(**which)["Notifications"]) == 3


@pytest.mark.soak
def test_remove_takes_the_budget_away_too(aws, budgets, config, capsys):  # noqa: F811
    run(["init", "aws", *BUDGET, "--yes"])
    capsys.readouterr()
    assert run(["init", "aws", "--remove", "--yes"]) == 0
    shown = capsys.readouterr()
    assert "takes away the budget" in shown.err
    assert "The budget is gone." in shown.out
    assert budgets.describe_budgets(AccountId="123456789012")["Budgets"] == []


@pytest.mark.soak
def test_who_may_not_look_for_a_budget_can_still_remove_the_role(aws, iam, config, capsys):  # noqa: F811
    run(["init", "aws", "--yes"])
    aws.faults.deny("DescribeBudget", service="budgets")
    assert run(["init", "aws", "--remove", "--yes"]) == 0
    assert "whether cloudgpu's budget exists is not known" in capsys.readouterr().err
    assert iam.list_roles()["Roles"] == []


def test_a_missing_permission_for_the_budget_is_named_as_iam_spells_it(aws, config, capsys):  # noqa: F811
    aws.faults.deny("CreateBudget", service="budgets")
    assert run(["init", "aws", *BUDGET, "--yes", "-o", "json"]) == 6
    fault = json.loads(capsys.readouterr().out)["error"]
    assert (fault["field"], fault["value"]) == ("permission", "budgets:ModifyBudget")
    assert not config.exists()


def test_without_the_option_nobody_asks_about_budgets(aws, config):  # noqa: F811
    assert run(["init", "aws", "--yes"]) == 0
    assert [call for call in aws.calls if call.service == "budgets"] == []


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["init", "awz", "--yes"], "CLOUD"),
        (["init", "aws", "--account", "local", "--yes"], "--account"),
        (["init", "aws", "--owner", "ada", "--yes"], "--owner"),
        (["init", "--remove", "--yes"], "--remove"),
        (["init", "--region", "us-east-1", "--yes"], "--region"),
        (["init", "aws", "--budget", "300", "--yes"], "--email"),
        (["init", "aws", "--email", "ada@example.org", "--yes"], "--budget"),
        (["init", "aws", "--budget", "lots", "--email", "ada@example.org", "--yes"], "--budget"),
        (["init", "aws", "--budget", "-3", "--email", "ada@example.org", "--yes"], "--budget"),
        (["init", "aws", "--budget", "nan", "--email", "ada@example.org", "--yes"], "--budget"),
        (["init", "aws", "--budget", "1.005", "--email", "ada@example.org", "--yes"], "--budget"),
        (["init", "aws", "--budget", "300", "--email", "ada", "--yes"], "--email"),
        (["init", "aws", "--budget", "300", "--email", "a@b.c,d@e.f", "--yes"], "--email"),
        (["init", "--budget", "300", "--yes"], "--budget"),
        (["init", "aws", "--region", "nowhere", "--yes"], "config.toml: accounts.aws.home_region"),
    ],
)
def test_bad_words_are_refused_before_anything_is_asked(aws, config, capsys, words, field):  # noqa: F811
    assert run([*words, "-o", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["field"] == field
    assert aws.calls == []
