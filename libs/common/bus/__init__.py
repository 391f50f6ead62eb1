"""The bus: NATS subjects, streams, publishing, consuming, rpc and the outbox."""

from libs.common.bus.client import SecureClient
from libs.common.bus.connection import Bus, publish_all, publish_each
from libs.common.bus.consumer import BatchConsumer
from libs.common.bus.laned import event_tenant
from libs.common.bus.outbox import Outbox, OutboxEntry
from libs.common.bus.publishing import OutgoingMessage, acknowledge
from libs.common.bus.rpc import NoResponders, RawRequest, RpcClient, RpcServer
from libs.common.bus.streams import DEAD, EVENTS, STREAM_CONFIGS, UPLINK
from libs.common.bus.wakeups import Wakeups

__all__ = [
    "DEAD",
    "EVENTS",
    "STREAM_CONFIGS",
    "UPLINK",
    "BatchConsumer",
    "Bus",
    "NoResponders",
    "Outbox",
    "OutboxEntry",
    "OutgoingMessage",
    "RawRequest",
    "RpcClient",
    "RpcServer",
    "SecureClient",
    "Wakeups",
    "acknowledge",
    "event_tenant",
    "publish_all",
    "publish_each",
]
