"""Users are told of alarms: by whom they want, what they see, when they want, and not lost."""

import asyncio
import hashlib
import hmac
import json
from collections import Counter
from datetime import UTC, datetime
from email import message_from_bytes, policy
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from libs.common.bus import OutgoingMessage
from libs.common.bus.subjects import alarm_event
from libs.common.clock import now_ms
from libs.common.contracts.access import ResourceType
from libs.common.contracts.events import AlarmChanged, DeviceProfile
from libs.common.identity.functions import Function
from services.workflow.migrations import _drop_due_index
from services.workflow.notifications import events, sender, store
from services.workflow.notifications.store import Notifications, Subscriber, WebhookChannel
from tests.console import User
from tests.integration.workflow.conftest import GONE, Workflow
from tests.integration.workflow.outgoing.conftest import Post, Web

PATH = "/alarm-notifications"
READER = Function.DEVICE_VIEW


def event(device: int = 5, **more: Any) -> OutgoingMessage:
    """What `device` says of an alarm."""
    body = AlarmChanged(**{
        "event_id": uuid4().hex, "created_at": now_ms(), "tenant": "default", "change": "raised",
        "alarm_id": 1, "rule_id": 1, "severity": "MAJOR", "content": "too <hot>", "value": 31.5,
        "raised_at": 1_700_000_000_000,
        "device": DeviceProfile(
            device_id=device, sn="SN", name="oven", model="OVEN", thing_key="direct.device.SN"
        ),
        **more,
    })  # fmt: skip
    return OutgoingMessage(alarm_event("default", device, body.change), msgspec.json.encode(body))


async def receive_webhooks(website: Web, count: int = 1) -> list[dict[str, Any]]:
    """Return the next bodies of the webhook."""
    async with asyncio.timeout(30):
        return [json.loads(await website.heard.get()) for _ in range(count)]


async def waiting(workflow: Workflow, count: int, **query: Any) -> list[dict[str, Any]]:
    """Notices, once there are so many."""
    notices = workflow.core.clients.mongo.database["alarm_notices"]
    async with asyncio.timeout(30):
        while len(found := await notices.find(query).to_list(None)) != count:
            await asyncio.sleep(0.05)
    return found


async def all_due(workflow: Workflow) -> None:
    """Let everything that waits be due now."""
    subscribers = workflow.core.clients.mongo.database["alarm_notifications"]
    await subscribers.update_many({}, {"$set": {"due.WEBHOOK": 1}})


class Counted:
    """A collection that counts the operations on it."""

    def __init__(self, collection: Any, operations: Counter[str]) -> None:
        self._collection = collection
        self._operations = operations

    def __getattr__(self, name: str) -> Any:
        self._operations[name] += 1
        return getattr(self._collection, name)


async def test_a_webhook_is_sent_once_with_a_signature(workflow: Workflow, website: Web):
    """The user's severities and changes apply. A copy of an event sends nothing."""
    hook = {"url": f"{website.url}/status/200", "secret": "s3cret"}
    await workflow.admin().done("PUT", PATH, {"webhook": hook, "severities": ["MAJOR"]})
    again = event()
    await workflow.bus.publish([event(severity="INFO"), event(change="claimed"), again, again])
    (body,) = await receive_webhooks(website)
    (alarm,) = body["alarms"]
    assert (alarm["content"], alarm["deviceName"], body["more"]) == ("too <hot>", "oven", 0)
    headers = website.headers[0]
    signed = (headers["TIMESTAMP"] + headers["NONCE"]).encode() + website.bodies[0]
    code = hmac.new(b"s3cret", signed, hashlib.sha256).hexdigest()
    assert headers["SIGNATURE"] == code
    await waiting(workflow, 0)
    assert website.heard.empty()


async def test_a_test_returns_its_result(workflow: Workflow, website: Web):
    """It needs a saved channel, returns the reason of a failure, and is stored as last result."""
    user = workflow.user(7, READER)
    body = {"channel": "WEBHOOK"}
    await user.refused(400, "POST", f"{PATH}/test", body, field="channel")
    assert (await user.done("GET", PATH))["results"] == {}
    hook = {"url": f"{website.url}/status/200", "secret": "s3cret"}
    await user.done("PUT", PATH, {"webhook": hook, "enabled": False, "language": "zh"})
    assert (await user.done("GET", PATH))["language"] == "zh"

    result = await user.done("POST", f"{PATH}/test", body)

    (told_body,) = await receive_webhooks(website)
    assert told_body == {"tenant": "default", "alarms": [], "more": 0, "test": True}
    assert "SIGNATURE" in website.headers[0]
    assert abs(result.pop("at") - now_ms()) < 60_000
    assert result == {"ok": True, "test": True}
    assert (await user.done("GET", PATH))["results"]["WEBHOOK"]["ok"] is True
    answer = await user.ask("POST", f"{PATH}/test", body)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "10")
    await user.refused(400, "POST", f"{PATH}/test", {"channel": "PIGEON"}, field="channel")
    await workflow.user(8, Function.WORKFLOW_EDIT).refused(403, "POST", f"{PATH}/test", body)


@pytest.mark.parametrize(
    ("channel", "settings", "reason"),
    [
        ("WEBHOOK", {"webhook": {"url": "http://169.254.1.1/"}}, "not a public address"),
        ("WEBHOOK", {"webhook": {"url": "{url}/status/500"}}, "returned status 500"),
        ("MAIL", {"mail": True}, "no mail server"),
    ],
)
async def test_a_test_that_fails_says_why(
    workflow: Workflow, website: Web, channel: str, settings: dict[str, Any], reason: str
):
    """A change of the channel forgets its result, any other change keeps it."""
    user = workflow.user(7, READER)
    text = json.dumps(settings).replace("{url}", website.url)
    await user.done("PUT", PATH, json.loads(text))
    result = await user.done("POST", f"{PATH}/test", {"channel": channel})
    assert (result["ok"], reason in result["reason"]) == (False, True), result
    await user.done("PUT", PATH, json.loads(text) | {"enabled": False})
    assert (await user.done("GET", PATH))["results"] == {channel: result}
    await user.done("PUT", PATH, {"webhook": {"url": "http://example.org/other"}})
    assert (await user.done("GET", PATH))["results"] == {}


async def test_the_result_of_an_alarm_is_stored(workflow: Workflow, website: Web):
    """Without a test: how the last message went."""
    admin = workflow.admin()
    await admin.done("PUT", PATH, {"webhook": {"url": f"{website.url}/status/200"}})
    await workflow.bus.publish([event()])
    found = await stored_result(admin)
    assert abs(found.pop("at") - now_ms()) < 60_000
    assert found == {"ok": True}
    await admin.done("PUT", PATH, {"webhook": {"url": f"{website.url}/status/500"}})
    await workflow.bus.publish([event()])
    assert (await stored_result(admin))["reason"] == "the webhook returned status 500"


async def stored_result(user: User) -> dict[str, Any]:
    """Return the result of the webhook, once there is one: it is stored after the message."""
    async with asyncio.timeout(30):
        while "WEBHOOK" not in (found := (await user.done("GET", PATH))["results"]):
            await asyncio.sleep(0.05)
    return dict(found["WEBHOOK"])


@pytest.mark.parametrize("encryption", ["NONE"], indirect=True)
async def test_a_mail_is_sent(workflow: Workflow, post: Post):
    """To the address that the user logs in with, by the tenant's mail server; as HTML."""
    admin = workflow.admin()
    smtp = await admin.done("GET", "/credentials/default/SMTP")
    server = {"host": "localhost", "port": str(post.port), "encryption": "NONE"}
    body = {
        "access_secret": "right password",
        "additional_data": server | {"username": "a@b.io"},
    }
    await admin.done("PUT", f"/credentials/{smtp['id']}", body)
    await admin.done("PUT", PATH, {"mail": True, "time_zone": "Asia/Tokyo"})
    await workflow.bus.publish([event()])
    async with asyncio.timeout(30):
        while not post.letters:
            await asyncio.sleep(0.05)
    (envelope,) = post.letters
    message = message_from_bytes(envelope.content, policy=policy.default)
    assert envelope.rcpt_tos == ["user1@example.com"]
    assert message["Subject"] == "MAJOR raised: too <hot> (oven)"
    assert "too &lt;hot&gt;" in message.get_content()
    assert "2023-11-15 07:13:20 JST" in message.get_content()


async def test_a_user_gets_notifications_of_currently_visible_devices(
    workflow: Workflow, website: Web
):
    """Current grants of device and group decide; a deleted user gets no message."""
    hook = {"webhook": {"url": f"{website.url}/status/200"}, "digest_minutes": 60}
    await workflow.user(7, READER).done("PUT", PATH, hook)
    await workflow.user(GONE, READER).done("PUT", PATH, hook)
    await workflow.bus.publish([event(one, content=f"of {one}") for one in (5, 6, 7, 4)])
    await waiting(workflow, 8)
    workflow.grants.give(7, ResourceType.DEVICE, 5)
    workflow.grants.give(7, ResourceType.DEVICE_GROUP, 3)
    workflow.device.groups[6] = 3
    await all_due(workflow)
    (body,) = await receive_webhooks(website)
    assert [alarm["content"] for alarm in body["alarms"]] == ["of 5", "of 6"]
    await waiting(workflow, 0)
    assert website.heard.empty()


async def test_failed_notifications_are_sent_later_together(
    workflow: Workflow, website: Web, monkeypatch: pytest.MonkeyPatch
):
    """Failed and new notices wait with growing pauses; dropped notices are counted."""
    monkeypatch.setattr(sender, "MAX_ATTEMPTS", 2)
    monkeypatch.setattr(store, "FIRST_PAUSE_SECONDS", 0.01)
    failing = {"webhook": {"url": f"{website.url}/status/500"}}
    await workflow.admin().done("PUT", PATH, failing)
    await workflow.bus.publish([event()])
    await receive_webhooks(website, 2)
    await waiting(workflow, 0)
    subscribers = workflow.core.clients.mongo.database["alarm_notifications"]
    assert (await subscribers.find_one({}))["trouble"]["WEBHOOK"]["missed"] == 1
    well = {"settings.webhook.url": f"{website.url}/status/200"}
    await subscribers.update_one({}, {"$set": well})
    await workflow.bus.publish([event()])
    (body,) = await receive_webhooks(website)
    assert (len(body["alarms"]), body["more"]) == (1, 1)
    await waiting(workflow, 0)
    assert (await subscribers.find_one({}))["trouble"]["WEBHOOK"]["missed"] == 0


async def test_no_more_wait_than_may(
    workflow: Workflow, website: Web, monkeypatch: pytest.MonkeyPatch
):
    """The others are counted."""
    monkeypatch.setattr(store, "MAX_WAITING_NOTICES_PER_CHANNEL", 2)
    hook = {"webhook": {"url": f"{website.url}/status/200"}, "digest_minutes": 60}
    await workflow.admin().done("PUT", PATH, hook)
    await workflow.bus.publish([event() for _ in range(5)])
    subscribers = workflow.core.clients.mongo.database["alarm_notifications"]
    async with asyncio.timeout(30):
        while not await subscribers.find_one({"trouble.WEBHOOK.missed": 3}):
            await asyncio.sleep(0.05)
    await all_due(workflow)
    (body,) = await receive_webhooks(website)
    assert (len(body["alarms"]), body["more"]) == (2, 3)


async def test_an_alarm_takes_as_many_operations_for_one_user_as_for_forty(
    workflow: Workflow, monkeypatch: pytest.MonkeyPatch
):
    """Waiting notices are bounded, and a repetition adds nothing."""
    monkeypatch.setattr(store, "MAX_WAITING_NOTICES_PER_CHANNEL", 3)
    notices: Any = store.NotificationStore(
        workflow.core.clients.mongo.database, workflow.core.clients.wakeups
    )
    operations: Counter[str] = Counter()
    notices._subscribers = Counted(notices._subscribers, operations)
    notices._notices = Counted(notices._notices, operations)
    database, took = workflow.core.clients.mongo.database, []
    hook = WebhookChannel(url="http://127.0.0.1/")
    settings = Notifications(webhook=hook, digest_minutes=60)
    for users in (1, 40):
        for user in range(100, 100 + users):
            one = Subscriber(id=user, tenant="crowd", login="a@b.io", settings=settings)
            await workflow.core.sender.store.save_settings(one)
        operations.clear()
        await events.store_notices(notices, "crowd", [event().payload])
        took.append(Counter(operations))
    assert took[0] == took[1], took
    many = [event().payload for _ in range(5)]
    for _ in range(2):
        await events.store_notices(notices, "crowd", many)
    assert await database["alarm_notices"].count_documents({"user": {"$gte": 100}}) == 120
    subscribers = database["alarm_notifications"]
    assert await subscribers.count_documents({"due.WEBHOOK": {"$gt": now_ms()}}) == 40


async def test_a_claim_keeps_other_processes_away_until_it_expires(workflow: Workflow):
    """Notices that arrive during a delivery are due afterwards, and a claim expires."""
    one = workflow.core.sender.store
    settings = Notifications(webhook=WebhookChannel(url="http://127.0.0.1/"))
    late = now_ms() + 3_600_000
    await one.save_settings(Subscriber(id=200, tenant="t", login="a@b.io", settings=settings))
    subscribers = workflow.core.clients.mongo.database["alarm_notifications"]
    await subscribers.update_one({"_id": 200}, {"$set": {"due.WEBHOOK": late}})
    assert await one.claim_delivery(200, "WEBHOOK", late - 1, late + 9) is None
    assert await one.list_due(late) == [("t", 200, "WEBHOOK")]
    assert await one.claim_delivery(200, "WEBHOOK", late, late + 9) is not None
    await subscribers.update_one({"_id": 200}, {"$set": {"due.WEBHOOK": late}})
    assert await one.claim_delivery(200, "WEBHOOK", late + 8, late + 20) is None
    assert await one.list_due(late + 8) == []
    assert await one.claim_delivery(200, "WEBHOOK", late + 9, late + 20) is not None
    await one.finish_delivery(200, "WEBHOOK")
    assert await one.list_due(late + 50) == []


async def test_notices_of_the_previous_version_are_delivered(workflow: Workflow):
    """The contract migration makes them due; the user is deleted."""
    database = workflow.core.clients.mongo.database
    settings = Notifications(webhook=WebhookChannel(url="http://127.0.0.1/"))
    await workflow.core.sender.store.save_settings(
        Subscriber(id=300, tenant="t", login="a@b.io", settings=settings)
    )
    old = {"_id": "e.300.WEBHOOK", "tenant": "t", "user": 300, "channel": "WEBHOOK", "due": 1}
    told = {"change": "raised", "alarmId": 1, "severity": "MAJOR", "content": "hot"}
    told |= {"raisedAt": 1, "deviceId": 5, "deviceName": "oven"}
    await database["alarm_notices"].insert_one({**old, "at": datetime.now(UTC), "told": told})
    await _drop_due_index(database)
    await waiting(workflow, 0, user=300)


async def test_secrets_are_sealed_and_hidden(workflow: Workflow):
    """A hidden one stays, but is not sent elsewhere."""
    user = workflow.user(7, READER)
    hook = {"url": "https://one.example/x", "secret": "s3cret"}
    await user.done("PUT", PATH, {"webhook": hook, "device_ids": ["5"]})
    stored = await workflow.core.clients.mongo.database["alarm_notifications"].find_one({"_id": 7})
    assert "s3cret" not in str(stored)
    shown = await user.done("GET", PATH)
    assert (shown["webhook"]["secret"], shown["device_ids"]) == ("******", ["5"])
    shown["webhook"]["url"] = "https://one.example/y"
    await user.done("PUT", PATH, shown)
    found = await workflow.core.sender.store.find("default", 7)
    assert found is not None
    opened = workflow.core.sender.settings.decrypt_settings(found)
    assert opened.webhook is not None
    assert opened.webhook.secret == "s3cret"
    shown["webhook"]["url"] = "https://two.example/x"
    await user.refused(400, "PUT", PATH, shown, field="webhook.secret")
    assert "webhook" not in await workflow.user(8, READER).done("GET", PATH)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"time_zone": "Nowhere"}, "time_zone"),
        ({"language": "fr"}, "language"),
        ({"quiet_hours": {"begin": "22:00", "end": "22:00"}}, "quiet_hours.end"),
        ({"quiet_hours": {"begin": "24:00", "end": "6:00"}}, "quiet_hours.begin"),
        ({"webhook": {"url": "ftp://x"}}, "webhook.url"),
        ({"mail": "me@example.com"}, "mail"),
        ({"digest_minutes": 1441}, "digest_minutes"),
        ({"severities": ["LOUD"]}, "severities[0]"),
    ],
)
async def test_invalid_settings_are_rejected(workflow: Workflow, body: dict[str, Any], field: str):
    """The error names the field."""
    await workflow.admin().refused(400, "PUT", PATH, body, field=field)


async def test_notifications_need_a_function_to_read_alarms(workflow: Workflow):
    """It is a function of devices or dashboards."""
    readers = {Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW, Function.DEVICE_VIEW}
    for function in Function:
        for method, body in (("GET", None), ("PUT", {})):
            answer = await workflow.user(7, function).ask(method, PATH, body)
            assert (answer.status_code != 403) == (function in readers), (method, function)
