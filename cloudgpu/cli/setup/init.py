"""`cloudgpu init`: questions, the change as it will be written, and the file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cloudgpu.cli.common import (
    PROVIDERS_PLACEHOLDER,
    Format,
    Output,
    Yes,
    complete_provider,
    confirm,
    emit,
    on_terminal,
    provider_option,
    read_answer,
    tell,
    warn_if_overdue,
)
from cloudgpu.cli.launch.options import OptionalText, OptionalTexts, text_option
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from decimal import Decimal

    from cloudgpu.control.setup.init import ConfigDraft, ExistingSetup, Host
    from cloudgpu.views.documents.setup.init import InitDocument

T = TypeVar("T")
QUESTIONS = {
    "owner": "Who are machines for (owner)",
    "project": "What machines are charged to (project)",
    "provider": "Where to launch (provider)",
    "lease": "How long a machine lives unless renewed (lease)",
    "watts": "Watts of this computer under load, without its GPUs",
    "usd_per_kwh": "Your electricity, in USD per kWh",
}
NOTHING_WRITTEN = "Nothing was written."
CLOUD_NAMES = "aws, azure, gcp, lambda, runpod or vast"
CLOUD_OPTIONS = (
    "--account",
    "--profile",
    "--subscription",
    "--region",
    "--budget",
    "--email",
    "--ssh-from",
    "--remove",
)
SETTINGS_OPTIONS = ("--provider", "--lease", "--watts", "--usd-per-kwh", "--host", "--fingerprint", "--key")
NOT_FOR_A_CLOUD = "is not about a cloud account: run cloudgpu init without one for it."


# The parts of --help, the common options first.
GROUPS = {
    "Common options": ("--owner", "--project", "--provider", "--lease", "--yes"),
    "This computer": ("--watts", "--usd-per-kwh"),
    "Machines of your own": ("--host", "--fingerprint", "--key"),
    "A cloud account (CLOUD)": (
        "--account", "--profile", "--subscription", "--region", "--budget", "--email", "--ssh-from",
        "--remove",
    ),
    "Accounts and hosts that change": ("--rename", "--forget"),
}  # fmt: skip


def command(
    cloud: Annotated[
        OptionalText, typer.Argument(metavar="CLOUD", help=f"{CLOUD_NAMES}: prepare that account.")
    ] = None,
    *,
    account: Annotated[OptionalText, text_option("NAME", "CLOUD: its name in config.toml.")] = None,
    profile: Annotated[OptionalText, text_option("NAME", "CLOUD: the profile of the AWS settings.")] = None,
    subscription: Annotated[OptionalText, text_option("ID", "CLOUD: the subscription of the Azure account.")] = None,
    region: Annotated[
        OptionalTexts, text_option("NAME", "CLOUD: use only these; the first is home. Repeatable.")
    ] = None,
    budget: Annotated[OptionalText, text_option("USD", "CLOUD: mail --email when a month's cost nears this.")] = None,
    email: Annotated[OptionalText, text_option("ADDRESS", "CLOUD: who gets that mail.")] = None,
    ssh_from: Annotated[
        OptionalTexts, text_option("CIDR", "CLOUD lambda: open SSH on all machines to these alone. Repeatable.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="CLOUD: remove what init created there.")] = False,
    owner: Annotated[OptionalText, text_option("TEXT", "Who machines are for.")] = None,
    project: Annotated[
        OptionalText, text_option("TEXT", "The project they are charged to; with gcp, Google's.")
    ] = None,
    provider: Annotated[OptionalText, provider_option(f"Where `up` launches: {PROVIDERS_PLACEHOLDER}, or any.")] = None,
    lease: Annotated[OptionalText, text_option("TIME", "How long a machine lives unless renewed, like 8h.")] = None,
    watts: Annotated[OptionalText, text_option("WATTS", "Watts of this computer under load, without GPUs.")] = None,
    usd_per_kwh: Annotated[OptionalText, text_option("USD", "Your electricity price.")] = None,
    host: Annotated[OptionalTexts, text_option("NAME=USER@HOST[:PORT]", "A machine of your own. Repeatable.")] = None,
    fingerprint: Annotated[OptionalTexts, text_option("SHA256:...", "The host key you expect. Repeatable.")] = None,
    key: Annotated[OptionalText, text_option("PATH", "The private key for --host; empty: your default ones.")] = None,
    forget: Annotated[
        OptionalText, typer.Option("--forget", metavar="NAME", help="Remove an account or host; see above.")
    ] = None,
    rename: Annotated[
        tuple[str, str] | None,
        typer.Option("--rename", metavar="OLD NEW", help="Rename an account or host; see above."),
    ] = None,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Make or change config.toml.

    Asks for every value that no option gives, shows the change, asks once, and writes it. Other lines and comments stay
    as they are. Names the cloud credentials on this computer without reading them. For a machine of your own it fetches
    the host key, so that you can compare its fingerprint.

    With CLOUD it prepares that account: it shows what it will create, asks, creates it, and adds the account to
    config.toml. On AWS and Azure that is a role with which machines report when they were last in use; on Azure they
    can also stop their own billing. On Google Cloud and Lambda nothing is created. With --budget and
    --email it also creates the cloud's own budget, which sends mail even when no computer of yours runs cloudgpu. At
    Lambda, --ssh-from closes SSH to all other networks, on every machine of the account.

    With --rename an account or host gets another name in config.toml and in the ledger. Refused if the new name belongs
    to another account or computer.

    With --forget an account or host is removed from config.toml. Machines there that cannot be reached from here then
    count as gone. Refused while cloudgpu can still reach a machine or a retained resource there. Add the account again
    to use it again.
    """
    arguments = locals()  # before other local variables exist
    warn_if_overdue()
    if rename is not None:
        from cloudgpu.cli.setup.init_account import rename_place

        _refuse(
            arguments,
            ("CLOUD", *CLOUD_OPTIONS, "--forget", "--owner", "--project", *SETTINGS_OPTIONS),
            "does not go with --rename.",
        )
        rename_place(*rename, yes=yes, output=output)
        return
    if forget is not None:
        from cloudgpu.cli.setup.init_account import retire

        _refuse(
            arguments,
            ("CLOUD", *CLOUD_OPTIONS, "--owner", "--project", *SETTINGS_OPTIONS),
            "does not go with --forget.",
        )
        retire(forget, yes=yes, output=output)
        return
    if cloud is not None:
        from cloudgpu.cli.setup.init_cloud import prepare

        _refuse(arguments, ("--owner", *SETTINGS_OPTIONS), NOT_FOR_A_CLOUD)
        prepare(
            cloud, account=account, regions=region or (), remove=remove, yes=yes, output=output,
            budget=(budget, email), ssh_from=ssh_from or (),
            account_keys={"profile": profile, "subscription": subscription, "project": project},
        )  # fmt: skip
        return
    _refuse(arguments, CLOUD_OPTIONS, f"is for a cloud: cloudgpu init {CLOUD_NAMES}.")
    _change_settings(arguments, host or [], fingerprint or [], key, yes=yes, output=output)


def _change_settings(
    options: dict[str, Any], hosts: list[str], fingerprints: list[str], key: str | None, *, yes: bool, output: Format
) -> None:
    """Ask for what no option gave, and write the settings."""
    from cloudgpu.control.setup.init import (
        draft_settings,
        find_existing_setup,
        parse_login_key,
        parse_setup_value,
        read_host,
    )

    values = {name: parse_setup_value(name, options[name]) for name in QUESTIONS if options[name] is not None}
    existing_setup = find_existing_setup(os.environ)
    new_hosts = [read_host(existing_setup, text) for text in hosts]
    login_key = None if key is None else parse_login_key(key, new_hosts)
    may_ask = _may_ask(yes=yes)
    if may_ask and not new_hosts:
        values = _ask_values(existing_setup, values)
        new_hosts = _ask_hosts(existing_setup)
    elif existing_setup.text is None and not may_ask and "owner" not in values and not new_hosts:
        raise _option_needed("--owner", "There is no config.toml yet, and no terminal to ask who machines are for.")
    keys = [(host, _confirmed_host_key(existing_setup, host, fingerprints, may_ask=may_ask)) for host in new_hosts]
    _write(draft_settings(existing_setup, values, keys, login_key=login_key), may_ask=may_ask, output=output)


def _write(draft: ConfigDraft, *, may_ask: bool, output: Format) -> None:
    """Show the change, ask, write it, and say what was done."""
    from cloudgpu.control.setup.init import write

    if draft.changed:
        _show_diff(draft)
        confirm("Write this to config.toml?", yes=not may_ask, declined=NOTHING_WRITTEN)
        write(draft)
    document = _init_document(draft)
    emit(output, document, _result_text(document))


def _refuse(arguments: dict[str, object], options: Sequence[str], reason: str) -> None:
    """Raise InvalidRequest for the first of these options that was given."""
    for option in options:
        if arguments[option.lstrip("-").replace("-", "_").lower()] not in (None, False):
            raise InvalidRequest(f"{option} {reason}", field=option, value=None, next="Run: cloudgpu init --help")


def _may_ask(*, yes: bool) -> bool:
    if not yes and not on_terminal():
        raise _option_needed("--yes", "There is no terminal to ask on.")
    return not yes


def _option_needed(option: str, message: str) -> InvalidRequest:
    example = "cloudgpu init --yes --owner ada --project thesis --provider local --lease 8h"
    return InvalidRequest(message, field=option, value=None, next=f"Use options, for example: {example}")


def _ask_values(setup: ExistingSetup, values: dict[str, str | Decimal]) -> dict[str, str | Decimal]:
    """Ask for every value that no option gave, where it is clear where it belongs. An unchanged one is not written."""
    from cloudgpu.control.setup.init import parse_setup_value

    sys.stderr.write("Enter keeps the value in brackets.\n")
    for name, question in QUESTIONS.items():
        if name not in values and setup.is_clear(name):
            default = setup.current_value(name)
            is_guess = name == "owner" and setup.text is None  # a login name is a guess: write down what was confirmed
            question_text = f"{question}: {', '.join(complete_provider(''))}, any" if name == "provider" else question
            answer = _ask_until_valid(question_text, default, partial(parse_setup_value, name))
            if answer is not None or is_guess:
                values[name] = default if answer is None else answer
    return values


def _ask_hosts(setup: ExistingSetup) -> list[Host]:
    from cloudgpu.control.setup.init import read_host

    hosts: list[Host] = []
    parse = partial(read_host, setup)
    while (host := _ask_until_valid("A machine of your own, as name=user@host[:port]", "none", parse)) is not None:
        hosts.append(host)
    return hosts


def _ask_until_valid(question: str, default: str, parse: Callable[[str], T]) -> T | None:
    """Ask until the answer can be parsed; return None for an empty one. Raises InvalidRequest at the end of input."""
    while True:
        answer = read_answer(f"{question} [{default or 'not set'}]: ")
        if not answer:
            return None
        try:
            return parse(answer)
        except InvalidRequest as error:
            tell(f"{error.message} {error.next or ''}".rstrip())


def _confirmed_host_key(setup: ExistingSetup, host: Host, fingerprints: list[str], *, may_ask: bool) -> str:
    """Return the host key to pin, once it is confirmed: pinned before, given as an option, or compared by the user."""
    from cloudgpu.access.ssh.target import fingerprint, shown_host_key
    from cloudgpu.control.setup.init import known_host_key, matches_fingerprint

    key, pinned_key = shown_host_key(host.host, host.port), known_host_key(setup, host)
    if key == pinned_key or matches_fingerprint(key, fingerprints, host):
        return key
    shown_fingerprint = fingerprint(key)
    if pinned_key is not None:
        tell(f"config.toml has another key for {host.name}: {fingerprint(pinned_key)}. Either it was reinstalled,")
        tell("or somebody intercepts the connection.")
    if not may_ask:
        raise InvalidRequest(
            f"The host key of {host.name} is not confirmed yet; its fingerprint is {shown_fingerprint}.",
            field="--fingerprint",
            value=None,
            next=f"Compare it with that machine's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then: "
            f"--fingerprint {shown_fingerprint}",
        )
    sys.stderr.write(
        f"{host.name} ({host.host}:{host.port}) shows the host key {key.split(' ')[0]}\n  {shown_fingerprint}\n"
    )
    confirm("Is this the fingerprint that the machine itself shows?", yes=False, declined=NOTHING_WRITTEN)
    return key


def _show_diff(draft: ConfigDraft) -> None:
    changed_lines = [line for line in draft.diff[2:] if not line.startswith("@@")]
    sys.stderr.write(f"{draft.setup.home.config_file}\n" + "".join(f"  {line}\n" for line in changed_lines))


def _init_document(draft: ConfigDraft) -> InitDocument:
    from cloudgpu.config.credentials import find_credentials
    from cloudgpu.control.setup.init import missing_extras

    return {
        "file": str(draft.setup.home.config_file),
        "written": draft.changed,
        "diff": list(draft.diff),
        "credentials": [
            {"provider": credential.provider, "what": credential.what, "where": credential.where}
            for credential in find_credentials(os.environ)
        ],
        "missing_extras": list(missing_extras()),
    }


def _result_text(document: InitDocument) -> str:
    lines = [f"Wrote {document['file']}" if document["written"] else f"Nothing to change in {document['file']}"]
    lines += [
        f"Found for {credential['provider']}: {credential['what']} ({credential['where']})"
        for credential in document["credentials"]
    ]
    if not document["credentials"]:
        lines.append("No cloud credentials were found; this computer and your own machines need none.")
    lines += [f"Not installed: pip install 'cloudgpu[{extra}]'" for extra in document["missing_extras"]]
    has_new_host = any(line.startswith("+") and 'host = "' in line for line in document["diff"])
    return "\n".join([*lines, f"Next: cloudgpu doctor, then cloudgpu up{' --provider ssh' * has_new_host}"])
