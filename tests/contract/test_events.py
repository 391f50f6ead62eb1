"""What an application hears on NATS is what `libs.common.contracts.events` says, and no more."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import nats
import pytest
from nats.aio.subscription import Subscription

from libs.common.contracts import events as contract
from tests.contract.client import Api, accepted
from tests.contract.conftest import Thing
from tests.e2e.listening import connect
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")

PATIENCE = 15.0


def _strict(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The same struct, refusing fields that it does not know; its parts too."""
    hints = msgspec.structs.fields(kind)
    parts = {
        "device": contract.DeviceProfile,
        "faults": contract.Fault,
        "subcommand": contract.Subcommand,
    }

    def of(field: Any) -> tuple[Any, ...]:
        annotation = field.type
        part = parts.get(field.name)
        if part is not None:
            annotation = _strict(part) if field.name == "device" else list[_strict(part)]
        default = msgspec.field(
            name=field.encode_name, default=field.default, default_factory=field.default_factory
        )
        return field.name, annotation, default

    return msgspec.defstruct(
        f"Strict{kind.__name__}", map(of, hints), forbid_unknown_fields=True, kw_only=True
    )


class Heard:
    """The events of the tenant, from the moment of the subscription."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def one(self, subject: str, kind: type[msgspec.Struct]) -> Any:
        """The next event on `subject`, decoded strictly; others are passed over."""
        while True:
            message = await self._subscription.next_msg(PATIENCE)
            if message.subject == subject:
                event: Any = msgspec.json.decode(message.data, type=_strict(kind))
                assert event.event_id
                assert event.created_at > 1_700_000_000_000
                assert event.tenant == "default"
                return event


@pytest.fixture
async def heard(platform: Platform, api: Api) -> AsyncIterator[Heard]:
    """What an application hears with its own credentials."""
    client = await connect(platform, api.client_id, api.client_secret)
    subscription = await client.subscribe("event.default.>")
    await client.flush()
    yield Heard(subscription)
    await client.close()


async def test_a_device_is_added_updated_removed_and_deleted(api: Api, heard: Heard) -> None:
    """Each change with the device's profile at that time."""
    identity = await api.add()
    subject = f"event.default.device.{identity}"
    event = await heard.one(f"{subject}.added", contract.DeviceChanged)
    assert (event.change, event.device.device_id) == ("added", identity)
    assert event.device.application_id == api.id
    await api.done("PUT", "/devices", {"deviceId": identity, "name": "new name"})
    event = await heard.one(f"{subject}.updated", contract.DeviceChanged)
    assert (event.change, event.device.name) == ("updated", "new name")
    await api.done("DELETE", f"/devices/{identity}")
    event = await heard.one(f"{subject}.deleted", contract.DeviceChanged)
    assert event.change == "deleted"


async def test_a_device_reports(api: Api, thing: Thing, heard: Heard) -> None:
    """Online by its report, the values that were stored, the faults, and an event."""
    subject = f"event.default.device.{thing.id}"
    body = {"properties": {"counter": 7}}
    await api.report(thing.sn, thing.key, body)
    event = await heard.one(f"{subject}.reported", contract.PropertiesReported)
    assert event.properties == {"counter": 7}
    assert event.ts > 1_700_000_000_000
    assert event.device.sn == thing.sn
    await api.report(thing.sn, thing.key, {"properties": {"counter": 8, "battery": 101}})
    event = await heard.one(f"{subject}.rejected", contract.PropertiesRejected)
    assert [fault.path for fault in event.faults] == ["properties.battery"]


async def test_a_device_is_online_and_offline(
    platform: Platform, thing: Thing, heard: Heard
) -> None:
    """By its connection."""
    subject = f"event.default.device.{thing.id}"
    client = await nats.connect(
        f"nats://127.0.0.1:{platform.nats_port}",
        user=thing.sn,
        password=thing.key,
        inbox_prefix=f"_INBOX.sn.{thing.sn}".encode(),
    )
    event = await heard.one(f"{subject}.online", contract.DeviceConnection)
    assert event.connect_status == "ONLINE"
    await client.close()
    event = await heard.one(f"{subject}.offline", contract.DeviceConnection)
    assert event.connect_status == "OFFLINE"


async def test_an_event_of_the_tsl_is_published(api: Api, thing: Thing, heard: Heard) -> None:
    """It has its id and type of the TSL."""
    body = {"eventId": "historical_data", "outputs": {"timestamp": 1_700_000_000, "temperature": 2}}
    answer = await api.http.post(
        f"/ingest/v1/{thing.sn}/event", json=body, auth=(thing.sn, thing.key)
    )
    assert answer.status_code == 202
    event = await heard.one(f"event.default.device.{thing.id}.event", contract.DeviceEventReported)
    assert (event.tsl_id, event.event_type) == ("historical_data", "INFO")
    assert event.outputs == body["outputs"]


async def test_a_call_and_its_reply_are_published(api: Api, thing: Thing, heard: Heard) -> None:
    """One task has an event with the inputs and an event with the outputs."""
    answer = await api.ask(
        "POST",
        f"/devices/{thing.id}/services/call",
        {"serviceId": "measure", "inputs": {"times": 2}},
    )
    accepted(answer, data=False)
    subject = f"event.default.service.{thing.id}"
    called = await heard.one(f"{subject}.called", contract.ServiceCalled)
    assert (called.service_id, called.inputs) == ("measure", {"times": 2})
    assert answer.headers["location"].endswith(f"/{called.task_id}")
    (command,) = await api.commands(thing.sn, thing.key)
    reply = {"commandId": command["commandId"], "status": "SUCCESS", "outputs": {"mean": 0.5}}
    await api.reply(thing.sn, thing.key, reply)
    replied = await heard.one(f"{subject}.replied", contract.ServiceReplied)
    assert (replied.task_id, replied.status) == (called.task_id, "SUCCESS")
    assert replied.outputs == {"mean": 0.5}


async def test_a_task_is_created_and_finished(api: Api, thing: Thing, heard: Heard) -> None:
    """With the outcome of each setting."""
    body = {"type": "TSL", "deviceIds": [thing.id], "config": {"properties": {"led": True}}}
    (relation,) = (await api.done("POST", "/tasks", body))["deviceTaskRelations"]
    subject = f"event.default.task.{relation['taskId']}"
    event = await heard.one(f"{subject}.created", contract.TaskCreated)
    assert (event.task_id, event.type) == (relation["taskId"], "CONFIG")
    (command,) = await api.commands(thing.sn, thing.key)
    await api.reply(thing.sn, thing.key, {"commandId": command["commandId"], "status": "SUCCESS"})
    event = await heard.one(f"{subject}.finished", contract.TaskFinished)
    assert event.status == "SUCCESS"
    assert [(one.key, one.status) for one in event.subcommand] == [("led", "SUCCESS")]
