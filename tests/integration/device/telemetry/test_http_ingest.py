"""The device edge over HTTP, from request to MongoDB."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from httpx import ASGITransport, AsyncClient, Response
from litestar import Litestar, Router
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import DEAD, UPLINK, BatchConsumer, RpcClient
from libs.common.contracts.limits import Limits
from libs.common.http import ServiceDescription, build_dependencies
from libs.common.identity import (
    PRINCIPAL_HEADER,
    HeaderSigner,
    HeaderVerifier,
    Principal,
    PrincipalKind,
    generate_keys,
)
from libs.common.limits.meter import MessageMeter
from libs.common.limits.tenants import LimitsCache
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry
from libs.common.version import VERSION
from services.device import app
from services.device.commands.events import new_command_entries
from services.device.commands.polling import ROUTER as POLLING_ROUTER
from services.device.commands.polling import CommandPolls
from services.device.telemetry.dead_messages import DeadMessageBuilder, DeadMessagePublisher
from services.device.telemetry.direct_ingest import MAX_DIRECT_BODY_BYTES, DirectIngest
from services.device.telemetry.http_ingest import ROUTER, HttpIngestService
from services.device.telemetry.presence_store import HttpPresence, OfflineTimeouts, PresenceStore
from tests.integration.device.commands.test_replies import command, issue, state
from tests.integration.device.telemetry.test_retention import products
from tests.integration.device.telemetry.world import DURABLE, World, until
from tests.lending import lent

LIMITS = Limits(each_messages=200, dead_bytes=100_000)
GOOD = {"properties": {"temperature": 1}}


class Device:
    """A device that speaks HTTP."""

    def __init__(self, http: AsyncClient, sn: str, header: str, polls: CommandPolls) -> None:
        self.http, self.sn = http, sn
        self._polls = polls
        self._path = f"/ingest/v1/{sn}"
        self._headers = {PRINCIPAL_HEADER: header, "x-request-id": "r1"}

    async def post(self, channel: str, body: Any, **query: str) -> Response:
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return await self.http.post(
            f"{self._path}/{channel}", params=query, headers=self._headers, **content
        )

    async def commands(self, wait: int = 0) -> list[int]:
        answer = await self.http.get(
            f"{self._path}/commands", params={"wait": wait}, headers=self._headers
        )
        return [one["commandId"] for one in answer.json()["data"]["commands"]]

    @asynccontextmanager
    async def polling(self, count: int) -> AsyncIterator[list["asyncio.Task[list[int]]"]]:
        """Long polls that wait."""
        polls = [asyncio.ensure_future(self.commands(wait=20)) for _ in range(count)]

        async def all_wait() -> bool:
            return sum(map(len, self._polls._waiting.values())) == count

        await until(all_wait)
        yield polls
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)


@dataclass(frozen=True)
class Handlers:
    """Dependencies of the handlers."""

    edge: HttpIngestService
    command_polls: CommandPolls


@pytest.fixture
async def device(world: World) -> AsyncIterator[Device]:
    sn = await world.add(7)
    things = world.first.things
    states = PresenceStore(world.mongo, world.outbox, world.first.devices)
    presence = HttpPresence(states, 60, OfflineTimeouts(products(world)))
    polls = CommandPolls(world.bus, things, world.commands, presence)
    await polls.start()
    edge = HttpIngestService(
        bus=world.bus,
        things=things,
        presence=presence,
        meter=MessageMeter(limits := LimitsCache(RpcClient(world.bus), LIMITS)),
        keeper=DeadMessagePublisher(world.bus, DeadMessageBuilder(limits)),
        retention_days=30,
    )
    private, public = generate_keys()
    verifier = HeaderVerifier(public)
    dead = Mongo("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", "none")

    def build() -> Litestar:
        routers = [ROUTER, POLLING_ROUTER]
        dependencies = build_dependencies(Handlers(edge, polls))
        return app.create_app(
            ServiceDescription(
                name="device",
                title="Edge",
                routes=[Router("/", route_handlers=routers, dependencies=dependencies)],
                verifier=verifier,
                telemetry=Telemetry(None, MeterProvider()),
                checks={"mongo": world.mongo.ping, "nats": world.bus.check, "dead": dead.ping},
            )
        )

    header = HeaderSigner(private).sign(Principal(PrincipalKind.DEVICE, "default", sn))
    with lent(build) as built:
        transport = ASGITransport(DirectIngest(built, edge, verifier))  # type: ignore[arg-type]
        async with AsyncClient(transport=transport, base_url="http://device") as http:
            yield Device(http, sn, header, polls)
    await polls.stop()
    await dead.close()


@pytest.mark.parametrize("entry", [GOOD, {"properties": {"nope": 1}}], ids=["good", "bad"])
async def test_a_device_that_sends_too_much_gets_retry_after(device: Device, entry: dict[str, Any]):
    """429 with Retry-After.

    Nothing of the request is accepted, and rejected messages count, too.
    """
    body = [entry] * 1000
    for _ in range(2):
        assert (await device.post("report", body)).status_code == 202
    refused = await device.post("report", body)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.json()["errMsg"].startswith("eachMessages: more than 200 messages")


@pytest.fixture
async def ingesting(world: World) -> AsyncIterator[None]:
    consumer = BatchConsumer(
        bus=world.bus, stream=UPLINK, durable=DURABLE, handle=world.first.ingest.handle
    )
    job = asyncio.ensure_future(consumer.run())
    yield
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)


async def test_a_report_is_accepted_and_makes_the_device_online(world: World, device: Device):
    """202 with the count; it waits in UPLINK."""
    answer = await device.post("report", GOOD)
    assert answer.status_code == 202
    assert answer.json() == {
        "data": {"accepted": 1, "refused": []},
        "status": "Success",
        "requestId": "r1",
    }
    assert await world.waiting() == 1

    async def online() -> bool:
        row = await world.database["devices"].find_one({"_id": 7})
        return bool(row["connectStatus"] == "ONLINE")

    await until(online)


@pytest.mark.parametrize("sn", [None, "other"])
@pytest.mark.parametrize("channel", ["report", "event", "reply"])
@pytest.mark.parametrize(
    "body", [GOOD, [GOOD, 5], {"properties": {"nope": 1}}, [], b"", b"{", b"\xff"], ids=repr
)
async def test_a_small_message_is_answered_as_by_the_framework(
    device: Device, sn: str | None, channel: str, body: Any
):
    """Status, header and body are equal; the longer body passes through the framework."""
    device._path = f"/ingest/v1/{sn or device.sn}"
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    direct = await device.post(channel, raw)
    framework = await device.post(channel, raw + b" " * MAX_DIRECT_BODY_BYTES)
    assert (direct.status_code, direct.content) == (framework.status_code, framework.content)
    assert direct.headers == framework.headers


async def test_each_rejected_entry_of_an_array_is_listed(world: World, device: Device):
    """Valid entries are accepted; invalid ones are listed with index and field."""
    body = [GOOD, {"properties": {"nope": 1}}, GOOD, 5]
    answer = (await device.post("report", body)).json()["data"]
    assert answer["accepted"] == 2
    assert [(one["index"], one["field"]) for one in answer["refused"]] == [
        (1, "properties.nope"),
        (3, "body"),
    ]
    assert await world.waiting() == 2
    assert [entry["payload"] for _, entry in await world.said(DEAD)] == [
        '{"properties":{"nope":1}}', "5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"{", 400, "JSON"),
        (b"[]", 400, "1 to 1000"),
        ({"properties": {"temperature": "x"}}, 400, "properties.temperature"),
        ({"ts": 1, "properties": {"temperature": 1}}, 400, "ts"),
        ({"properties": {"firmware_version": "x" * 300_000}}, 413, "262144"),
        (b"[" * 100_000, 400, "JSON"),
    ],
    ids=range(6),
)
async def test_a_single_bad_entry_is_refused(
    world: World, device: Device, body: Any, status: int, word: str
):
    """4xx in the open API's envelope, and nothing is taken; it is kept where people look for it."""
    answer = await device.post("report", body)
    assert answer.status_code == status, answer.text
    content = answer.json()
    assert (content["status"], content["requestId"]) == ("Failed", "r1")
    assert word in content["errMsg"]
    await world.drained()
    ((subject, kept),) = await world.said(DEAD)
    assert (subject, kept["subject"]) == (
        f"dead.uplink.{device.sn}", f"thing.{device.sn}.up.report",
    )  # fmt: skip
    assert word in kept["reason"]
    assert len(kept["payload"]) <= 65_536


async def test_a_value_that_is_refused_is_kept_with_its_path(world: World, device: Device):
    """As ingest keeps those of MQTT."""
    await device.post("report", {"properties": {"temperature": "hot"}})
    ((_, kept),) = await world.said(DEAD)
    (fault,) = kept["faults"]
    assert (fault["path"], fault["value"]) == ("properties.temperature", "hot")


async def test_beyond_the_quota_refusals_are_only_counted(world: World, device: Device):
    """They are refused all the same, and one entry in a minute says that they are not kept."""
    for _ in range(4):
        answer = await device.post("event", b"x" * 200_000)
        assert answer.status_code == 400
    kept = [entry["reason"] for _, entry in await world.said(DEAD)]
    assert [reason.partition(":")[0] for reason in kept] == [
        "the body is not JSON", "1 refused messages are not kept",
    ]  # fmt: skip


async def test_wait_stored_answers_after_the_data_is_stored(
    world: World, device: Device, ingesting: None
):
    """The answered values can be read."""
    answer = await device.post("report", [GOOD] * 50, wait="stored")
    assert answer.json()["data"]["accepted"] == 50
    assert len(await world.stored()) == 50


async def test_wait_stored_reports_late_rejections(world: World, device: Device, ingesting: None):
    """Only ingest finds out that a command does not exist; the answer reports it nevertheless."""
    await issue(world, command(5))
    answers = [{"commandId": number, "status": "SUCCESS"} for number in (5, 6)]
    answer = (await device.post("reply", answers, wait="stored")).json()["data"]
    assert answer["accepted"] == 1
    assert "the device has no command" in answer["refused"][0]["reason"]
    assert (await state(world, 5)).status == "SUCCESS"


async def test_wait_stored_gives_up_in_time(device: Device, monkeypatch: pytest.MonkeyPatch):
    """Accepted and not known to be stored: 504, which says so."""
    monkeypatch.setattr("services.device.telemetry.reporter.MAX_STORED_WAIT_SECONDS", 0.05)
    answer = await device.post("report", GOOD, wait="stored")
    assert answer.status_code == 504
    assert "accepted" in answer.json()["errMsg"]


async def test_a_device_can_only_send_its_own_messages(world: World, device: Device):
    """Another SN in the path gets 403; a missing header gets 401."""
    await world.add(8)
    device._path = "/ingest/v1/SN8"
    assert (await device.post("report", GOOD)).status_code == 403
    device._headers = {}
    answer = await device.post("report", GOOD)
    assert (answer.status_code, answer.json()["errCode"]) == (401, "authentication_failed")


async def test_an_earlier_poll_gets_no_commands_of_a_new_owner(world: World, device: Device):
    """Its key has ended, and the commands of the new application are not for it."""
    async with device.polling(1) as (poll,):
        other = {"$set": {"application": {"applicationId": 2}}}
        await world.database["devices"].update_one({"_id": 7}, other)
        world.first.things.remove_from_cache(7)
        one = command(5, application_id=2)
        await world.write([one], new_command_entries(one))
        assert await poll == []
    assert await device.commands() == [5]


async def test_commands_are_fetched_once_in_a_while(world: World, device: Device):
    """Oldest first; what was taken is hidden for some time and then comes again."""
    assert await device.commands() == []
    await issue(world, command(5), command(6), command(9, thing=8))
    assert await device.commands() == [5, 6]
    assert await device.commands() == []
    assert (await state(world, 5)).status == "SENT"
    await world.database["commands"].update_one({"_id": 6}, {"$unset": {"polledAt": ""}})
    assert await device.commands() == [6]


async def test_a_waiting_device_gets_a_command_at_once(world: World, device: Device):
    """The long poll ends with the first command."""
    async with device.polling(1) as (poll,):
        one = command(5)
        await world.write([one], new_command_entries(one))
        async with asyncio.timeout(30):
            assert await poll == [5]


async def test_polls_cost_nothing_on_the_bus(world: World, device: Device):
    """A hundred wait at one subscription of the process; nothing is left of those that ended."""
    async with device.polling(1):
        before = len(world.bus.client._subs)
    async with device.polling(100) as polls:
        assert len(world.bus.client._subs) == before
        one = command(5)
        await world.write([one], new_command_entries(one))
        async with asyncio.timeout(30):
            (done, _) = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        assert [5] in [poll.result() for poll in done]
    assert device._polls._waiting == {}


async def test_probes_need_no_principal_and_name_unavailable_stores(device: Device):
    """/healthz and /metrics are 200; /readyz is 503 and names the unavailable store."""
    assert (await device.http.get("/healthz")).json() == {"status": "ok", "version": VERSION}
    assert (await device.http.get("/metrics")).status_code == 200
    answer = await device.http.get("/readyz")
    assert answer.status_code == 503
    states = answer.json()
    assert (states["mongo"], states["nats"]) == ("ok", "ok")
    assert "not ready" in states["dead"]


async def test_an_unavailable_store_is_503_with_retry_after(
    world: World, device: Device, monkeypatch: pytest.MonkeyPatch
):
    """The answer has the request id."""
    await device.post("report", GOOD)
    away = Mongo("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", "none")
    monkeypatch.setattr(world.commands.schedule, "_commands", away.database["commands"])
    answer = await device.http.get("/ingest/v1/SN7/commands", headers=device._headers)
    await away.close()
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.json()["requestId"] == "r1"


async def test_a_path_that_is_no_text_is_refused_in_the_envelope(device: Device):
    """Whatever bytes stand in the path."""
    answer = await device.http.get("/ingest/v1/%ff/nope", headers=device._headers)
    assert answer.status_code == 404
    assert answer.json()["status"] == "Failed"
