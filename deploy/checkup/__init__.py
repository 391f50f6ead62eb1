"""Health checks of a running platform, with the settings of its services."""

import asyncio
import resource
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path

from deploy.checkup.bus import PARTITION_READER_USERS, BusLogin, check_servers, check_streams
from deploy.checkup.findings import MAX_CHECKUP_SECONDS, Finding, build_error_finding, build_finding
from deploy.checkup.processes import check_processes
from deploy.checkup.stores import check_mongo, check_redis
from libs.common.settings import VARIABLE_PREFIX
from libs.common.tls import CERTIFICATE_SETTINGS, read_expiry

MIN_OPEN_FILES = 10_000
CERTIFICATE_WARNING_PERIOD = timedelta(days=14)


def check_open_file_limit() -> Finding:
    """Check the open-file limit of this process."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = limit != resource.RLIM_INFINITY and limit < MIN_OPEN_FILES
    text = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit}"
    return build_finding("open files", text if few else "", text, "open-files", minor=True)


def check_certificates(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the expiry of the certificates that a service's settings name."""
    for name in CERTIFICATE_SETTINGS:
        if path := environment.get(VARIABLE_PREFIX + name.upper()):
            yield _check_certificate(Path(path))


def _check_certificate(path: Path) -> Finding:
    subject = f"certificate {path.name}"
    try:
        ends = read_expiry(path)
    except (OSError, ValueError) as error:
        return build_error_finding(subject, error, "certificates")
    text = f"valid until {ends:%Y-%m-%d %H:%M} UTC"
    remaining = ends - datetime.now(UTC)
    problem = f"expired: {text}" if remaining < timedelta() else text
    if remaining >= CERTIFICATE_WARNING_PERIOD:
        problem = ""
    return build_finding(subject, problem, text, "certificates", minor=remaining > timedelta())


ServiceEnvironment = Mapping[str, str]
"""Environment variables of one service, which contain its settings."""
CA_FILE_VARIABLE = f"{VARIABLE_PREFIX}CA_FILE"
Check = Callable[[float], Awaitable[list[Finding]]]
"""A check; the argument is its deadline as a time of the event loop's clock."""


def service_addresses(settings: ServiceEnvironment) -> dict[str, str]:
    """Return the URLs by service in the settings (`auth=http://auth:8000,…`)."""
    addresses = ",".join(
        settings.get(VARIABLE_PREFIX + name, "") for name in ("UPSTREAMS", "WATCHED")
    )
    pairs = (pair.partition("=") for pair in addresses.split(",") if "=" in pair)
    return {name.strip(): url.strip() for name, _, url in pairs}


async def run_checks(
    services: Collection[ServiceEnvironment], addresses: Mapping[str, str]
) -> list[Finding]:
    """Check services with their stores, files and processes; return the findings.

    `services` are the environments of services. `addresses` has the URLs of processes by name. A
    check that several services share runs once.
    """
    checks: dict[tuple[str, ...], Check] = {}
    for settings in sorted(services, key=_may_not_read_partitions):
        for key, check in _select_checks(settings):
            checks.setdefault(key, check)
    ca_file = next((each[CA_FILE_VARIABLE] for each in services if each.get(CA_FILE_VARIABLE)), "")
    deadline = asyncio.get_running_loop().time() + MAX_CHECKUP_SECONDS
    processes, *results = await asyncio.gather(
        check_processes(addresses, ca_file, deadline),
        *(check(deadline) for check in checks.values()),
    )
    findings = [
        check_open_file_limit(),
        *chain.from_iterable(map(check_certificates, services)),
        *chain.from_iterable(results),
        *processes,
    ]
    return list(dict.fromkeys(findings))


def _may_not_read_partitions(settings: ServiceEnvironment) -> bool:
    """Return whether a service may not read the partitions of `UPLINK`.

    Services whose NATS user may read them come first, because the check of streams runs with the
    login of the first service.
    """
    return settings.get(f"{VARIABLE_PREFIX}NATS_USER") not in PARTITION_READER_USERS


def _select_checks(settings: ServiceEnvironment) -> Iterator[tuple[tuple[str, ...], Check]]:
    """Yield the checks for a service's settings; equal checks have an equal key."""
    settings_by_name = {
        name.removeprefix(VARIABLE_PREFIX).lower(): value for name, value in settings.items()
    }
    if url := settings_by_name.get("mongo_url"):
        database = settings_by_name.get("mongo_database", "")
        yield ("mongo", database), partial(check_mongo, url, database)
    if url := settings_by_name.get("redis_url"):
        yield ("redis",), partial(check_redis, url)
    if url := settings_by_name.get("nats_url"):
        login = partial(BusLogin, url, ca_file=settings_by_name.get("ca_file", ""))
        login_as_service = login(
            settings_by_name.get("nats_user", ""), settings_by_name.get("nats_password", "")
        )
        yield ("streams",), partial(check_streams, login_as_service)
        if user := settings_by_name.get("sys_nats_user"):
            system = login(user, settings_by_name.get("sys_nats_password", ""))
            yield ("servers",), partial(check_servers, system)
