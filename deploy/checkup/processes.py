"""Checks of service processes: readiness, version, open files, outbox."""

import asyncio
import math
import socket
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from deploy.checkup.findings import Finding, RunbookSection, build_error_finding, build_finding
from deploy.platform.ports import LOOPBACK
from libs.common.settings import SettingsInvalid
from libs.common.tls import client_context

_RESOLVE_SECONDS = 1.0
_OK, _NOT_FOUND = 200, 404
MAX_OUTBOX_WAIT_SECONDS = 60.0
"""Seconds that an outbox entry may wait before a fault is reported."""
MAX_OPEN_FILES_SHARE = 0.8
"""Share of the open-file limit above which a finding is reported."""
MAX_STORAGE_SHARE = 0.8
"""Share of a store's storage above which a finding is reported."""
_STORAGE_METRICS: tuple[tuple[str, RunbookSection, str, str], ...] = (
    (
        "storage of NATS",
        "thingwaystreamstoragefilling",
        "thingway_jetstream_used_bytes",
        "thingway_jetstream_limit_bytes",
    ),
    (
        "memory of Redis",
        "thingwayredisfilling",
        "thingway_redis_memory_used_bytes",
        "thingway_redis_memory_limit_bytes",
    ),
    (
        "disk of backups",
        "thingwaybackupdiskfilling",
        "thingway_backup_disk_used_bytes",
        "thingway_backup_disk_bytes",
    ),
)
"""Storages: subject of the finding, runbook section, metrics of used and of total bytes."""
DAY_SECONDS = 86_400.0
MAX_BACKUP_AGE_SECONDS = 2 * DAY_SECONDS
"""Seconds since the last backup after which a finding is reported."""
STREAM_RECREATION_REPORT_SECONDS = 7 * DAY_SECONDS
"""Seconds for which the loss and new creation of a stream is reported."""


class ProcessState(NamedTuple):
    """State that a service process reports at `/readyz` and `/metrics`."""

    name: str
    states: dict[str, str]
    """State by dependency, if the process is not ready; otherwise empty."""
    metrics: dict[str, float]
    version: str
    """Empty if the process shows its metrics at another port (`THINGWAY_OPERATIONS_PORT`)."""


async def check_processes(
    addresses: Mapping[str, str], ca_file: str, deadline: float
) -> list[Finding]:
    """Check every replica of the services; `addresses` are URLs by service.

    `deadline` is a time on the event loop's clock. `https://` services must have a certificate
    of `ca_file`, except on loopback.
    """
    try:
        connector = aiohttp.TCPConnector(ssl=client_context(ca_file))
    except SettingsInvalid as error:
        return [build_error_finding("services", error, "certificates")]
    async with aiohttp.ClientSession(connector=connector) as session:
        findings_by_process = await asyncio.gather(
            *(_read_states(session, deadline, name, base) for name, base in addresses.items())
        )
    answers = [*chain.from_iterable(findings_by_process)]
    processes = [answer for answer in answers if isinstance(answer, ProcessState)]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    findings += [finding for process in processes for finding in assess_process(process)]
    return [*findings, *compare_versions(processes)]


async def _resolve_replicas(base: str) -> list[str]:
    """Return a URL per IP address of the host in `base`.

    Returns `base` itself for TLS, and if the host cannot be resolved.
    """
    parts = urlsplit(base)
    if parts.scheme == "https" or not parts.hostname:
        return [base]
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            resolved = await asyncio.get_running_loop().getaddrinfo(
                parts.hostname, parts.port, type=socket.SOCK_STREAM
            )
    except OSError:
        return [base]  # the request reports the reason
    addresses = {str(info[4][0]) for info in resolved}
    hosts = sorted(f"[{address}]" if ":" in address else address for address in addresses)
    return [f"{parts.scheme}://{host}:{parts.port or 80}" for host in hosts]


async def _read_states(
    session: aiohttp.ClientSession, deadline: float, name: str, base: str
) -> list[ProcessState | Finding]:
    """Return the state, or a bad finding, of each replica of a service."""
    urls = await _resolve_replicas(base)
    names = [name if len(urls) == 1 else f"{name} at {url}" for url in urls]
    return await asyncio.gather(*map(partial(_read_state, session, deadline), names, urls))


async def _read_state(
    session: aiohttp.ClientSession, deadline: float, name: str, base: str
) -> ProcessState | Finding:
    verified = urlsplit(base).hostname != LOOPBACK
    try:
        async with asyncio.timeout_at(deadline):
            (status, body), (metrics_status, text) = await asyncio.gather(
                *(
                    _fetch_text(session, f"{base}/{page}", ssl=verified)
                    for page in ("readyz", "metrics")
                )
            )
        states = {} if status == _OK else msgspec.json.decode(body, type=dict[str, str])
        metrics, version = parse_metrics_and_version("" if metrics_status == _NOT_FOUND else text)
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, ValueError) as error:
        return build_error_finding(f"service {name}", error, "thingwayservicemissing")
    return ProcessState(name, states, metrics, version)


async def _fetch_text(session: aiohttp.ClientSession, url: str, *, ssl: bool) -> tuple[int, str]:
    async with session.get(url, ssl=ssl) as answer:
        return answer.status, await answer.text()


def parse_metrics_and_version(text: str) -> tuple[dict[str, float], str]:
    """Return the largest value by metric in Prometheus text, and the version."""
    metrics: dict[str, float] = {}
    version = ""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            metrics[sample.name] = max(sample.value, metrics.get(sample.name, sample.value))
            if sample.name == "thingway_build_info":
                version = sample.labels["version"]
    return metrics, version


def assess_process(process: ProcessState) -> Iterator[Finding]:
    """Yield the findings for a process."""
    subject = f"service {process.name}"
    unready = {name: why for name, why in process.states.items() if not why.startswith("ok")}
    wrong = "; ".join(f"{name} {why}" for name, why in unready.items())
    text = f"ready, {process.version or 'metrics are at another port'}"
    yield build_finding(subject, wrong, text, "thingwaydependencydown")
    opened, limit = (process.metrics.get(f"process_{kind}_fds", 0) for kind in ("open", "max"))
    if opened > MAX_OPEN_FILES_SHARE * limit:
        text = f"{opened:.0f} of {limit:.0f}"
        yield build_finding(f"{subject} open files", text, "", "thingwayopenfiles", minor=True)
    waits = process.metrics.get("thingway_outbox_oldest_seconds", 0.0)
    if waits > MAX_OUTBOX_WAIT_SECONDS:
        number = process.metrics.get("thingway_outbox_depth", 0.0)
        text = f"{number:.0f} entries, the oldest has waited for {waits:.0f} s"
        yield build_finding(f"{subject} outbox", text, "", "thingwayoutboxstuck")
    for name, section, used, most in _STORAGE_METRICS:
        share = process.metrics.get(used, 0) / (process.metrics.get(most) or math.inf)
        if share > MAX_STORAGE_SHARE:
            yield build_finding(name, f"{share:.0%} full", "", section)
    yield from _assess_backup(process.metrics.get("thingway_backup_finished_timestamp_seconds"))
    recreated = process.metrics.get("thingway_stream_recreated_timestamp_seconds", 0.0)
    if time.time() - recreated < STREAM_RECREATION_REPORT_SECONDS:
        text = f"a stream was deleted and created again at {datetime.fromtimestamp(recreated, UTC)}"
        yield build_finding("streams", text, "", "thingwaystreamrecreated")


def _assess_backup(finished: float | None) -> Iterator[Finding]:
    """Yield a finding about the last backup, if a process shows its time."""
    if finished is None:
        return
    text = f"the last has the state of {datetime.fromtimestamp(finished, UTC):%Y-%m-%d %H:%M} UTC"
    old = text if time.time() - finished > MAX_BACKUP_AGE_SECONDS else ""
    yield build_finding(
        "backup", old if finished else "none exists yet", text, "thingwaybackupold", minor=True
    )


def compare_versions(processes: list[ProcessState]) -> Iterator[Finding]:
    """Yield a finding: whether all processes with a known version have the same."""
    names = sorted({process.version for process in processes} - {""})
    if names:
        wrong = f"{', '.join(names)} run side by side" if len(names) > 1 else ""
        yield build_finding("versions", wrong, names[0], "thingwayversionsdiffer", minor=True)
