"""Commands while processes die: what was accepted is carried out and told."""

import asyncio
import contextlib

import aiomqtt
import pytest

from tests.e2e.callers import Application
from tests.e2e.devices import Device
from tests.e2e.platform import Platform
from tests.e2e.waiting import until

pytestmark = pytest.mark.xdist_group("platform")


async def _obey(device: Device) -> None:
    """Answer every command, over connection after connection."""
    while True:
        with contextlib.suppress(aiomqtt.MqttError, TimeoutError):
            async with device.mqtt(identifier=f"c-{device.sn}", clean=False) as mqtt:
                while True:
                    await mqtt.answer(await mqtt.command(60))
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "name",
    [
        "device",
        "mongod",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("device-ingest", "nats")),
    ],
)
async def test_accepted_commands_survive_a_death(
    platform: Platform, application: Application, name: str
):
    """Each task accepted around the death of a process ends in SUCCESS."""
    device = await application.add_device()
    obeying = asyncio.create_task(_obey(device))
    tasks: list[int] = []

    async def order(value: int) -> bool:
        body = {
            "type": "TSL",
            "deviceIds": [device.id],
            "config": {"properties": {"interval": value}},
        }
        status, answer = await application.request("POST", "/tasks", body)
        if status == 200:
            tasks.append(answer["data"]["deviceTaskRelations"][0]["taskId"])
        elif status == 401:
            await application.log_in()
        else:
            assert status >= 500, answer
        return status == 200

    try:
        await device.becomes("ONLINE")
        for value in range(1, 11):
            assert await order(value)
        pid = await platform.kill(name)
        for value in range(11, 31):
            await order(value)
        await platform.restarted(name, pid)
        await until(lambda: order(1000), 30)

        async def carried_out() -> bool:
            states = [(await device.task(one))["status"] for one in tasks]
            return set(states) == {"SUCCESS"}

        await until(carried_out, 180)  # batches in hand come again after 30 s
        assert len(tasks) == len(set(tasks)) >= 11
    finally:
        obeying.cancel()
        await asyncio.gather(obeying, return_exceptions=True)
