"""The listen addresses of the servers on one machine."""

from pathlib import PurePath

from deploy.local import servers
from deploy.local.servers import NatsListeners
from deploy.platform.nats import TlsFiles
from deploy.platform.state import Addresses, State

FILES = TlsFiles(PurePath("c"), PurePath("k"))


def cluster() -> State:
    state = State(hosts=["127.0.0.1"] * 3)
    state.ports = {name: 20_000 + n for n, name in enumerate(servers.server_port_names(state))}
    return state


def test_the_first_member_listens_like_a_single_server() -> None:
    """Other members have internal ports, the same TLS files, and no WebSocket."""
    first = NatsListeners("127.0.0.1", 4222, 1883, 8083, FILES)
    state = cluster()

    listeners = first.build_for_members(state)

    assert listeners[0] == first
    assert [listener.port for listener in listeners[1:]] == [
        state.ports["nats-2"],
        state.ports["nats-3"],
    ]
    assert [listener.mqtt_port for listener in listeners[1:]] == [
        state.ports["mqtt-2"],
        state.ports["mqtt-3"],
    ]
    assert [(listener.tls, listener.websocket_port) for listener in listeners[1:]] == [
        (FILES, None)
    ] * 2
    assert first.build_for_members(State()) == [first]


def test_addresses_can_be_split_by_nats_server() -> None:
    """All other addresses stay the same."""
    whole = Addresses("http://x", "mqtt://a,mqtt://b", "nats://a,nats://b", "ca.pem")

    parts = whole.split_by_nats_server()

    assert [each.nats_url for each in parts] == ["nats://a", "nats://b"]
    assert {(each.base_url, each.ca_file) for each in parts} == {("http://x", "ca.pem")}


def test_a_cluster_has_two_redis_and_three_other_servers_each() -> None:
    """The first server of each kind has the name of a single server."""
    names = servers.server_port_names(cluster())

    assert sorted(name for name in names if name.startswith("redis")) == ["redis", "redis-2"]
    for kind in ("mongod", "sentinel", "nats-route"):
        assert [name for name in names if name.startswith(kind)] == [kind, f"{kind}-2", f"{kind}-3"]
