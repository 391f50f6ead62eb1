"""How many bytes a data rate carries (LoRaWAN Regional Parameters RP002-1.0.4). No I/O."""

import re

LEAST = 51
"""Bytes that every data rate of a downlink carries, but for regions with dwell times."""
CARRIED = {7: 222, 8: 222, 9: 115}
"""Bytes by spreading factor at 125 kHz; slower ones carry `LEAST`."""
MIRRORED = range(902_000_000)
"""Hz of regions whose downlinks have the rate of the uplink before; others have their own."""

_RATE = re.compile(r"SF(\d{1,2})BW125$")


def largest_payload(data_rate: str, frequency: int | None) -> int:
    """Bytes that surely fit into the answer to an uplink of this rate (`SF7BW125`) and Hz.

    Of what is not known the least is taken.
    """
    found = _RATE.match(data_rate)
    if found is None or frequency is None or frequency not in MIRRORED:
        return LEAST
    return CARRIED.get(int(found[1]), LEAST)
