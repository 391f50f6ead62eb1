"""What the operator asks `auth` about users: `rpc.auth.{create_user|reset_user_password}`."""

import msgspec


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
