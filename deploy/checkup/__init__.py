"""Health checks of a running platform, with the settings of its services."""

import asyncio
import resource
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path

from deploy.checkup.bus import UPLINK_READERS, Login, check_servers, check_streams
from deploy.checkup.findings import CHECK_SECONDS, Finding, assess, check_failed
from deploy.checkup.processes import check_processes
from deploy.checkup.stores import check_mongo, check_redis
from libs.common.settings import PREFIX
from libs.common.tls import CERTIFICATES, expiry

MIN_OPEN_FILES = 10_000
EXPIRES_SOON = timedelta(days=14)


def check_files() -> Finding:
    """Check the open-file limit of this process."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = limit != resource.RLIM_INFINITY and limit < MIN_OPEN_FILES
    text = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit}"
    return assess("open files", text if few else "", text, "open-files", minor=True)


def check_certificates(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the expiry of the certificates that a service's settings name."""
    for name in CERTIFICATES:
        if path := environment.get(PREFIX + name.upper()):
            yield _check_certificate(Path(path))


def _check_certificate(path: Path) -> Finding:
    subject = f"certificate {path.name}"
    try:
        ends = expiry(path)
    except (OSError, ValueError) as error:
        return check_failed(subject, error, "certificates")
    text = f"valid until {ends:%Y-%m-%d %H:%M} UTC"
    remaining = ends - datetime.now(UTC)
    problem = f"expired: {text}" if remaining < timedelta() else text
    if remaining >= EXPIRES_SOON:
        problem = ""
    return assess(subject, problem, text, "certificates", minor=remaining > timedelta())


Settings = Mapping[str, str]
"""The environment of one service."""
CA_FILE = f"{PREFIX}CA_FILE"
Check = Callable[[float], Awaitable[list[Finding]]]
"""Runs a check until a time of the event loop's clock."""


def service_addresses(settings: Settings) -> dict[str, str]:
    """Return the services that settings name: `auth=http://auth:8000,…`."""
    addresses = ",".join(settings.get(PREFIX + name, "") for name in ("UPSTREAMS", "WATCHED"))
    pairs = (pair.partition("=") for pair in addresses.split(",") if "=" in pair)
    return {name.strip(): url.strip() for name, _, url in pairs}


async def run_checks(services: Collection[Settings], addresses: Mapping[str, str]) -> list[Finding]:
    """Return the findings of the services' stores and of their processes.

    `services` are the settings of services. `addresses` has the URLs of processes by name. A check
    that several services share runs once.
    """
    checks: dict[tuple[str, ...], Check] = {}
    for settings in sorted(services, key=_may_not_read_partitions):
        for key, check in _select_checks(settings):
            checks.setdefault(key, check)
    ca_file = next((each[CA_FILE] for each in services if each.get(CA_FILE)), "")
    until = asyncio.get_running_loop().time() + CHECK_SECONDS
    processes, *results = await asyncio.gather(
        check_processes(addresses, ca_file, until), *(check(until) for check in checks.values())
    )
    findings = [
        check_files(),
        *chain.from_iterable(map(check_certificates, services)),
        *chain.from_iterable(results),
        *processes,
    ]
    return list(dict.fromkeys(findings))


def _may_not_read_partitions(settings: Settings) -> bool:
    return settings.get(f"{PREFIX}NATS_USER") not in UPLINK_READERS


def _select_checks(settings: Settings) -> Iterator[tuple[tuple[str, ...], Check]]:
    """Yield the checks that a service's settings allow, with a key per distinct check."""
    settings_by_name = {
        name.removeprefix(PREFIX).lower(): value for name, value in settings.items()
    }
    if url := settings_by_name.get("mongo_url"):
        database = settings_by_name.get("mongo_database", "")
        yield ("mongo", database), partial(check_mongo, url, database)
    if url := settings_by_name.get("redis_url"):
        yield ("redis",), partial(check_redis, url)
    if url := settings_by_name.get("nats_url"):
        login = partial(Login, url, ca_file=settings_by_name.get("ca_file", ""))
        login_as_service = login(
            settings_by_name.get("nats_user", ""), settings_by_name.get("nats_password", "")
        )
        yield ("streams",), partial(check_streams, login_as_service)
        if user := settings_by_name.get("sys_nats_user"):
            system = login(user, settings_by_name.get("sys_nats_password", ""))
            yield ("servers",), partial(check_servers, system)
