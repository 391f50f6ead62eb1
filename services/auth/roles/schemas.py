"""Roles on the wire."""

from typing import Annotated

import msgspec

from libs.common.http.console import Ids, PageRequest, Shown

Keyword = Annotated[str, msgspec.Meta(max_length=255)]
"""Part of a name, in any case."""


class RoleCounts(msgspec.Struct, frozen=True):
    """How many users have a role, and how many integrations it is granted."""

    users: int = 0
    integrations: int = 0


class RoleBody(msgspec.Struct, kw_only=True):
    """Body of `POST /user/roles` and `PUT /user/roles/{role_id}`.

    An update without `description` leaves it as it is.
    """

    name: str
    description: str | None = None


class Search(PageRequest, kw_only=True):
    """Body of the searches; an empty keyword counts as none."""

    keyword: Keyword | None = None


class UserIds(msgspec.Struct):
    """Body of `associate-user` and `disassociate-user`."""

    user_ids: Ids


class MenuIds(msgspec.Struct):
    """Body of `associate-menu`: all that the role is to have."""

    menu_ids: Ids


class RoleMade(msgspec.Struct):
    """Answer of `POST /user/roles`."""

    role_id: str


class ShownRole(Shown):
    """A role of the list; its counts are strings, `created_at` is in ms."""

    role_id: str
    name: str
    description: str
    created_at: str
    user_role_count: str
    role_integration_count: str


class ShownMember(Shown):
    """A user of a role."""

    role_id: str
    user_id: str
    user_nickname: str
    user_email: str


class ShownCandidate(Shown):
    """A user who could be added to a role."""

    user_id: str
    nickname: str
    email: str
