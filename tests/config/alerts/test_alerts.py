from __future__ import annotations

from decimal import Decimal

import pytest

from cloudgpu.config.alerts.alerts import receivers
from cloudgpu.config.alerts.template import user_template
from cloudgpu.config.files.user_files import Home
from cloudgpu.config.settings import load_settings, settings_from_text
from cloudgpu.errors import InvalidRequest

SECRET = "s3cr3t"


def alerts(text):
    return settings_from_text(f"[alerts]\n{text}", login="ada").alerts


def test_without_a_table_nobody_is_told():
    found = settings_from_text("", login="ada").alerts
    assert (found.to, found.deadman, found.template, found.price_jump) == ((), None, None, Decimal("1.5"))


def test_the_table_is_read():
    found = alerts(
        f'to = ["mailto://a:{SECRET}@h.example?to=b", "desktop"]\nprice_jump = 2\n'
        'deadman = "https://hc.example/x"\ntemplate = "t.txt"\nto_file = "f"'
    )
    assert found.to == (f"mailto://a:{SECRET}@h.example?to=b", "desktop")
    assert (found.price_jump, found.deadman, found.template, found.to_file) == (2, "https://hc.example/x", "t.txt", "f")
    assert SECRET not in repr(found)
    assert "hc.example" not in repr(found)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("too = []", "alerts.too"),
        ('to = "mailto://x"', "alerts.to"),
        (f'to = ["desktop", "{SECRET}"]', "alerts.to"),
        (f'to = ["mailto://a:{SECRET} b@h"]', "alerts.to"),
        (f'to = ["mailto://{SECRET * 400}"]', "alerts.to"),
        (f"to = [{{ x = '{SECRET}' }}]", "alerts.to"),
        (f'deadman = "ftp://{SECRET}"', "alerts.deadman"),
        (f'deadman = "https://u:{SECRET}@h/x"', "alerts.deadman"),
        ("deadman = 3", "alerts.deadman"),
        ("price_jump = 1", "alerts.price_jump"),
        ("price_jump = nan", "alerts.price_jump"),
        ("price_jump = inf", "alerts.price_jump"),
        ("price_jump = true", "alerts.price_jump"),
        ('price_jump = "2"', "alerts.price_jump"),
        ('template = ""', "alerts.template"),
        ("to_file = []", "alerts.to_file"),
        ('report = "weekly"', "alerts.report"),
        ("report = true", "alerts.report"),
        ("report = []", "alerts.report"),
    ],
)
def test_a_fault_names_its_place_and_never_the_address(text, field):
    with pytest.raises(InvalidRequest) as fault:
        alerts(text)
    assert fault.value.field == f"config.toml: {field}"
    assert SECRET not in str(fault.value.as_dict())
    assert fault.value.next


def test_a_report_is_sent_monthly_or_never():
    assert [alerts("").report, alerts('report = "never"').report] == ["monthly", "never"]


def test_a_misspelt_key_names_the_near_one():
    with pytest.raises(InvalidRequest, match="did you mean 'deadman'"):
        alerts('deadmen = "x"')


def test_alerts_has_to_be_a_table():
    with pytest.raises(InvalidRequest, match="has to be a table"):
        settings_from_text("alerts = 3", login="ada")


def home_with(tmp_path, config):
    (tmp_path / "config.toml").write_text(config)
    return Home(tmp_path)


def test_the_environment_goes_before_the_file(tmp_path):
    home = home_with(tmp_path, '[alerts]\nto = ["desktop"]\nto_file = "f"\ndeadman = "https://a.example/"\n')
    environ = {
        "USER": "ada",
        "CLOUDGPU_ALERTS": "json://a.example/1\njson://b.example/2",
        "CLOUDGPU_DEADMAN": "http://b/",
    }
    found = load_settings(home, environ).alerts
    assert receivers(found, home) == ("json://a.example/1", "json://b.example/2")
    assert found.deadman == "http://b/"


@pytest.mark.parametrize("name", ["CLOUDGPU_ALERTS", "CLOUDGPU_DEADMAN"])
def test_a_fault_in_the_environment_names_the_variable_alone(tmp_path, name):
    with pytest.raises(InvalidRequest) as fault:
        load_settings(Home(tmp_path), {"USER": "ada", name: SECRET})
    assert fault.value.field == name
    assert SECRET not in str(fault.value.as_dict())


def test_the_files_of_alerts_may_be_in_a_home_directory_and_that_of_nobody_is_a_fault(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home(tmp_path / "cloudgpu")
    (tmp_path / "text.txt").write_text("news")
    assert user_template(alerts('template = "~/text.txt"'), home) == "news"
    for read, key in ((user_template, "template"), (receivers, "to_file")):
        with pytest.raises(InvalidRequest, match="no home directory") as fault:
            read(alerts(f'{key} = "~no-such-user-of-this/x"'), home)
        assert fault.value.field == f"config.toml: alerts.{key}"


def test_a_file_of_addresses_is_read_when_they_are_needed(tmp_path):
    home = home_with(tmp_path, '[alerts]\nto = ["desktop", "json://h.example/a"]\nto_file = "receivers"\n')
    found = load_settings(home, {"USER": "ada"}).alerts  # the file is not there yet, and `ls` goes on
    with pytest.raises(InvalidRequest, match="not there"):
        receivers(found, home)
    file = tmp_path / "receivers"
    file.write_text("# mine\n\njson://h.example/a\n json://h.example/b \n")
    file.chmod(0o644)
    with pytest.raises(InvalidRequest, match="others than you may read") as fault:
        receivers(found, home)
    assert "chmod 600" in fault.value.next
    file.chmod(0o600)
    assert receivers(found, home) == ("desktop", "json://h.example/a", "json://h.example/b")
    file.write_text(f"{SECRET}\n")
    with pytest.raises(InvalidRequest) as fault:
        receivers(found, home)
    assert SECRET not in str(fault.value.as_dict())
