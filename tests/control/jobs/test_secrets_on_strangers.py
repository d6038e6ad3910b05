"""A job's secrets travel over SSH alone: no call to a provider, boot data, saved file or record of a cloud has one.

Whoever may read an account's machines sees the environment of a rented container: what is in a launch call is shown.
"""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from cloudgpu.core.jobs.job import State
from cloudgpu.core.launch.attempt import attempt_to_json
from tests.control.jobs import ssh_cloud
from tests.control.jobs.clouds import Rented

PLANTED, FILED = "x7Kd-planted-value", "q2Zs-filed-value"
COMMUNITY = '[accounts.lab.trust]\n"fake.v100.1" = "community"'
SEES = (
    'test "$(printf %s "$HF_TOKEN" | sha256sum | cut -c1-64)" = "{0}" && '
    'test "$(printf %s "$WANDB" | sha256sum | cut -c1-64)" = "{1}"'
)


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = Rented(tmp_path / "world", monkeypatch, COMMUNITY)
    yield made
    made.session.ledger.close()
    made.machines.end()


def test_secrets_reach_the_command_and_nothing_that_a_provider_is_sent_or_anybody_saves(world, monkeypatch):
    sent, whole = [], ssh_cloud.SshCloud.launch

    def launch(cloud, attempt, *, deadline):
        saved = {path: path.read_bytes() for path in world.home.rglob("*") if path.is_file()}
        sent.append((json.dumps(attempt_to_json(attempt)), saved))
        return whole(cloud, attempt, deadline=deadline)

    monkeypatch.setattr(ssh_cloud.SshCloud, "launch", launch)
    world.environ |= {"HF_TOKEN": PLANTED}
    file = world.work.parent / "vars.env"
    file.write_text(f"WANDB={FILED}\n")
    words = {"secret": ["HF_TOKEN"], "env_file": file, "trust": "community", "expose": True, "template": "jupyter"}
    says = SEES.format(*(sha256(value.encode()).hexdigest() for value in (PLANTED, FILED)))
    job = world.begun("sh", "-c", says, provider="fake", gpu="v100", **words)
    job, _, err = world.followed(job)
    assert (job.state, len(sent)) == (State.SUCCEEDED, 1), err  # the command saw both values
    call, saved = sent[0]
    assert [path for path in saved if path.parent == world.session.home.attempts]  # the call was saved before it went
    texts = {**saved, **{path: path.read_bytes() for path in world.root.rglob("*") if path.is_file() and path != file}}
    for value in (PLANTED, FILED):
        assert value not in call
        assert [path for path, text in texts.items() if value.encode() in text] == []
    assert json.loads(call)["offer"]["configuration"]["trust"] == "community"


def test_the_token_of_jupyter_is_no_part_of_a_launch(world):
    """It is made on the machine, after the launch: nothing that is sent can have it."""
    from cloudgpu.control.inputs.launch_request import parse_request
    from cloudgpu.control.launch.launch import launch
    from cloudgpu.control.launch.plan import prepare

    request = parse_request(provider="fake", gpu="v100", template="jupyter", trust="community")
    launch(world.session, prepare(world.session, request), wait=False)
    (saved,) = world.session.home.attempts.glob("*.json")
    boot = json.loads(saved.read_text())["boot"]
    assert boot["jupyter"]
    words = [*boot["jupyter"], *(part["text"] for part in boot["parts"]), json.dumps(boot["policy"])]
    assert not [word for word in words if "token" in word.lower() or "password" in word.lower()]
