"""Which address a request is said to come from."""

from typing import Any

import pytest

from libs.common.settings import SettingsInvalid
from services.gateway.access.addresses import ClientOrigin, TrustedProxies


def origin(proxies: str, peer: str, **fields: str) -> ClientOrigin:
    headers = {name.replace("_", "-").encode(): value.encode() for name, value in fields.items()}
    scope: Any = {"client": (peer, 1), "scheme": "http"}
    return TrustedProxies(proxies).find_origin(scope, {b"host": b"here"} | headers)


def test_forwarded_addresses_are_ignored_by_default() -> None:
    """Without trusted proxies the peer is the client, whatever the header contains."""
    found = origin("", "1.1.1.1", x_forwarded_for="2.2.2.2", x_forwarded_proto="https")
    assert found == ClientOrigin("1.1.1.1", "1.1.1.1", "http", "here")


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        ("2.2.2.2", "2.2.2.2"),
        ("9.9.9.9, 2.2.2.2", "2.2.2.2"),
        ("9.9.9.9, 2.2.2.2, 10.0.0.7", "2.2.2.2"),
        ("10.0.0.8, 10.0.0.7", "10.0.0.8"),
        ("", "10.0.0.1"),
        ("rubbish, 10.0.0.7", "rubbish"),
    ],
)
def test_the_client_is_the_last_address_before_trusted_proxies(chain: str, client: str) -> None:
    """Addresses before it are ignored."""
    found = origin("10.0.0.0/24", "10.0.0.1", x_forwarded_for=chain)
    assert found.address == client
    assert found.forwarded_for.endswith("10.0.0.1")


def test_foreign_peer_is_not_believed() -> None:
    """A peer that is not among the trusted ones cannot say where it comes from."""
    assert origin("10.0.0.1", "3.3.3.3", x_forwarded_for="2.2.2.2").address == "3.3.3.3"


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("fe80::1%eth0", "fe80::/64"),
        ("x:y", "x:y"),
    ],
)
def test_limit_key(address: str, key: str) -> None:
    """An IPv6 client is limited with its network: it has 2^64 addresses."""
    assert ClientOrigin(address, "", "", "").rate_limit_key == key


def test_an_invalid_setting_is_named() -> None:
    """The error of an invalid address names the variable."""
    with pytest.raises(SettingsInvalid, match="THINGWAY_TRUSTED_PROXIES"):
        TrustedProxies("10.0.0.1, nonsense")
