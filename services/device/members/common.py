"""What every device has beside its TSL: its status, its place, and its alarm.

Their numbers are the last ones of a thing, so that they are the same for every device. Searches of
entities do not list them: no number of devices by model counts them. Consoles find them in
`common_entities` of a device. A TSL that has a member of the same id hides the one here.
"""

from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from libs.common.things import (
    ADDRESS,
    ALARM,
    ALARM_CONTENT,
    ALARM_STATUS,
    ALARM_TIME,
    LAST_MEMBER,
    LATITUDE,
    LOCATION,
    LONGITUDE,
    STATUS,
    ValueType,
)
from services.device.members.member import Member, MemberSet

_COORDINATE = {"unit": "°", "fraction_digits": 6, "optional": True}
_MEMBERS: list[tuple[str, str, ValueType, dict[str, Any]]] = [
    (STATUS, "Status", "STRING", {"enum": {"ONLINE": "Online", "OFFLINE": "Offline"}}),
    (LOCATION, "Location", "OBJECT", {}),
    (LATITUDE, "Latitude", "DOUBLE", {"min": -90, "max": 90, **_COORDINATE}),
    (LONGITUDE, "Longitude", "DOUBLE", {"min": -180, "max": 180, **_COORDINATE}),
    (ADDRESS, "Address", "STRING", {"min_length": 1, "max_length": 255, "optional": True}),
    (ALARM, "Alarm", "OBJECT", {}),
    (ALARM_STATUS, "Alarm status", "BOOLEAN", {}),
    (ALARM_TIME, "Alarm time", "LONG", {"unit": "ms"}),
    (ALARM_CONTENT, "Alarm content", "STRING", {}),
]
"""Path, name, type and attribute, by number from the last one down."""

COMMON = MemberSet(
    Member(
        number=LAST_MEMBER - place,
        path=path,
        type="PROPERTY",
        name=name,
        value_type=value_type,
        access_mod="R",
        attribute=attribute,
        parent=path.partition(".")[0] if "." in path else None,
    )
    for place, (path, name, value_type, attribute) in enumerate(_MEMBERS)
)

MOST_PROPERTIES, MOST_SERVICES = 10, 5
"""What widgets may show of a device first."""


@lru_cache(maxsize=1000)
def important(members: MemberSet) -> tuple[Member, ...]:
    """The members that come first in a TSL: readable values, then services.

    Each has its place, from 1, in its attribute (`important`), by which consoles order them.
    """
    first = [one for one in members.families() if one.parent is None and one.visible]
    values = (
        one
        for one in first
        if one.type == "PROPERTY" and one.value_type != "OBJECT" and one.access_mod in ("R", "RW")
    )
    services = (one for one in first if one.type == "SERVICE")
    chosen = [*islice(values, MOST_PROPERTIES), *islice(services, MOST_SERVICES)]
    return tuple(
        msgspec.structs.replace(one, attribute={**one.attribute, "important": place})
        for place, one in enumerate(chosen, 1)
    )
