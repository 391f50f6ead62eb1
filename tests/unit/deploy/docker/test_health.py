"""The image's health check, against a server on a local port."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from deploy.docker import health


@contextmanager
def _served(status: int) -> Iterator[str]:
    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()
            self.wfile.write(b"MongoDB does not answer")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield str(server.server_port)
        server.shutdown()


def _check(port: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-IS", str(health.__file__)]
    environment = os.environ | {"THINGWAY_PORT": port}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_a_container_is_as_healthy_as_its_service_is_ready(status: int, code: int) -> None:
    """The check prints the answer of the service, which the engine shows."""
    with _served(status) as port:
        done = _check(port)
    assert (done.returncode, done.stdout) == (code, "MongoDB does not answer\n")


def test_a_container_without_a_listener_is_unhealthy() -> None:
    """A service that is still starting refuses connections."""
    with _served(200) as port:
        pass
    done = _check(port)
    assert done.returncode == 1
    assert "refused" in done.stdout
