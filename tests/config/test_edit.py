from __future__ import annotations

import tomllib
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from cloudgpu.config.edit import remove_table, remove_value, rename_table, set_value, toml_literal
from cloudgpu.errors import InvalidRequest

FULL = """\
# mine, by hand
owner = "ada"   # that is me: "#1"
note = '''
[accounts.fake]
'''

# how long
lease = "8h"

[accounts.local]  # this computer
watts = 300
hosts = [
  {name = "a"},  # one
  {name = "b"},
]

[templates.d2l]
index = ""
"""


def test_only_the_line_that_changes_changes_and_its_comment_stays():
    text = FULL.replace("note = '''\n[accounts.fake]\n'''\n", "")
    changed = set_value(text, ("owner",), "grace # hopper")
    assert changed == text.replace('"ada" ', '"grace # hopper" ')
    changed = set_value(changed, ("accounts", "local", "watts"), Decimal("350.5"))
    assert changed == text.replace('"ada" ', '"grace # hopper" ').replace("watts = 300", "watts = 350.5")


def test_a_value_of_many_lines_is_replaced_whole():
    text = set_value(FULL, ("accounts", "local", "hosts"), [{"name": "c", "port": 22}])
    assert 'hosts = [\n  {name = "c", port = 22},\n]\n\n[templates.d2l]' in text


HOSTS = """\
[accounts.lab]
hosts = [
  # room 3, ask Bo before a reboot
  {name = "big", port = 1},  # has the A100
  {name = "small", port = 2},
]
"""
BIG, SMALL, NEW = {"name": "big", "port": 1}, {"name": "small", "port": 2}, {"name": "new", "port": 3}
SMALL_LINE = '  {name = "small", port = 2},\n'


@pytest.mark.parametrize(
    ("hosts", "line"),
    [
        ([BIG, {"name": "tiny", "port": 2}], '  {name = "tiny", port = 2},\n'),
        ([BIG], ""),
        ([BIG, SMALL, NEW], SMALL_LINE + '  {name = "new", port = 3},\n'),
    ],
    ids=["renamed", "removed", "added"],
)
def test_the_comments_at_the_other_items_of_a_list_stay(hosts, line):
    assert set_value(HOSTS, ("accounts", "lab", "hosts"), hosts) == HOSTS.replace(SMALL_LINE, line)


def test_new_keys_stand_in_their_table_and_before_the_first_one():
    text = set_value("# hello\n\n[accounts.local]\nwatts = 1\n\n[x.y]\n", ("owner",), "ada")
    text = set_value(text, ("project",), "thesis")
    text = set_value(text, ("accounts", "local", "usd_per_kwh"), Decimal("0.31"))
    text = set_value(text, ("accounts", "ssh", "provider"), "ssh")
    assert text == (
        '# hello\nowner = "ada"\nproject = "thesis"\n\n[accounts.local]\nwatts = 1\nusd_per_kwh = 0.31\n\n[x.y]\n\n'
        '[accounts.ssh]\nprovider = "ssh"\n'
    )


@pytest.mark.parametrize(("value", "kind"), [(None, "NoneType"), (b"x", "bytes"), ({1: 2}, "dict"), ([None], "list")])
def test_a_value_that_toml_has_no_words_for_is_refused_by_its_name_and_type(value, kind):
    with pytest.raises(InvalidRequest) as refused:
        set_value(FULL, ("accounts", "local", "watts"), value)
    assert refused.value.message == f"accounts.local.watts cannot be set to a value of the type {kind}, {value!r}."
    assert refused.value.field == "config.toml: accounts.local.watts"


@pytest.mark.parametrize(
    ("text", "name"), [('accounts = "a"\n', "accounts"), ("[accounts]\nlocal = 3\n", "accounts.local")]
)
def test_a_value_where_a_table_has_to_be_is_named(text, name):
    with pytest.raises(InvalidRequest) as refused:
        set_value(text, ("accounts", "local", "watts"), 300)
    assert refused.value.message.startswith(f"{name} in config.toml is ")
    assert refused.value.message.endswith(f", and accounts.local.watts needs the table [{name}] there.")


def test_a_first_file_is_made_of_nothing():
    assert set_value("", ("owner",), "ada") == 'owner = "ada"\n'
    assert set_value("", ("accounts", "local", "watts"), Decimal(3)) == "[accounts.local]\nwatts = 3\n"
    assert set_value("owner = 'a'", ("lease",), "8h") == "owner = 'a'\nlease = \"8h\"\n"


def test_the_same_value_changes_nothing_however_it_is_written():
    for text in ("owner = 'ada'", 'owner = """ada"""\n', '"owner" = "ada"'):
        assert set_value(text, ("owner",), "ada") == text
    assert set_value("accounts.local.watts = 300.0", ("accounts", "local", "watts"), Decimal(300)).endswith("300.0")


ODD = [
    ("accounts = {local = {watts = 3}}\n", ("accounts", "local", "watts")),
    ("accounts.local.watts = 3\n", ("accounts", "local", "watts")),
    ("[accounts]\nlocal.watts = 3\n", ("accounts", "local", "watts")),
    ('["accounts"."local"]\nwatts = 3\n', ("accounts", "local", "watts")),
    ('"owner" = 3\n', ("owner",)),
    ("x = '''\nowner = 1\n'''\nowner = 3\n", ("owner",)),
    ("[accounts.local]\r\nwatts = 3\r\n", ("accounts", "local", "watts")),
    ("[accounts.local]\nwatts = 3\n[x]\ny = 1\n[accounts.local.more]\nz = 1\n", ("accounts", "local", "watts")),
]


@pytest.mark.parametrize(("text", "path"), ODD)
def test_a_value_is_replaced_however_the_file_is_laid_out(text, path):
    assert set_value(text, path, "new") == text.replace(" = 3", ' = "new"')


UNSAFE = [
    ("accounts = {local = {watts = 3}}\n", ("accounts", "lab", "watts")),
    ("[accounts.local.more]\n", ("accounts", "local", "watts")),
    ("[accounts.a]\n[[accounts.a.hosts]]\nx = 1\n\n# c\n[c]\n", ("accounts", "a", "hosts")),
]


@pytest.mark.parametrize(("text", "path"), UNSAFE)
def test_what_cannot_be_added_safely_is_refused_with_the_line_to_write(text, path):
    with pytest.raises(InvalidRequest, match=r"cannot be set without touching other lines") as refused:
        set_value(text, path, "new")
    assert (refused.value.exit_code, refused.value.field) == (2, f"config.toml: {'.'.join(path)}")
    assert refused.value.next == f'Set it by hand: under [{".".join(path[:-1])}], {path[-1]} = "new"'


MISPLACED = [
    ("# one\n[x]\n", ("owner",), 'owner = "new"\n# one\n[x]\n'),
    ("a = 1\n\n# one\n[x]\n", ("owner",), 'a = 1\nowner = "new"\n\n# one\n[x]\n'),
    ("[x]  # x\n\n# two\n[y]\n", ("x", "a"), '[x]  # x\na = "new"\n\n# two\n[y]\n'),
    ("[x.y]\nb = 1\n# end\n\n# z\n[z]\n[x.v]\n", ("x", "y", "a"), None),
    ("[accounts.a]\n[x]\n[accounts.b]\nc = 1\n", ("accounts", "b", "d"), None),
]


@pytest.mark.parametrize(("text", "path", "meant"), MISPLACED)
def test_a_new_line_stands_behind_the_last_value_and_no_comment_changes_its_table(text, path, meant):
    line = f'{path[-1]} = "new"\n'
    assert set_value(text, path, "new") == (meant or text.replace(" = 1\n", f" = 1\n{line}"))


def test_what_looks_like_a_header_inside_a_text_is_none():
    assert set_value(FULL, ("owner",), "new") == FULL.replace('"ada" ', '"new" ')


KEYS = st.sampled_from(
    [("owner",), ("lease",), ("note",), ("accounts", "local", "watts"), ("accounts", "ssh", "hosts")]
)
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(TEXTS, st.integers(-9, 9), st.lists(st.dictionaries(TEXTS, TEXTS, max_size=2), max_size=2))


@given(st.lists(st.tuples(KEYS, VALUES), max_size=4))
def test_after_any_edits_the_file_holds_what_was_set_and_the_rest(edits):
    text, meant = FULL, tomllib.loads(FULL)
    for path, value in edits:
        try:
            text = set_value(text, path, value)
        except InvalidRequest:
            continue
        table = meant
        for key in path[:-1]:
            table = table.setdefault(key, {})
        table[path[-1]] = value
    assert tomllib.loads(text) == meant


@given(TEXTS)
def test_a_text_survives_toml(text):
    assert tomllib.loads(f"x = {toml_literal(text)}")["x"] == text


def test_a_key_is_taken_out_with_its_comment_and_nothing_else():
    text = FULL.replace("note = '''\n[accounts.fake]\n'''\n", "")
    gone = remove_value(text, ("accounts", "local", "hosts"))
    assert gone == text.replace('hosts = [\n  {name = "a"},  # one\n  {name = "b"},\n]\n', "")
    assert remove_value(gone, ("accounts", "local", "hosts")) == gone


def test_a_table_goes_with_those_under_it_and_no_other_line_does():
    text = """owner = "ada"  # me
[accounts.lab]  # paid by the lab
provider = "aws"
regions = [
  "us-east-1",
]
[accounts.lab.more]
x = 1

[accounts.labs]  # another one
provider = "gcp"
"""
    gone = remove_table(text, ("accounts", "lab"))
    assert gone == 'owner = "ada"  # me\n[accounts.labs]  # another one\nprovider = "gcp"\n'
    assert remove_table(gone, ("accounts", "lab")) == gone
    assert remove_table(gone, ("accounts", "labs")) == 'owner = "ada"  # me\n'


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('accounts = {lab = {provider = "aws"}, b = {c = 1}}\n', {"accounts": {"b": {"c": 1}}}),
        ('accounts.lab.provider = "aws"\nx = 1\n', {"x": 1}),
        ('[accounts]\nlab = {provider = "aws"}\n', {"accounts": {}}),
        ('[accounts.lab]\nprovider = "aws"\n[x]\ny = 1\n[accounts.lab.more]\nz = 1\n', {"x": {"y": 1}}),
    ],
)
def test_a_table_is_taken_out_however_the_file_is_laid_out(text, rest):
    assert tomllib.loads(remove_table(text, ("accounts", "lab"))) == rest


def test_a_table_that_cannot_be_renamed_safely_is_left_and_named():
    text = 'accounts = {lab = {provider = "aws"}}\n'
    with pytest.raises(InvalidRequest, match=r"\[accounts\.lab\] cannot be renamed") as caught:
        rename_table(text, ("accounts", "lab"), "new")
    assert caught.value.next.startswith("Rename [accounts.lab] to [accounts.new] by hand")
    assert rename_table("[accounts.lab.x]\n[ accounts . lab ]\n", ("accounts", "lab"), "b") == (
        "[accounts.b.x]\n[ accounts . b ]\n"
    )
