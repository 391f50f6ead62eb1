"""Live updates: a user opens all allowed WebSockets, each with many keys."""

import asyncio
import json
from typing import Any, ClassVar

import aiohttp
from websockets.asyncio.client import ClientConnection, connect

from bench.live import PRODUCT
from bench.neighbours.harness import Arena, Contest, Count
from bench.tenants import data

SOCKETS, KEYS, RATE = 100, 480, 10
MODEL = "WIDE"


class Sockets(Contest):
    """100 WebSockets with 480 keys each, which change ten times a second; a live update."""

    name = f"6. {SOCKETS} WebSockets x {KEYS} keys, {RATE} reports/s; a live update"
    spread: ClassVar[bool] = False
    """Whether each socket has keys that no other has, so that no frames can be shared."""

    async def prepare(self, arena: Arena) -> None:
        """Create a device with many properties; listen to the quiet tenant's device."""
        self.base, self.websocket, self.token = arena.base, arena.websocket, arena.loud.token
        (entry,) = PRODUCT["tsl"]["properties"]  # type: ignore[index]
        properties = [
            entry | {"id": f"k{number}", "propertyKey": f"k{number}", "name": f"K{number}"}
            for number in range(KEYS)
        ]
        tsl = PRODUCT["tsl"] | {"properties": properties}  # type: ignore[operator]
        api = arena.loud.api
        await api.put_product(MODEL, {**PRODUCT, "snPrefixes": [], "tsl": tsl})
        device_id = await api.ensure_device("WIDE0", "Wide", MODEL)
        self.login = await api.issue_credentials(device_id)
        self._reported: dict[float, asyncio.Future[None]] = {}
        _, quiet = arena.quiet.devices[0]
        self._path = f"/ingest/v1/{quiet.name}/report"
        self._auth = {"Authorization": aiohttp.encode_basic_auth(quiet.name, quiet.key)}
        self._key = f"direct.device.{quiet.name}.at"

    async def begin(self, arena: Arena) -> None:
        """Open the quiet tenant's socket."""
        socket = await arena.stack.enter_async_context(_socket(arena.websocket, arena.quiet.token))
        await socket.send(_subscription([self._key]))
        listening = asyncio.create_task(self._listen(socket))
        arena.stack.callback(listening.cancel)

    async def probe(self, arena: Arena, number: int) -> None:
        """Report, and wait until the socket is sent the value."""
        received = self._reported[float(number)] = asyncio.get_running_loop().create_future()
        body = {"properties": {"at": float(number)}}
        async with arena.http.post(self._path, json=body, headers=self._auth) as answer:
            await data(answer)
        await received

    async def attack(self, count: Count) -> None:
        """Report, and read the messages to the sockets."""
        async with aiohttp.ClientSession(self.base) as http, asyncio.TaskGroup() as tasks:
            for number in range(SOCKETS):
                tasks.create_task(self._read(number, count))
            tasks.create_task(self._report(http))

    async def _read(self, number: int, count: Count) -> None:
        keys = [f"direct.device.{self.login[0]}.k{at}" for at in range(KEYS)]
        if self.spread:
            keys[-1] = f"direct.device.{self.login[0]}.other{number}"
        async with _socket(self.websocket, self.token) as socket:
            await socket.send(_subscription(keys))
            async for _ in socket:
                count()

    async def _report(self, http: aiohttp.ClientSession) -> None:
        headers = {"Authorization": aiohttp.encode_basic_auth(*self.login)}
        path, number = f"/ingest/v1/{self.login[0]}/report", 0
        while True:
            number += 1
            body = {"properties": {f"k{at}": number + at / KEYS for at in range(KEYS)}}
            async with http.post(path, json=body, headers=headers) as answer:
                await data(answer)
            await asyncio.sleep(1 / RATE)

    async def _listen(self, socket: ClientConnection) -> None:
        async for frame in socket:
            value = json.loads(frame)["payload"]["values"][self._key]["value"]
            received = self._reported.get(value)
            if received is not None and not received.done():
                received.set_result(None)


class SocketsRequest(Sockets):
    """The same attack; a request that the service of the sockets answers."""

    name = f"6. {SOCKETS} WebSockets x {KEYS} keys of their own, {RATE} reports/s; a request"
    spread = True

    async def probe(self, arena: Arena, number: int) -> None:
        """List dashboards."""
        headers = {"Authorization": f"Bearer {arena.quiet.token}"}
        async with arena.http.get("/dashboard/dashboards", headers=headers) as answer:
            await data(answer)


def _socket(url: str, token: str) -> Any:
    header = {"Authorization": f"Bearer {token}"}
    return connect(url, additional_headers=header, compression=None, max_size=None)


def _subscription(keys: list[str]) -> str:
    return json.dumps({"event_type": "Exchange", "payload": {"entity_key": keys}})
