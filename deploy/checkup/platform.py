"""All checks that the settings of services allow, side by side."""

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from itertools import chain
from typing import Any

from deploy.checkup.bus import check_servers, check_streams
from deploy.checkup.findings import Finding
from deploy.checkup.machine import check_certificates, check_files
from deploy.checkup.processes import check_processes
from deploy.checkup.stores import check_mongo, check_redis
from libs.common.settings import PREFIX

Settings = Mapping[str, str]
"""The environment of one service."""


def addresses_of(settings: Settings) -> dict[str, str]:
    """The services that settings name: `auth=http://auth:8000,…`."""
    named = ",".join(settings.get(PREFIX + one, "") for one in ("UPSTREAMS", "WATCHED"))
    pairs = (one.partition("=") for one in named.split(",") if "=" in one)
    return {name.strip(): url.strip() for name, _, url in pairs}


async def examine(services: Collection[Settings], addresses: Mapping[str, str]) -> list[Finding]:
    """What the settings of `services` let see, and what processes say at `addresses`.

    What several services see alike is looked at once.
    """
    checks: dict[tuple[str, ...], Coroutine[Any, Any, list[Finding]]] = {}
    for settings in services:
        given = {name.removeprefix(PREFIX).lower(): value for name, value in settings.items()}
        if url := given.get("mongo_url"):
            database = given["mongo_database"]
            _once(checks, ("mongo", database), check_mongo(url, database))
        if url := given.get("redis_url"):
            _once(checks, ("redis",), check_redis(url))
        if url := given.get("nats_url"):
            login = given.get("nats_user", ""), given.get("nats_password", "")
            _once(checks, ("streams",), check_streams(url, *login))
            if user := given.get("sys_nats_user"):
                _once(checks, ("servers",), check_servers(url, user, given["sys_nats_password"]))
    checks["processes",] = check_processes(addresses)
    results = await asyncio.gather(*checks.values())
    certificates = chain.from_iterable(map(check_certificates, services))
    findings = [check_files(), *certificates, *chain.from_iterable(results)]
    return list({one.subject: one for one in reversed(findings)}.values())[::-1]


def _once(
    checks: dict[tuple[str, ...], Coroutine[Any, Any, list[Finding]]],
    key: tuple[str, ...],
    check: Coroutine[Any, Any, list[Finding]],
) -> None:
    if key in checks:
        check.close()
    else:
        checks[key] = check
