"""The end of a tenant's restore, without stores."""

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import msgspec

from deploy.backup.stores import Stores
from deploy.backup.tenant_restore import _wake_flow_replicas
from deploy.platform.errors import CommandError
from libs.common.bus.wakeups import ChangeCounts
from services.workflow.triggers.deployed_flows import FLOWS_TOPIC


async def test_workflow_loads_the_flows_of_a_restored_tenant_at_once() -> None:
    """The restore notifies its replicas over NATS. Without NATS they find the flows later."""
    bus, lines = SimpleNamespace(publish_core=AsyncMock(), client=AsyncMock()), list[str]()

    @contextlib.asynccontextmanager
    async def connect(_: str) -> AsyncIterator[Any]:
        yield bus

    await _wake_flow_replicas(cast("Stores", SimpleNamespace(connect_bus=connect)), lines.append)
    subject, payload = bus.publish_core.call_args.args
    assert (subject, lines) == ("wakeup.workflow", [])
    assert msgspec.json.decode(payload, type=ChangeCounts).topics == {FLOWS_TOPIC: 1}

    def reject(_: str) -> None:
        raise CommandError("no NATS")

    await _wake_flow_replicas(cast("Stores", SimpleNamespace(connect_bus=reject)), lines.append)
    assert lines == ["the flows start after up to 10 s: no NATS"]
