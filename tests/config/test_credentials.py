from __future__ import annotations

from cloudgpu.config.credentials import Credential, clouds_with_credentials, find_credentials

AWS_KEY = "[moved]\naws_access_key_id = AKIA\n"
SECRET = "wJalrXUtnFEMI-not-a-real-key"


def found(home, files=(), **environ):
    for name, text in dict(files).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return find_credentials({"HOME": str(home)} | environ)


def test_an_empty_home_has_none(tmp_path):
    assert found(tmp_path) == ()


def test_aws_profiles_are_named_and_a_region_alone_is_none(tmp_path):
    keys = f"[default]\naws_access_key_id = AKIA\naws_secret_access_key = {SECRET}\n[lab]\naws_access_key_id=x\n"
    config = "[default]\nregion = us-east-1\n[profile sso]\nsso_session = work\n[sso-session work]\nsso_start_url = u\n"
    one = found(tmp_path, {".aws/credentials": keys, ".aws/config": config})
    assert [(item.provider, item.what) for item in one] == [
        ("aws", "profile default"),
        ("aws", "profile lab"),
        ("aws", "profile sso"),
    ]
    assert one[0].where == str(tmp_path / ".aws" / "credentials")
    assert SECRET not in repr(one)


def test_an_aws_profile_without_a_credential_is_none_in_either_file(tmp_path):
    keys = "[default]\n[place]\nregion = us-east-1\n#aws_access_key_id = AKIA\n[tool]\ncredential_process = key\n"
    keys += "[old]\nAWS_ACCESS_KEY_ID: AKIA\nAWS_SECRET_ACCESS_KEY: x\n"  # as the SDK reads it: any case, `=` or `:`
    found_credentials = found(tmp_path, {".aws/credentials": keys, ".aws/config": "[default]\nregion: us-east-1\n"})
    assert [credential.what for credential in found_credentials] == ["profile tool", "profile old"]


def test_variables_are_named_by_name_only(tmp_path):
    environ = {
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere/key.json",
        "AZURE_CLIENT_ID": "c",
        "AZURE_TENANT_ID": "t",
        "AZURE_CLIENT_SECRET": SECRET,
    }
    one = found(tmp_path, **environ)
    assert one == (
        Credential("aws", "AWS_ACCESS_KEY_ID", "environment"),
        Credential("gcp", "GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json, and there is no such file"),
        Credential("azure", "service principal, AZURE_CLIENT_SECRET", "environment"),
    )


def test_logins_of_the_command_lines_are_found_where_they_were_moved_to(tmp_path):
    files = {"g/application_default_credentials.json": SECRET, "z/msal_token_cache.json": SECRET, "a/keys": AWS_KEY}
    environ = {
        "CLOUDSDK_CONFIG": str(tmp_path / "g"),
        "AZURE_CONFIG_DIR": str(tmp_path / "z"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "a" / "keys"),
    }
    assert [item.what for item in found(tmp_path, files, **environ)] == [
        "profile moved",
        "application default credentials",
        "login of the az command",
    ]


def test_api_keys_are_found_in_variables_and_where_other_clients_read_them(tmp_path):
    files = dict.fromkeys((".lambda_cloud/lambda_keys", ".runpod/config.toml", ".vast_api_key"), SECRET)
    here = found(tmp_path, files, LAMBDA_CLOUD_API_TOKEN=SECRET, VAST_API_KEY=SECRET)
    assert here == (
        Credential("lambda", "LAMBDA_CLOUD_API_TOKEN", "environment"),
        Credential("lambda", "API key", str(tmp_path / ".lambda_cloud" / "lambda_keys")),
        Credential("runpod", "API key of runpodctl", str(tmp_path / ".runpod" / "config.toml")),
        Credential("vast", "VAST_API_KEY", "environment"),
        Credential("vast", "API key of vastai", str(tmp_path / ".vast_api_key")),
    )


def test_files_that_cannot_be_read_hold_none(tmp_path):
    (tmp_path / ".aws" / "credentials").mkdir(parents=True)
    assert found(tmp_path, {".aws/config": "[]\n[\nx=y\n\x00[broken"}) == ()


def test_a_cloud_is_here_by_a_credential_or_by_a_server_that_the_environment_names(tmp_path):
    home = {"HOME": str(tmp_path)}
    assert clouds_with_credentials(home) == frozenset()
    assert clouds_with_credentials(home | {"AWS_ACCESS_KEY_ID": "AKIA"}) == {"aws"}
    assert clouds_with_credentials(home | {"CLOUDGPU_GCP_ENDPOINT": "http://127.0.0.1:1"}) == {"gcp"}
    identity = {"IDENTITY_ENDPOINT": "http://127.0.0.1:1", "AZURE_CLIENT_ID": "c"}
    assert clouds_with_credentials(home | identity) == {"azure"}
