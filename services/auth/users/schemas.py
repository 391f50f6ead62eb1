"""Users on the wire of the management API."""

from typing import Annotated

import msgspec

from libs.common.contracts.access import ResourceType
from libs.common.envelope import Answer
from libs.common.http.console import Ids, PageRequest, Shown
from libs.common.http.ids import NamedId
from services.auth.menus import MenuNode

Keyword = Annotated[str, msgspec.Meta(max_length=255)]


class RegisterUser(msgspec.Struct, kw_only=True):
    """`POST /user/register` and `POST /user/members`."""

    email: str
    """5 to 255 characters."""
    nickname: str
    """1 to 127 characters."""
    password: str
    """8 to 63 printable ASCII characters with an upper-case and a lower-case letter and a digit."""


class EditUser(msgspec.Struct, kw_only=True):
    """`PUT /user/members/{id}`."""

    email: str
    nickname: str


class ChangeOwnPassword(msgspec.Struct, kw_only=True):
    """`PUT /user/password`."""

    old_password: str
    new_password: str


class ChangePassword(msgspec.Struct, kw_only=True):
    """`PUT /user/members/{id}/change-password`."""

    password: str


class SetStatus(msgspec.Struct, kw_only=True):
    """`PUT /user/members/{id}/status`."""

    enabled: bool


class DeleteUsers(msgspec.Struct, kw_only=True):
    """`POST /user/batch-delete`; unknown ids are passed over."""

    user_id_list: Ids


class AskPermission(msgspec.Struct, kw_only=True):
    """`POST /user/members/{id}/permission`."""

    resource_type: ResourceType
    resource_id: NamedId


class UserSearch(PageRequest):
    """`POST /user/members/search`."""

    keyword: Keyword | None = None
    """Part of the nickname or of the e-mail address, in any case."""


class RoleName(msgspec.Struct):
    """A role of a user."""

    role_id: str
    role_name: str


class ShownUser(Shown):
    """A user in lists."""

    tenant_id: str
    user_id: str
    nickname: str
    email: str
    created_at: str
    """ms."""
    enabled: bool
    roles: list[RoleName]


class Profile(msgspec.Struct, kw_only=True):
    """`GET /user`: who is logged in, and the pages and functions that are open to it."""

    tenant_id: str
    user_id: str
    nickname: str
    email: str
    created_at: str
    roles: list[RoleName]
    menus: list[MenuNode]
    super_admin: bool
    is_super_admin: bool
    """The same under the name that existing consoles read."""
    may_command: bool
    """Whether the user may set values and call services of the devices that it sees."""


class OwnSession(Shown, kw_only=True):
    """One of one's own log-ins, wherever it was made; times are in ms."""

    session_id: str
    current: bool
    """It is the one that asks."""
    started_at: str | None = None
    """Absent for one that is older than this list."""
    renewed_at: str | None = None
    """When it was last given tokens."""
    ends_at: str
    """Unless it is renewed."""
    address: str
    """Where it was last given tokens."""
    user_agent: str
    """What the browser or program called itself there."""


class TenantStatus(msgspec.Struct):
    """`GET /user/status`: whether the tenant has its first user, and registration is closed."""

    init: bool


class Permission(msgspec.Struct):
    """Whether a user has a resource."""

    has_permission: bool


class PermissionAnswer(Answer[Permission], kw_only=True):
    """The field at top level, as specified, and in `data`, where clients of the field read it."""

    has_permission: bool
