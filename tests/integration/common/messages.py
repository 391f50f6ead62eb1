"""Messages for tests of the bus."""

from libs.common.bus import EVENTS, Bus, OutgoingMessage


def events(*numbers: int, prefix: str = "") -> list[OutgoingMessage]:
    return [
        OutgoingMessage(f"event.t.device.{n}.x", b"%d" % n, f"{prefix}{n}" if prefix else None)
        for n in numbers
    ]


async def texts(bus: Bus, stream: str = EVENTS) -> list[bytes]:
    info = await bus.js.stream_info(stream)
    numbers = range(max(1, info.state.first_seq), info.state.last_seq + 1)
    return [(await bus.js.get_msg(stream, number)).data or b"" for number in numbers]
