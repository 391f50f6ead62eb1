"""Who says too much on plain NATS is told so, then cut off."""

from types import SimpleNamespace

import pytest

from libs.common.bus.accounts import PULL
from libs.common.limits.meter import BURST
from services.gateway.relay import service as module
from services.gateway.relay.rules import RefusedError, Sender
from services.gateway.relay.service import FLOOD, QUESTIONS, RelayQuota

APPLICATION = Sender("app.one", "_INBOX.app.one.")


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
    for _ in range(int(QUESTIONS * BURST)):
        quota.count(PULL, APPLICATION, 10)
    for _ in range(int(QUESTIONS * FLOOD)):
        with pytest.raises(RefusedError) as refused:
            quota.count(PULL, APPLICATION, 10)
        assert refused.value.answered
    assert floods.ended == []
    with pytest.raises(RefusedError) as refused:
        quota.count(PULL, APPLICATION, 10)
    assert not refused.value.answered
    assert floods.ended == ["app.one"]
