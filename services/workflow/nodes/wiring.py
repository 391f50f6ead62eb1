"""Construction of the node types with their clients of external systems."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

from libs.common.contracts.mqtt import MqttLogin
from libs.common.http.outgoing import parse_networks
from libs.common.store.ids import IdAllocator
from services.workflow.clients import Clients
from services.workflow.credentials.service import TenantCredentials
from services.workflow.credentials.store import CredentialStore
from services.workflow.entities import Entities
from services.workflow.nodes.alarm import AlarmNode
from services.workflow.nodes.base import Registry
from services.workflow.nodes.choice import Choice
from services.workflow.nodes.code import CodeNode
from services.workflow.nodes.entities import EntityAssigner, EntitySelector, ServiceInvocation
from services.workflow.nodes.http_in import HttpIn
from services.workflow.nodes.outgoing import Email, HttpRequestNode, MqttPublish
from services.workflow.nodes.output import Output
from services.workflow.nodes.triggers import EventListener, SimpleMqtt, SimpleTimer, Trigger
from services.workflow.nodes.webhook import Webhook
from services.workflow.outgoing.http import OutgoingHttp
from services.workflow.outgoing.mail import OutgoingMail
from services.workflow.outgoing.mqtt import OutgoingMqtt
from services.workflow.sandbox.runner import Sandbox
from services.workflow.settings import WorkflowSettings

CREDENTIAL_IDS = 10
"""Ids allocated at a time. A restart wastes at most this many."""
CONCURRENT_LOOKUPS = 256
"""Concurrent host lookups: twice as many as runs and deliveries of one tenant can need."""


class ExternalClients:
    """Clients of external systems, and the sandbox."""

    def __init__(self, settings: WorkflowSettings) -> None:
        allowed = parse_networks(settings.outgoing_networks)
        self.sandbox = Sandbox(settings.code_processes)
        self.http = OutgoingHttp(allowed)
        self.mail = OutgoingMail(allowed)
        self.mqtt = OutgoingMqtt(allowed)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Run the processes and hold the connections."""
        # A host lookup occupies a thread until its name servers respond.
        resolving = ThreadPoolExecutor(CONCURRENT_LOOKUPS, "resolver")
        asyncio.get_running_loop().set_default_executor(resolving)
        async with self.sandbox, self.http:
            yield


@dataclass(frozen=True)
class Nodes:
    """All node types and their clients."""

    registry: Registry
    external: ExternalClients
    entities: Entities
    credentials: TenantCredentials


def create_registry(
    external: ExternalClients, entities: Entities, credentials: TenantCredentials
) -> Registry:
    """Return the registry of all node types."""
    return Registry(
        [
            Trigger(),
            SimpleTimer(),
            EventListener(),
            SimpleMqtt(),
            HttpIn(),
            Choice(external.sandbox),
            EntityAssigner(entities),
            EntitySelector(entities),
            ServiceInvocation(entities),
            AlarmNode(entities),
            Output(),
            CodeNode(external.sandbox),
            Webhook(external.http),
            HttpRequestNode(external.http),
            Email(external.mail, credentials),
            MqttPublish(external.mqtt),
        ]
    )


def wire_nodes(clients: Clients) -> Nodes:
    """Construct the node types, and offer `mqtt_login` on the bus."""
    settings, database = clients.settings, clients.mongo.database
    external, entities = ExternalClients(settings), Entities(clients.rpc)
    credentials = TenantCredentials(
        CredentialStore(database, settings.secrets_key),
        IdAllocator(database, "credentials", CREDENTIAL_IDS),
        clients.rpc,
    )
    clients.server.offer("mqtt_login", MqttLogin, credentials.verify_mqtt_login)
    registry = create_registry(external, entities, credentials)
    return Nodes(registry, external, entities, credentials)
