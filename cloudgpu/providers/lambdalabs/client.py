"""One Lambda account: its client, its API key, its identity, and which launches were sent from this home.

Lambda's API has no account number. The account is identified by an SSH key that the account itself keeps under
the name `cloudgpu`: names are unique there, so that everybody who may use the account finds the same one. Its private
half is thrown away at once; nobody can log in with it. A launch has to name an SSH key, and names this one. Launches
and `init` put it there; until then the account is identified by the key that this home would put there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.values.money import Money
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.providers.lambdalabs import errors
from cloudgpu.providers.lambdalabs.options import KEY_VARIABLES, PROVIDER, lambda_options, read_key
from cloudgpu.providers.rest.client import Answer, CloudApi, RestClient, is_loopback
from cloudgpu.providers.rest.once import SendOnce
from cloudgpu.providers.shared.account import CloudAccount, write_file

CLOUD = "Lambda Cloud"  # its name in messages
KEY_NAME = "cloudgpu"
# Lambda's description: one request a second, a launch every 12 seconds.
MIN_INTERVALS_S = {"*": 1.0, "launch": 12.0}
LIST_ACTIONS = ("list", "keys", "types")  # actions that read a list: "not found" is no valid answer to them
TOKEN_RULE = TokenRule(  # what holds for the idempotency tokens of launches, which Lambda does not have
    lifetime=timedelta(minutes=10),
    listing_proves_after=timedelta(minutes=10),
    source="Lambda knows no tokens: a call is sent once, and a replay only looks. That a listing shows a new machine "
    "within ten minutes is a belief: no page of Lambda's says how late it may be",
)
CACHED_S = 20.0  # how long an answer about types, or that our SSH key is missing, is used again


class Lambda(CloudAccount):
    """A configured account of Lambda Cloud. Making one sends no request, and reads no key."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.options = lambda_options(settings.account, settings.options)
        self.launch_records = SendOnce(settings.home, settings.clock)
        intervals = {} if is_loopback(self.options.base_url) else MIN_INTERVALS_S
        api = CloudApi(CLOUD, PROVIDER, self.options.base_url, self._auth_headers, self._error_of_answer, intervals)
        self.rest = RestClient(api, self.timeouts, settings.pause)
        self._key_missing_at: datetime | None = None  # when the account was seen without our SSH key
        self.machine_prices: dict[str, Money] = {}  # per hour, by machine id, from the last answers
        self._cached_types: tuple[datetime, Mapping[str, Any]] | None = None  # when they were read, and by name

    def _auth_headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {read_key(self.options)[0]}"}

    def _error_of_answer(self, answer: Answer) -> CloudgpuError:
        error = errors.error_of_answer(answer)
        error.message = self.rest.redact(error.message)
        error.args = (error.message,)
        if error.field == "credential" and error.next:
            error.next = error.next.replace(KEY_VARIABLES[0], read_key(self.options)[1])  # where that key is set
        return error

    def get(self, path: str, action: str) -> Any:
        """Return the `data` of the answer to a GET. Raises as RestClient.call."""
        try:
            return _data_of(self.rest.get(path, action=action), action)
        except InstanceNotFound as error:
            if action in LIST_ACTIONS:
                raise errors.unreadable_error(action) from error
            raise

    def change(self, method: str, path: str, action: str, body: object, *, idempotent: bool = False) -> Any:
        """Request a change, return its `data`; an `idempotent` one may be sent twice. Raises as RestClient.call."""
        return _data_of(self.rest.call(method, path, action=action, body=body, idempotent=idempotent).data, action)

    def types(self) -> Mapping[str, Any]:
        """Return the types of machines by name, each with its price and the regions that have some now."""
        now = self.clock()
        if self._cached_types is None or abs((now - self._cached_types[0]).total_seconds()) > CACHED_S:
            types_by_name = self.get("/instance-types", "types")
            if not isinstance(types_by_name, dict):
                raise errors.unreadable_error("types")
            self._cached_types = now, types_by_name
        return self._cached_types[1]

    # Which account it is.

    def identity(self) -> AccountIdentity:
        """Return the account by the SSH key that it keeps for us, or by the one that a launch would put there.

        The latter is made on this computer and sent nowhere until then. Raises AuthFailed, ProviderUnavailable.
        """
        account_key = self._account_key()
        digest = key_digest(account_key or self._new_key())
        display_name = f"the Lambda account with the SSH key {digest[:12]}"
        return AccountIdentity(
            "lambda account", digest, display_name if account_key else f"{display_name}, which is not there yet"
        )

    def is_registered(self) -> bool:
        """Say whether the account keeps the SSH key by which it is known. Reads only."""
        return self._account_key() is not None

    def register(self) -> AccountIdentity:
        """Make sure that the account keeps that key, and return which account it is. Raises as `register_key`."""
        if not self.is_registered():
            self.register_key()
        return self.identity()

    def _account_key(self) -> str | None:
        """Return the SSH key that the account keeps for us, from our file or else from Lambda; None for none."""
        saved_key, now = _read_line(self._key_file), self.clock()
        if saved_key is not None:
            return saved_key
        if self._key_missing_at is not None and abs((now - self._key_missing_at).total_seconds()) <= CACHED_S:
            return None
        registered_key = self._fetch_key()
        self._key_missing_at = now if registered_key is None else None
        return None if registered_key is None else self._save_key(registered_key)

    def register_key(self) -> str:
        """Make sure that the account keeps the SSH key by which it is known; return it as an OpenSSH line.

        Raises InvalidRequest where the account has another one under that name, and Lambda's refusal of the key.
        """
        saved_key = _read_line(self._key_file)
        registered_key = self._fetch_key()
        if registered_key is None:
            new_key = saved_key or self._new_key()
            refusal = None
            try:
                self.change("POST", "/ssh-keys", "add-key", {"name": KEY_NAME, "public_key": new_key})
            except InvalidRequest as error:  # perhaps somebody else was faster: names are unique
                refusal = error
            except InstanceNotFound:
                pass  # no valid answer to this call: what is there now decides
            registered_key = self._fetch_key()
            if registered_key is None and refusal is not None:
                raise refusal
        if registered_key is None:
            raise ProviderUnavailable(
                f"{CLOUD} does not show the SSH key {KEY_NAME} that was put there.", field="account"
            )
        if saved_key is not None and key_digest(saved_key) != key_digest(registered_key):
            raise InvalidRequest(
                f"The SSH key {KEY_NAME} of the Lambda account was replaced: the account is known by it.",
                field="account",
                value=self.account,
                next="Delete it at cloud.lambda.ai/ssh-keys, and run this again: the former one is put back.",
            )
        return saved_key or self._save_key(registered_key)

    def _fetch_key(self) -> str | None:
        keys = self.get("/ssh-keys", "keys")
        if not isinstance(keys, list):
            raise errors.unreadable_error("keys")
        return next((str(key.get("public_key", "")) for key in keys if key.get("name") == KEY_NAME), None)

    @property
    def _key_file(self) -> Path:
        """The file of the account's SSH key, one for each API key: another one may belong to another account."""
        name = sha256(f"{self.options.base_url} {read_key(self.options)[0]}".encode()).hexdigest()[:32]
        return self.home / f"account-{name}.pub"

    def _save_key(self, public_key: str) -> str:
        write_file(self._key_file, public_key)
        self._key_file.with_suffix(".new").unlink(missing_ok=True)
        return public_key

    def _new_key(self) -> str:
        """Return the SSH key to register where the account has none, from its file: the same at each call."""
        file = self._key_file.with_suffix(".new")
        temporary = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        if not (key := _read_line(file)):
            key = _new_public_key()
            write_file(temporary, key)
            try:
                file.hardlink_to(temporary)
            except FileExistsError:  # somebody else was faster
                key = _read_line(file) or key
            except OSError:  # a file system without links
                temporary.replace(file)
            temporary.unlink(missing_ok=True)
        return key


def _read_line(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii").strip() or None
    except FileNotFoundError:
        return None


def key_digest(public_key: str) -> str:
    """Return a digest of a public key's type and blob, without the comment, which a cloud may change."""
    return sha256(" ".join(public_key.split()[:2]).encode()).hexdigest()[:32]


def _new_public_key() -> str:
    """Return the public half of a new key, whose private half is not kept."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    formats = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return Ed25519PrivateKey.generate().public_key().public_bytes(*formats).decode()


def _data_of(answer: Any, action: str) -> Any:
    if not isinstance(answer, dict) or "data" not in answer:
        raise errors.unreadable_error(action)
    return answer["data"]
