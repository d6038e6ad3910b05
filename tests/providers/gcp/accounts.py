"""Accounts of the gcp provider for tests, machines made by Google's own client, and waits that take no time."""

from __future__ import annotations

import json
from contextlib import contextmanager

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.gcp.provider import GcpProvider
from tests.clouds.gcp.plain import ZONE, Plain

TAGS = {"cloudgpu-id": "cg-1", "cloudgpu-ledger": "led-1", "cloudgpu-seq": "7"}


def account(server, home, *, ledger="", pause=None, **options):
    """Return the provider of an account with these options; a wait lets the model's clock run instead."""
    waits = server.advance if pause is None else pause
    return shared(GcpProvider(ProviderSettings("lab", options, home, server.clock.now, waits, ledger)), server)


def shared(provider, server):
    """Let a provider share the SDK's clients: making them takes longer than a short test. Return the provider."""
    provider._gcp._clients = _SHARED.setdefault(server.url, {})
    return provider


_SHARED = {}


def machine(server, name="cg-0123456789abcdef0123", *, spot=False, tags=TAGS, zone=ZONE, **more):
    """Launch a machine with Google's own client and return its id as ours; its disk bears the same labels."""
    image = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
    disk = {"initialize_params": {"source_image": image, "disk_size_gb": 50, "labels": tags}}
    scheduling = {"on_host_maintenance": "TERMINATE", "provisioning_model": "SPOT" if spot else "STANDARD"}
    more.setdefault("scheduling", {}).update(scheduling)
    more.setdefault("metadata", {"items": [{"key": "enable-guest-attributes", "value": "TRUE"}]})
    more.setdefault("disks", [{"boot": True, "auto_delete": True, **disk}])
    Plain(server).launch(name, zone=zone, labels=tags, **more)
    return f"{zone}/{name}"


def key_file_in(folder):
    """Return the key file of a service account, made in this folder."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    file = folder / "key.json"
    made = {
        "type": "service_account",
        "project_id": "of-the-key",
        "private_key_id": "1",
        "private_key": pem,
        "client_email": "me@of-the-key.iam.gserviceaccount.com",
        "token_uri": "http://127.0.0.1:9/token",
    }
    file.write_text(json.dumps(made), encoding="ascii")
    return file


@contextmanager
def calls(server):
    """Yield a list which, after the block, holds the actions that were asked for in it."""
    begun, made = len(server.calls), []
    yield made
    made += [call.action for call in server.calls[begun:]]
