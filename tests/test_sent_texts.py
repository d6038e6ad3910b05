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
from cloudgpu.agent.program import own_source, source
from cloudgpu.control.access import on_start
from cloudgpu.control.activity import agents as samples
from cloudgpu.control.pricing import traffic
from cloudgpu.core.clusters.engine import with_queue
from cloudgpu.core.model.launch import BootPart, Setup, Volume
from cloudgpu.core.model.offers import Accelerator, Available, Market
from cloudgpu.providers.machine import source as file_source
from cloudgpu.providers.machine.user_data import BootOptions, startup_script, user_data
from cloudgpu.providers.ssh import client
from cloudgpu.testing import make_attempt

NOW = datetime(2026, 3, 5, 11, tzinfo=UTC)
KEY = guests.GuestKey("ssh-ed25519 AAAA", "ann", "SHA256:none")
HASHES = {  # of each text as UTF-8; a failing test says the line to write here
    "agent, as what it means": "0dbf84fac9ce2943027192d29fa919f92a48bae2a2c88473d34755f327e6d8ed",
    "agent, as Python 3.11 writes it": "9a99f960a3ba33dde84c3616de817013843a35dadcb012ed532bb792e053b84e",
    "agent's own.py": "f01518f14db498f6bf88ed9691f95f9ae2db64feb7f0ce371d0a242810353a97",
    "program on a host (ssh)": "7ec8cd5f47688fb6e4a20e73f32f7ed46a8c07660c84a04fb33dd7adb99b30fb",
    "program that runs JupyterLab": "48e7e82ca64ff4bd859c74faea0f269dbcdf443847b03c3f6446bb12f8dae215",
    "command that reads JupyterLab's token": "d68a3c46be508137abcbdad2c8aec6745f0381359649445e52f2307530afd845",
    "program that looks after a node's engine": "710c3d0ce6dabbee520b3b35ee89e3b0557a1a040d7bc2b0e1cf808ce73f89c9",
    "command that looks after a node's engine": "5f033382181fe97ffbe0315f1953f703104f83ea26c667df9fa594ad86df1cd6",
    "program that runs jobs": "6c5ef5933162095685584eafb4b8c40b9ce1a93454f5c05c9ff16b154f40bf30",
    "program that takes a job through Slurm": "8ad1c14bddebb2ad69ed3921d144b55b58737fc3f88a79e686acb04b2f7cdb36",
    "command that runs jobs": "c06c265c88adaeea7e116362f3c4915b03bbe8e9a73efedf1ec0708aee7e2ea4",
    "program that lets a key in": "e7d11ae2f162775af5f1980cd27e792064219b91d0bf0bb84e626973e3dff46d",
    "program that writes to terminals": "597c486d8f5c1d3d8959c283a8d76cc4c519f5e560480b434f442107f3f72141",
    "command that asks the agent for samples": "1a8d5158dd7ebfdf612065a50445d9d926091724ca919393aa7f5707e9a05217",
    "command that asks for samples and a queue": "5a1837402967955a47df683d1a07109e37262c2af66e19e535bec3e48ee8841d",
    "command that asks the agent for traffic": "a9d9957e88a3e9580779f12f69d659fd90365586aa96ca880b2d1ee2d076a4b6",
    "command that asks how far on_start is": "72e744592cd08c1b899d93a563d3cfebcc934b6cc89a78fc45a3901e980c4306",
    "boot data on AWS": "22175667f59bb2b08fa78af14acf915189e69dabfb6e817711b492c8c100d425",
    "boot data on Google Cloud": "35f25738363271b6b7757743108155b1674515a284208978e3c092919e09090e",
    "boot data on Azure": "50fe3fa3e5bc265d74393c6120f5088b943b7751200ba5d906987ecea59e0b10",
    "boot data of an on-demand machine": "cef87168746210898505bbf67da7c265206eab1cc57f25cb85bf8aca5bd97ae5",
    "startup script on Google Cloud": "6fb4039404490940acd8439b386415eb7cd68cabed9fe7c759fabc125306f483",
    "cloud_aws.sh": "8bff20e87adca2f623d56d7b6e5e30733110692e533cea1cfc1127e98fbfb053",
    "cloud_azure.sh": "5326611332d349e6043d634c9956f84d4884e22e512fa0b31f410f4a68379659",
    "cloud_lambda.sh": "4ea6cb2cbff80336adceac1f99c0b3a2fb8d536d9a8069e87d9d5343f8d128f1",
    "cloud_gcp.sh": "a6795854b030c0572a3e94444586d59da33538204885b9990d28b60114f88f8f",
    "container.sh": "af3a36aff557a828ba22bec38cbda24ef0ded2482c54566ffeb299859f9c0e33",
    "container_run.sh": "dc9fdecbc7e98d603e58183c4cba2cfbd0447bf410c177f213ac688a3ec72990",
    "inside.sh": "11f7c0caf1cac75836622bbc0dda580732caddead00099d7fc716c04007d995d",
    "jupyter.sh": "ce0e353cf490f5178e903ca7904fbc4fe320ec40d2b35d70ab10107b1b8e11d5",
    "lease.sh": "fe4777741ab55d6c85e6ce407c57f2a781f9e8bd3c85711512bf7c87b961e5ac",
    "report_aws.py": "b29d0163750ddd206169b38532eb52d0ea4985f7786166e7181ff94e966ebcb4",
    "settle.sh": "4eba5cdddcbe9479c5b3dc06fb93b0753b846a76fe078d1d094d69d1bce526fc",
    "start.sh": "1d5a212f5d66df000912d5d33ad82cd243023d67d01a718bfc27c7f804c4e3f5",
    "volume.sh": "4a6f92b64395657931836b3fb45cfdfdaf7d80131e9a6399648613cbe6c83117",
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
    item = Available(cloud, "lab", "here", "here-a", "big-1", market, accelerators=(Accelerator("T4", 1),))
    made = make_attempt(
        item,
        now=NOW,
        agent_source="print('agent')\n",
        user="cloudgpu",
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
    "agent's own.py": own_source,
    "program on a host (ssh)": lambda: client._request("list", {"ledger": "led-1"}).decode(),
    "program that runs JupyterLab": lambda: over(jupyter.stop, stopped=True),
    "command that reads JupyterLab's token": lambda: jupyter._TOKEN,
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
