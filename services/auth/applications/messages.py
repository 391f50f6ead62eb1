"""What is said of applications (`event.{tenant}.auth.application.…`) and asked about them."""

import time
from typing import Literal
from uuid import uuid4

import msgspec

from libs.common.bus import OutboxEntry, RpcServer
from libs.common.bus.subjects import auth_event
from libs.common.contracts.auth import ApplicationRef, CreateApplication, ListApplications
from services.auth.applications.schemas import StoredApplication
from services.auth.applications.service import ApplicationService

Happening = Literal["created", "deleted", "rotated"]


class ApplicationChanged(msgspec.Struct, rename="camel", kw_only=True):
    """`auth.application.(created|deleted|rotated)`: never with a secret."""

    event_id: str
    created_at: int
    tenant: str
    change: Happening
    application_id: int
    name: str
    client_id: str


def application_event(application: StoredApplication, change: Happening) -> OutboxEntry:
    """The event that says what became of an application."""
    event = ApplicationChanged(
        event_id=uuid4().hex,
        created_at=int(time.time() * 1000),
        tenant=application.tenant,
        change=change,
        application_id=application.id,
        name=application.name,
        client_id=application.client_id,
    )
    subject = auth_event(application.tenant, f"application.{change}")
    return OutboxEntry(subject, msgspec.json.encode(event))


def offer_applications(rpc: RpcServer, service: ApplicationService) -> None:
    """Offer the operations on applications as `rpc.auth.…`."""
    rpc.offer("create_application", CreateApplication, service.create)
    rpc.offer("list_applications", ListApplications, service.list)
    rpc.offer("get_application", ApplicationRef, service.get)
    rpc.offer("rotate_application_secret", ApplicationRef, service.rotate)
    rpc.offer("delete_application", ApplicationRef, service.delete)
