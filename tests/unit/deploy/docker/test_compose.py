"""`docker-compose.yml` keeps containers small and off the public network."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[4]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
    "services"
]
TLS: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.tls.yml").read_text())[
    "services"
]
LASTING = [name for name, service in SERVICES.items() if service.get("restart")]


@pytest.mark.parametrize("name", SERVICES)
def test_the_logs_of_a_container_are_bounded(name: str) -> None:
    """They have at most 100 MB."""
    assert SERVICES[name]["logging"]["options"] == {"max-size": "20m", "max-file": "5"}


@pytest.mark.parametrize("name", SERVICES)
def test_containers_are_unprivileged(name: str) -> None:
    """They have no capabilities but those that they name, and a read-only root."""
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True


def test_health_checks_end_by_themselves() -> None:
    """Docker runs the next check even if the program of the last one still waits."""
    image = (ROOT / "deploy/docker/Dockerfile").read_text().rpartition("HEALTHCHECK ")[2]
    checks = {"image": image}
    for name, service in SERVICES.items():
        test = service.get("healthcheck", {}).get("test", [])
        checks |= {name: " ".join(test)} if test else {}
    assert checks.keys() == {"image", "nats", "redis"}
    for name, check in checks.items():
        assert re.search(r"timeout\W+-s\W+KILL\W+5\b", check), name


def test_jobs_that_read_files_of_other_users_may_do_so() -> None:
    """Backups, their keys and the secrets belong to several users."""
    for name in ("setup", "backup", "verify", "restore"):
        assert "DAC_OVERRIDE" in SERVICES[name]["cap_add"]


@pytest.mark.parametrize("name", [one for one in LASTING if one != "simulator"])
def test_a_lasting_container_has_a_memory_limit(name: str) -> None:
    """One container cannot take the memory of the others."""
    assert SERVICES[name]["mem_limit"]


def test_redis_knows_the_memory_limit_of_its_container() -> None:
    """Its alert compares with this limit, not with the memory of the machine."""
    redis = SERVICES["redis"]
    assert redis["command"][-2:] == ["--maxmemory", redis["mem_limit"]]


def test_only_public_ports_are_published() -> None:
    """Metrics, the stores and the services are reachable only from other containers."""
    published = {
        int(port.rpartition(":")[2])
        for service in SERVICES.values()
        for port in service.get("ports", [])
    }
    assert published == {8000, 4222, 1883, 8083}
    assert SERVICES["gateway"]["environment"]["THINGWAY_OPERATIONS_PORT"] == "8001"


def test_public_addresses_use_tls_with_the_tls_file() -> None:
    """Each container that shows public addresses has them, with the public host."""
    for name, service in SERVICES.items():
        plain = _public_addresses(service)
        assert all("//${THINGWAY_PUBLIC_HOST:-127.0.0.1}:" in url for url in plain.values())
        encrypted = _public_addresses(TLS.get(name, {}))
        assert encrypted.keys() == plain.keys(), name
        assert all(url.startswith(("https:", "mqtts:", "tls:")) for url in encrypted.values())


def _public_addresses(service: dict[str, Any]) -> dict[str, str]:
    variables = service.get("environment", {}).items()
    return {name: value for name, value in variables if name.startswith("THINGWAY_PUBLIC_")}


def test_the_image_has_no_history() -> None:
    """The build gets only named folders."""
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in sent
    assert not [line for line in sent if line.startswith("!.") or line == "!*"]


def test_commands_on_the_stores_use_tls_with_the_tls_file() -> None:
    """Jobs of backups connect to NATS like the services."""
    for name in ("backup", "restore", "verify"):
        assert "tls://nats:4222" in TLS[name]["entrypoint"]
        assert TLS[name]["environment"]["THINGWAY_CA_FILE"] == "/tls/ca.pem"
        plain = [word.replace("nats://nats", "tls://nats") for word in SERVICES[name]["entrypoint"]]
        assert TLS[name]["entrypoint"] == plain
