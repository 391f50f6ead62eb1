"""What a codec made of a frame, judged by the TSL of its device. No I/O."""

from typing import Any, NamedTuple

from libs.common.tsl import Fault, Tsl
from services.device.codecs.memories import take_memories
from services.device.codecs.scripts import decoded
from services.device.codecs.worker import Outcome
from services.device.telemetry.batch import LONGEST_REASON, Reading
from services.device.things.codec_model import Codec, CodecFailed


class Judged(NamedTuple):
    """The good properties and the faults; all is refused when there is a `reason`."""

    properties: dict[str, Any]
    past: list[Reading]
    faults: list[Fault]
    reason: str = ""

    @property
    def said(self) -> str:
        """Why all of it, or a part of it, is refused."""
        return (self.reason or _text(self.faults))[:LONGEST_REASON]


def judge(codec: Codec, outcome: Outcome, tsl: Tsl, oldest: int, newest: int) -> Judged:
    """What is taken of a frame; what it remembered has to be of `oldest` to `newest` (ms)."""
    try:
        given, _, left_out = decoded(codec.decoder, outcome.given())
    except CodecFailed as error:
        return Judged({}, [], [], f"the codec {error}")
    readings, faults = take_memories(given, tsl, oldest, newest)
    properties, bad = tsl.check_decoded(given)
    faults = [*left_out, *bad, *faults]
    if faults and not properties and not readings:
        return Judged({}, [], faults, _text(faults))
    return Judged(properties, readings, faults)


def _text(faults: list[Fault]) -> str:
    return "; ".join(map(str, faults[:20]))
