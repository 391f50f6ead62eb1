"""Snapshots of streams, against a client that answers as nats-server does."""

import json
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

from deploy.backup.streams import snapshot

MISSING = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}


async def test_no_snapshot_of_a_missing_stream_is_requested():
    """A cluster never answers such a request."""
    request = AsyncMock(return_value=SimpleNamespace(data=json.dumps(MISSING).encode()))
    client = Mock(new_inbox=lambda: "inbox", subscribe=AsyncMock(), request=request)
    client.subscribe.return_value.unsubscribe = AsyncMock()
    assert [piece async for piece in snapshot(client, "EVENTS_0")] == []
    assert [call.args[0] for call in request.call_args_list] == ["$JS.API.STREAM.INFO.EVENTS_0"]
