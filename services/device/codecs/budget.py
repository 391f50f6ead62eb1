"""How much of the processor codecs may take from others: what a frame takes, and a little ahead.

A codec that loops, or is slow, uses up what it has ahead; then it is asked only as often as that
grows again. Its tenant's codecs have a bound together.
"""

from libs.common.recent import Recent

EACH = 0.0001
"""Seconds of the processor for a frame; makers' codecs take a seventh."""
KEPT = 10_000


class _Account:
    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at


class Budget:
    """Accounts by key, each with up to `most` seconds, growing by `rate` per second."""

    def __init__(self, most: float, rate: float) -> None:
        self._most = most
        self._rate = rate
        self._accounts: Recent[object, _Account] = Recent(KEPT)

    def left(self, key: object, frames: int, now: float) -> float:
        """Seconds that so many frames may take at `now` (monotonic), if more than 0."""
        account = self._accounts.get(key)
        if account is None:
            account = _Account(self._most, now)
            self._accounts.put(key, account)
        account.left = min(self._most, account.left + (now - account.at) * self._rate)
        account.at = now
        return account.left + frames * EACH if account.left > 0 else 0.0

    def spend(self, key: object, frames: int, seconds: float) -> None:
        """Note what frames have taken; what they did not take is nobody's."""
        account = self._accounts.get(key)
        if account is not None:
            account.left -= max(seconds - frames * EACH, 0.0)


class Budgets:
    """The accounts of codecs and of their tenants."""

    def __init__(self, codec_rate: float = 0.02, tenant_rate: float = 0.05) -> None:
        """The rates are those by which accounts grow, seconds of the processor per second."""
        self._codecs = Budget(most=0.5, rate=codec_rate)
        self._tenants = Budget(most=1.0, rate=tenant_rate)

    def left(self, tenant: str, version: str, frames: int, now: float) -> float:
        """Seconds that so many frames of a codec may take; 0 is none."""
        return min(
            self._codecs.left((tenant, version), frames, now),
            self._tenants.left(tenant, frames, now),
        )

    def spend(self, tenant: str, version: str, frames: int, seconds: float) -> None:
        """Note what they have taken."""
        self._codecs.spend((tenant, version), frames, seconds)
        self._tenants.spend(tenant, frames, seconds)
