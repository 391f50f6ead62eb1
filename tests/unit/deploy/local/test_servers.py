"""Where the servers of one machine listen."""

from pathlib import PurePath

from deploy.local import servers
from deploy.local.servers import NatsDoors
from deploy.platform.nats import ServerFiles
from deploy.platform.state import Addresses, State

FILES = ServerFiles(PurePath("c"), PurePath("k"))


def cluster() -> State:
    state = State(hosts=["127.0.0.1"] * 3)
    state.ports = {name: 20_000 + n for n, name in enumerate(servers.internal_ports(state))}
    return state


def test_the_first_member_has_the_doors_of_one_alone() -> None:
    """The others have ports of the launcher's choice, the same TLS, and no WebSocket."""
    first = NatsDoors("127.0.0.1", 4222, 1883, 8083, FILES)
    state = cluster()

    doors = first.of_members(state)

    assert doors[0] == first
    assert [door.port for door in doors[1:]] == [state.ports["nats-2"], state.ports["nats-3"]]
    assert [door.mqtt_port for door in doors[1:]] == [state.ports["mqtt-2"], state.ports["mqtt-3"]]
    assert [(door.tls, door.websocket_port) for door in doors[1:]] == [(FILES, None)] * 2
    assert first.of_members(State()) == [first]


def test_addresses_of_a_cluster_are_had_one_by_one() -> None:
    """Each has one NATS server, and all else of the whole."""
    whole = Addresses("http://x", "mqtt://a,mqtt://b", "nats://a,nats://b", "ca.pem")

    apart = whole.apart()

    assert [one.nats_url for one in apart] == ["nats://a", "nats://b"]
    assert {(one.base_url, one.ca_file) for one in apart} == {("http://x", "ca.pem")}


def test_a_cluster_has_two_redis_and_three_of_all_else() -> None:
    """The first of each has the name of one alone."""
    names = servers.internal_ports(cluster())

    assert sorted(name for name in names if name.startswith("redis")) == ["redis", "redis-2"]
    for kind in ("mongod", "sentinel", "nats-route"):
        assert [name for name in names if name.startswith(kind)] == [kind, f"{kind}-2", f"{kind}-3"]
