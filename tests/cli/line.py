"""The command line in this process, on a model of a cloud: fast, since nothing is started anew."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, NamedTuple

from cloudgpu.cli.app import run
from cloudgpu.control.outage import opening as sessions
from tests.cli.documents import check_output
from tests.cli.parsed import keep_parameters

keep_parameters()


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


class Line:
    """Runs commands; `home` is where config.toml lies, `server` the model of the cloud."""

    def __init__(self, home, capsys, server, config):
        self.home, self.server = home, server
        self._capsys = capsys
        self.config(config)

    def config(self, text):
        (self.home / "config.toml").write_text(text)

    def __call__(self, *words):
        return self.whole(*(part for word in words for part in word.split(" ")))

    def whole(self, *words):
        """Run a command whose words are given one by one."""
        self._capsys.readouterr()
        code = run(list(words))
        said = Said(code, *self._capsys.readouterr())
        check_output(words, said.out, code)
        return said

    def calls(self, *words):
        """Run a command; return how it ended, and the actions that it called."""
        begun = len(self.server.calls)
        said = self(*words)
        return said, [call.action for call in self.server.calls[begun:]]


class Waited:
    """What sessions have waited, in sum: seconds of their clock and of the model's, none of a wall's."""

    def __init__(self):
        self.seconds = 0.0

    @property
    def time(self):
        return timedelta(seconds=self.seconds)


def on_time_of(monkeypatch, server):
    """Let every session's clock be that of the model, and a wait let it run ahead: nothing is slept away."""
    waited, clock = Waited(), getattr(server, "clock", None) or server.model

    def pause(seconds):
        waited.seconds += seconds
        server.advance(seconds)

    def opened(*args, real=sessions.open_session, **more):
        found = real(*args, **{"clock": clock.now, **more})
        found.pause = pause
        return found

    monkeypatch.setattr(sessions, "open_session", opened)
    return waited


def told_id(line, cloud_id, up):
    """Check that every answer about the machine that `up` (without `-o`) launches names it as its console does."""
    said = line(up)
    wanted = cloud_id()
    assert f"at the cloud: {wanted} in " in said.out, said.err
    documents = [line(f"{verb} -o json").json for verb in ("ls", "show", "stop --yes", "start --yes --no-wait")]
    machines = [documents[0]["machines"][0], *documents[1:], line(f"{up} -o json").json["machine"]]
    texts = [line("ls -v").out, line("show").out]
    machines += line("down --yes -o json").json["terminated"]
    assert {one["cloud_id"] for one in machines} == {wanted}
    assert all(wanted in text for text in texts)
    assert all(one["account"] and one["region"] and one["zone"] for one in machines)
