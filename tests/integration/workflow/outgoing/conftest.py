"""Other systems, on this machine: a web server, a mail server with and without TLS, a broker."""

import asyncio
import gzip
import socket
import ssl
import subprocess
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from deploy.local import programs
from deploy.platform import ports
from services.workflow.outgoing.mqtt import MqttBroker
from tests.integration.workflow.outgoing.certificates import Certificate, certificate

TEXT = b"a text that is compressed"
ENCODED = {
    "gzip/good": gzip.compress(TEXT),
    "deflate/good": zlib.compress(TEXT),
    "deflate/raw": zlib.compress(TEXT)[2:-4],
    "deflate/damaged": zlib.compress(TEXT)[:-9],
    "gzip/damaged": b"no gzip at all",
    "gzip/two": gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]) + bytes(5),
    "gzip/short": gzip.compress(TEXT)[:-9],
    "gzip/empty": b"",
    "br/any": b"not asked for",
}


def bomb() -> bytes:
    """A small answer that is large when it is decompressed; made when a test asks for it."""
    return gzip.compress(bytes(64 * 1024**2))


LOCAL = ("127.0.0.0/8", "::1/128")


@dataclass
class Web:
    """A web server that records requests."""

    url: str = ""
    asked: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    heard: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """`/status/…`, `/to/…?url=`, `/circle`, `/large`, `/broken`, `/encoded/…`, `/never`.

        Anything else is an echo.
        """
        self.asked.append(request)
        self.bodies.append(await request.read())
        self.headers.append(dict(request.headers))
        self.heard.put_nowait(self.bodies[-1])
        match request.path.split("/")[1:]:
            case ["status", code]:
                found = web.Response(status=int(code), text="as you wish")
            case ["to", code]:
                headers = {"Location": request.query["url"]}
                found = web.Response(status=int(code), headers=headers)
            case ["circle"]:
                found = web.Response(status=302, headers={"Location": "/circle"})
            case ["large"]:
                found = web.Response(body=b"x" * int(request.query["size"]))
            case ["encoded", coding, name]:
                headers = {"Content-Encoding": coding}
                is_bomb = name == "bomb"
                body = (
                    gzip.compress(bytes(64 * 1024**2)) if is_bomb else ENCODED[f"{coding}/{name}"]
                )
                found = web.Response(body=body, headers=headers)
            case ["broken"]:
                found = web.Response(text="{", content_type="application/json")
            case ["never"]:
                return await self._never(request)
            case _:
                found = self._echo(request)
        return found

    def _echo(self, request: web.Request) -> web.Response:
        found = {
            "method": request.method,
            "path": request.path_qs,
            "body": self.bodies[-1].decode(),
        }
        return web.json_response(found, headers={"X-Seen": "yes"})

    async def _never(self, request: web.Request) -> web.StreamResponse:
        """A byte now and then, and no end."""
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"x" * 65_536)


@pytest_asyncio.fixture
async def website() -> AsyncIterator[Web]:
    """A web server on 127.0.0.1."""
    found = Web()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}"
    yield found
    await runner.cleanup()


@dataclass
class Post:
    """A mail server that records emails and connections."""

    host: str
    port: int
    certificate: Certificate
    letters: list[Any] = field(default_factory=list)
    logins: list[bytes] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:  # noqa: N802
        """Keep a mail."""
        self.letters.append(envelope)
        self.encrypted.append(server.transport.get_extra_info("ssl_object") is not None)
        return "250 taken"

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any):
        """Accept any user with the right password."""
        assert isinstance(data, LoginPassword)
        self.logins.append(data.login)
        return AuthResult(success=data.password == b"right password", handled=False)


@pytest.fixture(scope="session")
def authority(tmp_path_factory) -> Certificate:
    """A certificate for `localhost`, which signs itself."""
    return certificate(tmp_path_factory.mktemp("certificates"), "localhost")


@pytest.fixture(params=["NONE", "STARTTLS", "TLS"])
def encryption(request: pytest.FixtureRequest) -> str:
    """How mail is encrypted."""
    return str(request.param)


@pytest.fixture
def post(encryption: str, authority: Certificate) -> Iterator[Post]:
    """A mail server of that kind."""
    handler = Post("localhost", 0, authority)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.chain, authority.key)
    controller = Controller(
        handler,
        hostname="127.0.0.1",
        port=ports.claim_random(),
        ssl_context=context if encryption == "TLS" else None,
        tls_context=context if encryption == "STARTTLS" else None,
        require_starttls=encryption == "STARTTLS",
        authenticator=handler.authenticate,
        auth_required=encryption == "STARTTLS",
        auth_require_tls=encryption == "STARTTLS",
    )
    controller.start()
    handler.port = controller.port
    yield handler
    controller.stop()


PASSWORD = "right password"
CONFIG = """
listen: "127.0.0.1:{port}"
server_name: broker
jetstream {{ store_dir: "{folder}" }}
mqtt {{
  listen: "127.0.0.1:{mqtt}"
  authorization {{ username: flows, password: "{password}" }}
  {tls}
}}
"""


@pytest.fixture(params=["plain", "TLS"], scope="module")
def broker(request, tmp_path_factory, authority: Certificate) -> Iterator[MqttBroker]:
    """A broker with a login."""
    folder: Path = tmp_path_factory.mktemp("broker")
    port = ports.claim_random()
    mqtt = ports.claim_random()
    tls = f'tls {{ cert_file: "{authority.chain}", key_file: "{authority.key}" }}'
    config = folder / "nats.conf"
    config.write_text(
        CONFIG.format(
            port=port,
            mqtt=mqtt,
            folder=folder,
            password=PASSWORD,
            tls=tls if request.param == "TLS" else "",
        )
    )
    process = subprocess.Popen(
        [programs.find_program(programs.NATS).path, "-c", config], stderr=subprocess.DEVNULL
    )
    wait_for(mqtt)
    yield MqttBroker(
        host="localhost",
        port=mqtt,
        tls=request.param == "TLS",
        username="flows",
        password=PASSWORD,
    )
    process.terminate()
    process.wait()


def wait_for(port: int) -> None:
    """Wait until somebody listens."""
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
