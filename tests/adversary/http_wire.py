"""HTTP/1.1 by hand, so that requests may be wrong in any way."""

import base64
from dataclasses import dataclass

from tests.adversary.town import Home, Town
from tests.adversary.wire import Wire


@dataclass(frozen=True)
class Request:
    """A request; names of the town are filled in, and the credential of who sends it added."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: str | bytes = b""
    declared: int | None = None
    """The Content-Length that is told; None for the true one, negative for none."""

    def frame(self, town: Town, credential: str) -> bytes:
        """Return the bytes of the request."""
        content = self.body
        body = town.fill(content).encode() if isinstance(content, str) else content
        lines = [f"{self.method} {town.fill(self.path)} HTTP/1.1", "Host: thingway"]
        lines += [f"{name}: {town.fill(value)}" for name, value in self.headers]
        if credential:
            lines.append(f"Authorization: {credential}")
        length = len(body) if self.declared is None else self.declared
        if length >= 0:
            lines.append(f"Content-Length: {length}")
        lines.append("Connection: close")
        return "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body


KINDS = ("device", "application", "user", "nobody")
"""Who calls over HTTP."""


async def credential(kind: str, home: Home) -> str:
    """Return the Authorization of a household's device, application or user, or ""."""
    match kind:
        case "device":
            login = f"{home.device.sn}:{home.device.key}"
            return f"Basic {base64.b64encode(login.encode()).decode()}"
        case "application":
            await home.application.log_in()
            return f"Bearer {home.application.token}"
        case "user":
            await home.console.log_in()
            return f"Bearer {home.console.token}"
    return ""


async def ask(port: int, frame: bytes) -> bytes:
    """Send one request; all of the answer."""
    async with Wire(port) as wire:
        await wire.send(frame)
        return await wire.hear_out()


def status(answer: bytes) -> int:
    """Return the status of an answer; 0 when there is none."""
    head = answer[:12].split(b" ")
    return int(head[1]) if len(head) > 1 and head[1].isdigit() else 0
