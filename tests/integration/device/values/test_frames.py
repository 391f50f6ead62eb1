"""Frames of an integration, as users see them."""

from libs.common.clock import now_ms
from libs.common.contracts.frames import DeviceFrame, Frame, Reception, SendLinkState
from tests.integration.device.values.test_adding import lamp
from tests.integration.device.values.test_telling import latest, things
from tests.integration.device.values.world import Lamps, World

SCRIPT = """
function decodeUplink({bytes}) {
  if (bytes[0] > 1) throw Error('odd');
  return {data: {on: bytes[0], level: bytes[1]}};
}
"""


def told(sn: str, counter: int, data: bytes, tenant: str = "default") -> DeviceFrame:
    heard = [Reception(gateway="g1", rssi=-90, snr=5)]
    frame = Frame(
        port=2,
        data=data,
        counter=counter,
        session="a",
        ts=now_ms() - 9000 + counter,
        gateways=heard,
    )
    return DeviceFrame(tenant=tenant, identifier=sn, frame=frame)


async def test_frames_are_published_and_listed(world: World, lamps: Lamps):
    """Frames of unknown devices are rejected; others are listed with values or a reason."""
    await world.admin().done("POST", "/device", lamp("F-1"))
    await world.admin().done("PUT", "/product/LAMP/codec", {"script": SCRIPT})
    some = [told("F-1", 1, b"\x01\x05"), told("F-none", 1, b""), told("F-1", 1, b"", "other")]
    answer = await things(world).send_frames(
        [*some, told("F-1", 2, b"\x02"), told("F-1", 3, b"\0\x07")]
    )
    assert [one.index for one in answer.refused] == [1, 2]
    assert "F-none" in answer.refused[0].reason

    async def stored() -> bool:
        return await latest(world, "F-1") == {"on": False, "level": 7}

    await world.until(stored)
    device = (await world.device("F-1"))["_id"]
    path = f"/device/{device}/frames/search"
    page = await world.admin().done("POST", path, {"page_size": 2})
    assert [(entry["counter"], entry["hex"], entry.get("values")) for entry in page["content"]] == [
        (3, "0007", {"on": False, "level": 7}),
        (2, "02", None),
    ]
    assert page["content"][0]["gateways"] == [{"gateway": "g1", "rssi": -90.0, "snr": 5.0}]
    assert page["content"][1]["reason"] == "the codec Error: odd"
    rest = await world.admin().done("POST", path, {"next_key": page["next_key"]})
    assert [entry["values"] for entry in rest["content"]] == [{"on": True, "level": 5}]
    assert "next_key" not in rest


async def test_a_link_makes_a_device_online(world: World, lamps: Lamps):
    """A join or a link state makes the device online, and the last of each is stored."""
    await world.admin().done("POST", "/device", lamp("F-2"))
    for told in (
        {"kind": "JOINED", "ts": 2000},
        {"kind": "STATUS", "ts": 4000, "battery": 80.0, "margin": 7.0},
        {"kind": "STATUS", "ts": 3000, "external_power": True},
    ):
        await things(world).send_link_state(
            SendLinkState(tenant="default", identifier="F-2", **told)
        )
    device = (await world.device("F-2"))["_id"]
    shown = await world.admin().done("GET", f"/device/{device}")
    assert shown["joined"] == 2000
    assert shown["link"] == {"at": 4000, "battery": 80.0, "margin": 7.0}

    async def online() -> bool:
        return bool((await world.device("F-2"))["connectStatus"] == "ONLINE")

    await world.until(online)
