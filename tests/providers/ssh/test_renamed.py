"""A host that was renamed, or taken out of config.toml, while its machine runs: what is said, and both ways out."""

from __future__ import annotations

import json
import os

import pytest

from cloudgpu.testing import write_plugin
from tests.cli.many import QuickProgram, shared


@pytest.fixture
def ada(tmp_path):
    plugin = write_plugin(tmp_path / "plugin", {"ssh": "cloudgpu.providers.ssh.provider:make"})
    path = os.pathsep.join([str(plugin), os.environ.get("PYTHONPATH", "")])
    return QuickProgram(tmp_path / "home", {"PYTHONPATH": path}, shared())


def configure(ada, account="lab", **hosts):
    """Write config.toml with these hosts, by the names that it gives them."""
    tables = [{**host.options, "name": name} for name, host in hosts.items()]
    lines = [f"  {{{', '.join(f'{key} = {json.dumps(value)}' for key, value in one.items())}}}," for one in tables]
    listed = "\n".join(lines)
    ada.config(f'owner = "ada"\nprovider = "ssh"\n[accounts.{account}]\nprovider = "ssh"\nhosts = [\n{listed}\n]\n')


def up(ada):
    done = ada("up", "--yes", "--zone", "bigbox", "--name", "fox", "--template", "bare", timeout=90)
    assert done.code == 0, done.err


@pytest.mark.soak
def test_a_machine_whose_host_left_the_settings_is_unknown_until_the_host_has_its_new_name(ada, own):
    bigbox, tower = own("bigbox"), own("tower")
    configure(ada, bigbox=bigbox, tower=tower)
    up(ada)
    configure(ada, tower=tower)
    why, way = "The host bigbox is not in the settings of account lab.", "cloudgpu init --rename bigbox NEW"
    for words, code in (
        ("ls", 0),
        ("ls --refresh", 8),
        ("down fox --yes", 8),
        ("reap", 8),
        ("doctor", 8),
    ):
        said = ada(*words.split())
        flat = " ".join((said.out + said.err).split())
        assert (said.code, why in flat, way in flat) == (code, True, True), (words, said)
    assert ada("ls").out.splitlines()[1].split()[:2] == ["fox", "unknown"]
    assert ada("exec", "fox", "--", "true").code == 0, "its address is known, and its key"
    kept = bigbox.home / "kept"
    bigbox.place.rename(kept)  # so that no look finds it by what stands on the host
    configure(ada, gpu1=bigbox, tower=tower)
    assert ada("down", "fox", "--yes").code == 8
    other = ada("init", "--rename", "bigbox", "tower", "--yes", "-o", "json").json["error"]
    assert "tower is another computer, user or home" in other["message"]
    renamed = ada("init", "--rename", "bigbox", "gpu1", "--yes", "-o", "json")
    assert (renamed.code, renamed.json["machines"], renamed.json["diff"]) == (0, ["fox"], [])
    seen = ada("ls", "--refresh", "-o", "json")
    assert (seen.code, seen.json["machines"]) == (0, []), "gpu1 is asked, and has no machine"
    kept.rename(bigbox.place)  # a later look brings it back
    for words in ("ls --refresh", "reap", "down fox --yes"):
        assert ada(*words.split(), timeout=90).code == 0, words
    assert bigbox.processes() == []


def test_a_host_of_the_file_is_renamed_there_and_one_that_is_silent_is_forgotten_with_its_machine(ada, own):
    bigbox, tower = own("bigbox"), own("tower")
    configure(ada, bigbox=bigbox, tower=tower)
    up(ada)
    assert ada("init", "--rename", "lab/bigbox", "gpu1", "--yes").code == 0
    assert [line.split('"')[1] for line in (ada.home / "config.toml").read_text().splitlines()[5:7]] == [
        "gpu1",
        "tower",
    ]
    assert ada("ls", "--refresh").code == 0
    refused = ada("init", "--forget", "gpu1", "--yes", "-o", "json").json["error"]
    assert (refused["field"], refused["next"]) == ("--forget", "Run: cloudgpu down fox")
    bigbox.off()
    forgotten = ada("init", "--forget", "gpu1", "--yes", "-o", "json")
    assert (forgotten.code, [one["name"] for one in forgotten.json["lost"]]) == (0, ["fox"]), forgotten
    assert '"gpu1"' not in (ada.home / "config.toml").read_text()
    for words in ("ls --refresh", "reap"):
        assert ada(*words.split()).code == 0, words
    assert "ada says so: gpu1 was removed" in ada("show", "fox", "--history").out
    bigbox.start()
    configure(ada, bigbox=bigbox, tower=tower)
    assert ada("ls", "--refresh", "-o", "json").json["machines"][0]["state"] == "running", "it was not gone"
    assert ada("down", "fox", "--yes", timeout=90).code == 0
