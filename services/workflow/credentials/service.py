"""Manages the credentials of tenants, and verifies logins of external clients."""

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
from libs.common.decoding import parse_validation_error
from libs.common.errors import Conflict, InvalidInput, NotFound, ThingwayError
from libs.common.http.console import Page, PageRequest, ResponseModel
from libs.common.http.ids import Id
from libs.common.identity import Principal
from libs.common.store.ids import IdAllocator
from services.workflow.credentials.store import Credential, CredentialStore, CredentialsType
from services.workflow.outgoing.mail import Encryption, MailServer

MAX_CREDENTIALS = 100
"""Maximum credentials of a tenant."""
MAX_DATA_BYTES = 16 * 1024
"""Maximum bytes of additional data as JSON."""
SECRET_LENGTH = 32
"""Characters of a generated secret."""
_SECRET_ALPHABET = string.ascii_letters + string.digits
_LOGIN_TYPES = frozenset({CredentialsType.MQTT, CredentialsType.HTTP})
_match_login_name = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_match_secret = re.compile(r"[!-~]{8,128}").fullmatch
log = logging.getLogger(__name__)
MAX_TEXT_CHARACTERS = 254
MAX_DELETED_IDS = 100


class MailSettings(msgspec.Struct):
    """`additional_data` of a mail server."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT_CHARACTERS)]
    port: (
        Annotated[int, msgspec.Meta(ge=1, le=65_535)]
        | Annotated[str, msgspec.Meta(pattern="^[0-9]{1,5}$")]
    )
    """Consoles send a string."""
    encryption: Encryption = "STARTTLS"
    username: Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS)] = ""


class UpdateCredentials(msgspec.Struct, kw_only=True):
    """Body of `PUT /credentials/{id}`. `access_key` is ignored."""

    access_secret: Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS)] = ""
    description: Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS)] | None = None
    additional_data: dict[str, Any] | None = None
    """For SMTP: `host`, `port`, `encryption` and `username`."""
    access_key: Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS)] | None = None


class CreateCredentials(UpdateCredentials, kw_only=True):
    """Body of `POST /credentials`."""

    credentials_type: CredentialsType


class DeleteCredentials(msgspec.Struct):
    """Body of `POST /credentials/delete`."""

    ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_DELETED_IDS)]
    """Ids of credentials."""


class CredentialResponse(ResponseModel, kw_only=True):
    """A credential with its secret."""

    id: str
    tenant_id: str
    credentials_type: str
    description: str | None = None
    access_key: str
    access_secret: str
    additional_data: dict[str, Any] | None = None
    """For SMTP: `host`, `port`, `encryption` and `username`."""
    editable: bool
    """Always true."""
    created_at: int
    updated_at: int


@dataclass(frozen=True)
class TenantCredentials:
    """The operations on credentials."""

    store: CredentialStore
    ids: IdAllocator
    rpc: RpcClient

    async def find_mail_server(self, tenant: str) -> MailServer | None:
        """Return the tenant's mail server; None if it is not configured."""
        credential = await self.store.find(
            tenant, CredentialsType.SMTP, _default_key("SMTP", tenant)
        )
        if credential is None or not credential.data:
            return None
        settings = msgspec.convert(credential.data, MailSettings)
        return MailServer(
            host=settings.host,
            port=int(settings.port),
            encryption=settings.encryption,
            username=settings.username,
            password=credential.secret,
        )

    async def get_default(
        self, user: Principal, kind: CredentialsType, *, with_secret: bool
    ) -> CredentialResponse:
        """Return the default credential of a type; create it if missing.

        With `with_secret`, a new credential gets a random secret. Without a secret, nobody can log
        in with it.
        """
        key = _default_key(kind, user.tenant)
        credential = await self.store.find(user.tenant, kind, key)
        if credential is None:
            secret = (
                "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(SECRET_LENGTH))
                if with_secret
                else ""
            )
            new = CreateCredentials(credentials_type=kind, access_secret=secret)
            try:
                credential = await self._add(user.tenant, key, new)
            except Conflict:  # created concurrently
                credential = await self.store.find(user.tenant, kind, key)
                if credential is None:
                    raise
        return _build_response(credential)

    async def get(self, user: Principal, credential_id: int) -> CredentialResponse:
        """Return a credential; raise `NotFound`."""
        return _build_response(await self._get(user, credential_id))

    async def search(
        self, user: Principal, kind: CredentialsType | None, request: PageRequest
    ) -> Page[CredentialResponse]:
        """Return one page of the tenant's credentials, newest first."""
        rows, total = await self.store.list(user.tenant, kind, request)
        return request.page(list(map(_build_response, rows)), total)

    async def create(self, user: Principal, request: CreateCredentials) -> None:
        """Add a credential; raise `InvalidInput` with the field, or `Conflict`."""
        kind, key = request.credentials_type, (request.access_key or "").strip()
        name, at, tenant = key.rpartition("@")
        if kind in _LOGIN_TYPES and not (at and tenant == user.tenant and _match_login_name(name)):
            text = f"must be a name of letters, digits, - and _, followed by @{user.tenant}"
            raise InvalidInput(text, field="access_key")
        if not key or not key.isprintable():
            raise InvalidInput("must be printable and not empty", field="access_key")
        _check_secret_and_data(kind, request)
        if await self.store.count(user.tenant) >= MAX_CREDENTIALS:
            raise InvalidInput(
                f"a tenant can have at most {MAX_CREDENTIALS} credentials", field="access_key"
            )
        await self._add(user.tenant, key, request)

    async def update(self, user: Principal, credential_id: int, request: UpdateCredentials) -> None:
        """Set description, secret and additional data.

        A new secret of an MQTT credential disconnects its clients. Raises `NotFound` and
        `InvalidInput`.
        """
        credential = await self._get(user, credential_id)
        _check_secret_and_data(credential.type, request)
        await self.store.replace(
            msgspec.structs.replace(
                credential,
                secret=request.access_secret,
                description=request.description,
                data=request.additional_data,
                updated_at=datetime.now(UTC),
            )
        )
        if credential.type is CredentialsType.MQTT and credential.secret != request.access_secret:
            await self._disconnect_mqtt_clients(credential.access_key)

    async def delete(self, user: Principal, ids: Sequence[int]) -> None:
        """Delete credentials and disconnect their MQTT clients; ignore unknown ids."""
        credentials = [await self.store.get(user.tenant, credential_id) for credential_id in ids]
        await self.store.remove(user.tenant, ids)
        for credential in credentials:
            if credential is not None and credential.type is CredentialsType.MQTT:
                await self._disconnect_mqtt_clients(credential.access_key)

    async def verify_login(self, kind: CredentialsType, access_key: str, secret: str) -> str | None:
        """Return the tenant of an access key; None if the key or the secret is wrong."""
        credential = await self._find_verified(kind, access_key, secret)
        return None if credential is None else credential.tenant

    async def verify_mqtt_login(self, request: MqttLogin) -> MqttLoggedIn:
        """Return the tenant and a digest of the credential of an MQTT client.

        Both are empty if the access key is unknown or the secret is wrong. A request without a
        secret is accepted: it only asks for the current digest.
        """
        credential = await self._find_verified(
            CredentialsType.MQTT, request.access_key, request.secret
        )
        if credential is None:
            return MqttLoggedIn()
        digest = hashlib.sha256(f"{credential.id}:{credential.secret}".encode()).hexdigest()
        return MqttLoggedIn(credential.tenant, digest)

    async def _find_verified(
        self, kind: CredentialsType, access_key: str, secret: str | None
    ) -> Credential | None:
        """Return the credential of an access key if the secret matches, else None.

        The access key ends with the tenant. If `secret` is None, it is not compared. A credential
        without a secret never matches.
        """
        credential = await self.store.find(access_key.rpartition("@")[2], kind, access_key)
        if credential is None or not credential.secret:
            return None
        stored_secret = credential.secret.encode()
        matches = secret is None or secrets.compare_digest(stored_secret, secret.encode())
        return credential if matches else None

    async def _disconnect_mqtt_clients(self, access_key: str) -> None:
        """Disconnect the MQTT clients of an access key; only log if that fails."""
        try:
            await self.rpc.call(CLOSE_MQTT_CLIENTS, CloseMqttClients(access_key), Done)
        except ThingwayError as error:
            log.warning("MQTT clients of %s were not disconnected: %s", access_key, error)

    async def _add(self, tenant: str, key: str, request: CreateCredentials) -> Credential:
        now = datetime.now(UTC)
        credential = Credential(
            id=await self.ids.allocate(),
            tenant=tenant,
            type=request.credentials_type,
            access_key=key,
            secret=request.access_secret,
            description=request.description,
            data=request.additional_data,
            created_at=now,
            updated_at=now,
        )
        await self.store.insert(credential)
        return credential

    async def _get(self, user: Principal, credential_id: int) -> Credential:
        credential = await self.store.get(user.tenant, credential_id)
        if credential is None:
            raise NotFound(f"credential {credential_id} does not exist", field="id")
        return credential


def _default_key(kind: str, tenant: str) -> str:
    return f"{kind.lower()}@{tenant}"


def _check_secret_and_data(kind: CredentialsType, request: UpdateCredentials) -> None:
    """Raise `InvalidInput` if the secret or the data does not fit the type."""
    if kind in _LOGIN_TYPES and request.access_secret and not _match_secret(request.access_secret):
        text = "must have 8 to 128 printable characters without blanks"
        raise InvalidInput(text, field="access_secret")
    if len(msgspec.json.encode(request.additional_data)) > MAX_DATA_BYTES:
        text = f"must have at most {MAX_DATA_BYTES} bytes"
        raise InvalidInput(text, field="additional_data")
    if kind is CredentialsType.SMTP and request.additional_data is not None:
        _check_mail_settings(request.additional_data)


def _check_mail_settings(data: object) -> None:
    try:
        settings = msgspec.convert(data, MailSettings)
    except msgspec.ValidationError as error:
        fault = parse_validation_error(str(error), "additional_data")
        raise InvalidInput(fault.reason, field=fault.place) from error
    if not 1 <= int(settings.port) <= 65_535:  # noqa: PLR2004 - ports of TCP
        raise InvalidInput("must be from 1 to 65535", field="additional_data.port")


def _build_response(credential: Credential) -> CredentialResponse:
    return CredentialResponse.from_fields(
        credential,
        tenant_id=credential.tenant,
        credentials_type=credential.type.value,
        access_secret=credential.secret,
        additional_data=credential.data,
        editable=True,
    )
