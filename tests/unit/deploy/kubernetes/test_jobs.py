"""The `setup` job of the chart: what it saves, and which part gets which Secret."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from deploy.docker.entry import read_variables
from deploy.kubernetes.jobs import (
    BOOTSTRAP_PART,
    NATS_TLS_FILES,
    read_state,
    write_secrets,
    write_state,
)
from deploy.platform.errors import LauncherError
from deploy.platform.services import SERVICES
from deploy.platform.shares import PartAddresses
from deploy.platform.state import FILE_NAME, Addresses, FirstUser

MEMBERS = "m-0.m:27017,m-1.m:27017,m-2.m:27017"
PLACES = PartAddresses(
    mongo=MEMBERS,
    mongo_direct=False,
    redis="r:6379",
    addresses=Addresses("http://g:80", "mqtt://n:1883", "nats://n:4222"),
    nats_server_name="$NATS_SERVER_NAME",
)


class Cluster:
    """The Secrets of a namespace."""

    def __init__(self) -> None:
        self.content: dict[str, dict[str, bytes]] = {}

    def read(self, part: str) -> dict[str, bytes]:
        return dict(self.content.get(part, {}))

    def write(self, part: str, content: Mapping[str, bytes]) -> None:
        self.content[part] = dict(content)  # like server-side apply of one field manager


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster after the first installation."""
    made = Cluster()
    write_secrets(made, PLACES)
    return made


def test_an_upgrade_keeps_existing_secrets(cluster: Cluster) -> None:
    """The progress of the bootstrap job is kept as well."""
    bootstrap = read_state(cluster, BOOTSTRAP_PART)
    bootstrap.user = FirstUser("a@b.de", "Passw0rd")
    write_state(cluster, BOOTSTRAP_PART, bootstrap)
    before = {part: dict(content) for part, content in cluster.content.items()}

    write_secrets(cluster, PLACES)

    assert cluster.content == before


def test_every_service_gets_only_its_own_password(cluster: Cluster) -> None:
    """No Secret contains the NATS password of another service."""
    given = {
        each.name: read_variables(cluster.content[each.name]["env"].decode()) for each in SERVICES
    }
    passwords = [values["THINGWAY_NATS_PASSWORD"] for values in given.values()]
    assert len(set(passwords)) == len(SERVICES)
    for name, password in zip(given, passwords, strict=True):
        owners = [other for other, values in given.items() if password in values.values()]
        assert owners == [name]


def test_services_get_every_member_of_the_replica_set(cluster: Cluster) -> None:
    """The driver discovers the primary; no connection is direct."""
    given = read_variables(cluster.content["device"]["env"].decode())
    assert f"@{MEMBERS}/" in given["THINGWAY_MONGO_URL"]
    assert "replicaSet=rs0" in given["THINGWAY_MONGO_URL"]
    assert "directConnection" not in given["THINGWAY_MONGO_URL"]
    assert "THINGWAY_REDIS_URL" not in given
    gateway = read_variables(cluster.content["gateway"]["env"].decode())
    assert gateway["THINGWAY_REDIS_URL"].endswith("@r:6379/0")


def test_nats_members_have_routes_and_a_certificate(cluster: Cluster) -> None:
    """One file serves all members; each reads its name from its pod's environment."""
    assert "cluster {" not in cluster.content["nats"]["nats.conf"].decode()
    before = read_state(cluster, "setup").secrets["nats.admin"]
    write_secrets(
        cluster, replace(PLACES, nats_members=("n-0.n", "n-1.n", "n-2.n"), tls=NATS_TLS_FILES)
    )
    config = cluster.content["nats"]["nats.conf"].decode()
    assert "server_name: $NATS_SERVER_NAME" in config
    assert all(f"@n-{number}.n:6222" in config for number in range(3))
    assert "stream_replicas: 3" in config
    assert config.count('cert_file: "/tls/tls.crt"') == 3
    assert before in config


def test_an_unreadable_state_is_not_replaced(cluster: Cluster) -> None:
    """New secrets would lock everybody out of the data."""
    cluster.content["setup"][FILE_NAME] = b"{"
    with pytest.raises(LauncherError, match="cannot read"):
        write_secrets(cluster, PLACES)
    assert cluster.content["setup"][FILE_NAME] == b"{"
