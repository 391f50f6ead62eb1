"""Ports: checks of the user's ports, and the choice of internal ports."""

import errno
import secrets
import socket
import sys
from collections.abc import Collection

from deploy.platform.errors import LauncherError

LOOPBACK = "127.0.0.1"
_INTERNAL_PORT_RANGE = range(20_000, 32_000)
"""Ports below those of outgoing connections (from 32768 on Linux), which could use a chosen one."""
_claim_marker_by_port: dict[int, socket.socket] = {}
"""By port, the abstract Unix socket that marks it as claimed by this process."""


def reachable_host(host: str) -> str:
    """Return the host for URLs on this machine to a server that listens on `host`."""
    address = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"[{address}]" if ":" in address else address


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a server could listen on `port` now."""
    try:
        _try_to_bind(host, port)
    except OSError:
        return False
    return True


def claim_random(taken: Collection[int] = ()) -> int:
    """Claim and return a free internal port that is not in `taken`."""
    for _ in range(200):
        port = secrets.choice(_INTERNAL_PORT_RANGE)
        if port not in taken and port not in _claim_marker_by_port and claim(port):
            return port
    raise LauncherError("no free port between 20000 and 32000 on 127.0.0.1")


def claim(port: int) -> bool:
    """Claim a free port; return False if it is in use or claimed by another process.

    Claims end with this process. They separate launchers that start at the same time, because
    between the choice of a port and its server's start nobody listens on it.
    """
    marker = _claim_marker_by_port.get(port) or _create_marker(port)
    if marker is None:
        return False
    _claim_marker_by_port[port] = marker
    if is_free(port):
        return True
    _claim_marker_by_port.pop(port).close()
    return False


def _create_marker(port: int) -> socket.socket | None:
    """Return the socket that marks a port as claimed; None if another process has."""
    marker = socket.socket(socket.AF_UNIX)
    if sys.platform != "linux":  # no abstract names there
        return marker
    try:
        marker.bind(f"\0thingway-port-{port}")
    except OSError as error:
        marker.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return marker


def require_free(host: str, ports: dict[str, int]) -> None:
    """Raise `LauncherError` unless all ports (by option name) are free and different."""
    options: dict[int, str] = {}
    for option, port in ports.items():
        if port in options:
            raise LauncherError(f"{options[port]} and {option} use the same port {port}")
        options[port] = option
        try:
            _try_to_bind(host, port)
        except OSError as error:
            raise LauncherError(_explain_bind_error(error, host, port, option)) from error


def _try_to_bind(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen(1)


def _explain_bind_error(error: OSError, host: str, port: int, option: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: choose another with {option}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"this user may not listen on port {port}: choose another with {option}"
    return f"cannot listen on {host} port {port}: {error.strerror or error}"
