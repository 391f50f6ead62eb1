"""The rendered configuration in a real nats-server: who may come in, say and hear what."""

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import aiomqtt
import msgspec
import nats
import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.js.api import StreamConfig

from deploy.local.jetstream import is_stuck
from deploy.platform.nats import NatsCluster, NatsConfig, render_nats_config
from deploy.platform.nats_grants import SERVICE_USERS, USERS
from deploy.platform.state import Addresses
from libs.common.bus.accounts import PLATFORM_ACCOUNT
from libs.common.bus.nkeys import KeyKind, KeyPair
from services.device.alarms.row_sources import UplinkReader
from tests.integration.nats_door import (
    KEYS,
    STREAMS,
    WAIT,
    Server,
    free_ports,
    launch,
    reachable,
)


async def stored(client: Client, subject: str) -> int:
    info = await client.jetstream().stream_info("UPLINK", subjects_filter=subject)
    return (info.state.subjects or {}).get(subject, 0)


async def test_streams_may_reserve_more_than_the_disk_has(server, tmp_path):
    """A platform starts on a small disk, although its streams may grow to 17 GiB together."""
    size = min(shutil.disk_usage(tmp_path).free, 512 * 1024**3)
    async with server.service("admin") as admin:
        js = admin.jetstream()
        made = await js.add_stream(StreamConfig(name="WIDE", subjects=["wide"], max_bytes=size))
        await js.delete_stream("WIDE")

    assert made.config.max_bytes == size


async def test_the_system_user_can_check_that_streams_are_written(server):
    """The launcher thereby recognizes a server that cannot write."""
    addresses = Addresses("", "", server.url)
    assert await is_stuck(addresses, "secret-sys", "thingway") is False

    async with server.service("sys") as system, asyncio.timeout(WAIT):
        while True:  # a stream that is just being made makes it unavailable for a moment
            answer = await system.request("$SYS.REQ.SERVER.PING.HEALTHZ", b"{}")
            if msgspec.json.decode(answer.data)["data"]["status"] == "ok":
                break


async def test_a_device_with_its_key_comes_in_over_mqtt_and_nats(server):
    """SN and key open both doors, and JetStream acknowledges a NATS device's report."""
    async with server.mqtt("D1", KEYS["D1"]), server.device("D1") as client:
        ack = await client.jetstream().publish("thing.D1.up.report", b"{}")

    assert ack.stream == "UPLINK"


@pytest.mark.parametrize("user", ["D1", "nobody", *SERVICE_USERS, "admin", "sys", "sys-admin", ""])
async def test_a_wrong_key_opens_neither_door(server, user):
    """A device, an unknown and each internal user are refused with a wrong password."""
    with pytest.raises(aiomqtt.MqttError):
        async with server.mqtt(user, "wrong"):
            pass
    with pytest.raises(nats.errors.Error, match="Authorization"):
        async with server.nats(user, "wrong"):
            pass


async def test_an_mqtt_report_is_in_uplink_when_it_is_acknowledged(server):
    """PUBACK of a QoS 1 report comes from UPLINK: the message is there when it arrives."""
    async with server.service("admin") as admin, server.mqtt("D1", KEYS["D1"]) as device:
        subject = "$MQTT.msgs.thing.D1.up.event"

        await device.publish("thing/D1/up/event", b"{}", qos=1, timeout=WAIT)

        assert await stored(admin, subject) == 1


async def test_unstored_messages_of_a_device_are_found(server):
    """`device` finds them oldest first, over MQTT, too, but not stored and unacknowledged ones."""
    async with server.service("admin") as admin, server.service("device") as service:
        await admin.jetstream().purge_stream("UPLINK")
        reader = UplinkReader(SimpleNamespace(client=service), ["UPLINK"])
        assert await reader.find_first_unstored("D1", 0, [], ()) is None
        async with server.mqtt("D1", KEYS["D1"]) as device:
            await device.publish("thing/D1/up/event", b"{}", qos=1, timeout=WAIT)
        first = await reader.find_first_unstored("D1", 0, [], ())
        said = await admin.jetstream().publish("thing.D1.up.report", b"{}")
        await admin.jetstream().publish("thing.D2.up.report", b"{}")

        assert first is not None
        assert await reader.find_first_unstored("D1", 0, [], ()) == first
        behind = await reader.find_first_unstored("D1", said.seq - 1, [], ())
        assert behind is not None
        assert behind.sequence == said.seq
        assert await reader.find_first_unstored("D1", said.seq - 1, [said.seq], {said.seq}) is None


async def test_a_full_uplink_acknowledges_nothing(server):
    """While UPLINK refuses, a QoS 1 report gets no PUBACK and the connection is closed."""
    async with server.service("admin") as admin:
        js = admin.jetstream()
        full = STREAMS[1].evolve(max_msgs=1, discard="new")
        await js.purge_stream("UPLINK")
        await js.publish("thing.D2.up.report", b"{}")
        await js.update_stream(full)
        try:
            with pytest.raises(aiomqtt.MqttError):
                async with server.mqtt("D1", KEYS["D1"]) as device:
                    await device.publish("thing/D1/up/report", b"{}", qos=1, timeout=WAIT)
        finally:
            await js.update_stream(STREAMS[1])


async def test_messages_for_another_device_are_dropped(server):
    """They are acknowledged and reach no listener and no stream; the connection stays open."""
    async with server.service("admin") as admin, server.mqtt("D1", KEYS["D1"]) as device:
        heard = await admin.subscribe("thing.>")
        await admin.flush()

        await device.publish("thing/D2/up/forged", b"forged", qos=1, timeout=WAIT)
        await device.publish("thing/D1/up/report", b"own", qos=1, timeout=WAIT)

        assert (await heard.next_msg(WAIT)).data == b"own"
        assert heard.pending_msgs == 0
        assert await stored(admin, "thing.D2.up.forged") == 0
        assert await stored(admin, "$MQTT.msgs.thing.D2.up.forged") == 0


@pytest.mark.parametrize("topic", ["thing/D2/down/#", "thing/+/down/#", "#", "thing/D2/up/#"])
async def test_a_device_cannot_listen_to_another(server, topic):
    """The server refuses the subscription itself, so nothing can be delivered to it."""
    async with server.mqtt("D1", KEYS["D1"]) as device:
        codes = await device.subscribe(topic, qos=1, timeout=WAIT)

    assert [code.value for code in codes] == [128]


async def test_commands_reach_a_device_with_its_own_quality_of_service(server):
    """A plain message comes as QoS 0, one put into `$MQTT.msgs.` with its header as QoS 1."""
    async with server.service("device") as service, server.mqtt("D1", KEYS["D1"]) as device:
        await device.subscribe("thing/D1/down/#", qos=1, timeout=WAIT)

        await service.publish("thing.D1.down.command", b"plain")
        first = await asyncio.wait_for(anext(device.messages), WAIT)
        await service.jetstream().publish(
            "$MQTT.msgs.thing.D1.down.command", b"kept", headers={"Nmqtt-Pub": "1"}
        )
        second = await asyncio.wait_for(anext(device.messages), WAIT)

    assert [(each.topic.value, each.payload, each.qos) for each in (first, second)] == [
        ("thing/D1/down/command", b"plain", 0),
        ("thing/D1/down/command", b"kept", 1),
    ]


async def test_a_command_waits_for_a_device_that_is_away(server):
    """A persistent session gets the QoS 1 command that came while it was disconnected."""
    session = {"identifier": "D2", "clean_session": False}
    async with server.service("device") as service, server.service("sys") as system:
        left = await system.subscribe(f"$SYS.ACCOUNT.{PLATFORM_ACCOUNT}.DISCONNECT")
        await system.flush()
        async with server.mqtt("D2", KEYS["D2"], **session) as device:
            await device.subscribe("thing/D2/down/command", qos=1, timeout=WAIT)
        async for event in left.messages:
            if msgspec.json.decode(event.data)["client"]["user"] == "D2":
                break
        await service.jetstream().publish(
            "$MQTT.msgs.thing.D2.down.command", b"waited", headers={"Nmqtt-Pub": "1"}
        )
        async with server.mqtt("D2", KEYS["D2"], **session) as device:
            message = await asyncio.wait_for(anext(device.messages), WAIT)

    assert (message.payload, message.qos) == (b"waited", 1)


@pytest.mark.parametrize(
    "subject", ["thing.D2.down.>", "thing.>", ">", "_INBOX.>", "_INBOX.auth.>", "_INBOX.sn.D2.>"]
)
async def test_a_nats_device_cannot_subscribe_to_others(server, subject):
    """Others' commands, all subjects, and others' inboxes are each rejected."""
    async with server.device("D1") as client:
        await client.subscribe(subject)
        await client.flush()

        assert "subscription" in await asyncio.wait_for(client.refusals.get(), WAIT)


@pytest.mark.parametrize(
    "subject",
    [
        "thing.D2.up.report",
        "thing.D1.down.command",
        "$MQTT.msgs.thing.D1.up.report",
        "event.t1.device.1.reported",
        "rpc.device.get",
        "$SYS.REQ.USER.AUTH",
        "$JS.API.STREAM.LIST",
    ],
)
async def test_a_nats_device_says_nothing_else(server, subject):
    """Beyond its own uplink a device may publish nothing; it is told so and stays connected."""
    async with server.device("D1") as client:
        await client.publish(subject, b"")
        await client.flush()

        assert "publish" in await asyncio.wait_for(client.refusals.get(), WAIT)
        await client.flush(WAIT)


async def test_an_application_reads_its_own_tenant_through_its_own_consumer(server):
    """Its durable delivers its tenant's events only; nobody else's can be read."""
    async with server.service("admin") as admin, server.application("app1") as client:
        js, events = client.jetstream(), admin.jetstream()
        for tenant in ("t1", "t2"):
            await events.publish(f"event.{tenant}.device.1.reported", tenant.encode())

        own = await js.pull_subscribe("event.t1.>", durable="app1", stream="EVENTS")
        messages = await own.fetch(10, timeout=1)
        for message in messages:
            await message.ack_sync()

        assert {message.data for message in messages} == {b"t1"}
        with pytest.raises(nats.js.errors.BadRequestError):
            await js._jsm._api_request(
                "$JS.API.CONSUMER.CREATE.EVENTS.app1.event.t1.>",
                b'{"stream_name":"EVENTS","config":{"durable_name":"app1","name":"app1",'
                b'"ack_policy":"explicit","filter_subject":"event.t2.>"}}',
            )


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.API.CONSUMER.CREATE.EVENTS.app1",
        "$JS.API.CONSUMER.CREATE.EVENTS.app1.event.t2.>",
        "$JS.API.CONSUMER.DURABLE.CREATE.EVENTS.app1",
        "$JS.API.CONSUMER.CREATE.EVENTS",
        "$JS.API.CONSUMER.MSG.NEXT.EVENTS.app2",
        "$JS.API.CONSUMER.INFO.EVENTS.app2",
        "$JS.API.CONSUMER.DELETE.EVENTS.app2",
        "$JS.API.STREAM.MSG.GET.EVENTS",
        "$JS.API.DIRECT.GET.EVENTS",
        "event.t1.device.1.reported",
    ],
)
async def test_an_application_has_no_way_around_its_filter(server, subject):
    """No creation without the filter, no consumer of others, no direct read, no publishing."""
    async with server.application("app1") as client:
        await client.publish(subject, b"{}")
        await client.flush()

        assert "publish" in await asyncio.wait_for(client.refusals.get(), WAIT)


@pytest.mark.parametrize("user", ["auth", "device", "management", "workflow"])
async def test_a_service_answers_requests_and_has_a_durable_consumer(server, user):
    """A service answers what it is asked, publishes nothing foreign, and reads EVENTS."""
    async with server.service(user) as service, server.service("admin") as asking:

        async def answer(message) -> None:
            await message.respond(b"answer")

        await service.subscribe(f"rpc.{user}.echo", cb=answer)
        for _ in range(2):  # nats-py lets a first PING overtake the subscription
            await service.flush()
        assert (await asking.request(f"rpc.{user}.echo", timeout=WAIT)).data == b"answer"

        await service.jetstream().pull_subscribe("event.>", durable=user, stream="EVENTS")
        await service.publish("$JS.API.STREAM.DELETE.EVENTS", b"")
        await service.flush()
        assert "publish" in await asyncio.wait_for(service.refusals.get(), WAIT)


CALLS = {
    "auth": (
        "rpc.device.describe_devices",
        "rpc.device.describe_groups",
        "rpc.device.give_device",
        "rpc.management.describe_dashboards",
    ),
    "device": ("rpc.auth.get_grants", "rpc.auth.describe_users", "rpc.auth.forget_resources"),
    "gateway": ("rpc.auth.get_access", "rpc.auth.check_device"),
    "management": ("rpc.auth.get_grants", "rpc.auth.share_with_roles", "rpc.device.count_devices"),
    "workflow": ("rpc.auth.share_with_roles", "rpc.auth.has_live_pages", "rpc.device.call_service"),
}
"""Operations that each service needs of others, as far as the next test tries them."""


@pytest.mark.parametrize("user", CALLS)
async def test_a_service_may_send_only_the_requests_that_it_needs(server, user):
    """Permitted requests have no responder here, but are not rejected."""
    async with server.service(user) as service:
        for subject in CALLS[user]:
            with pytest.raises(nats.errors.NoRespondersError):
                await service.request(subject, timeout=WAIT)
        assert service.refusals.empty()


@pytest.mark.parametrize("user", SERVICE_USERS)
@pytest.mark.parametrize(
    "operation", ["create_tenant", "create_application", "create_user", "reset_user_password"]
)
async def test_services_may_not_send_requests_of_the_operator(server, user, operation):
    """A compromised service cannot create tenants, applications or users."""
    async with server.service(user) as service:
        await service.publish(f"rpc.auth.{operation}", b"{}")
        await service.flush()

        assert "publish" in await asyncio.wait_for(service.refusals.get(), WAIT)


async def test_ingest_reads_and_acknowledges_uplink(server):
    """`device-ingest` pulls both kinds of report from UPLINK and takes them out of it."""
    async with (
        server.service("admin") as admin,
        server.service("device-ingest") as ingest,
        server.mqtt("D1", KEYS["D1"]) as device,
    ):
        await admin.jetstream().purge_stream("UPLINK")
        await device.publish("thing/D1/up/report", b"{}", qos=1, timeout=WAIT)

        consumer = await ingest.jetstream().pull_subscribe("", durable="ingest", stream="UPLINK")
        messages = await consumer.fetch(2, timeout=WAIT)
        for message in messages:
            await message.ack_sync()

        assert [(each.subject, each.headers) for each in messages] == [
            ("thing.D1.up.report", {"Nmqtt-Pub": "1"}),
            ("$MQTT.msgs.thing.D1.up.report", {"Nmqtt-Pub": "1"}),
        ]
        assert (await admin.jetstream().stream_info("UPLINK")).state.messages == 0


async def test_the_system_user_sees_and_closes_a_connection(server):
    """CONNECT names the SN, KICK closes the connection at once, DISCONNECT says why."""
    async with server.service("sys") as system:
        came = await system.subscribe(f"$SYS.ACCOUNT.{PLATFORM_ACCOUNT}.CONNECT")
        left = await system.subscribe(f"$SYS.ACCOUNT.{PLATFORM_ACCOUNT}.DISCONNECT")
        await system.flush()

        connected = asyncio.Event()

        async def connected_until_kicked() -> None:
            async with server.mqtt("D1", KEYS["D1"]) as device:
                connected.set()
                await anext(device.messages)

        device = asyncio.create_task(connected_until_kicked())
        await asyncio.wait_for(connected.wait(), WAIT)
        event = msgspec.json.decode((await came.next_msg(WAIT)).data)
        cid, server_id = event["client"]["id"], event["server"]["id"]
        await system.request(f"$SYS.REQ.SERVER.{server_id}.KICK", b'{"cid":%d}' % cid, timeout=WAIT)
        with pytest.raises(aiomqtt.MqttError):
            await asyncio.wait_for(device, WAIT)

        async with asyncio.timeout(WAIT):
            async for message in left.messages:
                event = msgspec.json.decode(message.data)
                if event["client"]["id"] == cid:
                    break
        assert (event["client"]["user"], event["reason"]) == ("D1", "Kicked")


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[dict[str, tuple[Server, subprocess.Popen[bytes]]]]:
    """Run three servers that form a cluster; yield them by name."""
    names, open_ports = ("n1", "n2", "n3"), free_ports(9)
    routes = tuple(f"127.0.0.1:{port}" for port in open_ports[6:])
    servers = {}
    with contextlib.ExitStack() as stack:
        for name, port, mqtt_port, route in zip(
            names, open_ports[:3], open_ports[3:6], open_ports[6:], strict=True
        ):
            config = NatsConfig(
                passwords={user: f"secret-{user}" for user in USERS},
                callout_issuer=KeyPair.create(KeyKind.ACCOUNT).public_key,
                store_dir=folder / name,
                server_name=name,
                cluster=NatsCluster(
                    host="127.0.0.1", port=route, routes=routes, password="secret-route"
                ),
                port=port,
                mqtt_port=mqtt_port,
            )
            (folder / f"{name}.conf").write_text(render_nats_config(config))
            process = launch(folder / f"{name}.conf")
            stack.callback(process.wait, WAIT)
            stack.callback(process.kill)
            servers[name] = Server(port, mqtt_port), process
        for server, process in servers.values():
            await reachable(int(server.url.rpartition(":")[2]), process)
        yield servers


async def followers(admin: Client, count: int) -> list[str]:
    """Return the followers of the leader when their number is `count`."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(nats.errors.TimeoutError):
                answer = await admin.request(
                    "$SYS.REQ.SERVER.PING.JSZ", b'{"leader_only":true}', timeout=1
                )
                meta = msgspec.json.decode(answer.data)["data"]["meta_cluster"]
                names = [replica["name"] for replica in meta.get("replicas", ())]
                if len(names) == count:
                    return names


async def test_an_operator_removes_a_lost_server_from_a_cluster(tmp_path):
    """`sys-admin` may send the requests of `peer-remove`; `sys`, the user of `device`, may not."""
    async with cluster(tmp_path) as servers, contextlib.AsyncExitStack() as stack:
        admin = await stack.enter_async_context(servers["n1"][0].service("sys-admin"))
        lost = next(name for name in await followers(admin, 2) if name != "n1")
        servers[lost][1].kill()
        request = b'{"peer":"%s"}' % lost.encode()
        async with servers["n1"][0].service("sys") as system:
            await system.publish("$JS.API.SERVER.REMOVE", request)
            refusal = await asyncio.wait_for(system.refusals.get(), WAIT)
        await admin.request("$SYS.REQ.SERVER.PING", timeout=WAIT)
        answer = await admin.request("$JS.API.SERVER.REMOVE", request, timeout=WAIT)
        remaining = await followers(admin, 1)

    assert "permissions violation" in refusal.lower()
    assert msgspec.json.decode(answer.data)["success"] is True
    assert lost not in remaining
