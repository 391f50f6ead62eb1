"""After each burst: the others have lost nothing, heard nothing, and are served as before."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient
from pymongo import MongoClient

from tests.adversary.ears import Ears, Heard
from tests.adversary.records import Documents, Streams, read_documents, read_streams
from tests.adversary.town import Home, Town
from tests.e2e.waiting import PATIENCE, until

Json = dict[str, Any]
PAGE = 500
"""Events that an application reads at a time."""
_numbers = itertools.count(1_000_000_007)
"""What the others report: each number once."""


class Oracle:
    """Compares the data and service of the other tenants before and after a burst."""

    def __init__(
        self, town: Town, ears: dict[str, Ears], admin: NatsClient, mongo: MongoClient[Json]
    ) -> None:
        self.town = town
        self._ears = ears
        self._admin = admin
        self._mongo = mongo
        self._streams: Streams
        self._documents: dict[str, Documents]
        self._settled = False

    async def settle(self) -> None:
        """Run the others' normal use once, and record the resulting state."""
        self._settled = False
        await asyncio.gather(*(self._serve(home) for home in self.town.others))
        self._streams = await read_streams(self._admin, self.town.others)
        self._documents = self._read_documents()
        self._settled = True

    async def judge(self) -> None:
        """Fail with the changes since `settle`; settle again in any case.

        After that failure a change is not the fault of the next burst.
        """
        if not self._settled:
            for ears in self._ears.values():
                ears.heard.clear()
            await self.settle()
        wrong = [*self._odd_messages(), *await self._changed_streams(), *self._changed_documents()]
        try:
            await self.settle()
        finally:
            if wrong:
                pytest.fail("\n".join(map(str, wrong)))

    def _odd_messages(self) -> Iterator[Any]:
        for ears in self._ears.values():
            came, ears.heard = ears.heard, []
            for heard in came:
                if not self._is_of_mallory(heard, ears.home):
                    yield heard

    async def _changed_streams(self) -> list[Any]:
        before, now = self._streams, await read_streams(self._admin, self.town.others)
        return [
            *_changes(before.configs, now.configs),
            *_changes(before.consumers, now.consumers),
            *_changes(before.first, now.first),
        ]

    def _changed_documents(self) -> Iterator[Any]:
        now = self._read_documents()
        for name, before in self._documents.items():
            yield from _changes(before, now[name])

    def _read_documents(self) -> dict[str, Documents]:
        alice, nora = self.town.alice, self.town.nora
        return {
            "alice": read_documents(self._mongo, alice, tenant=True),
            "nora": read_documents(self._mongo, nora, tenant=False),
        }

    async def _serve(self, home: Home) -> None:
        """Report over every protocol, take a command, read the events: as ever."""
        ears = self._ears[home.application.client_id]
        numbers = await _report(home, ears)
        command, task = await _command(home, ears)
        await _hear_events(home, ears, numbers, task)
        await _read_durable(ears, numbers, task)
        for heard in ears.heard:
            assert _explained(heard, self._of_tenant(home), {command}), str(heard)
        ears.heard.clear()

    def _is_of_mallory(self, heard: Heard, home: Home) -> bool:
        """Return whether it is Mallory's own event, which her applications may receive."""
        mallory = self.town.mallory
        return home.tenant == mallory.tenant and _explained(heard, mallory.serials, set())

    def _of_tenant(self, home: Home) -> set[str]:
        """Return the SNs whose events an application may receive: those of its tenant."""
        homes = (self.town.mallory, *self.town.others)
        return set().union(*(one.serials for one in homes if one.tenant == home.tenant))


def _changes(before: Json, now: Json) -> list[tuple[str, Any, Any]]:
    """Return each difference: its name, its old and its new value."""
    return [
        (key, before.get(key), now.get(key))
        for key in before.keys() | now.keys()
        if before.get(key) != now.get(key)
    ]


async def _report(home: Home, ears: Ears) -> list[int]:
    """Send one report over HTTP, MQTT and NATS each; return the values."""
    over_http, over_mqtt, over_nats = (next(_numbers) for _ in range(3))
    report = {"properties": {"counter": over_http, "wifi": {"ssid": home.secret}}}
    status, body = await home.device.http("POST", "report", report, wait="stored")
    assert (status, body["data"]["refused"]) == (202, []), body
    text = f'{{"properties":{{"counter":{over_mqtt}}}}}'
    await ears.mqtt.publish(f"thing/{home.device.sn}/up/report", text, qos=1)
    text = f'{{"properties":{{"counter":{over_nats}}}}}'
    subject = f"thing.{home.device.sn}.up.report"
    acknowledged = await ears.device_nats.request(subject, text.encode(), timeout=PATIENCE)
    assert b'"stream"' in acknowledged.data, acknowledged.data
    assert b'"error"' not in acknowledged.data, acknowledged.data
    await home.device.stored({"counter": over_mqtt})
    await home.device.stored({"counter": over_nats})
    return [over_http, over_mqtt, over_nats]


async def _command(home: Home, ears: Ears) -> tuple[int, int]:
    """Check that a command reaches every connection of a device; use its answer."""
    path = f"/devices/{home.device.id}/properties"
    body = {"properties": {"wifi": {"ssid": home.secret}}}
    task = await home.application.started("PATCH", path, body)
    found = [
        await ears.wait(ear, lambda heard: heard.body.get("properties") == body["properties"])
        for ear in ("mqtt-0", "mqtt-1", "device-nats")
    ]
    command = int(found[0].body["commandId"])
    reply = f'{{"commandId":{command},"status":"SUCCESS"}}'
    await ears.mqtt.publish(f"thing/{home.device.sn}/up/reply", reply, qos=1)
    assert (await home.device.ended(task))["status"] == "SUCCESS"
    return command, task


async def _hear_events(home: Home, ears: Ears, numbers: list[int], task: int) -> None:
    for number in numbers:
        await ears.wait("application", lambda heard, is_=number: _counter(heard.body) == is_)
    subject = f"event.{home.tenant}.task.{task}.finished"
    await ears.wait("application", lambda heard: heard.subject == subject)
    await ears.wait("websocket", lambda heard: str(numbers[-1]).encode() in heard.data)


async def _read_durable(ears: Ears, numbers: list[int], task: int) -> None:
    """Check that the durable consumer delivers the events and is then empty."""
    wanted: set[int | str] = {*numbers, f"task.{task}.finished"}

    async def empty() -> bool:
        info = await ears.durable.consumer_info()
        waiting = min(info.num_pending, PAGE)
        for message in await ears.durable.fetch(waiting, timeout=PATIENCE) if waiting else ():
            heard = Heard("durable", message.subject, message.data)
            wanted.discard(_counter(heard.body))
            wanted.discard(message.subject.split(".", 2)[2])
            ears.heard.append(heard)
            await message.ack()
        return not (info.num_pending or info.num_ack_pending or wanted)

    await until(empty)


def _counter(body: Json) -> Any:
    return (body.get("properties") or {}).get("counter")


def _explained(heard: Heard, serials: set[str], commands: set[int]) -> bool:
    """Return whether the listener was meant to receive the message."""
    match heard.ear:
        case "application" | "durable":
            if heard.subject.split(".")[2] in {"auth", "workflow"}:
                return "eventId" in heard.body
            return "eventId" in heard.body and heard.body["device"]["sn"] in serials
        case "websocket":
            return bool(heard.body.get("payload", {}).get("values"))
        case "integration":
            return False
        case _:
            return heard.body.get("commandId") in commands
