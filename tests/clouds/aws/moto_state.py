"""What moto keeps in modules, for the servers that stand on it: how a process begins, and how a test forgets."""

from __future__ import annotations

from functools import cache

from moto import backends, settings
from moto.core import responses
from moto.core.base_backend import BackendDict, BaseBackend
from moto.kms import models as kms


def hasten() -> None:
    """Take from moto what it does anew at every reset or request: a thousand images, an RSA key, its own methods."""
    settings.ec2_load_default_amis = lambda: False
    kms.generate_private_key = cache(kms.generate_private_key)
    responses.method_names_from_class = cache(responses.method_names_from_class)
    modules = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules


def drop_backends() -> None:
    """Forget what moto has; its own `reset` first furnishes anew each region that was used, and drops that, too."""
    for service in list(BackendDict._instances):
        for _account, _region, backend in service.iter_backends():
            if type(backend).reset is not BaseBackend.reset:
                backend.reset()  # closes its files
        service.clear()
    BackendDict._instances.clear()
