"""Machines of our model of AWS answer SSH with the keys of their user data; the model runs as a program too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.access.ssh.connection import connect
from cloudgpu.access.ssh.target import Target
from cloudgpu.core.model.instances import Address
from cloudgpu.errors import Unreachable
from tests.clouds.aws.plain import client, launch, look

ROOT = Path(__file__).parents[3]


@pytest.fixture
def machines(aws):
    return aws.serve_ssh()


@pytest.fixture
def ec2(aws):
    return client()


def user_data(tmp_path, host_key):
    given = {
        "ssh_keys": {"ed25519_private": host_key.private_pem},
        "users": [{"name": "cloudgpu", "ssh_authorized_keys": [client_key(tmp_path).public_line]}],
        "write_files": [{"path": "/home/cloudgpu/.cloudgpu/agent", "permissions": "0700", "content": "#!/bin/sh\n"}],
    }
    return f"#cloud-config\n{yaml.safe_dump(given)}"


def target(tmp_path, address, port, host_key):
    client_files.pin(tmp_path / "known_hosts", "box", host_key.public_line)
    return Target("box", "box", Address(address, port, "cloudgpu"), client_key(tmp_path).path, tmp_path / "known_hosts")


def test_a_running_machine_answers_with_its_own_key_until_it_stops(aws, machines, ec2, tmp_path):
    host_key = new_host_key()
    made = launch(ec2, UserData=user_data(tmp_path, host_key))["InstanceId"]
    shown = look(ec2, made)
    there = target(tmp_path, shown["PublicIpAddress"], aws.ssh_port, host_key)
    with connect(there, timeout=10) as connection:
        said = connection.capture("touch kept; stat -c %a .cloudgpu/agent; echo $HOME; command -v shutdown", timeout=10)
    mode, home, program = said.stdout.decode().split()
    assert (mode, home) == ("700", str(machines.home(made)))
    assert Path(program).parent == machines.home(made).parent / "bin"
    inner = target(tmp_path, shown["PrivateIpAddress"], aws.ssh_port, host_key)
    with connect(inner, timeout=10) as connection:
        connection.capture("nohup sleep 300 >/dev/null 2>&1 & sudo -n shutdown -h now", timeout=10)
    assert look(ec2, made)["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    with pytest.raises(Unreachable):
        connect(there, timeout=1)
    assert list(machines._processes(machines.home(made))) == []
    ec2.start_instances(InstanceIds=[made])
    back = look(ec2, made)["PublicIpAddress"]
    with connect(target(tmp_path, back, aws.ssh_port, host_key), timeout=10) as connection:
        assert connection.capture("ls kept", timeout=10).stdout == b"kept\n"


@pytest.mark.soak
def test_it_runs_as_a_program(tmp_path):
    environ = {**os.environ, "AWS_EC2_METADATA_DISABLED": "true"}
    command = [sys.executable, "-m", "tests.clouds.aws", "--ssh-port", "0"]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as program:
        lines = [program.stdout.readline() for _ in range(5)]
        named = dict(line.removeprefix("export ").strip().split("=", 1) for line in lines[:4])
        asked = "import boto3; print(boto3.client('sts').get_caller_identity()['Account'])"
        python = [sys.executable, "-c", asked]
        answer = subprocess.run(python, env={**environ, **named}, capture_output=True, text=True, check=True)
        program.send_signal(signal.SIGTERM)
    assert answer.stdout.strip() == "123456789012"
    assert lines[4].startswith("# SSH on machines: port ")
    assert program.returncode == 0
