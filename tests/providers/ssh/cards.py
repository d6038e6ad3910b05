"""A stand-in for nvidia-smi on a host's PATH: no machine of these tests has a GPU.

It answers the queries that cloudgpu asks in the driver's own CSV, from a file that a test writes, and refuses every
other query as the driver does. Of processes it shows those that live.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.agent.driver import utilization

PROGRAM = """#!{python} -IS
import json, os, sys
from pathlib import Path

state = json.loads(Path({state!r}).read_text())
words = sys.argv[1:]
if words[:3] == ["-q", "-d", "UTILIZATION"]:
    asked = words[words.index("-i") + 1].split(",") if "-i" in words else state["said"]
    sys.exit(print(*(state["said"][one] for one in asked), sep=""))
if "--format=csv,noheader,nounits" not in words:
    sys.exit(2)
only = words[words.index("-i") + 1].split(",") if "-i" in words else None
cards = [card for card in state["cards"] if only is None or card["uuid"] in only]
(kind, fields), = [word[2:].split("=", 1) for word in words if word.startswith("--query-")]
if kind == "query-gpu":
    known = {{"uuid": "uuid", "name": "name", "memory.total": "mib", "memory.used": "used",
             "utilization.gpu": "percent", "power.draw": "watts", "mig.mode.current": "mig"}}
    rows = cards
elif kind == "query-compute-apps":
    known = {{"gpu_uuid": "uuid", "pid": "pid", "used_memory": "mib", "process_name": "command"}}
    rows = [one for one in state["processes"] if os.path.exists("/proc/%s" % one["pid"])]
else:
    sys.exit(2)
for field in fields.split(","):
    if field not in known:
        print('Field "%s" is not a valid field to query.' % field)
        sys.exit(2)
for row in rows:
    print(", ".join(str(row[known[field]]) for field in fields.split(",")))
"""


@dataclass
class Card:
    uuid: str
    name: str = "NVIDIA A100-SXM4-80GB"
    mib: int = 81920
    used: int = 4
    percent: int | str = 0
    watts: str = "61.50"
    mig: str = "Disabled"


class Cards:
    """The GPUs of one host."""

    def __init__(self, place: Path) -> None:
        self.path = place / "bin"
        self.path.mkdir(parents=True)
        self._state = place / "cards.json"
        self.renew()

    def renew(self) -> None:
        """Have eight A100 that nobody uses."""
        self.cards = [Card(f"GPU-{number}") for number in range(8)]
        self.processes: list[dict[str, object]] = []
        self.answer(PROGRAM.format(python=sys.executable, state=str(self._state)))
        self.write()

    def answer(self, program: str) -> None:
        """Let this program stand in for nvidia-smi."""
        place = self.path / "nvidia-smi"
        place.write_text(program)
        place.chmod(0o755)

    def use(
        self, card: int, pid: int, *, mib: int = 39116, percent: int = 97, command: str = "/usr/bin/python3"
    ) -> None:
        """Let a process compute on a card."""
        self.cards[card].used, self.cards[card].percent = mib, percent
        self.processes.append({"uuid": self.cards[card].uuid, "pid": pid, "mib": mib, "command": command})
        self.write()

    def write(self) -> None:
        said = {card.uuid: utilization((card.percent, card.percent)) for card in self.cards}
        state = {"cards": [asdict(card) for card in self.cards], "processes": self.processes, "said": said}
        self._state.write_text(json.dumps(state))
