"""Login counters, and rejected logins in the audit log as `session.refused`.

Only logins of existing accounts are recorded, because users mistype passwords in the name field.
Recording never delays a login: a rejection waits in a short queue of its tenant and is recorded
later, fairly by tenant. Each account and each tenant have an hourly limit; further rejections are
only counted.
"""

import logging
from typing import Literal

from opentelemetry import metrics

from libs.common.identity import Caller
from libs.common.limits import TokenBuckets
from libs.common.scheduling import FairQueue
from services.auth.audit import AuditTarget
from services.auth.changes import ChangeRunner

log = logging.getLogger(__name__)

HOUR_SECONDS = 3600.0
MAX_HOURLY_PER_ACCOUNT = 6
"""Maximum rejected logins per account and hour that are recorded."""
MAX_HOURLY_PER_TENANT = 120
"""Maximum rejected logins per tenant and hour that are recorded: under 0.5 GB in a year."""
MAX_WAITING_PER_TENANT = 256
"""Maximum queued rejections per tenant; further ones are not recorded."""
ESTIMATED_REJECTION_BYTES = 256
"""Approximate bytes of one queued rejection."""

_meter = metrics.get_meter("thingway")
_login_counter = _meter.create_counter(
    "thingway_logins", description="Logins by method (`door`) and outcome, ok or refused"
)
_unrecorded_counter = _meter.create_counter(
    "thingway_refusals_not_recorded", description="Rejected logins missing from the audit log"
)
_token_pair_counter = _meter.create_counter(
    "thingway_tokens_issued", description="Token pairs issued"
)

LoginMethod = Literal[
    "client_credentials",
    "refresh_token",
    "password",
    "user_refresh_token",
    "device",
    "nats_device",
    "nats_application",
    "nats_integration",
    "mqtt_client",
]


def count_login(method: LoginMethod, *, ok: bool) -> None:
    """Count a login with its outcome."""
    _login_counter.add(1, {"door": method, "outcome": "ok" if ok else "refused"})


def count_token_pair() -> None:
    """Count an issued pair of tokens."""
    _token_pair_counter.add(1)


class RejectedLoginRecorder:
    """Records rejected logins. A crash loses the waiting ones."""

    def __init__(self, changes: ChangeRunner, buckets: TokenBuckets) -> None:
        self._changes = changes
        self._buckets = buckets
        self._waiting: FairQueue[tuple[Caller, str]] = FairQueue(
            "refused log-ins",
            items=MAX_WAITING_PER_TENANT,
            size=MAX_WAITING_PER_TENANT * ESTIMATED_REJECTION_BYTES,
        )

    def enqueue(self, claimed: Caller, reason: str) -> None:
        """Queue the rejected login of an existing account without waiting.

        If the tenant's queue is full, the rejection is only counted. `reason` is a code:
        `wrong_password`, `disabled`, `address`.
        """
        if not self._waiting.put(
            claimed.principal.tenant, (claimed, reason), size=ESTIMATED_REJECTION_BYTES
        ):
            _unrecorded_counter.add(1)

    async def record_forever(self) -> None:
        """Write queued rejected logins to the audit log until cancelled."""
        while True:
            for _, (claimed, reason) in await self._waiting.pop_batch(1, ESTIMATED_REJECTION_BYTES):
                try:
                    await self._record(claimed, reason)
                except Exception:
                    log.exception("a rejected login could not be recorded")

    async def _record(self, claimed: Caller, reason: str) -> None:
        if not await self._is_within_limits(claimed):
            _unrecorded_counter.add(1)
            return
        target = AuditTarget("session", claimed.principal.subject, claimed.principal.name)
        await self._changes.record(claimed, "refused", target, after={"reason": reason})

    async def _is_within_limits(self, claimed: Caller) -> bool:
        """Return whether the limits permit to record a rejection.

        The limit of the account is checked first, so that one account does not use up the limit of
        its tenant.
        """
        principal = claimed.principal
        for key, maximum in (
            (f"refused:{principal.kind}:{principal.subject}", MAX_HOURLY_PER_ACCOUNT),
            (f"refused:{principal.tenant}", MAX_HOURLY_PER_TENANT),
        ):
            granted, _ = await self._buckets.take_permits(
                key, rate=maximum / HOUR_SECONDS, burst=maximum
            )
            if not granted:
                return False
        return True
