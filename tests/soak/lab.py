"""A lab of several people on one ledger for some weeks: random commands by all of them, and a judge after each.

Everybody's account of AWS is called `aws`, as `cloudgpu init` calls it, and there are two of them: what one's
credentials show says nothing of the other's machines. The people, their commands and what happens to the server are
drawn from a seed; time passes only where this file lets it.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from cloudgpu.core.model.machine import Machine
from cloudgpu.ledger.open import open_ledger
from tests.soak.lab_member import KILLED, Member, Said
from tests.soak.lab_outbox import ends_harm, outbox_harm, waiting
from tests.soak.lab_totals import shown_harm, totals_harm
from tests.soak.lab_truth import LIVING, bill_harm, strangers_harm, sums, words_harm

START = datetime(2027, 1, 4, 9, tzinfo=UTC)  # ahead of every real clock: nothing on this computer is due by then
ACCOUNTS = ("111111111111", "222222222222")
BUDGET = 4000  # USD in total: of everybody
CONFIG = """
provider = "aws"
owner = "{owner}"
address_services = []
[accounts.aws]
regions = ["us-east-1"]
"""
OWN = "--no-wait --yes --template bare"
OF_A_START = 30_000_000  # nano-dollars: what a start that was seen within seconds leaves in doubt
EXPECTED = {0, 2, 3, 4, 6, 7, 8, 9, 10, KILLED}  # 1 is a fault of cloudgpu, 5 nothing here brings about; 6: by role
QUIET = {0, 8}


class Lab:
    """The people, the clouds, the server and the clock. `faults` are what the judge found, in order.

    `url` is where the judge reads the ledger. Without a `server` of its own nothing happens to that.
    """

    def __init__(
        self, seed: int, clouds: Sequence[Any], members: Sequence[Any], clock: Any, place: Path, url: str,
        server: Any = None, up: str = "",
    ) -> None:  # fmt: skip
        self.chance, self.seed = random.Random(seed), seed
        self.clouds, self.members = {cloud.number: cloud for cloud in clouds}, members
        self.clock, self.place, self.url, self.server, self.up = clock, place, url, server, up
        self.server_stands = True
        self.faults: list[str] = []
        self.log: list[str] = []
        self.seen: Counter[str] = Counter()
        self.names = (f"m{number}" for number in itertools.count(1))
        self.copy: tuple[Path, float, dict[str, Fraction]] | None = None  # when, and the doubts about bills then
        self.forgiven: set[str] = set()  # machines of which a restored ledger has lost a part
        self.do(members[0], f"budget set lab --amount {BUDGET} --period total")

    # --- what happens -----------------------------------------------------------------------------------------------

    def live(self, steps: int, *, quiet_every: int = 14) -> Lab:
        """Take so many steps, with a quiet moment after every few of them."""
        kinds = {self.somebody_types: 30, self.somebody_passes: 12, self.a_machine_ends: 2, self.somebody_is_killed: 3}
        if self.server is not None:
            kinds |= {self.the_server_dies: 1, self.the_server_dies_meanwhile: 1, self.the_server_freezes: 0.5}
            kinds |= {self.the_server_is_copied: 0.7, self.the_server_is_restored: 0.7}
            kinds |= {self.a_host_is_off: 1, self.an_own_machine_ends: 0.7, self.the_server_is_away: 1.5}
        sure = {} if self.server is None else self._sure(steps)
        for step in range(1, steps + 1):
            (act,) = self.chance.choices(list(kinds), list(kinds.values()))
            sure.get(step, act)()
            if step % quiet_every == 0:
                self.quiet()
            self.passes(self.chance.choice([60, 1800, 3 * 3600, 9 * 3600, 20 * 3600]))
        self.quiet()
        return self

    def _sure(self, steps: int) -> dict[int, Callable[[], Any]]:
        """Return what happens once in each run, by its step."""
        first, second = self.members[:2]
        local = [partial(self.do, one, f"up --account local --name {one.name}-1 {OWN}") for one in (first, second)]
        ssh = [
            partial(self.do, one, f"up --account ssh --zone {host} --name {one.name}-{host} {OWN}")
            for one, host in ((second, "bigbox"), (first, "tower"), (first, "attic"))  # the tower has one at a time
        ]
        server = [self.the_server_is_copied, self.the_server_freezes, self.the_server_is_restored]
        kinds = [*local, *ssh, self.a_host_is_off, self.the_server_is_away, *server, self.an_own_machine_ends]
        return {(place + 1) * steps // (len(kinds) + 2): act for place, act in enumerate(kinds)}

    def passes(self, seconds: float) -> None:
        """Let time pass; what is due at the clouds happens at its own time."""
        goal = self.clock.time() + round(seconds)
        while True:
            due = [at for cloud in self.clouds.values() if (at := cloud.ask("due")) is not None and at <= goal]
            if not due:
                break
            self.clock.go_to(max(min(due), self.clock.time()))
            self.settle()
        self.clock.go_to(goal)
        self.settle()

    def settle(self) -> None:
        for cloud in self.clouds.values():
            cloud.ask("settle")

    def somebody_types(self, **how: Any) -> Said:
        member = self.chance.choice(self.members)
        return self.do(member, self.line_of(member), **how)

    def line_of(self, member: Member) -> str:
        """Return a command line: of the own machines more often than of others'."""
        names = [row.name for row in self.rows() if row.terminated_at is None] if self.server_stands else []
        own = [name for name in names if self.account_of(name) in member.accounts]
        name = self.chance.choice((own if own and self.chance.random() < 0.7 else names) or [""])
        hours = self.chance.choice([4, 30, 90, 200])
        gpu = self.chance.choice(["v100", "t4", "t4"])
        local = member.local in self.clouds and not any(one["tags"] for one in self.clouds[member.local].machines())
        host = self.chance.choice([*member.hosts] or [""])
        lease = f"--lease {hours}h --renew-until {hours * 2}h"
        up = f"up --account aws --gpu {gpu} --name {next(self.names)} {lease} {self.up}"
        if not name:
            return up
        lines = {
            f"up --account local --name {next(self.names)} --lease 90h --renew-until 400h {OWN}": 4 * local,
            f"up --account ssh --zone {host} --name {next(self.names)} --lease 90h --renew-until 400h {OWN}": 3
            * (host != ""),
            up: 6,
            "ls --refresh": 4,
            f"show {name} --refresh": 2,
            "cost --verify --yes": 1,
            "budget check": 1,
            f"stop {name} --yes -o json": 3,
            f"start {name} --no-wait --yes": 3,
            f"down {name} --yes -o json": 3,
            f"extend {name} {hours}h --yes": 1,
            "orphans": 0.3,
        }
        return self.chance.choices(list(lines), list(lines.values()))[0]

    def somebody_passes(self) -> None:
        self.do(self.chance.choice(self.members), "reap")

    def somebody_is_killed(self) -> None:
        """Kill a command before or after a write to the ledger, as one that was closed with its laptop."""
        self.somebody_types(strike=self.chance.randrange(1, 9))

    def a_machine_ends(self) -> None:
        """A machine is shut down from inside, or terminated by hand in the console."""
        cloud = self.clouds[self.chance.choice([number for number in self.clouds if number in ACCOUNTS])]
        running = [one for one in cloud.machines() if one["state"] == "running"]
        if running:
            how, one = self.chance.choice(["shut_down", "interactive"]), self.chance.choice(running)
            self.log.append(f"  {how} {one['tags']['cloudgpu-name']}")
            cloud.ask(how, one["id"])
            self.settle()
            if how == "shut_down":  # a stop that nobody sees before the end is billed through: nobody can know of it
                self.do(next(member for member in self.members if member.account == cloud.number), "ls --refresh")

    def an_own_machine_ends(self) -> None:
        """An agent dies on a host, or somebody there removes all that is cloudgpu's."""
        running = [(host, one) for host in self.hosts for one in host.machines() if one["state"] == "running"]
        if running:
            how, (host, one) = self.chance.choice(["shut_down", "interactive"]), self.chance.choice(running)
            self.log.append(f"  {how} {one['tags']['cloudgpu-name']} on {host.name}")
            host.ask(how)

    def a_host_is_off(self) -> None:
        """A host's SSH server answers nobody, and what runs there goes on; those who know it look."""
        host = self.chance.choice(self.hosts)
        self.log.append(f"  {host.name} is off")
        self.seen["host off"] += 1
        host.off()
        for member in (one for one in self.members if host.number in one.accounts):
            names = [row.name for row in self.rows() if row.terminated_at is None and row.provider == "ssh"]
            name = self.chance.choice(names or ["nothing"])
            for words in ("reap", self.chance.choice([f"down {name} --yes -o json", "ls --refresh"])):
                self.do(member, words)
        host.start()

    # --- the server -------------------------------------------------------------------------------------------------

    def the_server_dies(self) -> None:
        """Kill it, let somebody type something meanwhile, start it again."""
        line = self.line_of(member := self.chance.choice(self.members))
        self.server.kill()
        with self._down("dead"):
            self.do(member, line)
        self.server.start()

    def the_server_dies_meanwhile(self) -> None:
        """Kill it while a command is at work: as the command asks its cloud something."""
        line = self.line_of(member := self.chance.choice(self.members))
        cloud = self.clouds[member.account]
        cloud.ask("strike", self.server.pid, self.chance.randrange(1, 12))
        with self._down("dying"):
            self.do(member, line)
        cloud.ask("strike", 0, 0)
        self.server.again()

    def the_server_freezes(self) -> None:
        line = self.line_of(member := self.chance.choice(self.members))
        with self._down("frozen"), self.server.frozen():
            self.do(member, line, CLOUDGPU_LEDGER=_impatient(member))

    def the_server_is_away(self) -> None:
        """For a while, dead or frozen: members stop and end machines meanwhile, and the ledger learns of it later."""
        living, more = [row for row in self.rows() if row.terminated_at is None], dict[str, str]()
        todo = []
        for row in self.chance.sample(living, min(3, len(living))):
            able = [one for one in self.members if self.account_of(row.name) in one.accounts]
            if able:
                member = next((one for one in able if one.name == row.owner), self.chance.choice(able))
                todo.append((member, f"{self.chance.choice(['stop', 'down'])} {row.name} --yes -o json"))
        is_frozen = self.chance.random() < 0.3
        if not is_frozen:
            self.server.kill()
        with self._down("away"), self.server.frozen() if is_frozen else nullcontext():
            for member, words in todo:
                if is_frozen:
                    more["CLOUDGPU_LEDGER"] = _impatient(member)
                self.do(member, words, **more)
                self.passes(self.chance.choice([60, 1800]))
        if not is_frozen:
            self.server.start()
        self.judge_outboxes()

    def judge_outboxes(self) -> None:
        """Let the ledger be told what was done without it."""
        before = waiting(one.home for one in self.members)
        for member in self.members:
            member("ls")
        self.seen["lines of outboxes"] += sum(map(len, before.values()))
        events = self.read(lambda ledger: list(ledger.events()))
        for sentence in (*outbox_harm(before, (one.home for one in self.members), events), *ends_harm(events)):
            self.fault(f"after an outage: {sentence}")

    @contextmanager
    def _down(self, how: str) -> Iterator[None]:
        self.log.append(f"  the server is {how}")
        self.seen[f"server {how}"] += 1
        self.server_stands = False
        try:
            yield
        finally:
            self.server_stands = True

    def the_server_is_copied(self) -> None:
        self.log.append("  the server's files are copied")
        if self.copy:
            shutil.rmtree(self.copy[0])
        if not self._well_known():
            member = self.chance.choice(self.members)
            self.do(member, f"up --account aws --gpu t4 --name {next(self.names)} --lease 400h {self.up}")
            self.clock.advance(20)
            self.do(member, "ls --refresh")
        self.copy = self.server.copy(), self.clock.time(), self._well_known()

    def the_server_is_restored(self) -> None:
        """Put it back to the copy; the quiet moment that follows settles what that has lost."""
        if self.copy is None:
            return
        place, since, doubts = self.copy
        ended = self._end_one_of(doubts, since)
        self.log.append(f"  the server is put back by {(self.clock.time() - since) / 3600:.1f} h")
        self.seen["restored"] += 1
        self.server.back_to(place)
        self.forgiven |= {
            one["tags"]["cloudgpu-id"] for one in self.machines() if any(at >= since for at, _ in one["log"])
        }
        self.quiet()
        if ended is not None:
            doubt = self._doubts()[ended]
            self.seen["ends told exactly after a restore"] += 1
            if doubt > doubts[ended]:
                self.fault(f"AWS says when {ended} ended, and after a restore its bill is in doubt by {doubt} nanos")

    def _doubts(self) -> dict[str, Fraction]:
        """Return how wide the bill's range is, by machine, in nano-dollars."""
        return {one: high - low for one, (_, low, high) in self.read(lambda book: sums(book, self.clock.now())).items()}

    def _well_known(self) -> dict[str, Fraction]:
        """Return the doubts about the machines of AWS that run, where their start was seen within seconds."""
        running = {one["tags"]["cloudgpu-id"] for one in self.machines() if one["log"] and one["state"] == "running"}
        return {one: doubt for one, doubt in self._doubts().items() if one in running and doubt <= OF_A_START}

    def _end_one_of(self, machines: Collection[str], since: float) -> str | None:
        """Have the owner of one of these machines, if it has run on since then, stop or end it; return its id."""
        as_then = {one["tags"]["cloudgpu-id"] for one in self.machines() if all(at < since for at, _ in one["log"])}
        found = [row for row in self.rows() if row.id in as_then & self._well_known().keys() & set(machines)]
        if not found:
            return None
        member = next(one for one in self.members if one.name == found[0].owner)
        said = self.do(member, f"{self.chance.choice(['stop', 'down'])} {found[0].name} --yes -o json")
        self.passes(600)
        return found[0].id if said.code == 0 else None

    # --- the judge --------------------------------------------------------------------------------------------------

    def do(self, member: Member, words: str, **how: Any) -> Said:
        """Let a member run a command; judge how it ended, and what it did to machines that it cannot see."""
        before = self.rows() if self.server_stands else None
        said = member(words, **how)
        self.settle()
        if words.startswith("up ") and said.code == 0 and self.chance.random() < 0.5:
            self.clock.advance(20)
            member("ls --refresh")  # who looks within minutes knows when it began to run, and what it costs to the nano
        self.seen[words.split(maxsplit=1)[0]] += 1
        self.log.append(f"{self.clock.now():%m-%d %H:%M:%S} {member.name}: {words} -> {said.code}")
        self.judge(member, words, said, before)
        return said

    def judge(self, member: Member, words: str, said: Said, before: Any) -> None:
        if said.code not in EXPECTED or "Traceback" in said.err:
            self.fault(f"{words} ended with {said.code}: {said.err[-2000:]}")
        if words.split(maxsplit=1)[0] in {"down", "stop"}:
            self.judge_proof(words, said)
        if before is not None:
            after = self.rows()
            mine = {one["tags"]["cloudgpu-id"] for name in member.accounts for one in self.clouds[name].machines()}
            mates = {one.name for one in self.members if one.account == member.account}
            mine |= {row.id for row in before if self._host_of(row) in member.accounts}
            mine |= {row.id for row in before if row.owner == member.name}
            mine |= {row.id for row in before if row.owner in mates and row.provider == "aws"}
            for sentence in strangers_harm(before, after, mine):
                self.fault(f"{member.name}: {words}: {sentence}")
        if words.startswith("up ") and said.code == 0:
            self.judge_budget()

    def _host_of(self, row: Machine) -> str | None:
        """Return the number of the host where a machine was launched, by what its owner calls that."""
        owner = next((one for one in self.members if one.name == row.owner), None)
        return owner.hosts.get(row.region) if owner is not None and row.provider == "ssh" else None

    def judge_proof(self, words: str, said: Said) -> None:
        """What `down` calls ended has ended, and what `stop` calls stopped does not run."""
        if said.code == KILLED or not said.out.startswith("{"):
            return
        document = said.json
        if "error" in document:
            self.judge_words(words, document["error"]["message"])
            return
        named = document["terminated"] if words.startswith("down") and "terminated" in document else [document]
        truth = {one["tags"]["cloudgpu-id"]: one for one in self.machines() if one["state"] in LIVING}
        for one in (one for one in named if "id" in one):
            state = truth.get(one["id"], {"state": "terminated"})["state"]
            wrong = state in LIVING if words.startswith("down") else state in ("pending", "running")
            if wrong and one.get("state") != state:
                self.fault(f"{words} proved {one['name']} {one.get('state')} with {said.code}, and it is {state}")
            self.seen["proofs"] += 1

    def judge_words(self, words: str, message: str) -> None:
        """What a command says it has ended or stopped without the ledger has ended, or stopped."""
        for one in self.machines():
            name, state = one["tags"]["cloudgpu-name"], one["state"]
            if message.startswith((f"{name} was ended", f"{name} is stopped")):
                self.seen["proofs without the ledger"] += 1
                if state in (LIVING if "was ended" in message else ("pending", "running")):
                    self.fault(f"{words} said {message!r}, and it is {state}")

    def judge_budget(self) -> None:
        """What everything has cost, and costs to its renew-until, is within the budget: none was launched past it."""
        now, total = self.clock.time(), Fraction(0)
        for cloud, one in self._each():
            until = float(one["tags"]["cloudgpu-renew-until"])
            begun = one["log"][0][0] if one["log"] else now
            total += (cloud.cost(one, max(min(now, until), begun)) or 0) + cloud.ahead(one, now, until)
        self.seen["budgets judged"] += 1
        if total > BUDGET * 10**9:
            self.fault(f"a launch took the budget of {BUDGET} to {float(total / 10**9):.2f}")

    def quiet(self) -> None:
        """Let everybody look until the ledger is not in doubt, and judge every word and sum of it."""
        self.seen["quiet moments"] += 1
        for member in self.members:
            for words in ("cost --verify --yes", "reap", "ls --refresh"):
                said = self.do(member, words)
                if said.code not in QUIET:
                    self.fault(f"in a quiet moment, {member.name}'s {words} ended with {said.code}: {said.err[-600:]}")
        rows, machines = self.rows(), self.machines()
        for sentence in words_harm(rows, machines):
            self.fault(f"in a quiet moment: {sentence}")
        lost = self.forgiven & {one["tags"]["cloudgpu-id"] for one in machines} - {row.id for row in rows}
        self.seen["machines that a restored ledger lost"] = len(lost)
        self.seen["bills that are exact"] = self.seen["bills that are a range"] = 0
        for sentence in self._harm_in_sums(lost):
            self.fault(f"in a quiet moment: {sentence}")
        verified = self.read(lambda ledger: ledger.verify().faults)
        if verified:
            self.fault(f"in a quiet moment: {verified}")

    def _harm_in_sums(self, lost: set[str]) -> Iterator[str]:
        """Yield which bills, and which sums by owner, by account and in all, are not what the machines have cost."""
        now, taken_up = (
            self.clock.now(),
            {one.subject for one in self.read(lambda book: book.summaries({"machine_adopted"}))},
        )
        costs = [
            (cloud.number, one, cost)
            for cloud, one in self._each()
            if (machine := one["tags"]["cloudgpu-id"]) not in lost
            # The model's public addresses are loopback's: who takes a machine up sees none that is billed.
            and (cost := cloud.cost({**one, "unaddressed": machine in taken_up}, now.timestamp())) is not None
        ]
        yield from self.read(lambda ledger: list(bill_harm(ledger, costs, now, self.seen)))
        for by in ("account", "owner"):
            shown = self.members[-1](f"cost --by {by} -o json").json
            yield from self.read(lambda ledger, shown=shown, by=by: list(shown_harm(by, shown, now, ledger)))
        yield from self.read(lambda ledger: list(totals_harm(costs, now, self.seen, ledger)))

    def fault(self, sentence: str) -> None:
        self.log.append(f"!! {sentence}")
        self.faults.append(sentence)

    @property
    def hosts(self) -> list[Any]:
        """The users of this computer behind SSH servers."""
        known = {number for member in self.members for number in member.hosts.values()}
        return [self.clouds[number] for number in sorted(known)]

    def machines(self) -> list[dict[str, Any]]:
        return [one for _, one in self._each()]

    def _each(self) -> list[tuple[Any, dict[str, Any]]]:
        return [(cloud, one) for cloud in self.clouds.values() for one in cloud.machines()]

    def account_of(self, name: str) -> str:
        found = [cloud.number for cloud, one in self._each() if one["tags"]["cloudgpu-name"] == name]
        return found[0] if found else ""

    def rows(self) -> list[Machine]:
        return self.read(lambda ledger: ledger.machines())

    def read(self, look: Callable[[Any], Any]) -> Any:
        ledger = open_ledger(self.url, self.place / "judge", actor="judge", clock=self.clock.now)
        try:
            return look(ledger)
        finally:
            ledger.close()


def _impatient(member: Any) -> str:
    """Return the ledger's address, for a command that does not wait long for a server that says nothing."""
    return member.environ["CLOUDGPU_LEDGER"].replace("connect_timeout=60", "connect_timeout=2")
