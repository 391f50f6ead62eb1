"""The services' processes: ready, of one version, with files to spare, their outboxes empty."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from deploy.checkup.findings import Finding, failed, found
from deploy.platform.ports import LOOPBACK
from libs.common.settings import SettingsInvalid
from libs.common.tls import trusting

_TIMEOUT = aiohttp.ClientTimeout(total=5)
_OK = 200
MOST_WAIT = 60.0
"""Seconds that an entry of an outbox may wait."""
MOST_OPEN = 0.8
"""Part of the files that a process may have open."""


class Process(NamedTuple):
    """What a process says of itself."""

    name: str
    states: dict[str, str]
    """Why it is not ready, by part."""
    metrics: dict[str, float]
    version: str


async def check_processes(addresses: Mapping[str, str], ca_file: str) -> list[Finding]:
    """What can be seen at the addresses of services, by name; each replica that a name has.

    `https://` services prove themselves to `ca_file`, but on loopback, where they are oneself.
    """
    try:
        connector = aiohttp.TCPConnector(ssl=trusting(ca_file))
    except SettingsInvalid as error:
        return [failed("services", error, "certificates")]
    async with aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector) as session:
        answers = await asyncio.gather(
            *[
                _ask(session, name if len(replicas) == 1 else f"{name} at {url}", url)
                for name, base in addresses.items()
                for replicas in [await _replicas(base)]
                for url in replicas
            ]
        )
    processes = [one for one in answers if isinstance(one, Process)]
    findings = [one for one in answers if isinstance(one, Finding)]
    findings += [one for process in processes for one in judged(process)]
    return [*findings, *versions(processes)]


async def _replicas(base: str) -> list[str]:
    """An address for each of the hosts that a name stands for; of TLS only the name fits."""
    parts = urlsplit(base)
    if parts.scheme == "https" or not parts.hostname:
        return [base]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            parts.hostname, parts.port, type=socket.SOCK_STREAM
        )
    except OSError:
        return [base]  # asking it will say why
    hosts = sorted({f"[{one[4][0]}]" if ":" in str(one[4][0]) else one[4][0] for one in found})
    return [f"{parts.scheme}://{host}:{parts.port or 80}" for host in hosts]


async def _ask(session: aiohttp.ClientSession, name: str, base: str) -> Process | Finding:
    verified = urlsplit(base).hostname != LOOPBACK
    try:
        async with session.get(f"{base}/readyz", ssl=verified) as answer:
            body = await answer.read()
            states = {} if answer.status == _OK else msgspec.json.decode(body, type=dict[str, str])
        async with session.get(f"{base}/metrics", ssl=verified) as answer:
            metrics, version = read_metrics(await answer.text())
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, ValueError) as error:
        return failed(f"service {name}", error, "thingwayservicemissing")
    return Process(name, states, metrics, version)


def read_metrics(text: str) -> tuple[dict[str, float], str]:
    """The largest value of each metric, and the version of the process."""
    metrics: dict[str, float] = {}
    version = ""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            metrics[sample.name] = max(sample.value, metrics.get(sample.name, sample.value))
            if sample.name == "thingway_build_info":
                version = sample.labels["version"]
    return metrics, version


def judged(process: Process) -> Iterator[Finding]:
    """What is to be said of one process."""
    subject = f"service {process.name}"
    unready = {name: why for name, why in process.states.items() if not why.startswith("ok")}
    wrong = "; ".join(f"{name} {why}" for name, why in unready.items())
    yield found(subject, wrong, f"ready, {process.version}", "thingwaydependencydown")
    opened, most = (process.metrics.get(f"process_{one}_fds", 0) for one in ("open", "max"))
    if opened > MOST_OPEN * most:
        text = f"{opened:.0f} of {most:.0f}"
        yield found(f"{subject} open files", text, "", "thingwayopenfiles", minor=True)
    waits = process.metrics.get("thingway_outbox_oldest_seconds", 0.0)
    if waits > MOST_WAIT:
        number = process.metrics.get("thingway_outbox_depth", 0.0)
        text = f"{number:.0f} writes of events, the oldest waits for {waits:.0f} s"
        yield found(f"{subject} outbox", text, "", "thingwayoutboxstuck")


def versions(processes: list[Process]) -> Iterator[Finding]:
    """Whether all are of one version; nothing of none."""
    names = sorted({one.version for one in processes})
    if names:
        wrong = f"{', '.join(names)} side by side" if len(names) > 1 else ""
        yield found("versions", wrong, names[0], "thingwayversionsdiffer", minor=True)
