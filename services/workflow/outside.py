"""What nodes reach beyond the platform with: the sandbox, and connections to other systems."""

from contextlib import AsyncExitStack
from typing import Self

from libs.common.http.outgoing import networks_of
from services.workflow.nodes.base import AnyNode
from services.workflow.nodes.code import CodeNode
from services.workflow.nodes.email import Email
from services.workflow.nodes.http_request import HttpRequestNode
from services.workflow.nodes.mqtt_publish import MqttPublish
from services.workflow.nodes.webhook import Webhook
from services.workflow.outgoing.http import OutgoingHttp
from services.workflow.outgoing.mail import OutgoingMail
from services.workflow.outgoing.mqtt import OutgoingMqtt
from services.workflow.sandbox.runner import Sandbox
from services.workflow.settings import WorkflowSettings


class Outside:
    """One per process; `async with` holds the processes of the sandbox and open connections."""

    def __init__(self, settings: WorkflowSettings) -> None:
        allowed = networks_of(settings.outgoing_networks)
        self.sandbox = Sandbox(settings.code_processes)
        self._http = OutgoingHttp(allowed)
        self._mail = OutgoingMail(allowed)
        self._mqtt = OutgoingMqtt(allowed)
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._held.enter_async_context(self.sandbox)
        await self._held.enter_async_context(self._http)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    def nodes(self) -> list[AnyNode]:
        """The node types that need it."""
        return [
            CodeNode(self.sandbox),
            Webhook(self._http),
            HttpRequestNode(self._http),
            Email(self._mail),
            MqttPublish(self._mqtt),
        ]
