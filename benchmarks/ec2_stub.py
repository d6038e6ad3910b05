"""A stub of EC2 for the benchmarks: canned machines by region, over HTTP on loopback, in a process of its own.

It answers DescribeInstances, StopInstances and who the caller is; it checks nothing and is no model of AWS. What it
says of a machine is as long as what AWS documents that it says.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

REGIONS = (
    "us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1",
    "us-west-1", "ca-central-1", "sa-east-1", "eu-west-2", "eu-west-3",
    "eu-north-1", "ap-south-1", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3",
    "ap-southeast-1", "ap-southeast-2", "af-south-1", "me-south-1", "eu-south-1",
)  # fmt: skip
OLD = timedelta(hours=72, minutes=1)  # past its renew-until by a minute
YOUNG = timedelta(hours=6)
LEASE, RENEW_UNTIL = timedelta(hours=8), timedelta(hours=72)
ONE_IN = 10  # machines is old: past its renew-until
_REGION = re.compile(r"Credential=[^/]+/\d+/([^/]+)/")
_ID = re.compile(r"InstanceId\.\d+")
_XMLNS = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
_INSTANCE = """<item><reservationId>r-{hex17}</reservationId><ownerId>123456789012</ownerId><groupSet/><instancesSet>\
<item><instanceId>i-{hex17}</instanceId><imageId>ami-0c55b159cbfafe1f0</imageId><instanceState><code>{code}</code>\
<name>{state}</name></instanceState><privateDnsName>ip-10-0-1-7.ec2.internal</privateDnsName>\
<dnsName>ec2-127-0-0-1.compute-1.amazonaws.com</dnsName><reason>{reason}</reason><keyName>cloudgpu-ada</keyName>\
<amiLaunchIndex>0</amiLaunchIndex><productCodes/><instanceType>g4dn.xlarge</instanceType>\
<launchTime>{at}</launchTime><placement><availabilityZone>{region}a</availabilityZone><groupName/>\
<tenancy>default</tenancy></placement><monitoring><state>disabled</state></monitoring>\
<subnetId>subnet-0a1b2c3d4e5f60718</subnetId><vpcId>vpc-0a1b2c3d4e5f60718</vpcId>\
<privateIpAddress>127.0.1.7</privateIpAddress>{address}<sourceDestCheck>true</sourceDestCheck><groupSet><item>\
<groupId>sg-0a1b2c3d4e5f60718</groupId><groupName>cloudgpu</groupName></item></groupSet>{why}\
<architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/sda1</rootDeviceName>\
<blockDeviceMapping><item><deviceName>/dev/sda1</deviceName><ebs><volumeId>vol-{hex17}</volumeId>\
<status>attached</status><attachTime>{at}</attachTime><deleteOnTermination>true</deleteOnTermination></ebs></item>\
</blockDeviceMapping><virtualizationType>hvm</virtualizationType><clientToken>{hex17}</clientToken><tagSet>{tags}\
</tagSet><hypervisor>xen</hypervisor><networkInterfaceSet><item><networkInterfaceId>eni-{hex17}</networkInterfaceId>\
<subnetId>subnet-0a1b2c3d4e5f60718</subnetId><vpcId>vpc-0a1b2c3d4e5f60718</vpcId><description/>\
<ownerId>123456789012</ownerId><status>in-use</status><macAddress>02:0a:1b:2c:3d:4e</macAddress>\
<privateIpAddress>10.0.1.7</privateIpAddress><privateDnsName>ip-10-0-1-7.ec2.internal</privateDnsName>\
<sourceDestCheck>true</sourceDestCheck><groupSet><item><groupId>sg-0a1b2c3d4e5f60718</groupId>\
<groupName>cloudgpu</groupName></item></groupSet><attachment><attachmentId>eni-attach-{hex17}</attachmentId>\
<deviceIndex>0</deviceIndex><status>attached</status><attachTime>{at}</attachTime>\
<deleteOnTermination>true</deleteOnTermination><networkCardIndex>0</networkCardIndex></attachment>\
<privateIpAddressesSet><item><privateIpAddress>10.0.1.7</privateIpAddress><primary>true</primary></item>\
</privateIpAddressesSet><ipv6AddressesSet/><interfaceType>interface</interfaceType></item></networkInterfaceSet>\
<ebsOptimized>false</ebsOptimized><enaSupport>true</enaSupport><cpuOptions><coreCount>2</coreCount>\
<threadsPerCore>2</threadsPerCore></cpuOptions><capacityReservationSpecification>\
<capacityReservationPreference>open</capacityReservationPreference></capacityReservationSpecification>\
<hibernationOptions><configured>false</configured></hibernationOptions><enclaveOptions><enabled>false</enabled>\
</enclaveOptions><metadataOptions><state>applied</state><httpTokens>required</httpTokens>\
<httpPutResponseHopLimit>2</httpPutResponseHopLimit><httpEndpoint>enabled</httpEndpoint>\
<instanceMetadataTags>enabled</instanceMetadataTags></metadataOptions><maintenanceOptions>\
<autoRecovery>default</autoRecovery></maintenanceOptions><platformDetails>Linux/UNIX</platformDetails>\
<usageOperation>RunInstances</usageOperation><usageOperationUpdateTime>{at}</usageOperationUpdateTime>\
<currentInstanceBootMode>legacy-bios</currentInstanceBootMode></item></instancesSet></item>"""
_STOPPED = "User initiated ({at} GMT)"
_CODE = "Client.UserInitiatedShutdown"
_WHY = f"<stateReason><code>{_CODE}</code><message>{_CODE}</message></stateReason>"
_CALLER = """<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>\
<Arn>arn:aws:iam::123456789012:user/ada</Arn><UserId>AIDASAMPLE</UserId><Account>123456789012</Account>\
</GetCallerIdentityResult><ResponseMetadata><RequestId>0</RequestId></ResponseMetadata></GetCallerIdentityResponse>"""

_UNKNOWN = """<Response><Errors><Error><Code>UnsupportedOperation</Code><Message>{action} is not in the stub</Message>\
</Error></Errors><RequestID>0</RequestID></Response>"""


class Machine:
    """One canned machine; `number` counts over all regions. One in ten is old, unless `old` says otherwise."""

    def __init__(self, number: int, region: str, now: datetime, ledger: str, *, old: bool | None = None) -> None:
        self.number, self.region = number, region
        self.hex17 = f"{number:017x}"
        self.id, self.machine = f"i-{self.hex17}", f"cg-{number:016x}"
        self.is_old = number % ONE_IN == 0 if old is None else old
        self.at = (now - (OLD if self.is_old else YOUNG)).replace(microsecond=0)
        self.active = now - timedelta(minutes=5)
        self.stopped_at = now
        self._ledger = ledger
        self._texts = {False: self._text(stopped=False), True: self._text(stopped=True)}
        self.stopped = False

    @property
    def tags(self) -> dict[str, str]:
        """Its tags, as a launch sets them and its agent moves them."""
        ends = {"expires": self.expires, "renew-until": self.at + RENEW_UNTIL, "last-active": self.active}
        names = {"id": self.machine, "name": f"machine-{self.number}", "ledger": self._ledger, "seq": "1"}
        names |= {"key": f"k{self.number}", "owner": "ada", "project": "thesis", "policy": "default"}
        times = {key: str(int(value.timestamp())) for key, value in ends.items()}
        return {f"cloudgpu-{key}": value for key, value in {**names, **times}.items()}

    @property
    def expires(self) -> datetime:
        """When its lease ends."""
        return self.at + (RENEW_UNTIL if self.is_old else 3 * LEASE)

    def text(self) -> str:
        """Return what DescribeInstances says of it now."""
        return self._texts[self.stopped]

    def _text(self, *, stopped: bool) -> str:
        tags = "".join(f"<item><key>{key}</key><value>{value}</value></item>" for key, value in self.tags.items())
        return _INSTANCE.format(
            hex17=self.hex17,
            code=80 if stopped else 16,
            state="stopped" if stopped else "running",
            reason=_STOPPED.format(at=f"{self.stopped_at:%Y-%m-%d %H:%M:%S}") if stopped else "",
            at=f"{self.at:%Y-%m-%dT%H:%M:%S.000Z}",
            region=self.region,
            address="" if stopped else "<ipAddress>127.0.1.7</ipAddress>",
            why=_WHY if stopped else "",
            tags=tags,
        )


def machines(n: int, regions: Sequence[str], now: datetime, ledger: str) -> list[Machine]:
    """Return `n` machines, the same number in each of the regions, one in ten of them old."""
    each = n // len(regions)
    return [Machine(number, regions[number // each], now, ledger) for number in range(each * len(regions))]


def described(some: Sequence[Machine]) -> str:
    """Return the answer of DescribeInstances about these."""
    items = "".join(one.text() for one in some)
    return (
        f"<?xml version='1.0' encoding='UTF-8'?><DescribeInstancesResponse {_XMLNS}><requestId>0</requestId>"
        f"<reservationSet>{items}</reservationSet></DescribeInstancesResponse>"
    )


class Stub:
    """The machines, the calls so far, how long each answer waits, and the region that answers nothing.

    `stops` says of each region when it was first asked to stop something, on this computer's monotonic clock.
    """

    def __init__(self) -> None:
        self.by_region: dict[str, dict[str, Machine]] = {}
        self.calls: Counter[str] = Counter()
        self.latency_s = 0.0
        self.hangs = ""
        self.stops: dict[str, float] = {}
        self._lock = threading.Lock()

    def fill(self, some: Sequence[Machine]) -> None:
        """Have these machines."""
        for one in some:
            self.by_region.setdefault(one.region, {})[one.id] = one

    def answer(self, region: str, asked: dict[str, str]) -> tuple[int, str]:
        """Return the answer to a request, with its status."""
        action = asked["Action"]
        with self._lock:
            self.calls[action] += 1
            if action == "StopInstances":
                self.stops.setdefault(region, time.monotonic())
        if region == self.hangs:
            threading.Event().wait()  # until this process ends
        time.sleep(self.latency_s)
        known = getattr(self, f"_{action}", None)
        return (200, known(region, asked)) if known else (400, _UNKNOWN.format(action=action))

    def reset(self) -> None:
        """Let all machines run again, and forget the calls."""
        for known in self.by_region.values():
            for one in known.values():
                one.stopped = False
        self.calls.clear()
        self.stops.clear()

    def _DescribeInstances(self, region: str, asked: dict[str, str]) -> str:  # noqa: N802
        known = self.by_region.get(region, {})
        ids = [value for key, value in asked.items() if _ID.fullmatch(key)]
        return described([known[one] for one in ids] if ids else list(known.values()))

    def _StopInstances(self, region: str, asked: dict[str, str]) -> str:  # noqa: N802
        ids = [value for key, value in asked.items() if _ID.fullmatch(key)]
        for one in ids:
            self.by_region[region][one].stopped = True
        changed = "".join(
            f"<item><instanceId>{one}</instanceId><currentState><code>64</code><name>stopping</name></currentState>"
            "<previousState><code>16</code><name>running</name></previousState></item>"
            for one in ids
        )
        return f"<StopInstancesResponse {_XMLNS}><instancesSet>{changed}</instancesSet></StopInstancesResponse>"

    def _GetCallerIdentity(self, _region: str, _asked: dict[str, str]) -> str:  # noqa: N802
        return _CALLER


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stub = Stub()

    def do_GET(self) -> None:
        """Serve `/fill/N/REGIONS/EPOCH/LEDGER`, `/reset`, `/calls`, `/latency/SECONDS`, `/hang/REGION` and `/stops`."""
        word, *values = self.path.strip("/").split("/")
        if word == "fill":
            now = datetime.fromtimestamp(float(values[2]), UTC)
            self.stub.fill(machines(int(values[0]), REGIONS[: int(values[1])], now, values[3]))
        elif word == "reset":
            self.stub.reset()
        elif word == "latency":
            self.stub.latency_s = float(values[0])
        elif word == "hang":
            self.stub.hangs = values[0]
        elif word == "stops":
            self._say(200, " ".join(f"{region}={at}" for region, at in self.stub.stops.items()))
            return
        self._say(200, " ".join(f"{action}={count}" for action, count in sorted(self.stub.calls.items())))

    def do_POST(self) -> None:
        """Serve a call of the EC2 or STS query API."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        found = _REGION.search(self.headers.get("Authorization", ""))
        self._say(*self.stub.answer(found[1] if found else "", dict(parse_qsl(body))))

    def _say(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/xml;charset=UTF-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


def main() -> None:
    """Serve on a free port of loopback, and print it; end when stdin ends, so that no stub outlives its benchmark."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
