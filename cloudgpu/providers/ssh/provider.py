"""The ssh provider: the user's own machines. `up` starts the agent there, `down` ends what cloudgpu started.

An instance is the directory ~/.cloudgpu on a host, with the agent that runs from it; a host has one at a time. The
host itself is never powered off, and nothing else on it is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from threading import Event, Lock
from typing import Any, TypeVar

from cloudgpu.access.ssh.target import LoginRefused
from cloudgpu.core.catalog.matching import fits
from cloudgpu.core.model.identity import AccountIdentity, Unanswered
from cloudgpu.core.model.instances import Instance, Listing, Process
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Availability, MachineConfiguration, Price, Requirements, same_gpu
from cloudgpu.core.policies.guards import Agent, Safeguards
from cloudgpu.errors import (
    AnswerTimeout,
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    NotReachableHere,
    ProviderUnavailable,
    Unreachable,
    WrongHostKey,
)
from cloudgpu.providers import electricity
from cloudgpu.providers.abilities import RemainingFiles
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.providers.patience import CallTimeouts
from cloudgpu.providers.shared.calls import gather, result_or_error
from cloudgpu.providers.ssh import client, translate
from cloudgpu.providers.ssh.options import EXAMPLE, Host, ssh_hosts

MAX_PARALLEL_HOSTS = 16
SILENCE_FACTOR = 2  # a silent host is not queried again for this many times `patience.read_s`
_UNKNOWN_HARDWARE = {"cpus": None, "memory_gib": None, "gpus": (), "holder": None, "used": None}
Answer = TypeVar("Answer")


def make(settings: ProviderSettings) -> SshProvider:
    """Return the provider of one account's hosts; raise InvalidRequest for a bad setting. Contacts nobody."""
    return SshProvider(settings)


class SshProvider:
    """Implements Provider, Pausable, Taggable, HasPrices, KnowsHostKeys and what machines of the user's own can do."""

    kind = translate.PROVIDER
    supported_parts = frozenset({"on_start"})
    guards = Safeguards(Agent.ENDS)
    end_effect = translate.END_EFFECT
    token_rule = TokenRule(
        lifetime=timedelta(days=36500),
        listing_proves_after=timedelta(0),
        source="the instance id follows from the token and is stored in the host's ~/.cloudgpu until terminate has "
        "removed it; calls on a host are serialised by a lock",
    )

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self._clock = settings.clock
        self._timeouts = CallTimeouts(settings.patience)
        self._hosts = {host.name: host for host in ssh_hosts(settings.account, settings.options)}
        self._renamed_hosts = {old: new for old, new in settings.renamed_hosts.items() if old not in self._hosts}
        self._identities: dict[str, AccountIdentity] = {}  # of the hosts that have answered, as of their last answer
        self._is_listed = False
        self._remaining_files: dict[str, RemainingFiles] = {}
        self._lock = Lock()
        self._pending_queries: dict[str, _PendingQuery] = {}  # by host: the query that is under way
        self._silent_hosts: dict[
            str, tuple[float, CloudgpuError]
        ] = {}  # by host: since when it is silent, and the error
        self._other_names: dict[str, Host] = {}  # by the host name in a machine's id: the host that has that machine

    def identity(self, region: str | None = None) -> AccountIdentity:
        """Return the computer and user of the host that `region` names; from its last answer, else it is queried.

        Without a region, the first host. Raises NotReachableHere where no host of the settings is that one,
        ProviderUnavailable where it, or a host that may be it, does not answer, and other errors of the login.
        """
        name = next(iter(self._hosts), "") if region is None else region
        host = self._host_by_name(name)
        if host.name not in self._identities:
            self._query_host(host)
        return self._identities[host.name]

    def available(self, requirements: Requirements) -> Availability:
        """Return the hosts that answer and fit, busy ones too: a launch there says who uses it. Others are named.

        Raises the error of the first host when none answers, InvalidRequest without hosts, WrongHostKey always.
        """
        if not self._hosts:
            raise InvalidRequest(
                f"Account {self.account} has no hosts.",
                field=f"accounts.{self.account}.hosts",
                value=None,
                next=f"List your machines in config.toml under [accounts.{self.account}]: {EXAMPLE}",
            )
        hosts = [host for host in self._hosts.values() if self._may_fit(host, requirements)]
        answers = self._ask_hosts(hosts, lambda host: self._offer(host, requirements), self._timeouts.change_s)
        offers = [answer for answer in answers if isinstance(answer, MachineConfiguration)]
        unanswered = []
        for host, error in zip(hosts, answers, strict=True):
            if isinstance(error, CloudgpuError):
                if not offers or isinstance(error, (WrongHostKey, InvalidRequest)):
                    raise error
                unanswered.append(Unanswered(host.name, error.message))
        return Availability(tuple(offer for offer in offers if fits(offer, requirements)), tuple(unanswered))

    def _may_fit(self, host: Host, requirements: Requirements) -> bool:
        """Say whether the host is worth asking: GPUs that the settings do not name are not known yet."""
        offer = translate.available(self.account, host, _UNKNOWN_HARDWARE, replace(requirements, gpu=None))
        may_have_gpus = (
            requirements.gpu is None
            or host.gpu is None
            or (requirements.gpu_count <= host.gpu_count and same_gpu(host.gpu, requirements.gpu))
        )
        return may_have_gpus and fits(offer, replace(requirements, gpu=None))

    def _offer(self, host: Host, requirements: Requirements) -> MachineConfiguration:
        self._check_silent(host)
        try:
            with self._remembering_silence(host):
                seconds = self._timeouts.change_s  # longer than a GPU driver takes to load
                facts = client.call_host(host, "facts", {}, timeout=seconds)
        except LoginRefused as error:
            raise client.uncertain_outcome(error) from error
        except Unreachable as error:
            error.next = client.UNREACHABLE_REMEDY if type(error) is Unreachable else error.next
            raise
        self._record_answer(host, facts)
        return translate.available(self.account, host, facts, requirements)

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return the price of the electricity of each host, None for an offer that is no host of ours."""
        return [self._price(offer) for offer in offers]

    def _price(self, offer: MachineConfiguration) -> Price | None:
        host = self._hosts.get(offer.zone) if offer.provider == self.kind else None
        return translate.price(host, offer.accelerators, self._clock()) if host else None

    def metered_price(
        self, configuration: MachineConfiguration, gpu_watts: Decimal, measured_for: timedelta
    ) -> Price | None:
        """Return the price of a host's electricity by what its GPUs drew; None where its settings say its watts."""
        host = self._hosts.get(configuration.zone) if configuration.provider == self.kind else None
        draw = electricity.metered_draw(gpu_watts, measured_for, configuration.accelerators)
        return translate.metered_price(host, configuration.accelerators, draw, self._clock()) if host else None

    def host_key(self, configuration: MachineConfiguration) -> str:
        """Return the host's own key, from the settings or known_hosts. Raises InvalidRequest when it is not known."""
        host = self._other_names.get(configuration.zone) or self._hosts.get(
            self._renamed_hosts.get(configuration.zone, configuration.zone)
        )
        return client.host_key(host or self._host_of_offer(configuration))

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Make the machine on the host and start its agent; the same token returns the same machine.

        Raises NoCapacity for a host that is in use or full, AuthFailed where its home may not be written to,
        LaunchUncertain when it did not answer.
        """
        host = self._host_of_offer(attempt.offer.configuration)
        seconds_left = (deadline - self._clock()).total_seconds()
        try:
            answer = self._ask(
                host, "launch", client.launch_body(host, attempt), timeout=max(1.0, min(75.0, seconds_left))
            )
        except (client.LoginUnsure, ProviderUnavailable) as error:
            raise LaunchUncertain(error.message, field=error.field, value=error.value, next=error.next) from error
        return self._instance(host, answer["machine"])

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound when its host has none of that id."""
        host = self._machine_host(id)
        (answer,) = self._query_hosts([host])
        if isinstance(answer, CloudgpuError):
            raise answer
        record = answer["machine"]
        if answer.get("elsewhere") == id:
            message = f"{host.name} has this machine's files, and it is at another computer, which shares that home."
            raise ProviderUnavailable(message, field="instance", value=id, next="Name that host in config.toml.")
        if record is None or record["id"] != id:
            raise _not_found(id)
        return self._instance(host, record)

    def list(self) -> Listing:
        """Return the machine of every host; hosts that do not answer are named."""
        hosts = list(self._hosts.values())
        instances, unanswered = [], []
        answers = self._query_hosts(hosts)
        for host, answer in zip(hosts, answers, strict=True):
            if isinstance(answer, CloudgpuError):
                unanswered.append(Unanswered(f"{self.account}/{host.name}", _unanswered_reason(answer)))
            elif answer["machine"] is not None:
                instances.append(self._instance(host, answer["machine"], translate.gpu_users(answer["used"])))
        # Set only now: a thread that looks for another host name meanwhile waits for the same answers.
        self._is_listed = True
        return Listing(tuple(instances), tuple(unanswered), identities=self._current_identities(hosts, answers))

    def _current_identities(
        self, hosts: Sequence[Host], answers: Sequence[dict[str, Any] | CloudgpuError]
    ) -> dict[str, AccountIdentity]:
        """Return the identities of the hosts that answered, by host name, and by the name in their machine's id.

        The latter not where the settings have another host of that name.
        """
        identities: dict[str, AccountIdentity] = {}
        for host, answer in zip(hosts, answers, strict=True):
            if not isinstance(answer, CloudgpuError):
                names = {translate.host_of(str((answer["machine"] or {}).get("id"))) or host.name} - self._hosts.keys()
                names |= {old for old, new in self._renamed_hosts.items() if new == host.name}
                identities |= dict.fromkeys((host.name, *names), self._identities[host.name])
        return identities

    def _query_hosts(self, hosts: Sequence[Host]) -> Sequence[dict[str, Any] | CloudgpuError]:
        """Query each host for its machine, within the timeout of a read: a frozen host delays no other one."""
        return self._ask_hosts(hosts, self._query_host, self._timeouts.read_s)

    def _ask_hosts(
        self, hosts: Sequence[Host], read_host: Callable[[Host], Answer], seconds: float
    ) -> Sequence[Answer | CloudgpuError]:
        """Return each host's answer or error, waiting at most `seconds` for one; silent hosts are remembered."""
        answers = gather(
            hosts, lambda host: result_or_error(read_host, host), MAX_PARALLEL_HOSTS, answer_timeout_s=seconds
        )
        named_answers = [_with_host_name(host, answer) for host, answer in zip(hosts, answers, strict=True)]
        for host, answer in zip(hosts, named_answers, strict=True):
            if isinstance(answer, AnswerTimeout):
                self._remember_silence(host, answer)
        return named_answers

    def _query_host(self, host: Host) -> dict[str, Any]:
        """Ask a host for its machine, with one query for all threads that ask at the same time.

        A silent host is not asked again at once: the next caller would wait as long.
        """
        with self._lock:
            self._check_silent(host)
            query = self._pending_queries.get(host.name)
            is_first = query is None
            query = self._pending_queries[host.name] = _PendingQuery() if query is None else query
        if is_first:
            try:
                with self._remembering_silence(host):
                    query.answer = self._ask(host, "look", {}, timeout=self._timeouts.read_s)
            except CloudgpuError as error:
                query.error = error
            finally:
                with self._lock:
                    del self._pending_queries[host.name]
                query.ended.set()
        return query.result(host)

    def _check_silent(self, host: Host) -> None:
        """Raise the error of a host that did not answer a moment ago."""
        silent_since, error = self._silent_hosts.get(host.name, (0.0, None))
        if error is not None and self._timeouts.now() - silent_since < SILENCE_FACTOR * self._timeouts.read_s:
            raise error

    @contextmanager
    def _remembering_silence(self, host: Host) -> Iterator[None]:
        """Remember a host that does not answer in time; one that refuses at once is not remembered."""
        started_s = self._timeouts.now()
        try:
            yield
        except CloudgpuError as error:
            if self._timeouts.now() - started_s >= self._timeouts.connect_s:
                self._remember_silence(host, client.uncertain_outcome(error))
            raise
        self._silent_hosts.pop(host.name, None)

    def _remember_silence(self, host: Host, error: CloudgpuError) -> None:
        self._silent_hosts[host.name] = self._timeouts.now(), error

    def processes(self, id: str) -> Sequence[Process] | None:  # noqa: A002
        """Return what still runs there from this machine, None where the host cannot tell. Raises InstanceNotFound."""
        entries = self._ask(self._machine_host(id), "processes", {"id": id}, timeout=self._timeouts.read_s)["processes"]
        return None if entries is None else tuple(Process(**entry) for entry in entries)

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags where the agent reads them, too. Raises InstanceNotFound."""
        self._ask(self._machine_host(id), "tag", {"id": id, "tags": dict(tags)})

    def stop(self, id: str) -> None:  # noqa: A002
        """End the agent, Jupyter and its kernels; keep the rest. Raises InstanceNotFound, StopUnproved."""
        self._ask(self._machine_host(id), "stop", {"id": id})

    def start(self, id: str) -> None:  # noqa: A002
        """Start a stopped machine's agent again. Raises InstanceNotFound."""
        self._ask(self._machine_host(id), "start", {"id": id})

    def terminate(self, id: str) -> None:  # noqa: A002
        """End what cloudgpu started there and remove all of it; an unknown id is no error. Raises StopUnproved."""
        if translate.host_of(id) is not None:
            remaining = self._ask(self._machine_host(id), "terminate", {"id": id}).get("kept")
            if remaining:  # a second call finds no machine any more, and returns none
                self._remaining_files[id] = RemainingFiles(
                    str(remaining["where"]), tuple(map(str, remaining["files"])), int(remaining["count"])
                )

    def remains(self, id: str) -> RemainingFiles | None:  # noqa: A002
        """Return the files that stay of a machine that was ended here: its owner made or changed them."""
        return self._remaining_files.get(id)

    def writes(self, name: str, *, template: bool) -> Sequence[str]:
        """Return what a launch writes in the home of a host."""
        return translate.files_written(name, template=template)

    def _instance(self, host: Host, record: Mapping[str, Any], gpus_now: tuple[str, ...] = ()) -> Instance:
        return translate.instance(self.account, host, client.address(host), record, gpus_now)

    def _host_of_offer(self, offer: MachineConfiguration) -> Host:
        host = self._hosts.get(offer.zone)
        if host is None or offer.provider != self.kind:
            message = f"{offer.zone} is not a host of account {self.account}."
            raise InvalidRequest(message, field="zone", value=offer.zone, next="Choose one of its hosts.")
        return host

    def _machine_host(self, id_: str) -> Host:
        name = translate.host_of(id_)
        if name is None:
            raise _not_found(id_)
        return self._host_by_name(name)

    def _host_by_name(self, name: str) -> Host:
        """Return the host of that name; else the one with a machine that was launched under that host name.

        Raises NotReachableHere where there is none, ProviderUnavailable while a silent host may be that one.
        """
        host_of_settings = self._hosts.get(name) or self._hosts.get(self._renamed_hosts.get(name, name))
        if host_of_settings is None and not self._is_listed:
            self.list()
        host = host_of_settings or self._other_names.get(name)
        if host is None:
            all_answered = self._identities.keys() >= self._hosts.keys()
            raise (NotReachableHere if all_answered else ProviderUnavailable)(
                f"The host {name} is not in the settings of account {self.account}.",
                field=f"accounts.{self.account}.hosts",
                value=name,
                next=f"Put it back into config.toml. If it has another name now: cloudgpu init --rename {name} NEW. "
                f"If it will never answer again: cloudgpu init --forget {name}",
            )
        return host

    def _ask(self, host: Host, verb: str, body: dict[str, Any], *, timeout: float = 75.0) -> dict[str, Any]:
        try:
            answer = client.call_host(host, verb, {**body, "now": self._clock().timestamp()}, timeout=timeout)
        except Unreachable as error:
            raise client.uncertain_outcome(error) from error
        self._record_answer(host, answer)
        return answer

    def _record_answer(self, host: Host, answer: Mapping[str, Any]) -> None:
        """Record which computer answered, and the host name in the id of its machine.

        Raises ProviderUnavailable where another computer answered before: its answer is about other machines.
        """
        identity = translate.identity(host, client.address(host).user, client.host_key(host), answer["here"])
        previous = self._identities.get(host.name)
        self._identities[host.name] = identity
        if previous is not None and previous.id != identity.id:
            message = f"Another computer or user than a moment ago answers as {host.name}: {identity.display_name}."
            raise ProviderUnavailable(message, field=host.field, value=host.name, next="Run it again.")
        name = translate.host_of(str((answer.get("machine") or {}).get("id")))
        if name is not None:
            self._other_names[name] = host


class _PendingQuery:
    """A query of a host that is under way, for all threads that wait for its answer."""

    def __init__(self) -> None:
        self.ended = Event()
        self.answer: dict[str, Any] | None = None
        self.error: CloudgpuError | None = None

    def result(self, host: Host) -> dict[str, Any]:
        """Wait for the answer and return it, or raise its error."""
        self.ended.wait()
        if self.answer is None:
            raise self.error or ProviderUnavailable(f"{host.name} could not be queried.", field=host.field)
        return self.answer


def _with_host_name(host: Host, answer: Answer | CloudgpuError) -> Answer | CloudgpuError:
    """Return the answer, or for a silent host an error that names it."""
    if not isinstance(answer, AnswerTimeout):
        return answer
    return AnswerTimeout(
        f"{host.name} does not answer: {answer.message}", field=answer.field, value=host.name, next=answer.next
    )


def _unanswered_reason(error: CloudgpuError) -> str:
    """Return why a host did not answer; for a changed host key with the remedy, as waiting does not help."""
    return f"{error.message} {error.next}" if isinstance(error, WrongHostKey) else error.message


def _not_found(id_: str) -> InstanceNotFound:
    return InstanceNotFound(f"There is no machine {id_!r} on your own hosts.", field="instance", value=id_)
