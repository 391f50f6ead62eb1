"""Ports: those the user chose must be free, the internal ones are chosen here."""

import errno
import secrets
import socket
import sys
from collections.abc import Collection

from deploy.platform.errors import LauncherError

LOOPBACK = "127.0.0.1"
_INTERNAL_PORTS = range(20_000, 32_000)
"""Below the kernel's range for outgoing connections (32768 on Linux): no client's
connection can take a port between its choice and the server's start."""
_claimed: dict[int, socket.socket] = {}
"""Claims of this process. Each is an abstract Unix socket name: one per network, as ports are."""


def reachable(host: str) -> str:
    """The address by which this machine reaches a server that listens on `host`, for a URL."""
    address = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"[{address}]" if ":" in address else address


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on `port` now."""
    try:
        _try_to_bind(host, port)
    except OSError:
        return False
    return True


def choose_free(taken: Collection[int] = ()) -> int:
    """Choose a free internal port that is not in `taken`, and claim it."""
    for _ in range(200):
        port = secrets.choice(_INTERNAL_PORTS)
        if port not in taken and port not in _claimed and claim(port):
            return port
    raise LauncherError("no free port between 20000 and 32000 on 127.0.0.1")


def claim(port: int) -> bool:
    """Whether a server could listen on `port` now; if so, no other process can claim it.

    A claim ends with this process. It keeps apart what starts at the same time: between the
    choice of a port and the start of its server nobody listens there yet.
    """
    mark = _claimed.get(port) or _mark(port)
    if mark is None:
        return False
    _claimed[port] = mark
    if is_free(port):
        return True
    _claimed.pop(port).close()
    return False


def _mark(port: int) -> socket.socket | None:
    """Take the name of a claim; None when another process has it."""
    mark = socket.socket(socket.AF_UNIX)
    if sys.platform != "linux":  # no abstract names there
        return mark
    try:
        mark.bind(f"\0thingway-port-{port}")
    except OSError as error:
        mark.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return mark


def require_free(host: str, ports: dict[str, int]) -> None:
    """Refuse the start unless every port can be listened on; `ports` is by option name."""
    options: dict[int, str] = {}
    for option, port in ports.items():
        if port in options:
            raise LauncherError(f"{options[port]} and {option} are the same port {port}")
        options[port] = option
        try:
            _try_to_bind(host, port)
        except OSError as error:
            raise LauncherError(_explain(error, host, port, option)) from error


def _try_to_bind(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen(1)


def _explain(error: OSError, host: str, port: int, option: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken: choose another with {option}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} is not allowed to this user: choose another with {option}"
    return f"cannot listen on {host} port {port}: {error.strerror or error}"
