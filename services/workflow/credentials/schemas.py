"""Credentials on the wire."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from libs.common.http.console import Shown
from libs.common.http.ids import Id
from services.workflow.outgoing.mail import Encryption

LONGEST = 254
MOST_AT_ONCE = 100


class CredentialsType(StrEnum):
    """What a credential is for."""

    SMTP = "SMTP"
    """The tenant's mail server; the secret is the password of its user there."""
    MQTT = "MQTT"
    """MQTT clients outside sign in with it, for flows that begin with a message."""
    HTTP = "HTTP"
    """HTTP clients outside sign in with it, for flows that begin with a request."""


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


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A credential as it is kept, opened."""

    id: int
    tenant: str
    type: CredentialsType
    access_key: str
    secret: str = ""
    description: str | None = None
    data: dict[str, Any] | None = None
    created_at: int
    """ms."""
    updated_at: int

    def __repr__(self) -> str:
        return f"Stored({self.id}, {self.access_key})"
