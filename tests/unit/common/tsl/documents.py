"""TSL documents for the tests: parts to build them of, whole ones, and random ones."""

from typing import Any

from hypothesis import strategies as st

from libs.common.tsl import CompiledTsl, compile_tsl, parse_document
from libs.common.tsl.limits import INT_RANGE, LONG_RANGE, MAX_DATE_SECONDS

RULES = {"min", "max", "minSize", "maxSize", "required"}


def param(member_id: str, kind: str = "INT", **spec: Any) -> dict[str, Any]:
    """A parameter; keyword arguments go to the `dataSpec` or its validator."""
    rules = {name: spec.pop(name) for name in RULES & spec.keys()}
    data_spec = {"dataType": kind, **spec} | ({"validator": rules} if rules else {})
    return {"id": member_id, "dataSpec": data_spec}


def prop(member_id: str, kind: str = "INT", access: str | None = "R", **spec: Any) -> dict:
    """A property or a member of one."""
    return param(member_id, kind, **spec) | {"accessMode": access}


def document(*properties: dict, events=(), services=()) -> dict[str, Any]:
    return {
        "version": "v1.0",
        "properties": list(properties),
        "events": list(events),
        "services": list(services),
    }


def tsl(*properties: dict, events=(), services=()) -> CompiledTsl:
    return compile_tsl(parse_document(document(*properties, events=events, services=services)))


def sensor() -> dict[str, Any]:
    """A document much like those of vendors: a sensor with settings, events and services."""
    return document(
        prop("temperature", "FLOAT", min=-20, max=70, fractionDigits=1, coefficient=0.1),
        prop("humidity", "FLOAT", min=0, max=100, fractionDigits=1),
        prop("battery", "INT", min=0, max=100),
        prop("sn", "STRING", maxSize=16),
        prop("magnet", "ENUM", mapping={"0": "closed", "1": "open"}),
        prop("measured", "DATE"),
        prop("interval", "STRUCT", "RW"),
        prop("interval.time", "INT", "RW", min=1, max=1440, defaultValue="10"),
        prop("interval.unit", "ENUM", "RW", mapping={"0": "min", "1": "h"}),
        prop("interval.left", "INT", "R", min=0),
        prop("key", "STRING", "W", encoding="HEX", minSize=8, maxSize=8),
        prop("plan", "ARRAY", "RW", minSize=1, maxSize=3),
        prop("plan._item", "STRUCT", "RW"),
        prop("plan._item.hour", "INT", "RW", min=0, max=23, required=True),
        prop("plan._item.on", "BOOL", "RW"),
        events=[
            {
                "id": "history",
                "type": "INFO",
                "outputs": [
                    param("history.at", "DATE", parentId="history", required=True),
                    param("history.temperature", "FLOAT") | {"ref": "temperature"},
                    param("history.plan", "ARRAY") | {"ref": "plan"},
                ],
            }
        ],
        services=[
            {"id": "reboot", "callType": "ASYNC", "inputs": [], "outputs": []},
            {
                "id": "fetch",
                "callType": "SYNC",
                "inputs": [param("fetch.from", "DATE", required=True), param("fetch.most")],
                "outputs": [param("fetch.count", "INT", min=0)],
            },
        ],
    )


def camera() -> dict[str, Any]:
    """A document with nesting, every encoding, and numbers without bounds."""
    return document(
        prop("serial", "STRING", encoding="ASCII", minSize=12, maxSize=16),
        prop("mac", "STRING", encoding="HEX", minSize=12, maxSize=12),
        prop("picture", "STRING", encoding="BASE64", minSize=5, maxSize=10),
        prop("title", "STRING", "RW", encoding="UTF8", defaultValue="door"),
        prop("total", "LONG"),
        prop("noise", "DOUBLE"),
        prop("cold", "INT", max=-40),
        prop("zones", "ARRAY", maxSize=4),
        prop("zones._item", "STRUCT"),
        prop("zones._item.counts", "ARRAY", elementDataType="INT", min=0, minSize=3),
        prop("zones._item.area", "STRUCT"),
        prop("zones._item.area.corners", "ARRAY", elementDataType="DOUBLE", maxSize=8),
        prop("zones._item.area.shown", "BOOL", required=True),
    )


KEYS = ["a", "bc", "time_zone", "é", "type"]
SCALARS = ["BOOL", "INT", "LONG", "DATE", "FLOAT", "DOUBLE", "ENUM", "STRING"]
WHOLE = {"INT": INT_RANGE, "LONG": LONG_RANGE, "DATE": (0, MAX_DATE_SECONDS)}
TRUTH = st.booleans()


@st.composite
def specs(draw, kind: str) -> dict[str, Any]:
    """What `param` takes for a member of type `kind`: bounds, encoding, mapping."""
    made: dict[str, Any] = {"required": True} if draw(TRUTH) else {}
    if kind in WHOLE:
        low, high = WHOLE[kind]
        made |= draw(_bounds(st.integers(low, high) | st.integers(max(low, -9), 9)))
    elif kind in {"FLOAT", "DOUBLE"}:
        numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5)
        made |= draw(_bounds(numbers)) | draw(st.sampled_from([{}, {"fractionDigits": 1}]))
    elif kind == "ENUM":
        made["mapping"] = {key: key for key in draw(st.sets(st.sampled_from("012a"), min_size=1))}
    elif kind == "STRING":
        made |= draw(_sizes(4)) | draw(_encoding())
    elif kind == "ARRAY":
        made |= draw(_sizes(0))
    return made


@st.composite
def _bounds(draw, numbers) -> dict[str, Any]:
    low, high = sorted([draw(numbers), draw(numbers)])
    return draw(st.sampled_from([{}, {"min": low}, {"max": high}, {"min": low, "max": high}]))


@st.composite
def _sizes(draw, room: int) -> dict[str, int]:
    low = draw(st.integers(0, 3))
    high = low + draw(st.integers(0, 3)) + room
    both = {"minSize": low, "maxSize": high}
    return draw(st.sampled_from([{}, {"minSize": low}, {"maxSize": high}, both]))


def _encoding():
    return st.sampled_from([{}, *({"encoding": name} for name in ("HEX", "ASCII", "BASE64"))])


@st.composite
def member_lists(draw, member_id: str, access: str | None = None, depth: int = 0) -> list[dict]:
    """A property with all that lies in it."""
    kinds = SCALARS + ["STRUCT", "ARRAY"] * (depth < 3)
    kind = draw(st.sampled_from(kinds))
    modes = ["R"] if access == "R" else ["R", "W", "RW"]
    access = draw(st.sampled_from(modes))
    spec = draw(specs(kind))
    inner: list[dict] = []
    if kind == "STRUCT":
        for key in draw(st.sets(st.sampled_from(KEYS), min_size=1, max_size=3)):
            inner += draw(member_lists(f"{member_id}.{key}", access, depth + 1))
    elif kind == "ARRAY" and draw(TRUTH):
        spec["elementDataType"] = draw(st.sampled_from(["BOOL", "LONG", "DOUBLE", "STRING"]))
    elif kind == "ARRAY":
        inner = draw(member_lists(f"{member_id}._item", access, depth + 1))
    return [prop(member_id, kind, access, **spec), *inner]


@st.composite
def documents(draw) -> dict[str, Any]:
    """Any document: properties of every type, one event and one service like them."""
    keys = draw(st.sets(st.sampled_from(KEYS), min_size=1, max_size=4))
    properties = [entry for key in sorted(keys) for entry in draw(member_lists(key))]
    given = [param(f"x.{entry['id']}") | {"dataSpec": entry["dataSpec"]} for entry in properties]
    return document(
        *properties,
        events=[{"id": "x", "outputs": given}],
        services=[{"id": "x", "inputs": given, "outputs": given}],
    )


ODD = [
    *(None, True, False, 0, 1, -1, 5, 1.0, 1.5, -0.0, 1e300, 2**31, -(2**63), 2**63, 10**30),
    *("", "0", "1", "a", "AB", "ABC", "QUI=", "QUI", "é", "\x00", "xxxxxxxxxxxxxxxxxxxxx"),
    *([], {}, [1], [None], [[1]], {"a": 1}, {"a": None}, {"_item": 1}, {"bc": {"a": 1.5}}),
]


@st.composite
def spoilt(draw, value: Any) -> Any:
    """`value` with something in it, at any depth, left out, added or replaced."""
    if isinstance(value, dict) and value and draw(TRUTH):
        key = draw(st.sampled_from(sorted(value)))
        return value | {key: draw(spoilt(value[key]))}
    if isinstance(value, list) and value and draw(TRUTH):
        return [draw(spoilt(value[0])), *value[1:]]
    if isinstance(value, dict) and draw(TRUTH):
        return dict(list(value.items())[1:]) | draw(st.sampled_from([{}, {"type": 1}, {"no": 1}]))
    return draw(st.sampled_from([value, *ODD]))
