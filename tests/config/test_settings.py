from __future__ import annotations

import os
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from cloudgpu.config.files.user_files import Home
from cloudgpu.config.settings import Account, load_settings, login_name, settings_from_text
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import InvalidRequest

FULL = """
owner = "ann@example.org"
project = "thesis"
provider = "aws"
account = "lab"
template = "jupyter"
policy = "throwaway"
lease = "90m"
renew_until = "1d"
market = "spot"
desktop = "rtx3090"
ledger = "sqlite:///srv/ledger.db"

[accounts.lab]
provider = "aws"
profile = "lab"

[accounts.own]
provider = "aws"

[accounts.local]
watts = 300
"""


def fault(text):
    with pytest.raises(InvalidRequest) as caught:
        settings_from_text(text, login="ann")
    return caught.value


def test_without_a_file_the_defaults_hold(tmp_path):
    settings = load_settings(Home(tmp_path / "none"), {"LOGNAME": "ann"})
    assert (settings.owner, settings.project, settings.provider, settings.template) == (
        "ann",
        "default",
        "local",
        "jupyter",
    )
    assert (settings.policy, settings.lease, settings.renew_until) == ("default", None, None)
    assert settings.accounts == {"local": Account("local", "local")}
    assert settings.ledger_url is None
    assert not (tmp_path / "none").exists()


def test_every_setting_is_read(tmp_path):
    (tmp_path / "config.toml").write_text(FULL)
    settings = load_settings(Home(tmp_path), {"LOGNAME": "bob"})
    assert (settings.owner, settings.project, settings.account) == ("ann@example.org", "thesis", "lab")
    assert settings.policy == "throwaway"
    assert (settings.lease, settings.renew_until) == (timedelta(minutes=90), timedelta(days=1))
    assert Market(settings.market) is Market.SPOT
    assert settings.ledger_url == "sqlite:///srv/ledger.db"
    assert settings.accounts == {
        "lab": Account("lab", "aws", {"profile": "lab"}),
        "own": Account("own", "aws", {}),
        "local": Account("local", "local", {"watts": 300}),
    }


def test_the_environments_ledger_wins(tmp_path):
    (tmp_path / "config.toml").write_text('ledger = "sqlite:///a"')
    assert load_settings(Home(tmp_path), {"CLOUDGPU_LEDGER": "sqlite:///b"}).ledger_url == "sqlite:///b"


def test_a_provider_without_an_account_has_one_named_like_it():
    settings = settings_from_text('provider = "gcp"\n[accounts.lab]\nprovider = "aws"', login="ann")
    assert settings.accounts["gcp"] == Account("gcp", "gcp", {})
    assert set(settings.accounts) == {"lab", "local", "gcp"}


def test_no_secret_is_in_the_repr():
    text = 'ledger = "postgresql://u:hunter2@h/d"\n[accounts.lab]\nprovider = "aws"\nsecret = "hunter2"'
    assert "hunter2" not in repr(settings_from_text(text, login="ann"))


BAD = [
    # text, field after "config.toml: ", value, a word of the sentence or the way out
    ('leese = "8h"', "leese", "leese", "did you mean 'lease'?"),
    ("nonsense = 1", "nonsense", "nonsense", "Settings: owner"),
    ("lease = 8", "lease", "8", "in quotes"),
    ('lease = "8"', "lease", "8", '"90m"'),
    ('lease = "0h"', "lease", "0h", "not a duration"),
    ('lease = "-8h"', "lease", "-8h", "not a duration"),
    ('lease = "99999d"', "lease", "99999d", "ten years"),
    ("renew_until = true", "renew_until", "true", "text"),
    ('lease = "100h"\nrenew_until = "3d"', "lease", "100h", "renew_until (3d)"),
    ('policy = "../secret"', "policy", "../secret", "not a name"),
    ('lease = "2h"\nrenew_until = "1h"', "lease", "2h", "at least as long"),
    ('market = "on-demand"', "market", "on-demand", "did you mean 'on_demand'?"),
    ('market = "auction"', "market", "auction", "on_demand, spot"),
    ('owner = ""', "owner", "", "1 to 200"),
    ('owner = "a\\nb"', "owner", "a\\nb", "one line"),
    (f'project = "{"x" * 201}"', "project", "x" * 57 + "...", "1 to 200"),
    ("owner = ['ann']", "owner", "a list", "text"),
    ('provider = "AWS"', "provider", "AWS", "lower case"),
    ('template = "../secret"', "template", "../secret", "not a name"),
    ('desktop = "a/b"', "desktop", "a/b", "not a name"),
    ('account = "lba"\n[accounts.lab]\nprovider = "aws"', "account", "lba", "did you mean 'lab'?"),
    ("accounts = 3", "accounts", "3", "[accounts.NAME]"),
    ("[accounts]\nlab = 3", "accounts.lab", "3", "[accounts.lab]"),
    ("[accounts.lab]\nwatts = 3", "accounts.lab", None, 'provider = "KIND"'),
    ("[accounts.lab]\nprovider = 3", "accounts.lab.provider", "3", "text"),
    ('[accounts."a/b"]\nprovider = "aws"', "accounts.a/b", "a/b", "not a name"),
    ('[accounts.aws]\nprovider = "local"', "accounts.aws", "aws", "another name"),
    ('provider = "own"\n[accounts.own]\nprovider = "aws"', "accounts.own", "own", "another name"),
    ("lease = ", "line 1", None, "not valid TOML"),
    ('\n\nlease = "8h', "line 3", None, "not valid TOML"),
    ("x = 1\nx = 2", "line 2", None, "not valid TOML"),
    ("owner = \x07", "line 1", None, "not valid TOML"),
    ("x = " + "[" * 100_000, "an unknown line", None, "nested too deeply"),
    ("x = " + "9" * 5000, "an unknown line", None, "4300 digits"),
]


@pytest.mark.parametrize(("text", "key", "value", "says"), BAD, ids=[row[0][:30] for row in BAD])
def test_a_fault_names_the_key_the_value_and_the_way_out(text, key, value, says):
    error = fault(text)
    assert (error.exit_code, error.field, error.value) == (2, f"config.toml: {key}", value)
    assert says in f"{error.message} {error.next}"
    assert error.message.startswith("config.toml")
    assert error.message[-1] in ".?"
    assert error.next


def test_no_line_of_a_broken_file_is_repeated():
    error = fault('password = hunter2"')
    assert "hunter2" not in str(error.as_dict())


LINES = [
    "lease = ",
    "[accounts.lab]",
    "[accounts]",
    'provider = "aws"',
    "owner",
    "=",
    '"',
    "{",
    "[",
    "true",
    "1979-05-27",
]


def check_clear(error):
    assert error.field.startswith("config.toml")
    assert error.message.isprintable()


@given(
    st.one_of(st.text(max_size=200), st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=9))).map("\n".join))
)
def test_whatever_the_file_holds_it_is_read_or_refused(text):
    try:
        assert settings_from_text(text, login="ann").owner
    except InvalidRequest as refused:
        check_clear(refused)


def broken(path, make):
    make(path / "config.toml")
    with pytest.raises(InvalidRequest) as caught:
        load_settings(Home(path), {})
    assert caught.value.field == "config.toml"
    assert caught.value.value == str(path / "config.toml")
    return caught.value.message


def test_a_file_that_is_no_text_is_refused_with_its_line(tmp_path):
    assert "is not text: line 2 " in broken(tmp_path, lambda file: file.write_bytes(b'owner = "a"\n\xff\xfe'))


def test_a_zero_byte_is_no_text(tmp_path):
    assert "line 1 holds a zero byte" in broken(tmp_path, lambda file: file.write_bytes(b"owner\0"))


def test_a_directory_is_refused(tmp_path):
    assert "is a directory" in broken(tmp_path, lambda file: file.mkdir())


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    assert "is not a file" in broken(tmp_path, os.mkfifo)


def test_a_link_to_nothing_is_refused(tmp_path):
    assert "link" in broken(tmp_path, lambda file: file.symlink_to("gone"))


def test_a_huge_file_is_refused(tmp_path):
    assert "larger than" in broken(tmp_path, lambda file: file.write_bytes(b"#" * (1 << 20) + b"\n"))


def test_a_home_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "home").write_text("")
    with pytest.raises(InvalidRequest, match="not a directory"):
        load_settings(Home(tmp_path / "home"), {})


def test_a_byte_order_mark_is_no_fault(tmp_path):
    (tmp_path / "config.toml").write_bytes(b'\xef\xbb\xbfowner = "ann"\r\n')
    assert load_settings(Home(tmp_path), {}).owner == "ann"


def test_an_unreadable_file_is_refused_with_the_systems_reason(tmp_path):
    assert "cannot be read: too many levels" in broken(tmp_path, lambda file: file.symlink_to(file))


def test_the_login_name_is_never_empty_or_unprintable():
    assert login_name({"LOGNAME": "ann", "USER": "bob"}) == "ann"
    assert login_name({"USER": "bob"}) == "bob"
    assert login_name({"LOGNAME": "a\nb"}).isprintable()
    assert login_name({})


def test_any_provider_makes_no_account_of_its_name():
    assert sorted(settings_from_text('provider = "any"', login="ada").accounts) == ["local"]


@pytest.mark.parametrize("text", ["[accounts.any]\nprovider = 'aws'", "[accounts.mine]\nprovider = 'any'"])
def test_no_account_is_called_any_nor_of_any(text):
    with pytest.raises(InvalidRequest, match="means all cloud accounts") as refused:
        settings_from_text(text, login="ada")
    assert refused.value.field.startswith("config.toml: accounts.")


def test_notices_of_jobs_are_on_and_can_be_turned_off():
    assert settings_from_text("", login="ada").jobs.notify
    assert not settings_from_text("[jobs]\nnotify = false", login="ada").jobs.notify


@pytest.mark.parametrize(
    ("text", "field"), [('[jobs]\nnotify = "no"', "jobs.notify"), ("jobs = 1", "jobs"), ("[jobs]\nx = 1", "jobs.x")]
)
def test_a_wrong_setting_of_jobs_is_named(text, field):
    with pytest.raises(InvalidRequest) as caught:
        settings_from_text(text, login="ada")
    assert caught.value.field == f"config.toml: {field}"
