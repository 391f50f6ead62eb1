"""`thingway doctor` sees what a running platform lacks, on its machine and from a container."""

import json
import os
from typing import Any
from unittest.mock import patch

import pytest
from pymongo import MongoClient

from deploy.checkup import run_checks, stores
from deploy.checkup.findings import Finding
from deploy.platform.services import SERVICES, Endpoints, build_environment
from services.workflow.migrations import MIGRATIONS
from tests.e2e.platform import Platform, run_command
from tests.e2e.test_limits import mongo

__all__ = ["mongo"]

pytestmark = pytest.mark.xdist_group("platform")

Json = dict[str, Any]
NAMES = [service.name for service in SERVICES]


def settings_of(platform: Platform, name: str) -> dict[str, str]:
    """Return the environment of a service, as in its container."""
    at = platform.state.addresses
    assert at is not None
    doors = Endpoints("127.0.0.1", platform.port, at.base_url, at.nats_url, at.mqtt_url)
    (service,) = (one for one in SERVICES if one.name == name)
    return build_environment(service, platform.state, doors)


def run_doctor(platform: Platform, service: str = "") -> dict[str, Json]:
    """Return doctor's findings by subject, optionally in the environment of a service.

    How full the disk of the machine is does not matter.
    """
    own = settings_of(platform, service) if service else {}
    where = () if service else ("--data", platform.directory)
    doors = ("--port", platform.port, "--mqtt-port", platform.mqtt_port)
    with patch.dict(os.environ, own), patch.object(stores, "NEARLY_FULL_SHARE", 1):
        done = run_command("doctor", *where, *doors, "--nats-port", platform.nats_port, "--json")
    done.check_returncode()
    return {one["subject"]: one for one in json.loads(done.stdout)}


def bad(findings: list[Finding]) -> dict[str, str]:
    """Return the failed checks by subject."""
    return {finding.subject: finding.text for finding in findings if not finding.good}


def test_all_is_well_on_this_machine(platform: Platform) -> None:
    """Programs, ports, databases, streams, servers, processes: none is worse than a warning."""
    found = run_doctor(platform)
    assert [entry for entry in found.values() if not (entry["good"] or entry["minor"])] == []
    wanted = {"mongod", "platform", "redis", "mongo disk", "stream UPLINK", "nats-server thingway"}
    wanted |= {f"service {name}" for name in NAMES}
    wanted |= {f"mongo thingway_{name} writes" for name in ("auth", "device", "management")}
    assert wanted <= set(found)


def test_a_container_checks_the_parts_that_its_service_uses(platform: Platform) -> None:
    """The gateway checks all services; the device service checks MongoDB and NATS."""
    seen = set(run_doctor(platform, "gateway"))
    assert {f"service {name}" for name in NAMES} - seen == {"service gateway-bus"}
    assert {"redis", "stream EVENTS"} <= seen
    assert "mongod" not in seen
    seen = set(run_doctor(platform, "device"))
    assert {"service device", "mongo thingway_device", "nats-server thingway"} <= seen


async def test_unreachable_servers_are_reported(platform: Platform) -> None:
    """Each unreachable store and service is named with advice and without a password."""
    settings = settings_of(platform, "device")
    ports = platform.state.ports
    settings["THINGWAY_REDIS_URL"] = settings_of(platform, "auth")["THINGWAY_REDIS_URL"]
    for one, port in (("MONGO_URL", ports["mongod"]), ("REDIS_URL", ports["redis"])):
        name = f"THINGWAY_{one}"
        settings[name] = settings[name].replace(f":{port}", ":9")
    settings["THINGWAY_NATS_PASSWORD"] = "wrong-password"
    settings["THINGWAY_SYS_NATS_USER"] = ""
    wrong = bad(await run_checks([settings], {"auth": "http://127.0.0.1:9"}))
    assert set(wrong) == {"mongo thingway_device", "redis", "nats", "service auth"}
    secrets = set(platform.state.secrets.values()) | {"wrong-password"}
    assert not [one for one in secrets if one in str(wrong)]


async def test_invalid_settings_are_reported() -> None:
    """An invalid setting is one more finding; the report continues."""
    names = ("MONGO_URL", "REDIS_URL", "NATS_URL")
    settings = {f"THINGWAY_{name}": "nowhere://a:b" for name in names}
    settings["THINGWAY_CA_FILE"] = "/nowhere.pem"
    wrong = bad(await run_checks([settings], {"auth": "https://a"}))
    assert set(wrong) == {"certificate nowhere.pem", "mongo ", "redis", "nats", "services"}


async def test_a_missing_migration_is_reported(
    platform: Platform, mongo: MongoClient[Json]
) -> None:
    """The finding has its number; the service's own `/readyz` does not."""
    kept = mongo["thingway_workflow"]["migrations"]
    needed = [one.number for one in MIGRATIONS if not one.contract]
    last = kept.find_one_and_delete({"_id": max(needed)})
    assert last is not None
    try:
        found = await run_checks([settings_of(platform, "workflow")], {})
    finally:
        kept.insert_one(last)
    wrong = bad(found)
    assert f"{last['_id']} (" in wrong["migrations of thingway_workflow"]
