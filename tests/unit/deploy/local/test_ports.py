"""Internal ports between their choice and the start of who listens there."""

import socket

import pytest

from deploy.local import ports
from deploy.local.errors import LauncherError
from libs.common.http.server import listen


def test_a_held_port_is_taken_for_other_platforms() -> None:
    """Whoever looks for a port passes over one that is held."""
    port = ports.choose_free()
    with ports.hold(port):
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_a_service_listens_on_the_port_held_for_it() -> None:
    """What is held answers nobody; connections reach the service."""
    port = ports.choose_free()
    with ports.hold(port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((ports.LOOPBACK, port))
        with listen(ports.LOOPBACK, port), socket.create_connection((ports.LOOPBACK, port)):
            assert not ports.is_free(port)


def test_a_port_where_a_stranger_listens_cannot_be_held() -> None:
    """It is said, with the port."""
    with socket.create_server((ports.LOOPBACK, 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(LauncherError, match=str(port)):
            ports.hold(port)
