"""The texts that are sent to machines, held by their hashes: a change of one is meant, or it is a fault.

Moving a module, sorting its imports or renaming what only we read must change none of them. Each text is made by the
function that makes it for a launch or a command; where a text depends on a machine, the machine is made up here.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloudgpu.access.jobs import program as jobs
from cloudgpu.access.jupyter import client as jupyter
from cloudgpu.access.slurm import node as engine
from cloudgpu.access.ssh import authorized_keys as guests, execute as terminals
from cloudgpu.access.ssh.connection import Completed
from cloudgpu.agent.program import own_meter_source, source
from cloudgpu.control.access import on_start
from cloudgpu.control.activity import agents as samples
from cloudgpu.control.pricing import traffic
from cloudgpu.core.clusters.engine import with_queue
from cloudgpu.core.model.launch import BootPart, Setup, Volume
from cloudgpu.core.model.offers import Accelerator, MachineConfiguration, Market
from cloudgpu.providers.machine import source as file_source
from cloudgpu.providers.machine.user_data import BootOptions, startup_script, user_data
from cloudgpu.providers.ssh import client
from cloudgpu.testing import make_attempt

NOW = datetime(2026, 3, 5, 11, tzinfo=UTC)
KEY = guests.SharedPublicKey("ssh-ed25519 AAAA", "ann", "SHA256:none")
HASHES = {  # of each text as UTF-8; a failing test says the line to write here
    "agent, as what it means": "d3afe5a7cfec7ee8400d53aafe53add4c9703674ba9bae085bc41f485c2913fd",
    "agent, as Python 3.11 writes it": "2edce07b588764353c2b73f59a334ae42699d44c9947afe039dcd71f3e3d7e4c",
    "agent's own.py": "9b68a4774eb464ab7e53a9e33fc6187fa50d4f25d80e589d1c71e3b5fe90b00f",
    "program on a host (ssh)": "128933ed80328b9ca74a7102fee353ee0715d213c5a0c7f60b86c45ecc1f23c3",
    "program that runs JupyterLab": "c17cb7801f2cfb1bc092c3149c57b750836b606e076535ac9f7d819ae5e8e275",
    "command that reads JupyterLab's token": "d68a3c46be508137abcbdad2c8aec6745f0381359649445e52f2307530afd845",
    "program that looks after a node's engine": "abdbb6b5175b91cc31a20c6f51c45abd234c736a72ca13080ba440273fd2dc45",
    "command that looks after a node's engine": "daa68b740c8385dc6c408c01e715292d771de438186326f97af05458cb6a966e",
    "program that runs jobs": "2dc0fa23885fce3f39c1a0c0f6325ff8e8a92a1cea81109d7e0aac5d98cb9473",
    "program that takes a job through Slurm": "7e717e1eb59ade656c51bd970fa88caaccbef18b13ed595efd3f6f4b38e1428c",
    "command that runs jobs": "c06c265c88adaeea7e116362f3c4915b03bbe8e9a73efedf1ec0708aee7e2ea4",
    "program that lets a key in": "e1be8f72b8fe5d1635869ee15cd8360c480b353adf26e09f7639b6565d5a25da",
    "program that writes to terminals": "597c486d8f5c1d3d8959c283a8d76cc4c519f5e560480b434f442107f3f72141",
    "command that asks the agent for samples": "1a8d5158dd7ebfdf612065a50445d9d926091724ca919393aa7f5707e9a05217",
    "command that asks for samples and a queue": "5a1837402967955a47df683d1a07109e37262c2af66e19e535bec3e48ee8841d",
    "command that asks the agent for traffic": "a9d9957e88a3e9580779f12f69d659fd90365586aa96ca880b2d1ee2d076a4b6",
    "command that asks how far on_start is": "72e744592cd08c1b899d93a563d3cfebcc934b6cc89a78fc45a3901e980c4306",
    "boot data on AWS": "d70413b1e5e633b8386d970a7ee324f47f26b06f7bd09ee5a4337c614f832988",
    "boot data on Google Cloud": "48a1a7825ab32afd9df2b241497b30c6f0b397b8b4e15b27522d5aca2aeef217",
    "boot data on Azure": "d2e865ffc93a6fa0854764f5fd2ce9032c1e5b35e1b169969d60418276b9c518",
    "boot data of an on-demand machine": "90724f61aeacd87d41c46711a656f2504ffcbf8799393c43afa010e81c7e8097",
    "startup script on Google Cloud": "3bbd22075e4ddfb7189c23c1d5c96d50a5b54743502cd05d31079d0d10c842c9",
    "cloud_aws.sh": "1ccf115ce77be1822a226b7d1899c62eb36a352daed30adff1edce25ff9aa545",
    "cloud_azure.sh": "f95b361b1861bbe4e9956646c0090a95ea42a23a83cc8b8b2d9e94a69fda04d5",
    "cloud_lambda.sh": "01aa20517b8b2a4e28e26567e43cd5e1f237a8836c57bcb1f09d81c15dda21a8",
    "cloud_gcp.sh": "399dbc9d29abe22385060e040bc596a12bc066ac55b4dbe5be04ad3581cc53b8",
    "container.sh": "7ef108ddab646d8497c5f77a78dbe1199daafb3c4d4b70dca4559bd915f0641e",
    "container_run.sh": "aa05e504edf38bc26c957d00dc48463447698b6b905abd4841322c93f61917a9",
    "inside.sh": "11f7c0caf1cac75836622bbc0dda580732caddead00099d7fc716c04007d995d",
    "jupyter.sh": "ce0e353cf490f5178e903ca7904fbc4fe320ec40d2b35d70ab10107b1b8e11d5",
    "lease.sh": "e04ea484d17ecacfada7fa694b1f4f98c2480b5422f881e7cc6f7ad00a9e2e97",
    "report_aws.py": "79968ebf9452cb23242567945602c804fa3e9f9adbefca54adb91d1f9421d189",
    "settle.sh": "4eba5cdddcbe9479c5b3dc06fb93b0753b846a76fe078d1d094d69d1bce526fc",
    "start.sh": "f5b11359ddc1b153f3cb336df60ad47c3e30c660d7839e272426779cb22834f4",
    "volume.sh": "e959e5b9e2e026dc871d816a89b5cec9191d5a3e5b3a8368172d0902c500f46e",
}


@dataclass
class Recorder:
    """Stands where a connection stands, keeps what is sent over it, and answers as a machine would."""

    answer: dict[str, Any]
    target: Any = field(default_factory=lambda: SimpleNamespace(id="cg-1", name="fox"))
    sent: list[str] = field(default_factory=list)

    def capture(self, command: str, *, input: bytes = b"", **_: Any) -> Completed:  # noqa: A002
        self.sent.append(f"{command}\n{input.decode()}")
        return Completed(0, json.dumps(self.answer).encode(), b"")


def over(send: Callable[[Any], object], **answer: Any) -> str:
    """Return what `send` says to a machine that answers so."""
    connection = Recorder(answer)
    send(connection)
    return "".join(connection.sent)


def shape(node: Any) -> Any:
    """Return a program as lists: what it means, the same in every Python, however that writes it."""
    if isinstance(node, ast.AST):
        parts = [(name, shape(value)) for name, value in ast.iter_fields(node)]
        return [type(node).__name__, *((name, value) for name, value in parts if value not in (None, []))]
    return [shape(one) for one in node] if isinstance(node, list) else repr(node)


def attempt(cloud: str, market: Market) -> Any:
    """Return a launch that uses everything that boot data have."""
    item = MachineConfiguration(cloud, "lab", "here", "here-a", "big-1", market, accelerators=(Accelerator("T4", 1),))
    made = make_attempt(
        item,
        now=NOW,
        agent_source="print('agent')\n",
        client_public_keys=["ssh-ed25519 CLIENT"],
        host_key=("ssh-ed25519 HOST", "PRIVATE"),
        jupyter=("jupyter", "lab"),
        parts=[
            BootPart("packages", "git tmux"),
            BootPart("on_start", "echo begun\n"),
            BootPart("cloud_init", "#cloud-config\n{}\n"),
        ],
        policy={"after": 3600.0, "off": [1, 2]},
    )
    return replace(made, request=replace(made.request, setup=Setup(volume=Volume("data"))))


def boot_data(cloud: Any, market: Market = Market.SPOT, write: Callable[..., str] = user_data) -> str:
    given = BootOptions(cloud, ssh_port=2222, reports=True, volume="vol-1", can_deallocate=cloud == "azure")
    return write(attempt(cloud, market), given)


def beside() -> list[str]:
    """Return the names of the files that travel as they lie there."""
    here = Path(inspect.getfile(file_source)).parent
    return sorted(one.name for one in here.iterdir() if one.suffix == ".sh" or one.name == "report_aws.py")


TEXTS: dict[str, Callable[[], str]] = {
    "agent, as what it means": lambda: json.dumps(shape(ast.parse(source()))),
    **({"agent, as Python 3.11 writes it": source} if sys.version_info[:2] == (3, 11) else {}),
    "agent's own.py": own_meter_source,
    "program on a host (ssh)": lambda: client._request("list", {"ledger": "led-1"}).decode(),
    "program that runs JupyterLab": lambda: over(jupyter.stop, stopped=True),
    "command that reads JupyterLab's token": lambda: jupyter._READ_TOKEN,
    "program that looks after a node's engine": lambda: engine.program().decode(),
    "command that looks after a node's engine": lambda: engine.COMMAND,
    "program that runs jobs": lambda: jobs.program().decode(),
    "command that runs jobs": lambda: jobs.COMMAND,
    "program that takes a job through Slurm": lambda: "".join(jobs.slurm_program().values()),
    "program that lets a key in": lambda: over(lambda to: guests.add_key(to, KEY), changed=True),
    "program that writes to terminals": lambda: terminals._WRITE_COMMAND,
    "command that asks the agent for samples": lambda: samples.STATUS_COMMAND,
    "command that asks for samples and a queue": lambda: with_queue(samples.STATUS_COMMAND, "cg-1"),
    "command that asks the agent for traffic": lambda: traffic.STATUS_COMMAND,
    "command that asks how far on_start is": lambda: on_start._STATUS_COMMAND,
    "boot data on AWS": lambda: boot_data("aws"),
    "boot data on Google Cloud": lambda: boot_data("gcp"),
    "boot data on Azure": lambda: boot_data("azure"),
    "boot data of an on-demand machine": lambda: boot_data("gcp", Market.ON_DEMAND),
    "startup script on Google Cloud": lambda: boot_data("gcp", write=startup_script),
    **{name: partial(file_source, name) for name in beside()},
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_sent_to_machines_is_what_it_was(name: str) -> None:
    now = hashlib.sha256(TEXTS[name]().encode()).hexdigest()
    renew = f'If it was changed on purpose, write into HASHES of this file: "{name}": "{now}",'
    assert now == HASHES.get(name), f"What is sent to machines has changed: {name}. {renew}"


def test_no_hash_is_left_of_a_text_that_is_sent_no_more() -> None:
    assert set(HASHES) - set(TEXTS) <= {"agent, as Python 3.11 writes it"}
