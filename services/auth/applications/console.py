"""`/application`: management of applications by super-admins."""

from dataclasses import dataclass

from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import RequestCaller
from libs.common.http.console import Page, delete, get, post, put
from libs.common.http.guards import super_admins
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from services.auth.applications.model import (
    AllowedAddresses,
    ApplicationResponse,
    ApplicationSearch,
    ApplicationUpdate,
    ApplicationWithSecret,
    NewApplication,
)
from services.auth.applications.service import ApplicationService

ApplicationServiceDependency = NamedDependency[ApplicationService]


@dataclass(frozen=True)
class ApplicationHandlerDependencies:
    """Dependencies of the operations on applications."""

    applications: ApplicationService


@post(example={"name": "Roof reports"})
async def create_application(
    caller: RequestCaller,
    applications: ApplicationServiceDependency,
    data: JSONBody[NewApplication],
) -> ApplicationWithSecret:
    """Create an application and return its secret, which is shown only once."""
    return ApplicationWithSecret.from_fields(await applications.create(caller, data))


@post("/search")
async def search_applications(
    caller: RequestCaller,
    applications: ApplicationServiceDependency,
    data: JSONBody[ApplicationSearch],
) -> list[ApplicationResponse] | Page[ApplicationResponse]:
    """Search applications by part of their name or client id."""
    rows, total = await applications.search(caller, data)
    return data.listed([application.api_response for application in rows], total)


@get("/{application_id:str}")
async def get_application(
    caller: RequestCaller, applications: ApplicationServiceDependency, application_id: PathId
) -> ApplicationResponse:
    """Get an application without its secret."""
    return (await applications.get(caller, application_id)).api_response


@put("/{application_id:str}")
async def update_application(
    caller: RequestCaller,
    applications: ApplicationServiceDependency,
    application_id: PathId,
    data: JSONBody[ApplicationUpdate],
) -> None:
    """Rename an application and set whether it may read events."""
    await applications.update(caller, application_id, data)


@delete("/{application_id:str}")
async def delete_application(
    caller: RequestCaller, applications: ApplicationServiceDependency, application_id: PathId
) -> None:
    """Delete an application and revoke its tokens immediately."""
    await applications.delete(caller, application_id)


@post("/{application_id:str}/secret")
async def regenerate_application_secret(
    caller: RequestCaller, applications: ApplicationServiceDependency, application_id: PathId
) -> ApplicationWithSecret:
    """Replace the secret and revoke the old secret and all tokens immediately.

    The new secret is shown only once.
    """
    return ApplicationWithSecret.from_fields(
        await applications.rotate_secret(caller, application_id)
    )


@put("/{application_id:str}/allowed-addresses")
async def set_allowed_addresses(
    caller: RequestCaller,
    applications: ApplicationServiceDependency,
    application_id: PathId,
    data: JSONBody[AllowedAddresses],
) -> AllowedAddresses:
    """Set the addresses and networks that may use the application.

    If they change, all tokens of the application are revoked.
    """
    changed = await applications.set_allowed_addresses(
        caller, application_id, data.allowed_addresses
    )
    return AllowedAddresses(allowed_addresses=list(changed.allowed_addresses))


@put("/{application_id:str}/devices/{device_id:str}", summary="Assign device to application")
async def give_device(
    caller: RequestCaller,
    applications: ApplicationServiceDependency,
    application_id: PathId,
    device_id: PathId,
) -> None:
    """Assign a device to an application, with its values, history and key.

    Returns 409 if another application or an RPS record has the device.
    """
    await applications.assign_device(caller, application_id, device_id)


@delete("/{application_id:str}/devices/{device_id:str}", summary="Remove device from application")
async def take_device(
    caller: RequestCaller,
    applications: ApplicationServiceDependency,
    application_id: PathId,
    device_id: PathId,
) -> None:
    """Return a device from an application to the users. The device key stays valid."""
    await applications.return_device(caller, application_id, device_id)


ROUTER = route_operations(globals(), "/application", guards=[super_admins], tags=["Applications"])
