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
from services.workflow.nodes.base import NodeRegistry
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

CREDENTIAL_IDS_PER_ALLOCATION = 10
"""Ids allocated at a time. A restart wastes at most this many."""
MAX_CONCURRENT_LOOKUPS = 256
"""Concurrent host lookups: twice as many as runs and deliveries of one tenant can need."""


class ExternalClients:
    """Clients of external systems, and the sandbox."""

    def __init__(self, settings: WorkflowSettings) -> None:
        allowed_networks = parse_networks(settings.outgoing_networks)
        self.sandbox = Sandbox(settings.code_processes)
        self.http = OutgoingHttp(allowed_networks)
        self.mail = OutgoingMail(allowed_networks)
        self.mqtt = OutgoingMqtt(allowed_networks)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Start the sandbox and the HTTP client, and stop them at the end of the block."""
        # A host lookup occupies a thread until its name servers respond.
        resolving = ThreadPoolExecutor(MAX_CONCURRENT_LOOKUPS, "resolver")
        asyncio.get_running_loop().set_default_executor(resolving)
        async with self.sandbox, self.http:
            yield


@dataclass(frozen=True)
class NodeTypes:
    """The registry of node types, and the clients and stores that nodes use."""

    registry: NodeRegistry
    external: ExternalClients
    entities: Entities
    credentials: TenantCredentials


def create_registry(
    external: ExternalClients, entities: Entities, credentials: TenantCredentials
) -> NodeRegistry:
    """Return the registry of all node types."""
    return NodeRegistry(
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


def wire_nodes(clients: Clients) -> NodeTypes:
    """Construct the node types, and offer `mqtt_login` on the bus."""
    settings, database = clients.settings, clients.mongo.database
    external, entities = ExternalClients(settings), Entities(clients.rpc)
    credentials = TenantCredentials(
        CredentialStore(database, settings.secrets_key),
        IdAllocator(database, "credentials", CREDENTIAL_IDS_PER_ALLOCATION),
        clients.rpc,
    )
    clients.server.offer("mqtt_login", MqttLogin, credentials.verify_mqtt_login)
    registry = create_registry(external, entities, credentials)
    return NodeTypes(registry, external, entities, credentials)
