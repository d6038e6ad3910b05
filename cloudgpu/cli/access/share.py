"""`cloudgpu share`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, emit, open_session
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.access import ShareDocument


def command(
    name: MaybeName = None,
    *,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="A colleague's public key.")] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="CIDR", help="Their address or network, or: same."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the key again; without --key, all of them.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Let a colleague's public key log in to a running machine, until the machine ends.

    Whoever has the private key can do everything on that machine that you can. Where a firewall admits only named
    addresses, --from opens it for theirs (`same`: your own network), and --remove closes it.

    A colleague on the same ledger reaches the machine by its name. Their key is keys/id_ed25519.pub in their
    CLOUDGPU_HOME.
    """
    from cloudgpu.access.ssh.authorized_keys import read_public_key
    from cloudgpu.control.access.share import check_from, share, unshare

    shared_key = read_public_key(key) if key else None
    if shared_key is None and not remove:
        raise InvalidRequest(
            "--key is missing: which public key may log in?",
            field="--key",
            value=None,
            next="Give the file of a public key, like --key ada.pub",
        )
    check_from(from_, remove=remove)
    session = open_session()
    machine = session.find(name)
    document = (
        unshare(session, machine, shared_key)
        if remove or shared_key is None
        else share(session, machine, shared_key, from_=from_)
    )
    emit(output, document, _answer_text(document))


def _answer_text(document: ShareDocument) -> str:
    name, key = document["name"], document["key"]
    if not document["shared"]:
        if not document["changed"]:
            return f"{name} had no such key."
        return f"{key} cannot log in to {name} any more." if key else f"No shared key can log in to {name} any more."
    network_text = f" from {document['from'].removesuffix('/32')}" if document["from"] else ""
    return (
        f"{key} can log in to {name}{network_text} until it ends, with all the rights that you have there:\n"
        f"  on this ledger: cloudgpu ssh {name}, exec, cp, tunnel\n  elsewhere: {document['ssh']}\n"
        f"  its host key: {document['host_key']}"
    )
