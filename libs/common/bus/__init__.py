"""The bus: NATS subjects, streams, publishing, consuming, rpc and the outbox."""

from libs.common.bus.connection import Bus, Outgoing
from libs.common.bus.consumer import BatchConsumer, Uplink
from libs.common.bus.outbox import Outbox, OutboxEntry
from libs.common.bus.rpc import RpcClient, RpcServer
from libs.common.bus.streams import DEAD, EVENTS, STREAMS, UPLINK

__all__ = [
    "DEAD",
    "EVENTS",
    "STREAMS",
    "UPLINK",
    "BatchConsumer",
    "Bus",
    "Outbox",
    "OutboxEntry",
    "Outgoing",
    "RpcClient",
    "RpcServer",
    "Uplink",
]
