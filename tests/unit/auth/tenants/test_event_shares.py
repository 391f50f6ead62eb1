"""How the bytes of a stream are divided among tenants."""

import math

import pytest

from services.auth.tenants.event_shares import compute_volume_cap


@pytest.mark.parametrize(
    ("volumes", "room", "share"),
    [
        ([], 10, math.inf),
        ([4, 6], 10, math.inf),
        ([12], 10, 10),
        ([1, 12], 10, 9),
        ([7, 1, 8], 10, 4.5),
        ([5, 5, 5, 5], 10, 2.5),
        ([0, 0, 30], 10, 10),
    ],
)
def test_shares_fill_the_room(volumes: list[float], room: float, share: float):
    """Volumes cut to the share fill the room, or all volumes fit."""
    assert compute_volume_cap(volumes, room) == share
    assert sum(min(volume, share) for volume in volumes) <= room
