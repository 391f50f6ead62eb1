"""A hall with a device, a custom entity and a dashboard, and people who are granted parts of it."""

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from libs.common.things import DIRECT_INTEGRATION
from tests.contract.client import MODEL, Api, new_sn
from tests.contract.console import Console, console_accepted, new_name

ADD_DEVICE = f"{DIRECT_INTEGRATION}.integration.add_device"
ALL = {"page_size": 99999, "page_number": 1}
UNKNOWN = "9007199254740990"
"""An id of nothing."""

Resource = tuple[str, str]
"""Type and id."""


async def add_device(admin: Console, name: str = "", sn: str = "") -> tuple[str, str]:
    """Add a device of the tests' product as the console's form does; its id and SN."""
    sn, name = sn or new_sn(), name or new_name("device")
    params = {f"{ADD_DEVICE}.sn": sn, f"{ADD_DEVICE}.model": MODEL}
    body = {"name": name, "integration": DIRECT_INTEGRATION, "param_entities": params}
    console_accepted(await admin.ask("POST", "/device", body), data=False)
    found = await admin.done("POST", "/device/search", {"identifier": sn})
    (device,) = found["content"]
    return device["id"], sn


async def add_custom(admin: Console, **fields: Any) -> Any:
    """Make a custom entity; its metadata."""
    body = {
        "identifier": uuid4().hex,
        "name": new_name("custom"),
        "type": "PROPERTY",
        "access_mod": "RW",
        "value_type": "LONG",
        "value_attribute": {},
    }
    return await admin.done("POST", "/entity", body | fields)


async def add_dashboard(admin: Console) -> str:
    """Make a dashboard; its id."""
    return str((await admin.done("POST", "/dashboard", {"name": new_name()}))["dashboard_id"])


@dataclass
class Hall:
    """What there is, and the super-admin whose it is."""

    admin: Console
    api: Api
    device: str
    """Id."""
    sn: str
    secret: str
    entities: dict[str, str]
    """Id by the path of the member."""
    people: list[Console] = field(default_factory=list)

    def key(self, path: str) -> str:
        """The key of an entity of the device."""
        return f"{DIRECT_INTEGRATION}.device.{self.sn}.{path}"

    async def report(self, ts: int | None = None, **properties: Any) -> None:
        """Report as the device; stored when this returns."""
        body: dict[str, Any] = {"properties": properties}
        done = await self.api.report(
            self.sn, self.secret, body if ts is None else body | {"ts": ts}
        )
        assert done["accepted"] == 1, done

    async def person(self, *codes: str, grants: tuple[Resource, ...] = ()) -> Console:
        """A user with some functions and some grants; signed in."""
        person = await self.admin.person()
        self.people.append(person)
        role = await self.admin.add_role(*codes, users=(person.id,))
        if grants:
            resources = [{"type": kind, "id": one} for kind, one in grants]
            path = f"/user/roles/{role}/associate-resource"
            await self.admin.does("POST", path, {"resources": resources})
        return person


async def make_hall(admin: Console, api: Api, *, reports: bool = True) -> Hall:
    """A device with its key, which has reported once unless told otherwise."""
    device, sn = await add_device(admin)
    secret = (await admin.done("POST", f"/device/{device}/credentials", {}))["key"]
    detail = await admin.done("GET", f"/device/{device}")
    prefix = f"{DIRECT_INTEGRATION}.device.{sn}."
    entities = {entity["key"].removeprefix(prefix): entity["id"] for entity in detail["entities"]}
    hall = Hall(admin, api, device, sn, secret, entities)
    if reports:
        await hall.report(temperature=20.5, counter=1, battery=90, led=True, label="north")
    return hall
