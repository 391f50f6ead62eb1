"""Batches that only hold second copies of MQTT messages."""

from dataclasses import fields
from unittest.mock import AsyncMock, Mock

from nats.aio.msg import Msg

from services.device.telemetry.ingest import Ingest

ACK = "$JS.ACK.UPLINK.ingest.1.{}.1.1700000000000000000.0"


async def test_second_copies_are_only_acknowledged() -> None:
    """The batch with the first copies does not wait for reads or writes of an empty batch."""
    parts = {field.name: Mock(name=field.name) for field in fields(Ingest) if field.init}
    parts["bus"].client = client = AsyncMock()
    headers = {"Nmqtt-Pub": "1"}
    copies = [
        Msg(client, subject="thing.S.up.report", reply=ACK.format(number), headers=headers)
        for number in (1, 2)
    ]

    await Ingest(**parts).handle(copies)

    frames = client._send_command.call_args.args[0]
    assert frames == b"".join(b"PUB %s 0\r\n\r\n" % copy.reply.encode() for copy in copies)
    assert not any(part.mock_calls for name, part in parts.items() if name != "bus")
