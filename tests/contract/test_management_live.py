"""Management API: live updates at the gateway's `/websocket`."""

import asyncio

import aiohttp
import pytest

from libs.common.things import DIRECT_INTEGRATION
from tests.contract.console import Console
from tests.contract.hall import UNKNOWN, Hall, add_custom
from tests.contract.live import Socket, opened

pytestmark = pytest.mark.xdist_group("platform")

VIEW = ("dashboard.view", "dashboard.edit")


@pytest.mark.parametrize("prefix", ["Bearer ", ""])
async def test_the_token_is_in_the_query(admin: Console, prefix: str) -> None:
    """With or without `Bearer `; the heartbeat is echoed."""
    async with opened(admin, prefix) as socket:
        await socket.beats()
        await socket.beats()


async def test_the_token_is_in_the_header(admin: Console) -> None:
    """Clients that can set headers may."""
    headers = {"Authorization": f"Bearer {admin.token}"}
    async with (
        aiohttp.ClientSession(str(admin.http.base_url)) as session,
        session.ws_connect("/websocket", headers=headers) as socket,
    ):
        await Socket(socket).beats()


@pytest.mark.parametrize("token", [None, "", "Bearer ", "Bearer nonsense", "nonsense"])
async def test_strangers_are_refused(admin: Console, token: str | None) -> None:
    """403 before anything is opened."""
    query = {} if token is None else {"Authorization": token}
    async with aiohttp.ClientSession(str(admin.http.base_url)) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await session.ws_connect("/websocket", params=query)
    assert refusal.value.status == 403


async def test_without_an_upgrade(admin: Console) -> None:
    """A plain GET is a client's mistake."""
    answer = await admin.ask("GET", "/websocket")
    assert 400 <= answer.status_code < 500, answer.text


async def test_values_are_pushed(hall: Hall) -> None:
    """Keys as documented, values and times beside them; what is not subscribed is not told."""
    async with opened(hall.admin) as socket:
        await socket.subscribe(hall.key("temperature"), hall.key("reporting_interval.time"))
        await hall.report(temperature=21.5, counter=3, reporting_interval={"time": 5, "unit": "1"})
        assert await socket.told() == {
            hall.key("temperature"): 21.5,
            hall.key("reporting_interval.time"): 5,
        }


async def test_a_subscription_replaces_the_one_before(hall: Hall) -> None:
    """An empty one ends it; sets are each connection's own."""
    async with opened(hall.admin) as socket, opened(hall.admin) as other:
        await other.subscribe(hall.key("counter"))
        await socket.subscribe(hall.key("temperature"))
        await socket.subscribe(hall.key("led"))
        await hall.report(temperature=1, led=True, counter=8)
        assert await socket.told() == {hall.key("led"): True}
        await socket.subscribe()
        await hall.report(temperature=2, led=False, counter=9)
        await socket.beats()
        assert await other.told() == {hall.key("counter"): 8}
        assert await other.told() == {hall.key("counter"): 9}


async def test_events_and_custom_entities_are_pushed(hall: Hall) -> None:
    """An event with its outputs, and a custom entity that somebody sets."""
    custom = await add_custom(hall.admin)
    event = {"eventId": "historical_data", "outputs": {"temperature": 3.5}}
    async with opened(hall.admin) as socket:
        await socket.subscribe(hall.key("historical_data.temperature"), custom["key"])
        url = f"/ingest/v1/{hall.sn}/event"
        sent = await hall.api.http.post(url, json=event, auth=(hall.sn, hall.secret))
        assert sent.status_code == 202, sent.text
        assert await socket.told() == {hall.key("historical_data.temperature"): 3.5}
        body = {"exchange": {custom["key"]: 4}}
        await hall.admin.ask("POST", "/entity/property/update", body)
        assert await socket.told() == {custom["key"]: 4}


async def test_ids_are_understood_as_keys(hall: Hall) -> None:
    """An existing console's pie chart subscribes with the id of the entity."""
    led = hall.entities["led"]
    async with opened(hall.admin) as socket:
        await socket.subscribe(led, UNKNOWN)
        await hall.report(led=True)
        assert await socket.told() == {led: True}


async def test_a_thousand_unknown_keys_do_no_harm(hall: Hall) -> None:
    """They are never told of; what exists among them is."""
    unknown = [f"direct.device.NOBODY{at}.k" for at in range(1000)]
    async with opened(hall.admin) as socket:
        await socket.subscribe(*unknown, "", ":", hall.key("counter"), hall.key("nothing"))
        await hall.report(counter=77)
        assert await socket.told() == {hall.key("counter"): 77}


async def test_as_many_keys_as_documented(hall: Hall) -> None:
    """10,000 keys of the length that keys have are one subscription; one more is refused."""
    keys = [
        f"direct.device.6785E{at:011d}.reporting_interval.time_of_the_day" for at in range(9999)
    ]
    async with opened(hall.admin) as socket:
        await socket.subscribe(*keys, hall.key("counter"))
        await hall.report(counter=78)
        assert await socket.told() == {hall.key("counter"): 78}
        more = {"entity_key": [*keys, hall.key("counter"), "one.too.many"]}
        await socket.socket.send_json({"event_type": "Exchange", "payload": more})
        code, reason = await socket.closed()
    assert (code, "10000" in reason) == (1007, True)


@pytest.mark.parametrize(
    "frame",
    [
        "nonsense", "", "[]", "7", '{"event_type":7}', '{"payload":{"entity_key":[]}}',
        '{"event_type":"Exchange"}', '{"event_type":"Exchange","payload":[]}',
        '{"event_type":"Exchange","payload":{"entity_key":"k"}}',
        '{"event_type":"Exchange","payload":{"entity_key":[7]}}',
        '{"event_type":"Exchange","payload":{"entity_key":["' + "k" * 513 + '"]}}',
    ],
)  # fmt: skip
async def test_a_malformed_frame_closes_with_a_reason(admin: Console, frame: str) -> None:
    """1007 and what is wrong."""
    async with opened(admin) as socket:
        await socket.socket.send_str(frame)
        code, reason = await socket.closed()
    assert code == 1007
    assert reason


async def test_unknown_and_binary_frames(admin: Console) -> None:
    """Unknown kinds are ignored, case does not matter, and binary frames close the connection."""
    async with opened(admin) as socket:
        await socket.socket.send_str('{"event_type":"Weather","payload":1}')
        beat = '{"event_type":"HEARTBEAT","payload":"ping"}'
        await socket.socket.send_str(beat)
        assert await socket.receive() == beat
        await socket.socket.send_bytes(b"\x00\x01")
        code, _ = await socket.closed()
        assert code in {1003, 1007}


async def test_an_oversized_frame_closes(admin: Console) -> None:
    """1009, long before it costs anything."""
    async with opened(admin) as socket:
        await socket.socket.send_str(" " * 2**21)
        code, _ = await socket.closed()
    assert code == 1009


@pytest.mark.parametrize("kind", ["ENTITY", "DEVICE", "INTEGRATION"])
async def test_with_one_grant(hall: Hall, kind: str) -> None:
    """The socket receives only updates of the granted resource."""
    ids = {"ENTITY": hall.entities["led"], "DEVICE": hall.device, "INTEGRATION": DIRECT_INTEGRATION}
    person = await hall.person(*VIEW, grants=((kind, ids[kind]),))
    async with opened(person) as socket:
        await socket.subscribe(hall.key("led"), hall.key("counter"))
        await hall.report(led=True, counter=5)
        expected = {hall.key("led"): True}
        if kind != "ENTITY":
            expected[hall.key("counter")] = 5
        assert await socket.told() == expected


async def test_other_users_get_no_updates(hall: Hall, other_admin: Console) -> None:
    """Users without grants and other tenants receive nothing."""
    person = await hall.person(*VIEW)
    key = hall.key("counter")
    async with opened(person) as one, opened(other_admin) as two, opened(hall.admin) as ours:
        for socket in (one, two, ours):
            await socket.subscribe(key, hall.entities["counter"])
        await hall.report(counter=6)
        assert await ours.told() == {key: 6, hall.entities["counter"]: 6}
        for socket in (one, two):
            await socket.beats()


async def test_changed_grants_apply_to_open_sockets(hall: Hall) -> None:
    """New grants add updates, and removed grants end them."""
    person = await hall.admin.person()
    role = await hall.admin.add_role(*VIEW, users=(person.id,))
    body = {"resources": [{"type": "DEVICE", "id": hall.device}]}
    path, key = f"/user/roles/{role}", hall.key("counter")
    async with opened(person) as socket, opened(hall.admin) as ours:
        await socket.subscribe(key)
        await ours.subscribe(key)
        await hall.admin.does("POST", f"{path}/associate-resource", body)
        at = 100
        while True:  # the sockets are judged anew twice a second
            await hall.report(counter=(at := at + 1))
            await ours.told()
            try:
                assert await asyncio.wait_for(socket.told(), 0.3) == {key: at}
                break
            except TimeoutError:
                assert at < 150
        await hall.admin.does("POST", f"{path}/disassociate-resource", body)
        await asyncio.sleep(1)  # the promise: within a second
        await hall.report(counter=7)
        assert await ours.told() == {key: 7}
        await socket.beats()
    await person.close()


async def test_a_revoked_token_closes_its_sockets(hall: Hall) -> None:
    """A reset password ends them with a reason."""
    person = await hall.person(*VIEW)
    async with opened(person) as socket:
        await socket.beats()
        path = f"/user/members/{person.id}/change-password"
        answer = await hall.admin.ask("PUT", path, {"password": "Another22"})
        assert answer.status_code == 200
        assert await socket.closed() == (1008, "the token is no longer valid")
