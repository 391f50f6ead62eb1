"""What pages show on pictures: a dashboard, a flow, and an import with a fault."""

from typing import Any

from tests.contract.client import MODEL
from tests.contract.console import Console, console_accepted
from tests.contract.hall import add_custom
from tests.integration.workflow.designs import choice, design, edge, node, when

Json = dict[str, Any]
DAY = 86_400_000
SHEET = "Name,SN,Model,Latitude,Longitude\n"


def widget(kind: str, place: tuple[int, int, int, int], *entities: Json, **settings: Any) -> Json:
    """A widget of a board, at x, y, with w and h."""
    sources = [{"id": entity["id"], "key": entity["key"]} for entity in entities]
    pos = dict(zip("xywh", place, strict=True))
    shown = {"entities": sources, **settings}
    return {"data": {"type": "thingway", "kind": kind, "pos": pos, "settings": shown}}


async def measured(admin: Console, device: str, name: str) -> Json:
    """An entity of a device."""
    entities = (await admin.done("GET", f"/device/{device}"))["entities"]
    return next(entity for entity in entities if entity["key"].endswith(f".{name}"))


async def add_board(admin: Console, devices: list[str]) -> str:
    """A board of rooms with their latest two days; the id of its canvas."""
    warm = [await measured(admin, one, "temperature") for one in devices]
    charge = [await measured(admin, one, "battery") for one in devices]
    made = await admin.done("POST", "/dashboard", {"name": "Building", "description": "All rooms"})
    widgets = [
        *(widget("value", (3 * at, 0, 3, 2), one, digits=1) for at, one in enumerate(warm[:3])),
        widget("gauge", (9, 0, 3, 4), warm[3], title="Server room", least=10, most=40, digits=1),
        widget("line", (0, 2, 9, 4), *warm[:3], title="Last two days", span=2 * DAY, style="line"),
        widget("bar", (0, 6, 6, 4), *warm, title="Average temperature", span=2 * DAY, digits=1),
        widget("table", (6, 6, 6, 4), *charge, title="Batteries"),
        widget("text", (9, 4, 3, 2), text="Too warm? Call the caretaker."),
    ]
    canvas = str(made["main_canvas_id"])
    body = {
        "name": "Building",
        "widgets": widgets,
        "entity_ids": [one["id"] for one in [*warm, *charge]],
    }
    saved = await admin.ask("PUT", f"/canvas/{canvas}", body)
    console_accepted(saved, data=False)
    return canvas


async def add_flow(admin: Console, device: str) -> str:
    """A flow that turns a fan on while a room is too warm; its id."""
    warm = (await measured(admin, device, "temperature"))["key"]
    fan = (await add_custom(admin, name="Fan", value_type="BOOLEAN"))["key"]
    value = f"#{{properties.start['{warm}']}}"
    nodes = [
        named("start", "eventListener", "Temperature", (0, 120), entities=[warm]),
        {**choice(when("hot", value, "GT", "27")), "position": {"x": 330, "y": 90}},
        named("on", "entityAssigner", "Fan on", (680, 20), exchangePayload={fan: "true"}),
        named("off", "entityAssigner", "Fan off", (680, 230), exchangePayload={fan: "false"}),
    ]
    nodes[1]["data"]["nodeName"] = "Too warm?"
    edges = [edge("start", "fork"), edge("fork", "on", "hot"), edge("fork", "off", "else")]
    body = {"name": "Switch on the fan when it is hot", "design_data": design(nodes, *edges)}
    return str((await admin.done("POST", "/workflow/flows/design", body))["id"])


def named(node_id: str, component: str, name: str, at: tuple[int, int], **more: Any) -> Json:
    """A node with a name at a place."""
    made = node(node_id, component, **more)
    made["data"]["nodeName"] = name
    return {**made, "position": {"x": at[0], "y": at[1]}}


async def add_import(admin: Console) -> str:
    """An import whose sheet has a fault; its id."""
    rows = [f"Room {number},CTIMP{number},{MODEL},52.{number},4.9" for number in range(1, 5)]
    rows[2] = f"Room 3,CTIMP3,{MODEL},north,4.9"
    files = {"file": ("rooms.csv", SHEET + "\n".join(rows))}
    asked = {"integration": "direct"}
    begun = await admin.ask("POST", "/device-batch/import", data=asked, files=files)
    return str(console_accepted(begun)["import_id"])
