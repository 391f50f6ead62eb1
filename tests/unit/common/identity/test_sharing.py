"""Grants of what services own: given to creators, dropped when it is gone."""

from typing import Any

import pytest

from libs.common.contracts.access import (
    FORGET_RESOURCES,
    ForgetResources,
    ResourceRef,
    ResourceType,
)
from libs.common.contracts.auth import Done
from libs.common.errors import Unavailable
from libs.common.identity import grants
from libs.common.identity.grants import forget_grants


class Auth:
    """Stands for the rpc client; remembers what it was asked."""

    def __init__(self, *, away: bool = False) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.away = away

    async def call(self, subject: str, request: Any, answer: Any) -> Done:
        self.asked.append((subject, request))
        if self.away:
            raise Unavailable("auth does not answer")
        return Done()


async def test_all_deleted_resources_are_reported_together():
    """One request has all ids, each as a resource of the type."""
    auth = Auth()
    await forget_grants(auth, ResourceType.DEVICE, "t", [1, 2])
    gone = [ResourceRef("1", ResourceType.DEVICE), ResourceRef("2", ResourceType.DEVICE)]
    assert [(FORGET_RESOURCES, ForgetResources("t", gone))] == auth.asked


async def test_nothing_gone_asks_nobody():
    """Without ids there is nothing to say."""
    auth = Auth()
    await forget_grants(auth, ResourceType.ENTITY, "t", [])
    assert auth.asked == []


async def test_deletions_succeed_without_auth(caplog: pytest.LogCaptureFixture):
    """Remaining grants are logged and cause no failure."""
    await forget_grants(Auth(away=True), ResourceType.WORKFLOW, "t", [7])
    told = [line.getMessage() for line in caplog.records if line.name == grants.log.name]
    assert told == ["grants of 1 deleted resources (WORKFLOW) remain: auth does not answer"]
