"""Names the cloud credentials of this computer, where the SDKs look for them. No secret is kept, shown or returned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cloudgpu.config.files.user_files import shown

_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
# Keys that make a profile of ~/.aws/credentials or ~/.aws/config a credential; a region alone does not.
_AWS_CREDENTIAL_KEYS = {
    "aws_access_key_id",
    "credential_process",
    "login_session",
    "role_arn",
    "sso_account_id",
    "sso_session",
    "sso_start_url",
}
_AZURE_SECRET_VARIABLES = ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE")
# Variables that show that a cloud is used, beside credentials: another API endpoint, or the identity of the machine.
_CLOUD_VARIABLES = {
    "gcp": ("CLOUDGPU_GCP_ENDPOINT",),
    "runpod": ("CLOUDGPU_RUNPOD_ENDPOINT",),
    "vast": ("CLOUDGPU_VAST_ENDPOINT",),
    "azure": ("CLOUDGPU_AZURE_ENDPOINT", "IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_POD_IDENTITY_AUTHORITY_HOST"),
    "lambda": ("CLOUDGPU_LAMBDA_ENDPOINT",),
}
# Clouds that know API keys alone: their variables, what the key is, and the files with it below the home directory.
_API_KEYS = {
    # Lambda has no tool of its own: the file is SkyPilot's.
    "lambda": (("LAMBDA_API_KEY", "LAMBDA_CLOUD_API_TOKEN"), "API key", (".lambda_cloud/lambda_keys",)),
    "runpod": (("RUNPOD_API_KEY",), "API key of runpodctl", (".runpod/config.toml",)),  # of RunPod's SDK, too
    "vast": (("VAST_API_KEY",), "API key of vastai", (".config/vastai/vast_api_key", ".vast_api_key")),
}
_AZURE_LOGIN_FILES = ("msal_token_cache.json", "msal_token_cache.bin", "service_principal_entries.json")
MAX_FILE_BYTES = 1 << 20  # a larger file is not a list of profiles


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential on this computer: its provider, what it is, and in which file or variable. Never its value."""

    provider: str
    what: str
    where: str


def find_credentials(environ: Mapping[str, str]) -> tuple[Credential, ...]:
    """Return the credentials that the SDKs would find. Whether they are valid, only the cloud can say."""
    home = Path(environ.get("HOME") or Path.home())
    finders = (_aws, _gcp, _azure, _api_keys)
    return tuple(credential for find in finders for credential in find(environ, home))


def clouds_with_credentials(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the clouds of which this computer has a credential, or which its environment names. Sends nothing.

    An identity that only a cloud's metadata service could tell is not among them.
    """
    clouds_in_environment = {
        provider for provider, variables in _CLOUD_VARIABLES.items() if any(environ.get(name) for name in variables)
    }
    return frozenset({credential.provider for credential in find_credentials(environ)} | clouds_in_environment)


def _aws(environ: Mapping[str, str], home: Path) -> Iterator[Credential]:
    for name in _AWS_VARIABLES:
        if environ.get(name):
            yield Credential("aws", name, "environment")
    credentials_file = Path(environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials").expanduser()
    for profile, keys in _ini_keys(credentials_file).items():
        if keys & _AWS_CREDENTIAL_KEYS:
            yield Credential("aws", f"profile {profile}", str(credentials_file))
    config_file = Path(environ.get("AWS_CONFIG_FILE") or home / ".aws" / "config").expanduser()
    for section, keys in _ini_keys(config_file).items():
        if section.split()[0] in ("default", "profile") and keys & _AWS_CREDENTIAL_KEYS:
            yield Credential("aws", f"profile {section.removeprefix('profile').strip()}", str(config_file))


def _ini_keys(file: Path) -> dict[str, set[str]]:
    """Return the sections of an INI file with the names of their keys, in lower case, each before the first `=` or `:`.

    Values, which are secret, are dropped.
    """
    keys: dict[str, set[str]] = {}
    section = ""
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines.read(MAX_FILE_BYTES).splitlines():
                text = line.strip()
                if text.startswith("[") and "]" in text:
                    section = str(shown(text[1 : text.index("]")].strip()))
                    if section:
                        keys[section] = set()
                elif section in keys and (assignment := re.match("([^=:]*)[=:]", text)):
                    keys[section].add(assignment[1].strip().lower())
    except (OSError, ValueError):
        return {}
    return keys


def _gcp(environ: Mapping[str, str], home: Path) -> Iterator[Credential]:
    key_file = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if key_file:
        missing_note = "" if _is_file(Path(key_file)) else ", and there is no such file"
        yield Credential("gcp", "GOOGLE_APPLICATION_CREDENTIALS", f"{shown(key_file)}{missing_note}")
    directory = Path(environ.get("CLOUDSDK_CONFIG") or home / ".config" / "gcloud").expanduser()
    file = directory / "application_default_credentials.json"
    if _is_file(file):
        yield Credential("gcp", "application default credentials", str(file))


def _azure(environ: Mapping[str, str], home: Path) -> Iterator[Credential]:
    if environ.get("AZURE_CLIENT_ID") and environ.get("AZURE_TENANT_ID"):
        for name in _AZURE_SECRET_VARIABLES:
            if environ.get(name):
                yield Credential("azure", f"service principal, {name}", "environment")
    directory = Path(environ.get("AZURE_CONFIG_DIR") or home / ".azure").expanduser()
    for name in _AZURE_LOGIN_FILES:
        if _is_file(directory / name):
            yield Credential("azure", "login of the az command", str(directory / name))
            return


def _api_keys(environ: Mapping[str, str], home: Path) -> Iterator[Credential]:
    """Yield the keys of clouds that know nothing else, where their own or other public clients read them."""
    for provider, (variables, what, files) in _API_KEYS.items():
        yield from (Credential(provider, name, "environment") for name in variables if environ.get(name))
        yield from (Credential(provider, what, str(home / file)) for file in files if _is_file(home / file))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
