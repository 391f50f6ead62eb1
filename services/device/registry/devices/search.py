"""Searches for devices, and locations in requests."""

import math
from collections.abc import Iterator

from libs.common.errors import InvalidInput
from libs.common.http.console import distinct_ids
from libs.common.identity.grants import Grants
from libs.common.store.mongo import build_text_condition, literal_pattern
from services.device.members.values import ValueFault
from services.device.registry.devices.schemas import Area, FindDevices, LocationInput, SearchDevices
from services.device.things.device_search import (
    INTEGRATION_NAME_FIELD,
    IndexFilter,
    PageQuery,
    SortFields,
)
from services.device.things.model import Location
from services.device.things.schemas import build_order
from services.device.things.serial_numbers import serial_key
from services.device.things.visibility import (
    INDEX_BY_SORT_FIELD,
    MATCHES_NOTHING,
    MIN_GRANTED_FOR_INDEX,
    Condition,
    condition_without_groups,
    disjoint_conditions,
    granted_condition,
    sort_index_hint,
)

OPEN_API_SORT_FIELD_BY_COLUMN = {
    "sn": "snKey",
    "deviceId": "_id",
    "devEUI": "devEUI",
    "imei": "imei",
    "name": "name",
    "description": "description",
    "project": "project",
    "tag": "tag",
    "model": "model",
    "tslVersion": "tslVersion",
    "deviceType": "deviceType",
    "connectStatus": "connectStatus",
    "licenseStatus": "licenseStatus",
    "rpsStatus": "rpsStatus",
    "autopStatus": "rpsStatus",
    "hardwareVersion": "hardwareVersion",
    "firmwareVersion": "firmwareVersion",
    "electricity": "electricity",
    "lastUpdateTime": "lastUpdateTime",
    "application": "application.applicationName",
    "mac": "mac",
    "wlanMac": "wlanMac",
    "dataStorage": "dataStorage",
}
"""The stored field of each field of the record. The stored `lastUpdateTime` lags behind the newest
report by up to 10 s, and so does an order by it; the returned times are exact."""


SORT_FIELD_BY_COLUMN = {
    "id": "_id",
    "key": "key",
    "name": "name",
    "identifier": "identifier",
    "integration": "integration",
    "integration_name": INTEGRATION_NAME_FIELD,
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "model": "model",
    "status": "connectStatus",
}
"""The stored field of each sort field of the management API."""
_STORED_STATUS_BY_STATUS = {"NEVER_SEEN": "DISCONNECT"}
"""Stored value of each status that is stored under another name."""


def build_query(tenant: str, application_id: int, search: SearchDevices) -> PageQuery:
    """Translate a search for devices of an application.

    Raises `InvalidInput` for a wrong order and for contradictory bounds.
    """
    low, high = search.electricity_min, search.electricity_max
    if low is not None and high is not None and low > high:
        raise InvalidInput("must not exceed electricityMax", field="electricityMin")
    scope: Condition = {"tenant": tenant, "application.applicationId": application_id}
    conditions = [scope, *_application_conditions(search)]
    return PageQuery(
        filter=conditions[0] if len(conditions) == 1 else {"$and": conditions},
        order=build_order(search.sorts or [], OPEN_API_SORT_FIELD_BY_COLUMN),
        skip=(search.page_number - 1) * search.page_size,
        limit=search.page_size,
        texts=[text for text in (search.name, search.keyword) if text],
        scope=scope,
    )


def _application_conditions(search: SearchDevices) -> Iterator[Condition]:
    if search.application_id is not None:
        yield {"application.applicationId": search.application_id}
    yield from _exact_conditions(search)
    yield from _substring_conditions(search)
    yield from _choice_conditions(search)
    if search.electricity_min is not None:
        yield {"electricity": {"$gte": search.electricity_min}}
    if search.electricity_max is not None:
        yield {"electricity": {"$lte": search.electricity_max}}


def _exact_conditions(search: SearchDevices) -> Iterator[Condition]:
    if search.sn:
        yield {"snKey": serial_key(search.sn)}
    if search.dev_eui:
        yield {"devEUI": search.dev_eui.upper()}
    if search.imei:
        yield {
            "imei": {"$regex": "^" + literal_pattern(search.imei, "imei") + "$", "$options": "i"}
        }
    if search.project:
        yield {"project": search.project}


def _substring_conditions(search: SearchDevices) -> Iterator[Condition]:
    if search.keyword:
        serial = {"$regex": literal_pattern(search.keyword.upper())}
        yield {
            "$or": [
                {"name": build_text_condition(search.keyword)},
                {"snKey": serial},
                {"devEUI": serial},
            ]
        }
    for name, text in (
        ("name", search.name),
        ("model", search.model),
        ("hardwareVersion", search.hardware_version),
        ("firmwareVersion", search.firmware_version),
    ):
        if text:
            yield {name: build_text_condition(text, name)}


def _choice_conditions(search: SearchDevices) -> Iterator[Condition]:
    tags = [search.tag] if isinstance(search.tag, str) and search.tag else search.tag
    for name, values in (
        ("connectStatus", search.connect_status),
        ("deviceType", search.device_type),
        ("rpsStatus", search.rps_status),
        ("rpsStatus", search.autop_status),
        ("tag", tags),
    ):
        if values:
            yield {name: {"$in": list(dict.fromkeys(values))}}


def build_granted_query(
    tenant: str, grants: Grants, search: FindDevices
) -> tuple[PageQuery, list[Condition]]:
    """Return a device search as a query, and the conditions to count its matches.

    Both select only devices in `grants`. Each matching device meets exactly one condition, so the
    total is the sum of the conditions' counts. Raises `InvalidInput` for an invalid search.
    """
    filters = list(_user_conditions(search))
    order = _build_order(search)

    def join_conditions(part: Condition) -> Condition:
        conditions = [*filters, part] if part else filters
        return {"tenant": tenant, **({"$and": conditions} if conditions else {})}

    query = PageQuery(
        join_conditions(granted_condition(grants)),
        order,
        search.skip,
        search.size,
        None if filters else sort_index_hint(grants, order),
        [text for text in (search.name, search.identifier) if text],
        {"tenant": tenant},
        [*_index_filters(search), *(_granted_filters(grants) if filters else ())],
        INDEX_BY_SORT_FIELD.get(order[0][0]),
    )
    return query, [join_conditions(part) for part in disjoint_conditions(grants)]


def _user_conditions(search: FindDevices) -> Iterator[Condition]:
    """Yield one condition for each filter of a user's search."""
    if search.name:
        name_condition = {"name": build_text_condition(search.name, "name")}
        yield {"$or": [name_condition, {"snKey": serial_key(search.name)}]}
    if search.identifier:
        yield {"snKey": {"$regex": literal_pattern(search.identifier.upper(), "identifier")}}
    if search.integration:
        yield {"integration": search.integration}
    if search.group_id:
        yield {"group": search.group_id}
    if search.application_id:
        yield {"application.applicationId": search.application_id}
    if search.filter_not_grouped:
        yield {"group": None}
    for field, values in (
        ("_id", None if search.id_list is None else distinct_ids(search.id_list)),
        (
            "connectStatus",
            [_STORED_STATUS_BY_STATUS.get(status, status) for status in search.status or ()]
            or None,
        ),
        ("model", search.model or None),
        ("tag", search.tags or None),
    ):
        if values is not None:
            yield {field: {"$in": values}}
    if search.area is not None:
        yield _area_condition(search.area)


def _index_filters(search: FindDevices) -> Iterator[IndexFilter]:
    """Yield the filters of a search that an index can answer."""
    if search.id_list is not None:
        return  # ids select fewer devices than any index filter
    if search.group_id:
        yield IndexFilter("group", [{"group": search.group_id}])
    if search.application_id:
        owner = {"application.applicationId": search.application_id}
        yield IndexFilter("application", [owner])
    if search.filter_not_grouped:
        yield IndexFilter("group", [{"group": None}])
    if search.tags:
        yield IndexFilter("fleet_tag", [{"tag": tag} for tag in search.tags])
    if search.model:
        yield IndexFilter("fleet_model", [{"model": {"$in": search.model}}])
    if search.area is not None:
        yield IndexFilter("place", [_area_condition(search.area)])
    if search.status:
        stored = [_STORED_STATUS_BY_STATUS.get(status, status) for status in search.status]
        yield IndexFilter("fleet_status", [{"connectStatus": {"$in": stored}}])


def _granted_filters(grants: Grants) -> Iterator[IndexFilter]:
    """Yield the filter by groups, for a user whose only grants are groups."""
    only = not grants.everything and condition_without_groups(grants) == MATCHES_NOTHING
    if only and 0 < len(grants.resources.groups) <= MIN_GRANTED_FOR_INDEX:
        yield IndexFilter("group", [{"group": {"$in": sorted(grants.resources.groups)}}])


def _area_condition(area: Area) -> Condition:
    if area.south > area.north:
        raise InvalidInput("must not exceed north", field="area.south")
    latitude = {"location.latitude": {"$gte": area.south, "$lte": area.north}}
    west, east = {"$gte": area.west}, {"$lte": area.east}
    if area.west <= area.east:
        return {**latitude, "location.longitude": west | east}
    return {**latitude, "$or": [{"location.longitude": west}, {"location.longitude": east}]}


def _build_order(search: FindDevices) -> SortFields:
    """Return the sort order; `key` sorts by integration, then by identifier.

    The last criterion is the id. If the search does not sort by it, the id has the direction of the
    first criterion, so that an index can be walked.
    """
    order: SortFields = []
    for column, direction in search.order(SORT_FIELD_BY_COLUMN):
        parts = ("integration", "identifier") if column == "key" else (column,)
        order += [(part, direction) for part in parts]
    names = {sort.property for sort in search.sorts or ()}
    if len(order) > 1 and "id" not in names:
        order[-1] = ("_id", order[0][1])
    return order


COORDINATE_MISSING_CODE = "device_location_latitude_and_longitude_not_both_provided"
MAX_DEGREES_BY_COORDINATE = {"latitude": 90.0, "longitude": 180.0}
"""Degrees on either side of the equator and of the prime meridian (WGS 84)."""


def parse_location(sent: LocationInput, field: str = "") -> Location | None:
    """Return the location of a request, or None; raise `InvalidInput`.

    `field` is the prefix of its fields in the body, with a dot at the end.
    """
    latitude = _parse_degrees("latitude", sent.latitude, field)
    longitude = _parse_degrees("longitude", sent.longitude, field)
    address = (sent.address or "").strip() or None
    if latitude is not None and longitude is not None:
        return Location(latitude, longitude, address)
    if latitude is not None or longitude is not None:
        raise InvalidInput(
            "give both latitude and longitude",
            field=field + ("longitude" if longitude is None else "latitude"),
            code=COORDINATE_MISSING_CODE,
        )
    if address is not None:
        raise InvalidInput(
            "an address needs latitude and longitude",
            field=f"{field}address",
            code="device_location_setting_address_without_latitude_and_longitude",
        )
    return None


def _parse_degrees(name: str, sent: float | str | None, field: str) -> float | None:
    if sent is None or sent == "":
        return None
    try:
        value = float(sent)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        text = f"{name} must be a number of degrees"
        raise _location_error(
            field + name, ValueFault(f"device_location_{name}_type_error", text, {})
        )
    maximum = MAX_DEGREES_BY_COORDINATE[name]
    if abs(value) > maximum:
        text = f"{name} must be from {-maximum:g} to {maximum:g}"
        args = {"entity_name": name, "value": value, "min": -maximum, "max": maximum}
        raise _location_error(field + name, ValueFault("entity_value_out_of_range", text, args))
    return value


def _location_error(field: str, fault: ValueFault) -> InvalidInput:
    return InvalidInput(fault.error_message, field=field, code="multiple_error", detail=[fault])
