"""Keeps the credentials of tenants, and tells flows what they need of them."""

import hashlib
import logging
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from libs.common.bus import RpcClient
from libs.common.contracts.auth import Done
from libs.common.contracts.mqtt import CLOSE_MQTT_CLIENTS, CloseMqttClients, MqttLoggedIn, MqttLogin
from libs.common.decoding import worded
from libs.common.errors import Conflict, InvalidInput, NotFound, ThingwayError
from libs.common.http.console import Page, PageRequest, Shown
from libs.common.http.ids import Id
from libs.common.identity import Principal
from libs.common.store.ids import IdAllocator
from services.workflow.credentials.store import Credential, CredentialStore, CredentialsType
from services.workflow.outgoing.mail import Encryption, MailServer

MOST = 100
"""Credentials of a tenant."""
LARGEST_DATA = 16 * 1024
"""Bytes of additional data, as JSON."""
MADE = 32
"""Characters of a secret that is made."""
_LETTERS = string.ascii_letters + string.digits
_LOGINS = frozenset({CredentialsType.MQTT, CredentialsType.HTTP})
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_SECRET = re.compile(r"[!-~]{8,128}").fullmatch
log = logging.getLogger(__name__)
LONGEST = 254
MOST_AT_ONCE = 100


class MailSettings(msgspec.Struct):
    """`additional_data` of a mail server."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST)]
    port: (
        Annotated[int, msgspec.Meta(ge=1, le=65_535)]
        | Annotated[str, msgspec.Meta(pattern="^[0-9]{1,5}$")]
    )
    """Consoles send text."""
    encryption: Encryption = "STARTTLS"
    username: Annotated[str, msgspec.Meta(max_length=LONGEST)] = ""


class UpdateCredentials(msgspec.Struct, kw_only=True):
    """Body of `PUT /credentials/{id}`: sets all of it but `access_key`, which is passed over."""

    access_secret: Annotated[str, msgspec.Meta(max_length=LONGEST)] = ""
    description: Annotated[str, msgspec.Meta(max_length=LONGEST)] | None = None
    additional_data: dict[str, Any] | None = None
    access_key: Annotated[str, msgspec.Meta(max_length=LONGEST)] | None = None


class CreateCredentials(UpdateCredentials, kw_only=True):
    """Body of `POST /credentials`."""

    credentials_type: CredentialsType


class DeleteCredentials(msgspec.Struct):
    """Body of `POST /credentials/delete`."""

    ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_AT_ONCE)]


class ShownCredentials(Shown, kw_only=True):
    """A credential, with its secret."""

    id: str
    tenant_id: str
    credentials_type: str
    description: str | None = None
    access_key: str
    access_secret: str
    additional_data: dict[str, Any] | None = None
    editable: bool
    created_at: int
    updated_at: int


@dataclass(frozen=True)
class TenantCredentials:
    """The credentials of tenants."""

    store: CredentialStore
    ids: IdAllocator
    rpc: RpcClient

    async def mail_server(self, tenant: str) -> MailServer | None:
        """The tenant's mail server; None while nobody has said which.

        This is the one place that tells it: whoever sends mail for a tenant asks here.
        """
        found = await self.store.find(tenant, CredentialsType.SMTP, _default_key("SMTP", tenant))
        if found is None or not found.data:
            return None
        settings = msgspec.convert(found.data, MailSettings)
        return MailServer(
            host=settings.host,
            port=int(settings.port),
            encryption=settings.encryption,
            username=settings.username,
            password=found.secret,
        )

    async def default(
        self, user: Principal, kind: CredentialsType, *, with_secret: bool
    ) -> ShownCredentials:
        """The default credential of a type, which is made when there is none.

        A new one has a secret made at random when `with_secret` says so, else none: then nobody
        signs in with it.
        """
        key = _default_key(kind, user.tenant)
        found = await self.store.find(user.tenant, kind, key)
        if found is None:
            secret = "".join(secrets.choice(_LETTERS) for _ in range(MADE)) if with_secret else ""
            new = CreateCredentials(credentials_type=kind, access_secret=secret)
            try:
                found = await self._add(user.tenant, key, new)
            except Conflict:  # somebody else has made it meanwhile
                found = await self.store.find(user.tenant, kind, key)
                if found is None:
                    raise
        return _shown(found)

    async def get(self, user: Principal, credential_id: int) -> ShownCredentials:
        """A credential; raise `NotFound`."""
        return _shown(await self._known(user, credential_id))

    async def search(
        self, user: Principal, kind: CredentialsType | None, wanted: PageRequest
    ) -> Page[ShownCredentials]:
        """A page of the tenant's credentials, the newest first."""
        found, total = await self.store.list(user.tenant, kind, wanted)
        return wanted.page(list(map(_shown, found)), total)

    async def create(self, user: Principal, wanted: CreateCredentials) -> None:
        """Add a credential; raise `InvalidInput` that names what is wrong, and `Conflict`."""
        kind, key = wanted.credentials_type, (wanted.access_key or "").strip()
        name, at, tenant = key.rpartition("@")
        if kind in _LOGINS and not (at and tenant == user.tenant and _NAME(name)):
            text = f"must be a name of letters, digits, - and _, and @{user.tenant}"
            raise InvalidInput(text, field="access_key")
        if not key or not key.isprintable():
            raise InvalidInput("must be printable, and not empty", field="access_key")
        _check(kind, wanted)
        if await self.store.count(user.tenant) >= MOST:
            raise InvalidInput(f"there are at most {MOST} credentials", field="access_key")
        await self._add(user.tenant, key, wanted)

    async def update(self, user: Principal, credential_id: int, wanted: UpdateCredentials) -> None:
        """Set description, secret and additional data; raise `NotFound` and `InvalidInput`."""
        found = await self._known(user, credential_id)
        _check(found.type, wanted)
        await self.store.replace(
            msgspec.structs.replace(
                found,
                secret=wanted.access_secret,
                description=wanted.description,
                data=wanted.additional_data,
                updated_at=datetime.now(UTC),
            )
        )
        if found.type is CredentialsType.MQTT and found.secret != wanted.access_secret:
            await self._close_clients(found.access_key)

    async def delete(self, user: Principal, ids: Sequence[int]) -> None:
        """Delete credentials; unknown ones are passed over."""
        found = [await self.store.get(user.tenant, one) for one in ids]
        await self.store.remove(user.tenant, ids)
        for one in found:
            if one is not None and one.type is CredentialsType.MQTT:
                await self._close_clients(one.access_key)

    async def login(self, kind: CredentialsType, access_key: str, secret: str) -> str | None:
        """The tenant of an access key that outsiders sign in with; None for a wrong secret."""
        found = await self._login(kind, access_key, secret)
        return None if found is None else found.tenant

    async def mqtt_login(self, wanted: MqttLogin) -> MqttLoggedIn:
        """The tenant of an MQTT client, and which credential it came with, as a digest.

        Neither when the secret is wrong; without one that credential is told which is good now.
        """
        found = await self._login(CredentialsType.MQTT, wanted.access_key, wanted.secret)
        if found is None:
            return MqttLoggedIn()
        digest = hashlib.sha256(f"{found.id}:{found.secret}".encode()).hexdigest()
        return MqttLoggedIn(found.tenant, digest)

    async def _login(
        self, kind: CredentialsType, access_key: str, secret: str | None
    ) -> Credential | None:
        """The credential of an access key, which ends with the tenant whose it is."""
        found = await self.store.find(access_key.rpartition("@")[2], kind, access_key)
        if found is None or not found.secret:
            return None
        known = found.secret.encode()
        right = secret is None or secrets.compare_digest(known, secret.encode())
        return found if right else None

    async def _close_clients(self, access_key: str) -> None:
        """Close MQTT clients whose credential has changed; while `auth` is away they stay."""
        try:
            await self.rpc.call(CLOSE_MQTT_CLIENTS, CloseMqttClients(access_key), Done)
        except ThingwayError as error:
            log.warning("connections of %s stay open: %s", access_key, error)

    async def _add(self, tenant: str, key: str, wanted: CreateCredentials) -> Credential:
        now = datetime.now(UTC)
        one = Credential(
            id=await self.ids.take(),
            tenant=tenant,
            type=wanted.credentials_type,
            access_key=key,
            secret=wanted.access_secret,
            description=wanted.description,
            data=wanted.additional_data,
            created_at=now,
            updated_at=now,
        )
        await self.store.insert(one)
        return one

    async def _known(self, user: Principal, credential_id: int) -> Credential:
        found = await self.store.get(user.tenant, credential_id)
        if found is None:
            raise NotFound(f"there is no credential {credential_id}", field="id")
        return found


def _default_key(kind: str, tenant: str) -> str:
    return f"{kind.lower()}@{tenant}"


def _check(kind: CredentialsType, wanted: UpdateCredentials) -> None:
    """Raise `InvalidInput` for a secret or data that do not fit the type."""
    if kind in _LOGINS and wanted.access_secret and not _SECRET(wanted.access_secret):
        text = "must have 8 to 128 printable characters, and no blanks"
        raise InvalidInput(text, field="access_secret")
    if len(msgspec.json.encode(wanted.additional_data)) > LARGEST_DATA:
        text = f"must have at most {LARGEST_DATA} bytes"
        raise InvalidInput(text, field="additional_data")
    if kind is CredentialsType.SMTP and wanted.additional_data is not None:
        _check_mail(wanted.additional_data)


def _check_mail(data: object) -> None:
    try:
        settings = msgspec.convert(data, MailSettings)
    except msgspec.ValidationError as error:
        found = worded(str(error), "additional_data")
        raise InvalidInput(found.reason, field=found.place) from error
    if not 1 <= int(settings.port) <= 65_535:  # noqa: PLR2004 - ports of TCP
        raise InvalidInput("must be from 1 to 65535", field="additional_data.port")


def _shown(one: Credential) -> ShownCredentials:
    return ShownCredentials.from_fields(
        one,
        tenant_id=one.tenant,
        credentials_type=one.type.value,
        access_secret=one.secret,
        additional_data=one.data,
        editable=True,
    )
