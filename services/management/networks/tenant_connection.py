"""The connection of a tenant to its network server: reception, forwarding, state."""

import asyncio
import logging
import ssl
import time
from abc import abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from libs.common.contracts.frames import MAX_FRAMES, DeviceFrame, SendDownlinkState, SendLinkState
from libs.common.errors import InvalidInput, ThingwayError, TooLarge, TooManyRequests, Unavailable
from libs.common.integrations import Integration, IntegrationThings
from libs.common.jobs import cancel_and_wait, wait_for_event
from libs.common.store.mongo import StoreError
from services.management.networks.broker import (
    BrokerConnection,
    BrokerError,
    LoginRejected,
    ReceivedMessage,
    check_topic_filter,
    open_connection,
)
from services.management.networks.messages import DeviceReport, InboundMessage, Publication
from services.management.networks.settings import Broker
from services.management.networks.store import NetworkStore

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 10.0
"""Seconds between two attempts while the platform is unavailable."""
FIRST_CONNECT_PAUSE_SECONDS, LONGEST_CONNECT_PAUSE_SECONDS = 1.0, 60.0
"""Seconds between two attempts to connect."""
STABLE_AFTER_SECONDS = 60.0
"""Seconds after which a connection counts as stable: after its end, pauses start short again."""
MAX_STATE_REPORT_SECONDS = 30.0
"""Maximum seconds between two reports of the state; important changes are reported earlier."""
MIN_STATE_REPORT_SECONDS = 1.0
MAX_SHOWN_REJECTIONS = 50
"""Maximum devices whose rejections are shown with their reasons; the oldest are dropped."""
LONGEST_ERROR, LONGEST_REASON = 500, 200
MAX_CONCURRENT_HOOKS = 32
"""Maximum concurrent webhook requests of a tenant."""
MIN_SERVER_ERROR_STATUS = 500


class Dialect(Integration):
    """The topics and message format of a type of network server."""

    def __init__(
        self, things: IntegrationThings, store: NetworkStore, allowed_networks: tuple[str, ...]
    ) -> None:
        """`allowed_networks` may be called in addition to public addresses."""
        self.things = things
        self.store = store
        self.allowed_networks = allowed_networks

    @abstractmethod
    def list_topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """Return the topics to subscribe to; raise `InvalidInput` for a missing setting."""

    @abstractmethod
    def decode_message(self, tenant: str, topic: str, payload: bytes) -> InboundMessage | None:
        """Return a message; None if it is not needed; raise `InvalidInput`."""


class ConnectionState:
    """The state of a tenant's server, which users see as properties of the integration."""

    def __init__(self, uplinks: int) -> None:
        self.connected = False
        self.last_error = ""
        self.uplinks = uplinks
        self._rejected: dict[str, str] = {}
        """Reasons of rejections by DevEUI."""
        self._urgent = asyncio.Event()

    def set_connected(self) -> None:
        """Record that the connection is established."""
        self._set_connection(connected=True, error="")

    def set_disconnected(self, reason: str) -> None:
        """Record that there is no connection; `reason` is empty if none is configured."""
        self._set_connection(connected=False, error=reason)

    def record_failure(self, reason: str) -> None:
        """Record an error with its time; the connection continues."""
        error = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC: {reason}"
        self._set_connection(connected=self.connected, error=error)

    def _set_connection(self, *, connected: bool, error: str) -> None:
        before = (self.connected, self.last_error)
        self.connected, self.last_error = connected, error[:LONGEST_ERROR]
        if (self.connected, self.last_error) != before:
            self._urgent.set()

    def record_rejected(self, identifier: str, reason: str) -> None:
        """Record why a message of a device was rejected."""
        reason = reason[:LONGEST_REASON]
        if self._rejected.pop(identifier, None) != reason:
            self._urgent.set()
        self._rejected[identifier] = reason
        if len(self._rejected) > MAX_SHOWN_REJECTIONS:
            self._rejected.pop(next(iter(self._rejected)))

    def record_accepted(self, identifiers: AbstractSet[str], uplinks: int) -> None:
        """Count accepted uplinks, and remove the rejections of their devices."""
        if not self.uplinks and uplinks:
            self._urgent.set()
        self.uplinks += uplinks
        for identifier in identifiers & self._rejected.keys():
            del self._rejected[identifier]
            self._urgent.set()

    def to_properties(self) -> dict[str, Any]:
        """Return the state as properties of the integration."""
        lines = [
            f"{identifier}: {reason}" for identifier, reason in reversed(self._rejected.items())
        ]
        return {
            "connected": self.connected,
            "last_error": self.last_error,
            "uplinks": self.uplinks,
            "not_taken": "\n".join(lines),
        }

    async def wait_for_change(self) -> None:
        """Wait until the properties may have changed."""
        await wait_for_event(self._urgent, MAX_STATE_REPORT_SECONDS)
        self._urgent.clear()


class UplinkForwarder:
    """Sends the messages of a tenant's network server to `device`."""

    def __init__(
        self, tenant: str, things: IntegrationThings, store: NetworkStore, state: ConnectionState
    ) -> None:
        self._tenant = tenant
        self._things = things
        self._store = store
        self._state = state

    async def forward_with_retries(self, messages: Sequence[InboundMessage]) -> None:
        """Send all messages; try again while the platform is unavailable."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await self.forward(messages)
            except ThingwayError as error:
                log.info("messages of the server of %s wait: %s", self._tenant, error)
                self._state.record_failure(f"the platform does not accept uplinks: {error.text}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                if pause > FIRST_PAUSE_SECONDS:
                    self._state.set_connected()
                return

    async def forward(self, messages: Sequence[InboundMessage]) -> None:
        """Send all messages in order; rejections by `device` appear in the tenant's state.

        Raises errors while the platform is unavailable; then a part of the messages may have been
        accepted.
        """
        for frames, group in groupby(
            messages, lambda message: isinstance(message.report, DeviceFrame)
        ):
            if frames:
                await self._forward_frames(list(group))
            else:
                for message in group:
                    await self._forward_state(message.report)

    async def _forward_frames(self, messages: Sequence[InboundMessage]) -> None:
        frames = [message.report for message in messages if isinstance(message.report, DeviceFrame)]
        try:
            rejected = (await self._things.send_frames(frames)).refused
        except (InvalidInput, TooLarge) as error:
            if len(messages) == 1:
                self._state.record_rejected(frames[0].identifier, error.text)
                return
            half = len(messages) // 2
            await self._forward_frames(messages[:half])
            await self._forward_frames(messages[half:])
            return
        reasons = {refused.index: refused.reason for refused in rejected}
        for index, reason in reasons.items():
            self._state.record_rejected(frames[index].identifier, reason)
        accepted = [message for index, message in enumerate(messages) if index not in reasons]
        self._state.record_accepted(
            {message.report.identifier for message in accepted}, len(accepted)
        )
        routes = {
            message.report.identifier: message.route
            for message in accepted
            if message.route is not None
        }
        await self._store.save_routes(self._tenant, routes)

    async def _forward_state(self, report: DeviceReport) -> None:
        try:
            if isinstance(report, SendLinkState):
                await self._things.send_link_state(report)
            elif isinstance(report, SendDownlinkState):
                await self._forward_downlink_state(report)
        except ThingwayError as error:
            if error.status >= MIN_SERVER_ERROR_STATUS or isinstance(error, TooManyRequests):
                raise
            self._state.record_rejected(report.identifier, error.text)

    async def _forward_downlink_state(self, report: SendDownlinkState) -> None:
        """Send the state of one of our downlinks; ignore downlinks of other clients."""
        if report.downlink:
            downlink = await self._store.find_downlink_id(self._tenant, report.downlink)
        else:
            downlink = await self._store.end_oldest_downlink(self._tenant, report.identifier)
        if downlink is not None:
            report.downlink = downlink
            await self._things.send_downlink_state(report)


class TenantConnection:
    """A tenant's connection to its broker, which reconnects, and its reported state."""

    def __init__(self, dialect: Dialect, tenant: str, uplinks: int) -> None:
        self._dialect = dialect
        self._tenant = tenant
        self.state = ConnectionState(uplinks)
        self._forwarder = UplinkForwarder(tenant, dialect.things, dialect.store, self.state)
        self.broker: Broker | None = None
        self.values: dict[str, Any] = {}
        self._fault = ""
        self._connection: BrokerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._hooks = 0
        self._unread = set[type[Exception]]()
        self._state_reports = asyncio.ensure_future(self._report_state_forever())

    async def apply_settings(
        self, broker: Broker | None, values: dict[str, Any], fault: str = ""
    ) -> None:
        """Connect to the broker of the settings, or disconnect; skip unchanged settings."""
        async with self._changing:
            if (broker, fault, values) == (self.broker, self._fault, self.values):
                return
            await self._disconnect()
            self.broker, self._fault, self.values = broker, fault, values
            self.state.set_disconnected(fault)
            if broker is not None:
                self._connecting = asyncio.ensure_future(self._reconnect_forever(broker))

    async def publish(self, message: Publication, qos: int) -> None:
        """Publish a message; raise `Unavailable` if the server is disconnected or rejects it."""
        if self._connection is None:
            raise Unavailable(f"not connected to the network server: {self.state.last_error}")
        try:
            await self._connection.publish(message.topic, message.payload, qos)
        except (BrokerError, OSError) as error:  # also a timeout
            reason = describe_connection_failure(error)
            text = f"the network server did not accept the downlink: {reason}"
            raise Unavailable(text) from error

    async def forward_hook_message(self, message: InboundMessage | None) -> None:
        """Forward a message of a webhook; raise an error while the platform is unavailable.

        Raises `TooManyRequests` beyond `MAX_CONCURRENT_HOOKS`. Rejections by `device` raise no
        error, but appear in the tenant's state.
        """
        if self._hooks >= MAX_CONCURRENT_HOOKS:
            raise TooManyRequests("this webhook has too many concurrent requests", retry_after=1.0)
        self._hooks += 1
        try:
            await self._forwarder.forward([] if message is None else [message])
        finally:
            self._hooks -= 1
        if self.broker is None:
            self.state.set_connected()
        if message is not None and message.unreadable:
            self.state.record_failure(f"webhook: {message.unreadable}")

    async def stop(self) -> None:
        """Disconnect, and stop reporting the state."""
        async with self._changing:
            await self._disconnect()
        await cancel_and_wait(self._state_reports)

    async def _disconnect(self) -> None:
        if self._connecting is not None:
            await cancel_and_wait(self._connecting)
            self._connecting = None

    async def _reconnect_forever(self, broker: Broker) -> None:
        pause = FIRST_CONNECT_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            try:
                client_id = await self._dialect.store.get_or_create_client_id(self._tenant)
                async with open_connection(
                    broker, client_id, self._dialect.allowed_networks
                ) as connection:
                    await self._subscribe_and_forward(broker, connection)
            except (BrokerError, OSError, ThingwayError) as error:
                self.state.set_disconnected(describe_connection_failure(error))
            except StoreError as error:
                log.warning(
                    "the connection of %s for %s waits: %s",
                    self._dialect.manifest.id,
                    self._tenant,
                    error,
                )
                self.state.set_disconnected("the platform's database does not answer")
            except Exception as error:
                log.exception("the connection of %s failed", self._tenant)
                self.state.set_disconnected(describe_connection_failure(error))
            finally:
                self._connection = None
            if time.monotonic() - began > STABLE_AFTER_SECONDS:
                pause = FIRST_CONNECT_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_CONNECT_PAUSE_SECONDS)

    async def _subscribe_and_forward(self, broker: Broker, connection: BrokerConnection) -> None:
        topics = self._dialect.list_topics(broker, self.values)
        for topic in topics:
            check_topic_filter(topic)
        await connection.set_subscriptions(
            topics, await self._dialect.store.remember_and_list_topics(self._tenant, topics)
        )
        self._connection = connection
        self.state.set_connected()
        async for batch in connection.receive_batches(MAX_FRAMES):
            messages = [
                read
                for message in batch
                if (read := self._decode_or_record_failure(message)) is not None
            ]
            await self._forwarder.forward_with_retries(messages)
            await connection.acknowledge(batch)

    def _decode_or_record_failure(self, message: ReceivedMessage) -> InboundMessage | None:
        try:
            return self._dialect.decode_message(self._tenant, message.topic, message.payload)
        except InvalidInput as error:
            self.state.record_failure(f"{message.topic}: {error.text}")
        except Exception as error:
            if type(error) not in self._unread:  # a broker may repeat it without limit
                self._unread.add(type(error))
                log.exception("a message of %s could not be decoded", self._tenant)
            self.state.record_failure(f"{message.topic}: {type(error).__name__}")
        return None

    async def _report_state_forever(self) -> None:
        properties: dict[str, Any] = {}
        while True:
            await self.state.wait_for_change()
            now = self.state.to_properties()
            if now == properties:
                continue
            try:
                await self._dialect.things.report_own(self._tenant, now)
                properties = now
            except ThingwayError as error:
                log.warning("the state of %s cannot be reported: %s", self._tenant, error)
            await asyncio.sleep(MIN_STATE_REPORT_SECONDS)


def describe_connection_failure(error: Exception) -> str:
    """Return for users why the connection failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "the broker did not answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS with the broker failed: {error.reason or error}"
    if isinstance(error, LoginRejected):
        return f"the broker rejects the login: {error}"
    if isinstance(error, ConnectionRefusedError):
        return "the broker's address refuses connections"
    text = error.strerror if isinstance(error, OSError) else ""
    text = error.text if isinstance(error, ThingwayError) else text
    return text or str(error) or type(error).__name__
