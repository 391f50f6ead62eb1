"""Is a running platform well? What can be seen with the settings of its services."""

import asyncio
import resource
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path

from cryptography import x509

from deploy.checkup.bus import Login, check_servers, check_streams
from deploy.checkup.findings import Finding, failed, found
from deploy.checkup.processes import check_processes
from deploy.checkup.stores import check_mongo, check_redis
from libs.common.settings import PREFIX

LEAST_FILES = 10_000
SOON = timedelta(days=14)
CERTIFICATES = ("THINGWAY_TLS_CERTIFICATE", "THINGWAY_CA_FILE", "THINGWAY_DEVICE_CA_FILE")
"""Settings that name files of certificates."""


def check_files() -> Finding:
    """How many files a process may have open here."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = most != resource.RLIM_INFINITY and most < LEAST_FILES
    text = "no bound" if most == resource.RLIM_INFINITY else f"{most}"
    return found("open files", text if few else "", text, "open-files", minor=True)


def check_certificates(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Until when the certificates are valid that a service's settings name."""
    for name in CERTIFICATES:
        path = environment.get(name)
        if path:
            yield _certificate(Path(path))


def _certificate(path: Path) -> Finding:
    subject = f"certificate {path.name}"
    try:
        found_in = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        return failed(subject, error, "certificates")
    ends = min(one.not_valid_after_utc for one in found_in)
    text = f"valid until {ends:%Y-%m-%d %H:%M} UTC"
    left = ends - datetime.now(UTC)
    wrong = f"ran out: {text}" if left < timedelta() else text
    return found(
        subject, wrong if left < SOON else "", text, "certificates", minor=left > timedelta()
    )


Settings = Mapping[str, str]
"""The environment of one service."""
CA_FILE = f"{PREFIX}CA_FILE"
Check = Callable[[], Awaitable[list[Finding]]]


def addresses_of(settings: Settings) -> dict[str, str]:
    """The services that settings name: `auth=http://auth:8000,…`."""
    named = ",".join(settings.get(PREFIX + one, "") for one in ("UPSTREAMS", "WATCHED"))
    pairs = (one.partition("=") for one in named.split(",") if "=" in one)
    return {name.strip(): url.strip() for name, _, url in pairs}


async def examine(services: Collection[Settings], addresses: Mapping[str, str]) -> list[Finding]:
    """Return the findings of the stores in the settings of `services`, and of their processes.

    `addresses` has the URLs of processes by name. A check that several services share runs once.
    """
    checks: dict[tuple[str, ...], Check] = {}
    for settings in services:
        for key, check in _checks(settings):
            checks.setdefault(key, check)
    results = await asyncio.gather(*(check() for check in checks.values()))
    ca_file = next((one[CA_FILE] for one in services if one.get(CA_FILE)), "")
    findings = [
        check_files(),
        *chain.from_iterable(map(check_certificates, services)),
        *chain.from_iterable(results),
        *await check_processes(addresses, ca_file),
    ]
    return list(dict.fromkeys(findings))


def _checks(settings: Settings) -> Iterator[tuple[tuple[str, ...], Check]]:
    """Return the checks that a service's settings allow; equal keys name equal checks."""
    given = {name.removeprefix(PREFIX).lower(): value for name, value in settings.items()}
    if url := given.get("mongo_url"):
        database = given.get("mongo_database", "")
        yield ("mongo", database), partial(check_mongo, url, database)
    if url := given.get("redis_url"):
        yield ("redis",), partial(check_redis, url)
    if url := given.get("nats_url"):
        login = partial(Login, url, ca_file=given.get("ca_file", ""))
        own = login(given.get("nats_user", ""), given.get("nats_password", ""))
        yield ("streams",), partial(check_streams, own)
        if user := given.get("sys_nats_user"):
            system = login(user, given.get("sys_nats_password", ""))
            yield ("servers",), partial(check_servers, system)
