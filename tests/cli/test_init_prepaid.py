"""`init` and `doctor` at our models of RunPod and vast.ai: whose account it is, and what is left of its credit."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import pytest

from cloudgpu.cli.app import run
from tests.clouds.rest_faults import FOREVER
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process

__all__ = ["runpod", "runpod_process", "vast", "vast_process"]
NAMES = {"runpod": "RunPod account user_2abc123", "vast": "vast.ai account 4711"}


class Said:
    """One cloud, and what a command at it says."""

    def __init__(self, kind, cloud, capsys):
        self.kind, self.cloud, self.capsys = kind, cloud, capsys

    def __call__(self, text):
        code = run(text.split())
        out, err = self.capsys.readouterr()
        return code, out, " ".join((out + err).split())

    def left(self, usd):
        if self.kind == "vast":
            self.cloud.deposit = Decimal(usd)
        else:
            self.cloud.model.balance = Fraction(usd)


@pytest.fixture(params=["runpod", "vast"])
def said(request, own_home, capsys):
    own_home.mkdir(parents=True, exist_ok=True)
    (own_home / "config.toml").write_text(f'provider = "{request.param}"\naddress_services = []\n')
    return Said(request.param, request.getfixturevalue(request.param), capsys)


def test_init_names_the_account_and_says_what_is_left(said, own_home):
    said.left("12.50")
    code, out, text = said(f"init {said.kind} --yes -o json")
    assert code == 0, text
    document = json.loads(out)
    assert NAMES[said.kind] in document["where"]
    assert Decimal(document["credit"]["left_usd"]) == Decimal("12.50")
    assert document["credit"]["page"].startswith("https://")
    assert f"credit: $12.50 left. Pay in at {document['credit']['page']}" in text
    assert f"[accounts.{said.kind}]" in (own_home / "config.toml").read_text()


def test_init_goes_on_where_the_credit_cannot_be_read(said, own_home):
    if said.kind == "vast":  # its one call says who the account is, too
        said.cloud.faults.add("user", error="x", status=200, body={"id": 4711}, times=FOREVER)
    else:
        said.cloud.faults.add("billing.balance", error="scope", status=403, times=FOREVER)
    code, out, text = said(f"init {said.kind} --yes -o json")
    assert (code, json.loads(out)["credit"]) == (0, None), text
    assert "what is left of its credit is not known: " in text


def test_doctor_names_the_account_and_says_once_that_nothing_is_left(said):
    said.left("0")
    _, out, _ = said(f"doctor --provider {said.kind} -o json")
    checks = {one["name"]: one for one in json.loads(out)["checks"]}
    assert len(checks) == len(json.loads(out)["checks"])  # no two have one name
    (account,) = [one["message"] for name, one in checks.items() if name.endswith(f" account {said.kind}")]
    assert NAMES[said.kind] in account
    assert [name for name in checks if "credit" in name] == [f"credit {said.kind}"]
    credit = checks[f"credit {said.kind}"]
    assert (credit["verdict"], credit["message"]) == ("warn", "$0.00 left: nothing can be launched")
    assert credit["next"].startswith("Pay in at https://")
