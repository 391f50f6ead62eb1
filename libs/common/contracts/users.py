"""What `auth` is asked about users.

The operator asks `rpc.auth.{create_user|reset_user_password}`, services `describe_users`.
"""

import msgspec

DESCRIBE = "rpc.auth.describe_users"


class DescribeUsers(msgspec.Struct):
    """`describe_users`: those of a tenant with these ids."""

    tenant: str
    ids: list[int]


class DescribedUsers(msgspec.Struct):
    """Answer of `describe_users`: nicknames by id, as text; who is unknown is left out."""

    nicknames: dict[str, str]


class CreateUser(msgspec.Struct, rename="camel"):
    """`create_user`: with a password that `auth` makes."""

    email: str
    nickname: str
    tenant: str = "default"
    super_admin: bool = False


class UserRefByEmail(msgspec.Struct):
    """`reset_user_password`: a new password that `auth` makes; every token of the user ends."""

    email: str
    tenant: str = "default"


class UserPassword(msgspec.Struct, rename="camel"):
    """Answer of both: the password is shown only here."""

    user_id: int
    email: str
    password: str
