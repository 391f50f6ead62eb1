"""Devices in sheets, as the console sends them."""

import asyncio
import csv
import io
import logging
import zipfile
from typing import Any

import pytest
import xlsxwriter
from python_calamine import CalamineWorkbook

from libs.common.contracts.access import ResourceType
from libs.common.errors import TooManyRequests
from libs.common.identity.functions import Function
from services.device.registry.imports import worker
from services.device.registry.imports.sheet_writer import MEDIA_TYPE
from services.device.things import groups as store
from tests.console import User
from tests.integration.device.values.world import LAMP, Lamps, World

BATCH = "/device-batch"
SN, MODEL = "direct.integration.add_device.sn", "direct.integration.add_device.model"
HEADS = ["Name", "SN", "Model", "Device Group", "Latitude", "Longitude", "Address"]


def form(content: bytes, integration: str = "direct", **more: Any) -> dict[str, Any]:
    """A multipart form with a file."""
    return {"data": {"integration": integration, **more}, "files": {"file": ("devices", content)}}


def sheet(*rows: list[Any], heads: list[str] = HEADS[:4]) -> bytes:
    """A CSV file."""
    text = io.StringIO()
    csv.writer(text).writerows([heads, *rows])
    return text.getvalue().encode()


def table(content: bytes, name: str = "DEVICES_LIST") -> list[list[Any]]:
    """The cells of a workbook."""
    return CalamineWorkbook.from_filelike(io.BytesIO(content)).get_sheet_by_name(name).to_python()


async def file(user: User, path: str, body: Any = None, **given: Any) -> bytes:
    """A file that is answered."""
    answer = await user.ask("POST", f"{BATCH}/{path}", body, **given)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    return answer.content


async def imported(user: User, content: bytes, **more: Any) -> dict[str, Any]:
    """An import that has ended."""
    begun = await user.done("POST", f"{BATCH}/import", **form(content, **more))
    path = f"{BATCH}/import/{begun['import_id']}"
    async with asyncio.timeout(60):
        while (known := await user.done("GET", path))["state"] == "RUNNING":
            await asyncio.sleep(0.05)
    return known


def counts(known: dict[str, Any]) -> tuple[str, int, int, int]:
    """How an import ended."""
    return known["state"], known["created"], known["updated"], known["failed"]


async def faults(user: User, known: dict[str, Any]) -> dict[int, list[tuple[str, str]]]:
    """Columns and codes of the faults of each row."""
    page = await user.done("POST", f"{BATCH}/import/{known['import_id']}/faults")
    return {
        row["row"]: [(fault.get("column", ""), fault["error_code"]) for fault in row["faults"]]
        for row in page["content"]
    }


async def test_rows_become_devices_with_group_and_place(world: World):
    """Every one is there when the import is done, and says who added it."""
    content = sheet(
        ["Roof", "I1-a", "", "I1", 52.5, 13.4, "Alex"],
        ["Cellar", "I1-b", "", "", "", "", ""],
        heads=HEADS,
    )
    assert counts(await imported(world.admin(), content)) == ("DONE", 2, 0, 0)
    roof, cellar = await world.device("I1-a"), await world.device("I1-b")
    assert roof["location"] == {"latitude": 52.5, "longitude": 13.4, "address": "Alex"}
    assert (roof["name"], roof["userId"], cellar["name"]) == ("Roof", 1, "Cellar")
    (group,) = (await world.admin().done("POST", "/device-group/search", {"name": "I1"}))["content"]
    assert (roof["group"], cellar.get("group")) == (int(group["id"]), None)


async def test_the_same_sheet_again_changes_nothing_and_an_altered_one_changes_devices(
    world: World,
):
    """A device is known by its SN; blank cells leave what it has."""
    admin = world.admin()
    content = sheet(["Roof", "I2-a", "", "I2", 1, 2], heads=HEADS[:6])
    assert counts(await imported(admin, content)) == ("DONE", 1, 0, 0)
    before = await world.device("I2-a")
    assert counts(await imported(admin, content)) == ("DONE", 0, 1, 0)
    assert await world.device("I2-a") == before
    content = sheet(["Attic", "I2-a", "", ""], ["Shed", "I2-b", "", ""])
    assert counts(await imported(admin, content)) == ("DONE", 1, 1, 0)
    after = await world.device("I2-a")
    assert (after["name"], after["group"], after["location"]) == (
        "Attic",
        before["group"],
        before["location"],
    )


async def test_one_fault_in_any_row_lets_nothing_be_added(world: World):
    """Every fault is told by row and column; `only_good` adds the rows that have none."""
    content = sheet(
        ["Good", "I3-a", "", "I3", 1, 2, ""],
        ["", "I3-b", "", "", 91, "x", ""],
        ["No SN", "", "", "", 1, "", ""],
        [],
        ["Too long", "I3-c", "m" * 70, "g" * 200, "", "", "Road"],
        heads=HEADS,
    )
    known = await imported(world.admin(), content)
    assert counts(known) == ("REFUSED", 0, 0, 3)
    assert await faults(world.admin(), known) == {
        1: [("location-longitude", "device_list_sheet_parsing_value_error")],
        2: [
            (SN, "entity_value_null"),
            ("location-longitude", "device_location_latitude_and_longitude_not_both_provided"),
        ],
        4: [
            ("device-group", "parameter_validation_failed"),
            (
                "location-address",
                "device_location_setting_address_without_latitude_and_longitude",
            ),
        ],
    }
    assert await world.device("I3-a") is None
    known = await imported(world.admin(), content, only_good="true")
    assert counts(known) == ("DONE", 1, 0, 3)


async def test_serial_numbers_are_checked_before_any_device_is_added(world: World):
    """Invalid, duplicate and used SNs are faults."""
    await world.add_direct("I17-x", tenant="other")
    content = sheet(
        *(["a", sn, "", ""] for sn in ("I17-a", "I17 b", "i17-A", "I17-x")),
    )
    known = await imported(world.admin(), content)
    assert counts(known) == ("REFUSED", 0, 0, 3)
    assert await faults(world.admin(), known) == {
        1: [(SN, "entity_value_not_match_format")],
        2: [("", "data_conflict")],
        3: [(SN, "duplicated_device_eui")],
    }


async def group_names(world: World, part: str) -> list[str]:
    """The groups whose names have a part."""
    page = await world.admin().done("POST", "/device-group/search", {"name": part})
    return [group["name"] for group in page["content"]]


async def test_faults_known_before_the_import_reject_the_sheet(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """An unknown model, an invalid group, one group too many or a used SN: nothing is added."""
    await world.put_product("I18", LAMP)
    groups = world.database["device_groups"]
    monkeypatch.setattr(
        store,
        "MAX_GROUPS",
        1 + await groups.count_documents({"tenant": "default", "name": {"$type": "string"}}),
    )
    await world.database["serials"].insert_one({"_id": "I18-RPS", "holder": "rps"})
    content = sheet(
        ["good", "I18-a", "I18", "I18 first"],
        ["model", "I18-b", "No such model", "I18 second"],
        ["group", "I18-c", "generic", "I18\tthird"],
        ["groups", "I18-d", "", "I18 fourth"],
        ["rps", "I18-rps", "", ""],
        heads=HEADS[:4],
    )
    known = await imported(world.admin(), content)
    assert counts(known) == ("REFUSED", 0, 0, 4)
    assert await faults(world.admin(), known) == {
        1: [(MODEL, "entity_value_not_match_format")],
        2: [("device-group", "parameter_validation_failed")],
        3: [("device-group", "device_group_number_limitation")],
        4: [(SN, "rps_record_exists")],
    }
    assert await world.device("I18-a") is None
    assert await group_names(world, "I18") == []
    known = await imported(world.admin(), content, only_good="true")
    assert counts(known) == ("DONE", 1, 0, 4)
    assert await group_names(world, "I18") == ["I18 first"]


async def test_more_devices_than_the_tenant_may_have_are_faults_of_the_sheet(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """The last new ones; those that exist take what the sheet says."""
    await world.add_direct("I21-a")
    asked: list[int] = []

    async def beyond(tenant: str, wanted: int) -> tuple[int, TooManyRequests]:
        asked.append(wanted)
        return 1, TooManyRequests("devices: the limit", retry_after=1)

    monkeypatch.setattr(world.foundation.things.devices, "count_beyond_limit", beyond)
    content = sheet(*(["x", sn, "", ""] for sn in ("I21-a", "I21-b", "I21-c")))
    known = await imported(world.admin(), content)
    assert counts(known) == ("REFUSED", 0, 0, 1)
    assert await faults(world.admin(), known) == {2: [("", "too_many_requests")]}
    assert asked == [2]


async def test_a_device_that_is_not_added_makes_no_group(world: World):
    """Its group is made with it, when nothing else can go wrong."""
    body = {
        "name": "a",
        "integration": "direct",
        "param_entities": {SN: "I19-a", MODEL: "No such model"},
        "group_name": "I19",
    }
    await world.admin().refused(400, "POST", "/device", body, field=f"param_entities.{MODEL}")
    assert await group_names(world, "I19") == []


async def test_failing_rows_do_not_affect_others(world: World, lamps: Lamps):
    """An integration rejects a row, an SN is repeated, or another tenant has it."""
    await world.add_direct("I4-x", tenant="other")
    keys = ["Name", "lamps.integration.add_lamp.serial"]
    content = sheet(["a", "I4-a"], ["b", "used"], ["c", "I4-a"], ["d", "I4-x"], heads=keys)
    known = await imported(world.admin(), content, integration="lamps")
    assert counts(known) == ("DONE", 1, 0, 3)
    assert await faults(world.admin(), known) == {
        1: [(keys[1], "entity_value_not_match_format")],
        2: [("", "data_conflict")],
        3: [(keys[1], "duplicated_device_eui")],
    }


async def test_the_content_of_a_successful_row_is_deleted(world: World):
    """It may contain device keys. Failed rows are kept, so that they can be corrected."""
    content = sheet(["roof", "I6-a", "", ""], ["", "I6 b", "", ""])
    known = await imported(world.admin(), content, only_good="true")
    rows = world.database["import_rows"].find({"import": int(known["import_id"])})
    assert {row["row"]: bool(row["cells"]) async for row in rows} == {0: False, 1: True}


async def test_failed_rows_are_a_sheet_that_can_be_corrected_and_imported(world: World):
    """It has the failed rows, and the reasons in words."""
    admin = world.admin()
    content = sheet(["-roof", "I5-a", "", ""], ["", "I5 b", "", ""], ["=1+1", "I5 c", "", ""])
    known = await imported(admin, content, only_good="true")
    path = f"import/{known['import_id']}/errors"
    head, *rows = table(await file(admin, path))
    assert head == [*HEADS[:4], "Error"]
    assert [row[:2] for row in rows] == [["", "I5 b"], ["'=1+1", "I5 c"]]
    assert rows[0][4].startswith("Name: must not be blank")
    text = (await file(admin, path, {"format": "csv"})).decode()
    mended = text.replace("I5 ", "I5-").replace(",I5-b", "B,I5-b")
    assert counts(await imported(admin, mended.encode())) == ("DONE", 2, 0, 0)
    assert (await world.device("I5-c"))["name"] == "=1+1"


async def test_a_template_has_keys_lists_and_bounds(world: World):
    """Lists have labels; hidden sheets tell what a column is, whatever its title says."""
    made = await file(world.admin(), "template", {"integration": "direct"})
    assert table(made) == [HEADS]
    keys = [row[1] for row in table(made, "_HIDDEN_COL_META")]
    assert keys == [
        "name",
        SN,
        MODEL,
        "device-group",
        "location-latitude",
        "location-longitude",
        "location-address",
    ]
    options = [cell for row in table(made, "_HIDDEN_OPT") for cell in row]
    assert "Generic device (generic)" in options
    assert "generic" not in options
    chosen = form(sheet(["a", "I20-a", "Generic device (generic)", ""], ["b", "I20-b", "generic"]))
    parsed = await world.admin().done("POST", f"{BATCH}/parse", **chosen)
    models = [request["param_entities"][MODEL] for request in parsed["create_device_requests"]]
    assert models == ["generic", "generic"]


async def test_a_sheet_is_read_as_bodies_of_post_device(world: World):
    """Rows that are empty are left out, and say so by their numbers."""
    content = sheet(["a", 12, "", "G", 1, 2, ""], [], ["b", "I7-b"], heads=HEADS)
    parsed = await world.admin().done("POST", f"{BATCH}/parse", **form(content))
    assert parsed == {
        "create_device_requests": [
            {
                "name": "a",
                "integration": "direct",
                "param_entities": {SN: "12"},
                "group_name": "G",
                "location": {"latitude": 1, "longitude": 2},
            },
            {"name": "b", "integration": "direct", "param_entities": {SN: "I7-b"}},
        ],
        "row_id": [0, 2],
    }
    assert await world.device("I7-b") is None


async def test_a_cell_of_another_type_is_named(world: World, lamps: Lamps):
    """With its row, its entity and the type that was expected; `data` has all of them."""
    heads = ["Name", "add_lamp.serial", "add_lamp.channel"]
    given = form(sheet(["a", "I8-a", "x"], ["b", "I8-b", "y"], heads=heads), "lamps")
    code = "device_list_sheet_parsing_value_error"
    refused = await world.admin().refused(
        400, "POST", f"{BATCH}/parse", field="file", code=code, **given
    )
    assert refused["data"]["expected_type"] == "LONG"
    assert refused["data"]["entity_name"] == "add_lamp.channel"
    assert [fault["row"] for fault in refused["data"]["faults"]] == [0, 1]


BOMB = b"PK\x03\x04" + b"x" * 1000


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "device_list_sheet_structure_error"),
        (BOMB, "device_list_sheet_structure_error"),
        (b"\xff\xfe\x00", "device_list_sheet_structure_error"),
        (b"Name,SN,Colour\na,b,c", "device_list_sheet_structure_error"),
        (b"SN\na", "device_list_sheet_structure_error"),
        (b"Name,Name\na,b", "device_list_sheet_structure_error"),
        (b"Name,SN\n,\n", "device_list_sheet_no_device"),
        (b"Name,SN\n" + b"a,b\n" * 501, "device_list_sheet_device_over_limitation"),
        (b"x" * (5 * 1024 * 1024 + 1), "data_too_large"),
    ],
)
async def test_an_invalid_sheet_is_rejected(world: World, content: bytes, code: str):
    """400, or 413 for a file that is too large, with the code that consoles know."""
    answer = await world.admin().ask("POST", f"{BATCH}/parse", **form(content))
    assert (answer.json()["error_code"], answer.json()["detail_message"]) == (code, "file")
    assert answer.status_code == (413 if code == "data_too_large" else 400)


async def test_failed_rows_are_returned_with_their_errors(world: World):
    """`errors` names them; their content is unchanged."""
    given = form(
        sheet(["a", "1", "", ""], ["b", "2", "", ""]), errors='{"errors":[{"id":1,"msg":"bad"}]}'
    )
    head, row = table(await file(world.admin(), "fill-error", **given))
    assert (head[-1], row) == ("Error", ["b", "2", "", "", "bad"])
    given = form(sheet(["a", "1", "", ""]), errors='{"errors":[{"id":-1,"msg":"bad"}]}')
    await world.admin().refused(400, "POST", f"{BATCH}/fill-error", field="errors[0].id", **given)


async def test_an_export_can_be_imported(world: World):
    """It has what an import takes, of the devices that a search finds."""
    admin = world.admin()
    content = sheet(["Roof", "I9-a", "", "I9", 1.5, 2, "Road"], ["-x", "I9-b"], heads=HEADS)
    await imported(admin, content)
    for kind in ("xlsx", "csv"):
        body = {"integration": "direct", "identifier": "I9-", "format": kind}
        exported = await file(admin, "export", body)
        assert counts(await imported(admin, exported)) == ("DONE", 0, 2, 0)
    rows = list(csv.reader(exported.decode().splitlines()))
    assert rows[1:] == [
        ["'-x", "I9-b", "generic", "", "", "", ""],
        ["Roof", "I9-a", "generic", "I9", "1.5", "2.0", "Road"],
    ]
    assert (await world.device("I9-b"))["name"] == "-x"
    world.grants.give(7, ResourceType.INTEGRATION, "direct")
    world.grants.take(7)
    world.grants.give(7, ResourceType.DEVICE, (await world.device("I9-a"))["_id"])
    refused = await world.user(7).ask("POST", f"{BATCH}/export", body)
    assert refused.status_code == 403


async def test_an_import_is_visible_with_a_grant_of_its_integration(world: World):
    """For all other users it does not exist."""
    known = await imported(world.admin(), sheet(["a", "I10-a", "", ""]))
    path = f"{BATCH}/import/{known['import_id']}"
    await world.user(7).refused(404, "GET", path, code="data_no_found")
    await world.admin("other").refused(404, "GET", path, code="data_no_found")
    assert await world.user(7).done("GET", f"{BATCH}/import") == []
    world.grants.give(7, ResourceType.INTEGRATION, "direct")
    assert (await world.user(7).done("GET", path))["created"] == 1
    shown = await world.user(7).done("GET", f"{BATCH}/import")
    assert shown[0]["import_id"] == known["import_id"]


async def test_an_import_needs_its_function_and_a_grant_of_the_integration(world: World):
    """They are the same as for a single device."""
    given = form(sheet(["a", "I11-a", "", ""]))
    for function in Function:
        answer = await world.user(7, function).ask("POST", f"{BATCH}/import", **given)
        assert answer.status_code == 403, function
    assert await world.device("I11-a") is None


async def test_a_cancelled_import_adds_no_further_rows(world: World, lamps: Lamps):
    """Rows that are being added are finished."""
    lamps.answers.clear()
    heads = ["Name", "add_lamp.serial"]
    content = sheet(*([f"l{at}", f"I12-{at}"] for at in range(150)), heads=heads)
    begun = await world.admin().done("POST", f"{BATCH}/import", **form(content, "lamps"))
    path = f"{BATCH}/import/{begun['import_id']}"
    await lamps.reached.wait()
    await world.admin().done("POST", f"{path}/cancel")
    lamps.answers.set()
    async with asyncio.timeout(60):
        while (known := await world.admin().done("GET", path))["created"] < 100:
            await asyncio.sleep(0.05)
    assert counts(known) == ("CANCELLED", 100, 0, 0)
    assert await world.device("I12-100") is None


async def test_a_tenant_has_three_imports_under_way(world: World, lamps: Lamps):
    """429 for the next one, until one has ended."""
    lamps.answers.clear()
    heads = ["Name", "add_lamp.serial"]
    admin, paths = world.admin(), []
    for at in range(3):
        given = form(sheet(["a", f"I13-{at}"], heads=heads), "lamps")
        begun = await admin.done("POST", f"{BATCH}/import", **given)
        paths.append(f"{BATCH}/import/{begun['import_id']}")
    given = form(sheet(["a", "I13-4"], heads=heads), "lamps")
    await admin.refused(429, "POST", f"{BATCH}/import", **given)
    shown = [(await admin.done("GET", path)).get("waiting_for") for path in paths]
    assert shown == [None, "EARLIER_IMPORT", "EARLIER_IMPORT"]
    lamps.answers.set()
    async with asyncio.timeout(60):
        for path in paths:
            while (await admin.done("GET", path))["state"] != "DONE":
                await asyncio.sleep(0.05)
    assert counts(await imported(admin, **given_of(given))) == ("DONE", 1, 0, 0)


def given_of(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `imported` that make a form."""
    return {"content": given["files"]["file"][1], **given["data"]}


async def test_tenants_take_turns(world: World, lamps: Lamps, monkeypatch: pytest.MonkeyPatch):
    """A short import does not wait for the end of another tenant's long one."""
    monkeypatch.setattr(worker, "TURN_SECONDS", 0.05)
    lamps.answers.clear()
    heads = ["Name", "add_lamp.serial"]
    content = sheet(*([f"l{at}", f"I19-{at}"] for at in range(300)), heads=heads)
    long = await world.admin().done("POST", f"{BATCH}/import", **form(content, "lamps"))
    await lamps.reached.wait()
    other = world.admin("other")
    short = await other.done("POST", f"{BATCH}/import", **form(sheet(["d", "I20-1", "", ""])))
    lamps.answers.set()
    path = f"{BATCH}/import/{short['import_id']}"
    async with asyncio.timeout(60):
        while (await other.done("GET", path))["state"] == "RUNNING":
            await asyncio.sleep(0.02)
    path = f"{BATCH}/import/{long['import_id']}"
    assert (await world.admin().done("GET", path))["state"] == "RUNNING"
    async with asyncio.timeout(60):
        while (known := await world.admin().done("GET", path))["state"] == "RUNNING":
            await asyncio.sleep(0.05)
    assert counts(known) == ("DONE", 300, 0, 0)


async def test_an_import_waits_for_an_integration_that_is_away(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """It says so, in the log once and without a trace; another one of its tenant goes on."""
    monkeypatch.setattr(worker, "FAILURE_PAUSES_SECONDS", (0.05,))
    lamps = Lamps()
    async with world.hosting(lamps):
        pass
    admin, heads = world.admin(), ["Name", "add_lamp.serial"]
    given = form(sheet(["a", "I21-1"], heads=heads), "lamps")
    path = f"{BATCH}/import/{(await admin.done('POST', f'{BATCH}/import', **given))['import_id']}"
    async with asyncio.timeout(60):
        while (await admin.done("GET", path)).get("waiting_for") != "INTEGRATION":
            await asyncio.sleep(0.02)
    assert counts(await imported(admin, sheet(["b", "I21-2", "", ""]))) == ("DONE", 1, 0, 0)
    async with world.hosting(lamps), asyncio.timeout(60):
        while (known := await admin.done("GET", path))["state"] == "RUNNING":
            await asyncio.sleep(0.02)
    assert counts(known) == ("DONE", 1, 0, 0)
    assert "waiting_for" not in known
    told = [record for record in caplog.records if record.name == worker.__name__]
    assert [record.exc_info for record in told if record.levelno == logging.WARNING] == [None]


async def test_rows_of_a_killed_process_are_imported_once(world: World):
    """Unrecorded additions count as added, and no device exists twice."""
    admin = world.admin()
    rows = [[f"d{at}", f"I14-{at}", "", ""] for at in range(150)]
    known = await imported(admin, sheet(*rows))
    import_id = int(known["import_id"])
    for at in range(100, 150):
        cells = [one or None for one in rows[at]]
        forgotten = {"outcome": None, "identifier": None, "cells": cells}
        lost = {"import": import_id, "row": at}
        await world.database["import_rows"].update_one(lost, {"$set": forgotten})
    await world.database["devices"].delete_one({"sn": "I14-149"})
    await world.database["serials"].delete_one({"_id": "I14-149"})
    back = {"$set": {"state": "RUNNING", "created": 100}}
    await world.database["imports"].update_one({"_id": import_id}, back)
    path = f"{BATCH}/import/{import_id}"
    async with asyncio.timeout(60):
        while (known := await admin.done("GET", path))["state"] == "RUNNING":
            await asyncio.sleep(0.05)
    assert counts(known) == ("DONE", 150, 0, 0)
    found = await admin.done("POST", "/device/search", {"identifier": "I14-"})
    assert found["total"] == 150


def far_away() -> bytes:
    """A workbook of a few hundred bytes whose table has 17 billion cells."""
    source, target = io.BytesIO(), io.BytesIO()
    with xlsxwriter.Workbook(source) as book:
        page = book.add_worksheet("DEVICES_LIST")
        page.write(0, 0, "Name")
        page.write(1_048_575, 16_383, "x")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name), zipfile.ZIP_DEFLATED)
    return target.getvalue()


async def test_a_sheet_that_would_fill_the_memory_is_refused(world: World):
    """The process that reads it ends, and no other one."""
    code = "device_list_sheet_structure_error"
    given = form(far_away())
    await world.admin().refused(400, "POST", f"{BATCH}/parse", field="file", code=code, **given)


async def test_keys_of_imported_devices_are_shown_once_to_the_importing_user(world: World):
    """Each key is valid for its device; a second request does not return it."""
    admin = world.admin()
    known = await imported(admin, sheet(["a", "I15-a", "", ""], ["b", "I15-b", "", ""]))
    path = f"{BATCH}/import/{known['import_id']}/keys"
    page = await admin.done("POST", path, {"page_size": 100, "page_number": 1})
    assert sorted(row["sn"] for row in page["content"]) == ["I15-a", "I15-b"]
    assert len({row["key"] for row in page["content"]}) == 2
    again = await admin.done("POST", path, {"page_size": 100, "page_number": 1})
    assert ["key" in row for row in again["content"]] == [False, False]
    world.grants.give(7, ResourceType.INTEGRATION, "direct")
    await world.user(7).refused(403, "POST", path)


async def test_each_device_of_a_configuration_has_its_task(world: World):
    """Those whose TSL takes the properties; others and hidden ones are told apart."""
    admin = world.admin()
    await world.put_product("I16", LAMP)
    lamp, other = await world.add_direct("I16-a", "I16"), await world.add_direct("I16-b", "I16")
    hidden = await world.add_direct("I16-c", "I16")
    plain = await world.add_direct("I16-d")
    ids = [lamp, other, hidden, plain, 5]
    body = {"device_id_list": [str(id_) for id_ in ids], "properties": {"level": 7}}
    for kind in (lamp, other, plain):
        world.grants.give(7, ResourceType.DEVICE, kind)
    rows = (await world.user(7).done("POST", f"{BATCH}/configure", body))["results"]
    assert [row["device_id"] for row in rows] == body["device_id_list"]
    assert [row.get("error_code", row["status"]) for row in rows] == [
        "SUCCESS",
        "SUCCESS",
        "data_no_found",
        "SUCCESS",
        "data_no_found",
    ]
    tasks = {row["task_id"] for row in rows if row["status"] == "SUCCESS"}
    assert len(tasks) == 3
    body["properties"] = {"level": 101}
    rows = (await admin.done("POST", f"{BATCH}/configure", body))["results"]
    assert [row["status"] for row in rows[:3]] == ["FAILED"] * 3
    assert rows[0]["error_code"] == "parameter_validation_failed"


async def test_an_import_ends_whose_user_may_add_no_devices_any_more(world: World, lamps: Lamps):
    """Instead of being tried again for ever."""
    lamps.answers.clear()
    user = world.user(7, Function.DEVICE_ADD)
    world.grants.give(7, ResourceType.INTEGRATION, "lamps")
    heads = ["Name", "add_lamp.serial"]
    content = sheet(*([f"l{at}", f"I18-{at}"] for at in range(2)), heads=heads)
    first = await user.done("POST", f"{BATCH}/import", **form(content, "lamps"))
    await lamps.reached.wait()
    content = sheet(["l", "I18-9"], heads=heads)
    second = await user.done("POST", f"{BATCH}/import", **form(content, "lamps"))
    known = {"_id": int(second["import_id"])}
    await world.database["imports"].update_one(known, {"$set": {"userId": 99, "access": 0}})
    lamps.answers.set()
    states = {}
    async with asyncio.timeout(60):
        while "RUNNING" in states.values() or not states:
            for begun in (first, second):
                path = f"{BATCH}/import/{begun['import_id']}"
                states[begun["import_id"]] = (await world.admin().done("GET", path))["state"]
    assert list(states.values()) == ["DONE", "CANCELLED"]
