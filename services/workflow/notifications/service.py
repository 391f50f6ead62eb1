"""Returns and stores the notification settings of users."""

import msgspec

from libs.common.errors import InvalidInput
from libs.common.http.console import distinct_ids
from libs.common.identity import Principal
from libs.common.identity.seal import Seal
from services.workflow.errors import NodeFailed
from services.workflow.nodes.triggers import is_time_zone
from services.workflow.notifications.store import (
    ChannelResult,
    Notifications,
    NotificationsResponse,
    NotificationStore,
    Subscriber,
    WebhookChannel,
)
from services.workflow.outgoing.http import parse_url
from services.workflow.outgoing.mail import is_email_address

HIDDEN_PLACEHOLDER = "******"
"""Placeholder of a stored secret."""
UNKNOWN_PLACEHOLDER_REASON = "is hidden and not stored for this destination; enter it again"


class NotificationSettings:
    """The notification settings of users; secrets are encrypted with `key`."""

    def __init__(self, store: NotificationStore, key: str) -> None:
        self._store = store
        self._seal = Seal(key)

    async def get(self, user: Principal) -> NotificationsResponse:
        """Return the settings of a user with hidden secrets; by default no channel."""
        subscriber = await self._store.find(user.tenant, user.user_id)
        return (
            _settings_response(subscriber.settings, subscriber.results)
            if subscriber
            else _settings_response(Notifications(), {})
        )

    async def put(self, user: Principal, request: Notifications) -> None:
        """Store the settings of a user; raise `InvalidInput`.

        A hidden secret stays unchanged unless its destination changes.
        """
        _check_settings(request, user)
        before = await self._store.find(user.tenant, user.user_id)
        settings = msgspec.structs.replace(
            request,
            device_ids=list(distinct_ids(request.device_ids)),
            group_ids=list(distinct_ids(request.group_ids)),
        )
        if (webhook := settings.webhook) is not None and webhook.secret:
            context = webhook_seal_context(user.tenant, webhook)
            old = before.settings.webhook if before else None
            if webhook.secret != HIDDEN_PLACEHOLDER:
                sealed = self._seal.seal(webhook.secret, context)
            elif old and old.secret and webhook_seal_context(user.tenant, old) == context:
                sealed = old.secret
            else:
                raise InvalidInput(UNKNOWN_PLACEHOLDER_REASON, field="webhook.secret")
            settings = replace_secret(settings, sealed)
        await self._store.save_settings(
            Subscriber(
                id=user.user_id,
                tenant=user.tenant,
                login=user.name,
                settings=settings,
                results=_unchanged_results(before, settings),
                tested=before.tested if before else {},
            )
        )

    def decrypt_settings(self, subscriber: Subscriber) -> Notifications:
        """Return settings with the decrypted secret; raise `SealBroken`."""
        webhook = subscriber.settings.webhook
        if webhook is None or not webhook.secret:
            return subscriber.settings
        text = self._seal.open(webhook.secret, webhook_seal_context(subscriber.tenant, webhook))
        return replace_secret(subscriber.settings, text)


def webhook_seal_context(tenant: str, webhook: WebhookChannel) -> str:
    """Return the encryption context of a webhook's secret: tenant and destination."""
    origin = "/".join(webhook.url.split("/")[:3])
    return f"{tenant}.alarm-webhook.{origin}"


def replace_secret(settings: Notifications, text: str) -> Notifications:
    """Return settings with `text` as the secret of the webhook, if a webhook is set."""
    replace = msgspec.structs.replace
    webhook = replace(settings.webhook, secret=text) if settings.webhook else None
    return replace(settings, webhook=webhook)


def _unchanged_results(
    before: Subscriber | None, settings: Notifications
) -> dict[str, ChannelResult]:
    """Return the results of channels whose settings did not change."""
    if before is None:
        return {}
    is_unchanged = {"MAIL": settings.mail, "WEBHOOK": settings.webhook == before.settings.webhook}
    return {channel: result for channel, result in before.results.items() if is_unchanged[channel]}


def _settings_response(
    settings: Notifications, results: dict[str, ChannelResult]
) -> NotificationsResponse:
    if settings.webhook is not None and settings.webhook.secret:
        settings = replace_secret(settings, HIDDEN_PLACEHOLDER)
    fields = msgspec.structs.asdict(settings)
    fields["device_ids"] = list(map(str, settings.device_ids))
    fields["group_ids"] = list(map(str, settings.group_ids))
    return NotificationsResponse(**fields, results=results)


def _check_settings(settings: Notifications, user: Principal) -> None:
    if not is_time_zone(settings.time_zone):
        raise InvalidInput(
            f"must be an IANA time zone. Got `{settings.time_zone}`.", field="time_zone"
        )
    hours = settings.quiet_hours
    if hours is not None and hours.begin == hours.end:
        raise InvalidInput("must differ from `begin`", field="quiet_hours.end")
    if settings.webhook is not None:
        try:
            parse_url(settings.webhook.url)
        except NodeFailed as error:
            raise InvalidInput(str(error), field="webhook.url") from error
    if settings.mail and not is_email_address(user.name):
        raise InvalidInput(f"needs an email address as login. Got `{user.name:.60}`.", field="mail")
