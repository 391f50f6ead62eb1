from pathlib import PurePath

import pytest

from deploy.platform.nats import NatsCluster, NatsConfig, render_nats_config
from deploy.platform.nats_grants import USERS


def config(**changes) -> NatsConfig:
    values = {
        "passwords": {user: f"secret-{user}" for user in USERS},
        "callout_issuer": "AABC",
        "store_dir": PurePath("/data/nats"),
    }
    return NatsConfig(**{**values, **changes})


def test_every_user_requires_a_password():
    """The error names users with a missing or empty password."""
    passwords = {user: "x" for user in USERS if user != "sys"} | {"auth": ""}

    with pytest.raises(ValueError, match="auth, sys"):
        render_nats_config(config(passwords=passwords))


def test_environment_references_are_not_quoted():
    """nats-server expands `$NAME`; any other text is quoted."""
    passwords = dict.fromkeys(USERS, "$NATS_PASSWORD") | {"auth": '$a"}'}

    text = render_nats_config(config(passwords=passwords))

    assert "{ user: device, password: $NATS_PASSWORD," in text
    assert r'{ user: auth, password: "$a\"}",' in text


def test_monitoring_is_off_by_default():
    """The HTTP port without authentication requires `monitor_port`."""
    assert "http:" not in render_nats_config(config())
    assert 'http: "127.0.0.1:8222"\n' in render_nats_config(config(monitor_port=8222))


def test_cluster_members_have_routes_with_a_password():
    """MQTT streams have the configured replicas; a single server has no routes."""
    cluster = NatsCluster(
        host="h1", port=6222, routes=("h1:6222", "h2:6222"), password="p", tag="a"
    )

    text = render_nats_config(config(cluster=cluster))

    assert 'routes: ["nats://route:p@h1:6222", "nats://route:p@h2:6222"]' in text
    assert 'listen: "h1:6222"' in text
    assert "stream_replicas: 3" in text
    assert 'server_tags: ["a"]' in text
    assert "cluster {" not in render_nats_config(config())
