"""The chart's first job: what it keeps, and which Secret it gives whom."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from deploy.docker.entry import read_variables
from deploy.kubernetes.jobs import BOOTSTRAP, TLS, hand_out, read_state, write_state
from deploy.platform.errors import LauncherError
from deploy.platform.services import SERVICES
from deploy.platform.shares import Places
from deploy.platform.state import FILE_NAME, Addresses, User

MEMBERS = "m-0.m:27017,m-1.m:27017,m-2.m:27017"
PLACES = Places(
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
        self.content[part] = dict(content)  # as server-side apply by the same manager does


@pytest.fixture
def cluster() -> Cluster:
    """A cluster after the first installation."""
    made = Cluster()
    hand_out(made, PLACES)
    return made


def test_an_upgrade_changes_nothing_that_is_there(cluster: Cluster) -> None:
    """Secrets are those of the first installation, and the bootstrap's progress is kept."""
    begun = read_state(cluster, BOOTSTRAP)
    begun.user = User("a@b.de", "Passw0rd")
    write_state(cluster, BOOTSTRAP, begun)
    before = {part: dict(content) for part, content in cluster.content.items()}

    hand_out(cluster, PLACES)

    assert cluster.content == before


def test_every_service_gets_its_own_and_no_other(cluster: Cluster) -> None:
    """No password of a service stands in the Secret of another that logs in differently."""
    given = {
        one.name: read_variables(cluster.content[one.name]["env"].decode()) for one in SERVICES
    }
    passwords = [one["THINGWAY_NATS_PASSWORD"] for one in given.values()]
    assert len(set(passwords)) == len(SERVICES)
    for name, password in zip(given, passwords, strict=True):
        owners = [other for other, one in given.items() if password in one.values()]
        assert owners == [name]


def test_services_are_told_every_member(cluster: Cluster) -> None:
    """Of the replica set, which the driver then follows; and no member is asked for directly."""
    given = read_variables(cluster.content["device"]["env"].decode())
    assert f"@{MEMBERS}/" in given["THINGWAY_MONGO_URL"]
    assert "replicaSet=rs0" in given["THINGWAY_MONGO_URL"]
    assert "directConnection" not in given["THINGWAY_MONGO_URL"]
    assert given["THINGWAY_REDIS_URL"].endswith("@r:6379/0")


def test_members_of_nats_know_each_other_and_show_the_certificate(cluster: Cluster) -> None:
    """Each takes its name from its pod, and the file is one for all."""
    assert "cluster {" not in cluster.content["nats"]["nats.conf"].decode()
    before = read_state(cluster, "setup").secrets["nats.admin"]
    hand_out(cluster, replace(PLACES, nats_members=("n-0.n", "n-1.n", "n-2.n"), tls=TLS))
    config = cluster.content["nats"]["nats.conf"].decode()
    assert "server_name: $NATS_SERVER_NAME" in config
    assert all(f"@n-{number}.n:6222" in config for number in range(3))
    assert "stream_replicas: 3" in config
    assert config.count('cert_file: "/tls/tls.crt"') == 3
    assert before in config


def test_what_cannot_be_read_is_not_replaced(cluster: Cluster) -> None:
    """New secrets would lock everybody out of the data."""
    cluster.content["setup"][FILE_NAME] = b"{"
    with pytest.raises(LauncherError, match="cannot read"):
        hand_out(cluster, PLACES)
    assert cluster.content["setup"][FILE_NAME] == b"{"
