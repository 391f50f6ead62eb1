"""What a user is told of alarms: shown and set by that user."""

import re
from zoneinfo import ZoneInfoNotFoundError

import msgspec

from libs.common.errors import InvalidInput
from libs.common.http.console import ids_of
from libs.common.identity import Principal
from libs.common.identity.seal import Seal
from services.workflow.errors import NodeFailed
from services.workflow.notifications.model import (
    MailChannel,
    Notifications,
    ShownNotifications,
    Subscriber,
    WebhookChannel,
)
from services.workflow.notifications.store import NotificationStore
from services.workflow.outgoing.http import checked

HIDDEN = "******"
"""Stands for a secret that is set."""
UNKNOWN = "is hidden, and is not known for where it goes now; type it again"
_ADDRESS = re.compile(r"[^\s@<>,;:\"()\[\]\\]{1,64}@[A-Za-z0-9.-]{1,189}").fullmatch


class NotificationSettings:
    """Shows and sets what users want; secrets are sealed with the key of flows' secrets."""

    def __init__(self, store: NotificationStore, key: str) -> None:
        self._store = store
        self._seal = Seal(key)

    async def get(self, user: Principal) -> ShownNotifications:
        """What a user wants, without secrets; by default nothing is told, as no channel is set."""
        found = await self._store.find(user.tenant, user.user_id)
        return _shown(found.settings if found else Notifications())

    async def put(self, user: Principal, wanted: Notifications) -> None:
        """Set what a user wants; raise `InvalidInput`.

        A hidden secret stays as it is, as long as it goes to where it went.
        """
        _check(wanted, user)
        before = await self._store.find(user.tenant, user.user_id)
        kept = secrets_of(before.settings) if before else {}
        settings = msgspec.structs.replace(
            wanted,
            device_ids=list(ids_of(wanted.device_ids)),
            group_ids=list(ids_of(wanted.group_ids)),
        )
        for name, (text, context) in secrets_of(settings).items():
            if text == HIDDEN:
                old, old_context = kept.get(name, ("", ""))
                if not old or old_context != context:
                    raise InvalidInput(UNKNOWN, field=name)
                settings = with_secret(settings, name, old)
            elif text:
                sealed = self._seal.seal(text, f"{user.tenant}.{context}")
                settings = with_secret(settings, name, sealed)
        await self._store.put(
            Subscriber(id=user.user_id, tenant=user.tenant, login=user.name, settings=settings)
        )

    def opened(self, subscriber: Subscriber) -> Notifications:
        """Settings with their secrets; raise `SealBroken`."""
        settings = subscriber.settings
        for name, (sealed, context) in secrets_of(settings).items():
            if sealed:
                text = self._seal.open(sealed, f"{subscriber.tenant}.{context}")
                settings = with_secret(settings, name, text)
        return settings


def secrets_of(settings: Notifications) -> dict[str, tuple[str, str]]:
    """Secrets by their fields, each with what it is sealed for besides the tenant."""
    found = {}
    if settings.mail is not None:
        server = settings.mail.server
        found["mail.server.password"] = (server.password, f"alarm-mail.{server.host}")
    if settings.webhook is not None:
        origin = "/".join(settings.webhook.url.split("/")[:3])
        found["webhook.secret"] = (settings.webhook.secret, f"alarm-webhook.{origin}")
    return found


def with_secret(settings: Notifications, name: str, text: str) -> Notifications:
    """Settings with another secret."""
    changed = msgspec.structs.replace
    if name == "webhook.secret":
        return changed(settings, webhook=changed(_webhook(settings), secret=text))
    mail = _mail(settings)
    return changed(settings, mail=changed(mail, server=changed(mail.server, password=text)))


def _mail(settings: Notifications) -> MailChannel:
    if settings.mail is None:
        raise ValueError("there is no mail")
    return settings.mail


def _webhook(settings: Notifications) -> WebhookChannel:
    if settings.webhook is None:
        raise ValueError("there is no webhook")
    return settings.webhook


def _shown(settings: Notifications) -> ShownNotifications:
    for name, (text, _) in secrets_of(settings).items():
        settings = with_secret(settings, name, HIDDEN if text else "")
    fields = msgspec.structs.asdict(settings)
    fields["device_ids"] = list(map(str, settings.device_ids))
    fields["group_ids"] = list(map(str, settings.group_ids))
    return ShownNotifications(**fields)


def _check(wanted: Notifications, user: Principal) -> None:
    try:
        _ = wanted.zone
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        text = f"{wanted.time_zone} is no time zone"
        raise InvalidInput(text, field="time_zone") from error
    hours = wanted.quiet_hours
    if hours is not None and hours.begin == hours.end:
        raise InvalidInput("must be another time than begin", field="quiet_hours.end")
    if wanted.webhook is not None:
        try:
            checked(wanted.webhook.url)
        except NodeFailed as error:
            raise InvalidInput(str(error), field="webhook.url") from error
    if wanted.mail is not None:
        for field, address in (
            ("mail.address", wanted.mail.address or user.name),
            ("mail.server.username", wanted.mail.server.username),
        ):
            if not _ADDRESS(address):
                raise InvalidInput(f"{address:.60} is no mail address", field=field)
