"""A snapshot is named by what it holds, and by nothing else."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.jobs.snapshot import (
    LeftOut,
    Omissions,
    SnapshotFile,
    SnapshotLink,
    is_secret_directory,
    is_secret_name,
    link_stays_inside,
    make_snapshot,
    omissions_of,
    read_manifest,
    snapshot_hash,
    write_manifest,
)
from cloudgpu.errors import InvalidRequest

SHA = "0123456789abcdef" * 4
NAMES = st.text(st.characters(blacklist_characters="\0/", blacklist_categories=("Cs",)) | st.just("\udcff"), min_size=1)
FILES = st.builds(
    SnapshotFile,
    path=NAMES,
    size=st.integers(0, 1 << 40),
    mode=st.sampled_from([0o644, 0o755]),
    sha256=st.sampled_from([SHA, SHA[::-1]]),
)
ALL_FILES = st.lists(FILES, unique_by=lambda one: one.path, max_size=6)
LINKS = st.lists(st.builds(SnapshotLink, NAMES, NAMES), unique_by=lambda one: one.path, max_size=3)
DIRECTORIES = st.lists(NAMES, unique=True, max_size=3)


@given(ALL_FILES, LINKS, DIRECTORIES, st.randoms())
def test_the_hash_does_not_depend_on_the_order(files, links, directories, random):
    before = make_snapshot(files, links, directories)
    for some in (files, links, directories):
        random.shuffle(some)
    assert make_snapshot(files, links, directories) == before


@given(ALL_FILES, LINKS, DIRECTORIES)
def test_a_manifest_reads_back_as_it_was_whatever_the_names(files, links, directories):
    out = Omissions((LeftOut("data", 7, "ignored", at_least=True), LeftOut(".env", 3, "secret")), 9, (".env",))
    made = make_snapshot(files, links, directories, out)
    text = write_manifest(made)
    assert text.isascii()
    assert read_manifest(text) == made


def test_every_part_of_the_content_changes_the_hash_and_a_name_cannot_pass_for_another_part():
    file = SnapshotFile("a", 1, 0o644, SHA)
    parts = [
        ([file], [], []),
        ([replace(file, path="b")], [], []),
        ([replace(file, sha256=SHA[::-1])], [], []),
        ([replace(file, mode=0o755)], [], []),
        ([file, replace(file, path="b")], [], []),
        ([], [SnapshotLink("a", "b")], []),
        ([], [SnapshotLink("b", "a")], []),
        ([], [], ["a"]),
        ([], [], [f"a\nf {SHA} b"]),
        ([], [], []),
    ]
    assert len({snapshot_hash(*one) for one in parts}) == len(parts)


def test_only_the_executable_bit_of_a_mode_matters():
    file = SnapshotFile("run.sh", 1, 0o755, SHA)
    assert snapshot_hash([file]) == snapshot_hash([replace(file, mode=0o700)])


def test_the_hash_is_the_same_on_every_machine_and_in_every_version():
    files = [SnapshotFile("train.py", 3, 0o644, SHA), SnapshotFile("caf\u00e9/\udcff", 0, 0o755, SHA)]
    found = snapshot_hash(files, [SnapshotLink("last", "runs/3")], ["logs"])
    lines = [b"d logs", b"f %s train.py", b"l last\0runs/3", b"x %s caf\xc3\xa9/\xff"]
    assert found == hashlib.sha256(b"\0\0".join(lines).replace(b"%s", SHA.encode())).hexdigest()


@pytest.mark.parametrize(
    "path",
    """.env .env.local a/.envrc cert.pem id_rsa src/id_map.py .netrc kaggle.json .aws/config a/.ssh/known_hosts .ENV
    .config/gcloud/a.db keys/server.key credentials.json .pypirc .git-credentials .docker/config.json Key.PEM
    .streamlit/secrets.toml my-service-account.json service_account.json terraform.tfstate.backup""".split(),
)
def test_what_people_would_be_sorry_about_is_a_secret(path):
    assert is_secret_name(path)


@pytest.mark.parametrize(
    "path", "train.py env.py environment.yml my.env idx/a.txt .docker/Dockerfile pem keys aws/a".split()
)
def test_an_ordinary_name_is_no_secret(path):
    assert not is_secret_name(path)


def test_a_directory_is_secret_as_a_whole_and_a_directory_of_identities_is_not():
    assert [is_secret_directory(path) for path in (".aws", "a/.ssh", ".config/gcloud", "id_cards", ".config")] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("a/link", "../b", True),
        ("a/link", "../../b", False),
        ("link", "..", False),
        ("link", "a/../b", True),
        ("link", "/etc/passwd", False),
        ("a/link", "..", True),
        ("link", "..b", True),
    ],
)
def test_a_link_is_judged_from_its_own_directory(path, target, inside):
    assert link_stays_inside(path, target) is inside


def test_a_plan_gets_the_five_largest_and_every_secret():
    some = [LeftOut(f"{size}", size, "ignored") for size in range(9)] + [LeftOut("id_map.py", 1, "secret")]
    found = omissions_of(some)
    assert [one.size for one in found.largest] == [8, 7, 6, 5, 4]
    assert (found.count, found.secrets) == (10, ("id_map.py",))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": 2}, "another version"),
        ({"hash": SHA}, "has changed"),
        ({"total_bytes": 4}, "has changed"),
        ({"files": [["a", 3, 0o644]]}, "cannot be read"),
        ({"files": None}, "cannot be read"),
        ({"directories": ["b"]}, "has changed"),
        ({"directories": ["\ud800"]}, "cannot be read"),
    ],
)
def test_a_damaged_manifest_is_refused(change, why):
    text = write_manifest(make_snapshot([SnapshotFile("a", 3, 0o644, SHA)]))
    with pytest.raises(InvalidRequest, match=why):
        read_manifest(json.dumps(json.loads(text) | change))


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", "null"])
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_manifest(text)
