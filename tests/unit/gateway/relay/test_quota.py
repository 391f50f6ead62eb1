"""Who says too much on plain NATS is told so, then cut off."""

from types import SimpleNamespace

import pytest

from libs.common.bus.accounts import INTEGRATION_SUBJECTS, PULL_SUBJECT
from libs.common.limits.meter import BURST_SECONDS
from services.gateway.relay import service as module
from services.gateway.relay.rules import MessageSender, RejectedError
from services.gateway.relay.service import (
    MAX_ANSWERED_EXCESS_SECONDS,
    MAX_INTEGRATION_REQUESTS_PER_SECOND,
    MAX_REQUESTS_PER_SECOND,
    RelayQuota,
)

APPLICATION = MessageSender("app.one", "_INBOX.app.one.")
INTEGRATION = MessageSender("integration.one", "_INBOX.integration.one.")
REPORT = INTEGRATION_SUBJECTS[1]


class Tenants:
    """Everybody's tenant is known."""

    def get(self, _: str) -> str:
        return "t1"


class Floods:
    """Notes whom it is asked to shut out."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def block(self, user: str) -> None:
        self.ended.append(user)


def test_a_flood_is_not_answered_message_by_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some refusals are told; then the sender is shut out, and told nothing."""
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1.0))
    floods = Floods()
    quota = RelayQuota(None, Tenants(), floods)  # type: ignore[arg-type]
    for _ in range(int(MAX_REQUESTS_PER_SECOND * BURST_SECONDS)):
        quota.count_or_reject_message(PULL_SUBJECT, APPLICATION, b"")
    for _ in range(int(MAX_REQUESTS_PER_SECOND * MAX_ANSWERED_EXCESS_SECONDS)):
        with pytest.raises(RejectedError) as refused:
            quota.count_or_reject_message(PULL_SUBJECT, APPLICATION, b"")
        assert refused.value.answered
    assert floods.ended == []
    with pytest.raises(RejectedError) as refused:
        quota.count_or_reject_message(PULL_SUBJECT, APPLICATION, b"")
    assert not refused.value.answered
    assert floods.ended == ["app.one"]


def test_a_busy_tenant_leaves_an_integration_its_requests_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each tenant has a rate of its own; all tenants together have another."""
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1.0))
    floods = Floods()
    quota = RelayQuota(None, Tenants(), floods)  # type: ignore[arg-type]

    def accepted(tenant: str) -> int:
        body = f'{{"tenant":"{tenant}","device":"a"}}'.encode()
        for number in range(
            int(MAX_REQUESTS_PER_SECOND * (BURST_SECONDS + MAX_ANSWERED_EXCESS_SECONDS))
        ):
            try:
                quota.count_or_reject_message(REPORT, INTEGRATION, body)
            except RejectedError:
                return number
        raise AssertionError(tenant)

    busy = int(MAX_INTEGRATION_REQUESTS_PER_SECOND / MAX_REQUESTS_PER_SECOND)
    each = int(MAX_REQUESTS_PER_SECOND * BURST_SECONDS)
    assert [accepted(f"t{number}") for number in range(busy + 1)] == [each] * busy + [0]
    assert floods.ended == []


def test_requests_without_a_valid_tenant_share_one_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long names do not fill the memory, and names cannot be varied to get more requests."""
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1.0))
    quota = RelayQuota(None, Tenants(), Floods())  # type: ignore[arg-type]
    bodies = (b"{}", b"\xff", b'{"tenant":"%s"}' % (b"a" * 65))
    for number in range(int(MAX_REQUESTS_PER_SECOND * BURST_SECONDS)):
        quota.count_or_reject_message(REPORT, INTEGRATION, bodies[number % len(bodies)])
    with pytest.raises(RejectedError):
        quota.count_or_reject_message(REPORT, INTEGRATION, bodies[-1])
