"""A login is put into MQTT's CONNECT, and nothing else of it changes."""

import pytest
from paho.mqtt import client as paho

from libs.common.mqtt import (
    MAX_CONNECT_BYTES,
    Connect,
    PacketError,
    find_connect_end,
    read_connect,
)

ALONE = bytes.fromhex("100f00044d5154540402003c0003534e31")
"""Client id SN1, a clean session, 60 s, no login."""


def written(will: tuple[str, bytes] | None = None, login: tuple[str, str | None] | None = None):
    """A CONNECT as paho writes it."""
    made = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="SN1")
    if will is not None:
        made.will_set(*will, qos=1, retain=True)
    if login is not None:
        made.username_pw_set(*login)
    sent: list[bytes] = []
    made._packet_queue = lambda command, packet, *_: sent.append(bytes(packet)) or 0
    made._send_connect(60)
    return sent[0]


WILL = ("thing/SN1/up/event", b"gone")


@pytest.mark.parametrize("will", [None, WILL])
@pytest.mark.parametrize("login", [None, ("SN1", None), ("other", "key")])
def test_a_login_is_put_in_as_a_client_would_write_it(will, login):
    """Whatever login was there, and with a will or without."""
    found = read_connect(written(will, login))

    assert found is not None
    assert (found.user, found.password) == (
        (None, None) if login is None else tuple(one and one.encode() for one in login)
    )
    assert found.with_login("SN1", "p" * 300) == written(will, ("SN1", "p" * 300))


def test_a_packet_is_complete_at_its_last_byte():
    """Its length is known from the second byte on, or from the fifth."""
    long = Connect(2, b"\x00\x3c", (b"SN1",), None, None).with_login("SN1", "p" * 20_000)

    assert find_connect_end(b"") is find_connect_end(b"\x10") is find_connect_end(long[:3]) is None
    assert find_connect_end(ALONE[:2]) == find_connect_end(ALONE + b"more") == len(ALONE)
    assert find_connect_end(long[:4]) == len(long)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x30\x00",
        b"\x10\xff\xff\xff\xff\x01",
        bytes(
            [
                0x10,
                0x80 | (MAX_CONNECT_BYTES & 0x7F),
                0x80 | (MAX_CONNECT_BYTES >> 7 & 0x7F),
                MAX_CONNECT_BYTES >> 14,
            ]
        ),
    ],
)
def test_other_and_too_long_packets_are_rejected_immediately(data):
    """The gateway never buffers more than a CONNECT."""
    with pytest.raises(PacketError):
        find_connect_end(data)


@pytest.mark.parametrize(
    "packet",
    [
        bytes.fromhex("100a00044d5154540402003c"),
        bytes.fromhex("100f00044d5154540402003c0009534e31"),
        bytes.fromhex("100f00044d5154540482003c0003534e31"),
        bytes.fromhex("101400044d5154540442003c0003534e310003534e31"),
    ],
    ids=["no client id", "incomplete", "no user", "a password without a user"],
)
def test_a_connect_that_contradicts_its_flags_is_rejected(packet):
    """Otherwise nats-server could read a different login."""
    with pytest.raises(PacketError):
        read_connect(packet)


def test_another_version_of_mqtt_is_left_to_nats_server():
    """Its CONNECT has other fields."""
    assert read_connect(ALONE.replace(b"MQTT\x04", b"MQTT\x05")) is None
