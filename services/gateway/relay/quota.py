"""How much each may say on plain NATS: beyond it a message is refused, and a flood is cut off."""

import time

from opentelemetry import metrics

from libs.common.bus.accounts import ACKS, REPORTS
from libs.common.identity.users import TenantsOfUsers
from libs.common.limits.meter import Floods, MessageMeter, Meter
from libs.common.limits.tenants import count_limited
from services.gateway.relay.rules import RefusedError, Speaker, speaker_of

QUESTIONS = 200
"""Per second, of an application or an integration: requests for events count as one each."""
ACKNOWLEDGEMENTS = 20_000
"""Per second, of an application."""
FLOOD = 5.0
"""Seconds' worth beyond its limit for which a speaker is told of each refusal; then it is shut out,
and what still comes is dropped: an answer to each would cost more than it does."""


class RelayQuota:
    """Counts what each speaker says, in this process."""

    def __init__(self, messages: MessageMeter, tenants: TenantsOfUsers, floods: Floods) -> None:
        self._messages = messages
        self._others = Meter()
        self._refused = Meter()
        self._tenants = tenants
        self._floods = floods
        self._dropped = 0
        metrics.get_meter("thingway").create_observable_counter(
            "thingway_relay_dropped",
            [lambda _: [metrics.Observation(self._dropped)]],
            description="Messages on plain NATS of who was shut out",
        )

    def tenant_of(self, speaker: Speaker) -> str:
        """Return the tenant of a speaker, empty while it is not known."""
        return self._tenants.of(speaker.user)

    def drops(self, subject: bytes) -> bool:
        """Tell whether who speaks on a subject is shut out; `gateway-bus` drops what it says."""
        drops = bool(self._floods) and self._floods.shuts_out(speaker_of(subject.decode()).user)
        self._dropped += drops
        return drops

    def take(self, pattern: str, speaker: Speaker, size: int) -> None:
        """Let one message of `size` bytes pass; raise `RefusedError` when it is too much."""
        now = time.monotonic()
        tenant = self.tenant_of(speaker)
        if pattern == REPORTS:
            excess = self._messages.take(tenant, speaker.user, 1, size, now)
            if excess is None:
                return
            limit, reason = excess.limit, excess.reason
        else:
            rate = ACKNOWLEDGEMENTS if pattern == ACKS else QUESTIONS
            key = (pattern == ACKS, speaker.user)
            if not self._others.lacking(key, 1, rate, now):
                self._others.take(key, 1)
                return
            limit, reason = "eachMessages", f"more than {rate} requests per second"
        count_limited(limit, tenant)
        if self._refused.lacking(speaker.user, 1, QUESTIONS, now, FLOOD):
            self._floods.end(speaker.user)
            raise RefusedError(reason, 429, answered=False)
        self._refused.take(speaker.user, 1)
        raise RefusedError(reason, 429)
