"""Who may assume the roles that init creates: compared with what is there, set right, and told by `doctor`."""

from __future__ import annotations

import json

import pytest

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.providers.aws.account.findings import TIMER_ROLE_FINDING
from cloudgpu.providers.aws.account.roles import is_same_policy, machine_trust, timer_trust
from tests.clouds.aws.plain import client, role_of_timers
from tests.providers.aws.accounts import account

MACHINE, TIMER = (
    (data_dir("policies") / "permissions" / f"aws-{role}.json").read_text() for role in ("machine", "timer")
)
TRUST = timer_trust("123456789012", "aws")
(STATEMENT,) = TRUST["Statement"]
NOBODY = {"Version": "2012-10-17", "Statement": [{**STATEMENT, "Principal": {"Service": "lambda.amazonaws.com"}}]}


def trusted(name):
    return client("iam").get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]


def set_trust(name, document):
    client("iam").update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(document))


def missing(role):
    return [(part.description, part.name) for part in role.parts if not part.exists]


def test_a_role_of_ours_that_its_service_may_not_assume_is_told_and_set_right(aws, tmp_path):
    """Its timers would never act, and machines would not say when they were last in use: nothing else tells."""
    own = account(tmp_path)
    own.make_timer_role(TIMER)
    own.make_machine_role(MACHINE)
    for name in ("cloudgpu-timer", "cloudgpu-machine"):
        set_trust(name, NOBODY)
    assert missing(own.timer_role(TIMER)) == [("trust policy of the role", "cloudgpu-timer")]
    assert missing(own.machine_role(MACHINE)) == [("trust policy of the role", "cloudgpu-machine")]
    own.make_timer_role(TIMER)
    own.make_machine_role(MACHINE)
    assert (trusted("cloudgpu-timer"), trusted("cloudgpu-machine")) == (TRUST, machine_trust("aws"))
    assert missing(own.timer_role(TIMER)) == missing(own.machine_role(MACHINE)) == []


def test_the_same_trust_in_other_words_is_left_as_it_is(aws, tmp_path):
    own = account(tmp_path)
    own.make_timer_role(TIMER)
    conditions = {
        "ArnLike": {key: [value] for key, value in STATEMENT["Condition"]["ArnLike"].items()},
        "StringEquals": STATEMENT["Condition"]["StringEquals"],
    }
    other_words = {
        "Statement": {
            **STATEMENT,
            "Sid": "Mine",
            "Action": ["sts:AssumeRole"],
            "Principal": {"Service": ["scheduler.amazonaws.com"]},
            "Condition": conditions,
        },
        "Version": "2012-10-17",
    }
    set_trust("cloudgpu-timer", other_words)
    assert missing(own.timer_role(TIMER)) == []
    own.make_timer_role(TIMER)
    assert [call.action for call in aws.calls].count("UpdateAssumeRolePolicy") == 1  # the test's own
    more = {"Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRole"}
    assert is_same_policy({"Statement": [STATEMENT, more]}, {"Statement": [more, STATEMENT]})
    assert not is_same_policy({"Statement": [STATEMENT, more]}, {"Statement": [STATEMENT]})


def finding(provider):
    found = [one for one in provider.findings(provider._aws.options.home_region) if one.what == TIMER_ROLE_FINDING]
    return [(one.is_ok, one.message, one.next) for one in found]


WITHOUT_ACTION = {key: value for key, value in STATEMENT.items() if key != "Action"}


@pytest.mark.parametrize(
    ("statements", "is_ok"),
    [
        ([STATEMENT], True),
        ([{key: value for key, value in STATEMENT.items() if key != "Condition"}], True),
        (NOBODY["Statement"], False),
        ([{**STATEMENT, "Effect": "Deny"}], False),
        ([{**STATEMENT, "Action": "sts:TagSession"}], False),
        ([{**STATEMENT, "Action": "sts:assumerole"}], True),
        ([{**STATEMENT, "Action": ["STS:Assume*"]}], True),
        ([{**STATEMENT, "Action": "sts:AssumeRoleWith*"}], False),
        ([{**WITHOUT_ACTION, "NotAction": "sts:TagSession"}], True),
        ([{**WITHOUT_ACTION, "NotAction": ["sts:Assume*"]}], False),
        (timer_trust("999999999999", "aws")["Statement"], None),
        ([STATEMENT, {**STATEMENT, "Effect": "Deny"}], None),
        ([{**STATEMENT, "Principal": "*"}], None),
        ([{**STATEMENT, "Principal": {"AWS": "*"}}], None),
    ],
)
def test_doctor_is_told_whether_the_scheduler_may_assume_the_role(aws, tmp_path, statements, is_ok):
    arn = role_of_timers(trust={"Version": "2012-10-17", "Statement": statements})
    ((found, message, remedy),) = finding(account(tmp_path, timer_role=arn))
    assert found is is_ok
    assert message.startswith("the role that accounts.lab.timer_role names ")
    assert ("cannot be assumed by AWS's scheduler" in message) == (is_ok is False)
    assert remedy == ("" if is_ok else "Run: cloudgpu init aws")


def test_doctor_is_told_of_a_role_that_is_gone_and_of_one_that_it_may_not_read(aws, tmp_path):
    assert finding(account(tmp_path)) == []  # each machine's own check says that it has no timer
    arn = role_of_timers("of-the-lab", trust=NOBODY)
    ((found, _, remedy),) = finding(account(tmp_path, timer_role=arn))
    assert (found, remedy) == (
        False,
        "Correct its policies (docs/timer.md), or use another role: cloudgpu init aws",
    )
    for gone in (arn + "s", arn.replace(":role/", ":role/team/")):
        ((found, message, remedy),) = finding(account(tmp_path, timer_role=gone))
        assert (found, "is not there" in message, remedy) == (False, True, "Run: cloudgpu init aws")
    aws.faults.deny("GetRole", service="iam")
    ((found, message, remedy),) = finding(account(tmp_path, timer_role=arn))
    assert found is None
    assert "not known" in message
    assert remedy.endswith(f"allow to read cloudgpu-timer alone: add {arn} to them.")
    ((_, _, remedy),) = finding(account(tmp_path, timer_role=arn.replace("of-the-lab", "cloudgpu-timer")))
    assert "alone: add" not in remedy


(ALLOWS,) = json.loads(TIMER)["Statement"]
DENY_ENDS = {"Effect": "Deny", "Action": "ec2:Terminate*", "Resource": "*"}


@pytest.mark.parametrize(
    ("statements", "is_ok", "says"),
    [
        ([ALLOWS], True, "lets AWS's scheduler stop and end machines"),
        ([{"Effect": "Allow", "Action": "*", "Resource": "*"}], True, "lets AWS's scheduler stop and end machines"),
        ([{**ALLOWS, "Action": "ec2:StopInstances"}], False, "may not do ec2:TerminateInstances, by its policies"),
        ([{**ALLOWS, "Action": "ec2:StartInstances"}], False, "ec2:StopInstances and ec2:TerminateInstances"),
        ([{**ALLOWS, "Resource": "arn:aws:ec2:*:999999999999:instance/*"}], False, "may not do"),
        ([ALLOWS, DENY_ENDS], False, "may not do ec2:TerminateInstances"),
        (
            [{**ALLOWS, "Condition": {"StringEquals": {"aws:ResourceTag/team": "lab"}}}],
            None,
            "policies that only AWS can evaluate",
        ),
    ],
)
def test_doctor_is_told_whether_the_role_may_stop_and_end_machines(aws, tmp_path, statements, is_ok, says):
    """A schedule fires under a role that may not, too: the machine runs on, and nothing else tells."""
    arn = role_of_timers(document=json.dumps({"Version": "2012-10-17", "Statement": statements}))
    ((found, message, remedy),) = finding(account(tmp_path, timer_role=arn))
    assert found is is_ok
    assert says in message
    assert remedy == ("" if is_ok else "Run: cloudgpu init aws")


def test_what_the_role_may_do_is_not_known_where_nobody_may_ask_and_hides_no_other_finding(aws, tmp_path):
    own = account(tmp_path, timer_role=role_of_timers("of-the-lab"), ledger="led-1")
    aws.faults.deny("SimulatePrincipalPolicy", service="iam")
    aws.faults.deny("DescribeSecurityGroups")
    role, rules = own.findings("us-east-1")
    assert (role.is_ok, rules.is_ok) == (None, None)
    assert "may not do iam:SimulatePrincipalPolicy" in role.message
    assert role.next.endswith("add arn:aws:iam::123456789012:role/of-the-lab to them.")
    assert "ec2:DescribeSecurityGroups" in rules.message


def test_roles_in_china_name_what_is_in_their_own_partition(aws, tmp_path):
    """IAM refuses a policy whose ARNs are of another one; EC2's principal there has China's domain."""
    own, iam = account(tmp_path, home_region="cn-north-1", regions=["cn-north-1"]), client("iam", "cn-north-1")
    own.make_machine_role(MACHINE)
    own.make_timer_role(TIMER)
    for name in ("cloudgpu-machine", "cloudgpu-timer"):
        policy = json.dumps(iam.get_role_policy(RoleName=name, PolicyName=name)["PolicyDocument"])
        assert "arn:aws-cn:ec2:" in policy
        assert "arn:aws:" not in policy
    trust = iam.get_role(RoleName="cloudgpu-machine")["Role"]["AssumeRolePolicyDocument"]
    assert trust["Statement"][0]["Principal"] == {"Service": "ec2.amazonaws.com.cn"}
    assert missing(own.machine_role(MACHINE)) == missing(own.timer_role(TIMER)) == []
    arn = own.timer_role(TIMER).options["timer_role"]
    ((found, _, _),) = finding(account(tmp_path, home_region="cn-north-1", regions=["cn-north-1"], timer_role=arn))
    assert found is True
