"""Requests and responses of the operations on users."""

from typing import Annotated

import msgspec

from libs.common.contracts.access import ResourceType
from libs.common.envelope import Answer
from libs.common.http.console import Ids, PageRequest, ResponseModel
from libs.common.http.ids import NamedId
from services.auth.menus import MenuNode

Keyword = Annotated[str, msgspec.Meta(max_length=255)]


class RegisterUser(msgspec.Struct, kw_only=True):
    """Body of `POST /user/register` and `POST /user/members`."""

    email: str
    """5 to 255 characters."""
    nickname: str
    """1 to 127 characters."""
    password: str
    """8 to 63 printable ASCII characters with an upper-case and a lower-case letter and a digit."""


class EditUser(msgspec.Struct, kw_only=True):
    """Body of `PUT /user/members/{id}`."""

    email: str
    nickname: str


class ChangeOwnPassword(msgspec.Struct, kw_only=True):
    """Body of `PUT /user/password`."""

    old_password: str
    """The current password."""
    new_password: str
    """8 to 63 printable ASCII characters with an upper-case and a lower-case letter and a digit."""


class ChangePassword(msgspec.Struct, kw_only=True):
    """Body of `PUT /user/members/{id}/change-password`."""

    password: str
    """8 to 63 printable ASCII characters with an upper-case and a lower-case letter and a digit."""


class SetStatus(msgspec.Struct, kw_only=True):
    """Body of `PUT /user/members/{id}/status`."""

    enabled: bool
    """Whether the user may log in. False ends all sessions."""


class DeleteUsers(msgspec.Struct, kw_only=True):
    """Body of `POST /user/batch-delete`. Unknown ids are ignored."""

    user_id_list: Ids
    """Ids of users."""


class CheckPermission(msgspec.Struct, kw_only=True):
    """Body of `POST /user/members/{id}/permission`."""

    resource_type: ResourceType
    resource_id: NamedId


class UserSearch(PageRequest):
    """Body of `POST /user/members/search`."""

    keyword: Keyword | None = None
    """Part of the nickname or email address, ignoring case."""


class RoleName(msgspec.Struct):
    """A role of a user."""

    role_id: str
    role_name: str
    """Name of the role."""


class UserResponse(ResponseModel):
    """A user in lists."""

    tenant_id: str
    user_id: str
    nickname: str
    email: str
    created_at: str
    """Unix time in ms."""
    enabled: bool
    """Whether the user may log in."""
    roles: list[RoleName]
    """Roles of the user."""


class Profile(msgspec.Struct, kw_only=True):
    """The current user with the available pages and functions."""

    tenant_id: str
    user_id: str
    nickname: str
    email: str
    created_at: str
    roles: list[RoleName]
    """Roles of the user."""
    menus: list[MenuNode]
    """Pages and functions that the user may use, as a tree."""
    super_admin: bool
    """Whether the user has all permissions."""
    is_super_admin: bool
    """Same as `super_admin`, for existing consoles."""
    may_command: bool
    """Whether the user may set values and call services of visible devices."""


class UserSession(ResponseModel, kw_only=True):
    """A session of the caller. Times are in ms."""

    session_id: str
    """Id of the session."""
    current: bool
    """Whether the request uses this session."""
    started_at: str | None = None
    """Absent for a session that an older version of the platform started."""
    renewed_at: str | None = None
    """Time of the latest login or refresh."""
    ends_at: str
    """Expiry, unless the session is refreshed."""
    address: str
    """IP address of the latest login or refresh."""
    user_agent: str
    """User agent of the latest login or refresh."""


class TenantStatus(msgspec.Struct):
    """Whether the tenant has its first user and registration is closed."""

    init: bool
    """Whether the tenant has its first user."""


class Permission(msgspec.Struct):
    """Whether a user may read a resource."""

    has_permission: bool


class PermissionAnswer(Answer[Permission], kw_only=True):
    """The result at top level, and again in `data`, where clients read results."""

    has_permission: bool
    """Whether the user may see the resource."""
