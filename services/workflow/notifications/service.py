"""What a user is told of alarms: shown and set by that user."""

import msgspec

from libs.common.errors import InvalidInput
from libs.common.http.console import distinct_ids
from libs.common.identity import Principal
from libs.common.identity.seal import Seal
from services.workflow.errors import NodeFailed
from services.workflow.nodes.simple_timer import is_zone
from services.workflow.notifications.model import (
    ChannelResult,
    Notifications,
    ShownNotifications,
    Subscriber,
    WebhookChannel,
)
from services.workflow.notifications.store import NotificationStore
from services.workflow.outgoing.http import checked
from services.workflow.outgoing.mail import is_address

HIDDEN = "******"
"""Stands for a secret that is set."""
UNKNOWN = "is hidden, and is not known for where it goes now; type it again"


class NotificationSettings:
    """Shows and sets what users want; a secret is sealed with the key of flows' secrets."""

    def __init__(self, store: NotificationStore, key: str) -> None:
        self._store = store
        self._seal = Seal(key)

    async def get(self, user: Principal) -> ShownNotifications:
        """What a user wants, without secrets; by default nothing is told, as no channel is set."""
        found = await self._store.find(user.tenant, user.user_id)
        return _shown(found.settings, found.results) if found else _shown(Notifications(), {})

    async def put(self, user: Principal, wanted: Notifications) -> None:
        """Set what a user wants; raise `InvalidInput`.

        A hidden secret stays as it is, as long as it goes to where it went.
        """
        _check(wanted, user)
        before = await self._store.find(user.tenant, user.user_id)
        settings = msgspec.structs.replace(
            wanted,
            device_ids=list(distinct_ids(wanted.device_ids)),
            group_ids=list(distinct_ids(wanted.group_ids)),
        )
        if (webhook := settings.webhook) is not None and webhook.secret:
            context = sealed_for(user.tenant, webhook)
            old = before.settings.webhook if before else None
            if webhook.secret != HIDDEN:
                sealed = self._seal.seal(webhook.secret, context)
            elif old and old.secret and sealed_for(user.tenant, old) == context:
                sealed = old.secret
            else:
                raise InvalidInput(UNKNOWN, field="webhook.secret")
            settings = with_secret(settings, sealed)
        await self._store.put(
            Subscriber(
                id=user.user_id,
                tenant=user.tenant,
                login=user.name,
                settings=settings,
                results=_kept_results(before, settings),
                tested=before.tested if before else {},
            )
        )

    def opened(self, subscriber: Subscriber) -> Notifications:
        """Settings with their secret; raise `SealBroken`."""
        webhook = subscriber.settings.webhook
        if webhook is None or not webhook.secret:
            return subscriber.settings
        text = self._seal.open(webhook.secret, sealed_for(subscriber.tenant, webhook))
        return with_secret(subscriber.settings, text)


def sealed_for(tenant: str, webhook: WebhookChannel) -> str:
    """What the secret of a webhook is sealed for: it goes nowhere else."""
    origin = "/".join(webhook.url.split("/")[:3])
    return f"{tenant}.alarm-webhook.{origin}"


def with_secret(settings: Notifications, text: str) -> Notifications:
    """Settings with another secret of their webhook, which they have."""
    changed = msgspec.structs.replace
    webhook = changed(settings.webhook, secret=text) if settings.webhook else None
    return changed(settings, webhook=webhook)


def _kept_results(before: Subscriber | None, settings: Notifications) -> dict[str, ChannelResult]:
    """Return the results of channels that send as they did before."""
    if before is None:
        return {}
    kept = {"MAIL": settings.mail, "WEBHOOK": settings.webhook == before.settings.webhook}
    return {channel: result for channel, result in before.results.items() if kept[channel]}


def _shown(settings: Notifications, results: dict[str, ChannelResult]) -> ShownNotifications:
    if settings.webhook is not None and settings.webhook.secret:
        settings = with_secret(settings, HIDDEN)
    fields = msgspec.structs.asdict(settings)
    fields["device_ids"] = list(map(str, settings.device_ids))
    fields["group_ids"] = list(map(str, settings.group_ids))
    return ShownNotifications(**fields, results=results)


def _check(wanted: Notifications, user: Principal) -> None:
    if not is_zone(wanted.time_zone):
        raise InvalidInput(f"{wanted.time_zone} is no time zone", field="time_zone")
    hours = wanted.quiet_hours
    if hours is not None and hours.begin == hours.end:
        raise InvalidInput("must be another time than begin", field="quiet_hours.end")
    if wanted.webhook is not None:
        try:
            checked(wanted.webhook.url)
        except NodeFailed as error:
            raise InvalidInput(str(error), field="webhook.url") from error
    if wanted.mail and not is_address(user.name):
        raise InvalidInput(f"{user.name:.60} is no mail address", field="mail")
