"""What the operator and other services ask about users: `rpc.auth.…`."""

from libs.common.bus import RpcServer
from libs.common.contracts.auth import CreateUser, DescribeUsers, UserRefByEmail
from services.auth.users.account import AccountService


def offer_users(rpc: RpcServer, service: AccountService) -> None:
    """Offer the operations."""
    rpc.offer("create_user", CreateUser, service.create)
    rpc.offer("reset_user_password", UserRefByEmail, service.reset_password)
    rpc.offer("describe_users", DescribeUsers, service.describe)
