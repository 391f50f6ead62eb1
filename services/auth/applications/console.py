"""`/application`: applications of the device open API, for super-admins."""

from dataclasses import dataclass

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.auth import ApplicationSecret
from libs.common.http import RequestCaller
from libs.common.http.console import Page, delete, get, post, put
from libs.common.http.guards import super_admins
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from services.auth.applications.model import (
    AllowedAddresses,
    ApplicationSearch,
    ApplicationUpdate,
    NewApplication,
    ShownApplication,
    ShownSecret,
)
from services.auth.applications.service import ApplicationService

Applications = NamedDependency[ApplicationService]


@dataclass(frozen=True)
class ApplicationHandlers:
    """What the operations on applications need."""

    applications: ApplicationService


@post(example={"name": "Roof reports"})
async def create_application(
    caller: RequestCaller, applications: Applications, data: JSONBody[NewApplication]
) -> ShownSecret:
    """Create an application; its secret is shown only here."""
    return _secret(await applications.create(caller, data))


@post("/search")
async def search_applications(
    caller: RequestCaller, applications: Applications, data: JSONBody[ApplicationSearch]
) -> list[ShownApplication] | Page[ShownApplication]:
    """Search applications by part of their name or client id."""
    found, total = await applications.search(caller, data)
    return data.listed([application.response for application in found], total)


@get("/{application_id:str}")
async def get_application(
    caller: RequestCaller, applications: Applications, application_id: PathId
) -> ShownApplication:
    """Get an application, without its secret."""
    return (await applications.get(caller, application_id)).response


@put("/{application_id:str}")
async def update_application(
    caller: RequestCaller,
    applications: Applications,
    application_id: PathId,
    data: JSONBody[ApplicationUpdate],
) -> None:
    """Rename an application, and say whether it may read events."""
    await applications.update(caller, application_id, data)


@delete("/{application_id:str}")
async def delete_application(
    caller: RequestCaller, applications: Applications, application_id: PathId
) -> None:
    """Delete an application; its tokens end at once."""
    await applications.delete(caller, application_id)


@post("/{application_id:str}/secret")
async def regenerate_application_secret(
    caller: RequestCaller, applications: Applications, application_id: PathId
) -> ShownSecret:
    """Make a new secret, shown only here; the old one and all tokens end at once."""
    return _secret(await applications.rotate(caller, application_id))


@put("/{application_id:str}/allowed-addresses")
async def set_allowed_addresses(
    caller: RequestCaller,
    applications: Applications,
    application_id: PathId,
    data: JSONBody[AllowedAddresses],
) -> AllowedAddresses:
    """Set the addresses and networks that the application may call from; its tokens end."""
    changed = await applications.allow(caller, application_id, data.allowed_addresses)
    return AllowedAddresses(allowed_addresses=list(changed.allowed_addresses))


@put("/{application_id:str}/devices/{device_id:str}")
async def give_device(
    caller: RequestCaller, applications: Applications, application_id: PathId, device_id: PathId
) -> None:
    """Let the application have a device of the console, with its values, history and key.

    409 while another application or an RPS record has it.
    """
    await applications.give(caller, application_id, device_id)


@delete("/{application_id:str}/devices/{device_id:str}")
async def take_device(
    caller: RequestCaller, applications: Applications, application_id: PathId, device_id: PathId
) -> None:
    """Take a device back from the application: it is the users' again, and its key goes on."""
    await applications.take(caller, application_id, device_id)


def _secret(made: ApplicationSecret) -> ShownSecret:
    return ShownSecret.from_fields(made)


ROUTER = Router(
    "/application",
    guards=[super_admins],
    route_handlers=operations_of(globals()),
    tags=["Applications"],
)
