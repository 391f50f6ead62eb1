"""What other services and the operator ask about applications: `rpc.auth.…`."""

from libs.common.bus import RpcServer
from libs.common.contracts.auth import (
    Application,
    ApplicationRef,
    Applications,
    ApplicationSecret,
    CreateApplication,
    Done,
    ListApplications,
)
from services.auth.applications.schemas import NewApplication
from services.auth.applications.service import ApplicationService
from services.auth.changes import operator


def offer_applications(rpc: RpcServer, service: ApplicationService) -> None:
    """Offer the operations on applications; who asks is the operator of the tenant it names."""

    async def create(wanted: CreateApplication) -> ApplicationSecret:
        new = NewApplication(name=wanted.name, events=wanted.events)
        return await service.create(operator(wanted.tenant), new)

    async def every(wanted: ListApplications) -> Applications:
        found = await service.all(operator(wanted.tenant))
        return Applications([application.listed for application in found])

    async def get(wanted: ApplicationRef) -> Application:
        return (await service.get(operator(wanted.tenant), wanted.application_id)).listed

    async def rotate(wanted: ApplicationRef) -> ApplicationSecret:
        return await service.rotate(operator(wanted.tenant), wanted.application_id)

    async def delete(wanted: ApplicationRef) -> Done:
        await service.delete(operator(wanted.tenant), wanted.application_id)
        return Done()

    rpc.offer("create_application", CreateApplication, create)
    rpc.offer("list_applications", ListApplications, every)
    rpc.offer("get_application", ApplicationRef, get)
    rpc.offer("rotate_application_secret", ApplicationRef, rotate)
    rpc.offer("delete_application", ApplicationRef, delete)
