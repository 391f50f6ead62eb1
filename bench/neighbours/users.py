"""Logins: a tenant creates many users, or its devices log in, while another logs in."""

import asyncio
import itertools
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import aiohttp
import aiomqtt

from bench.neighbours.harness import Arena, Contest, Count
from bench.tenants import PASSWORD, data

CALLERS = 64


@dataclass(frozen=True)
class SignedInUser:
    """A signed-in user."""

    http: aiohttp.ClientSession
    token: str

    async def post(self, path: str, body: Any) -> Any:
        """Call a management operation with POST."""
        async with self.http.post(path, json=body, headers=self._headers) as answer:
            return await data(answer)

    async def put(self, path: str, body: Any) -> None:
        """Call a management operation with PUT."""
        async with self.http.put(path, json=body, headers=self._headers) as answer:
            await data(answer)

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


async def add_users(arena: Arena, number: int) -> list[SignedInUser]:
    """Add super-admins to the loud tenant and sign them in."""
    admin = SignedInUser(arena.http, arena.loud.token)
    page = {"page_size": 999, "page_number": 1}
    roles = (await admin.post("/user/roles/search", page))["content"]
    emails = [f"user{index}@example.com" for index in range(number)]
    for email in emails:
        await admin.post("/user/members", _user(email))
    found = (await admin.post("/user/members/search", page))["content"]
    ids = [entry["user_id"] for entry in found if entry["email"] in emails]
    (role,) = [role["role_id"] for role in roles if role["name"] == "super_admin"]
    await admin.post(f"/user/roles/{role}/associate-user", {"user_ids": ids})
    people = []
    for email in emails:
        form = dict(parse_qsl(arena.loud.sign_in)) | {"username": email}
        async with arena.http.post("/oauth2/token", data=form) as answer:
            people.append(SignedInUser(arena.http, (await data(answer))["access_token"]))
    return people


class NewUsers(Contest):
    """64 callers create users; a log-in."""

    name = f"8. {CALLERS} callers create users; a log-in"

    async def prepare(self, arena: Arena) -> None:
        """Keep the tokens and the form."""
        self.base, self.token = arena.base, arena.loud.token
        self._form = dict(parse_qsl(arena.quiet.sign_in))

    async def probe(self, arena: Arena, number: int) -> None:
        """Sign in."""
        async with arena.http.post("/oauth2/token", data=self._form) as answer:
            await data(answer)

    async def attack(self, count: Count) -> None:
        """Create users."""
        numbers = itertools.count()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(self.base, connector=connector) as http:
            admin = SignedInUser(http, self.token)

            async def create() -> None:
                while True:
                    with suppress(RuntimeError):  # refused
                        await admin.post("/user/members", _user(f"new{next(numbers)}@example.com"))
                        count()

            async with asyncio.TaskGroup() as tasks:
                for _ in range(CALLERS):
                    tasks.create_task(create())


class DeviceLogins(Contest):
    """64 devices log in without a pause; a device logs in."""

    name = f"8. {CALLERS} devices log in without a pause; a device logs in"
    devices: ClassVar = (8, CALLERS)

    async def prepare(self, arena: Arena) -> None:
        """Keep the logins."""
        self.port = arena.platform.mqtt_port
        self.logins = [(login.name, login.key) for _, login in arena.loud.devices]
        self._quiet = [(login.name, login.key) for _, login in arena.quiet.devices]

    async def probe(self, arena: Arena, number: int) -> None:
        """Log in over MQTT."""
        async with self._client(*self._quiet[number % len(self._quiet)]):
            pass

    async def attack(self, count: Count) -> None:
        """Log in and out."""

        async def log_in(sn: str, key: str) -> None:
            while True:
                with suppress(aiomqtt.MqttError):  # refused: once a second
                    async with self._client(sn, key):
                        count()

        async with asyncio.TaskGroup() as tasks:
            for login in self.logins:
                tasks.create_task(log_in(*login))

    def _client(self, sn: str, key: str) -> aiomqtt.Client:
        return aiomqtt.Client("127.0.0.1", self.port, username=sn, password=key, identifier=sn)


def _user(email: str) -> dict[str, str]:
    return {"email": email, "nickname": email.partition("@")[0], "password": PASSWORD}
