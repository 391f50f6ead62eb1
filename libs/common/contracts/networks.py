"""What comes to the webhooks of network servers, on its way to the integration."""

from typing import Annotated

import msgspec

from libs.common.contracts.integrations import Tenant

LARGEST_HOOK = 64 * 1024
"""Bytes of a body: an uplink that many gateways heard has some 10,000."""


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """`rpc.integration.{integration}.hook`: a body that came to the webhook of a tenant.

    It is answered by the replica that the integration works in, when what it says is stored.
    """

    tenant: Tenant
    body: Annotated[bytes, msgspec.Meta(max_length=LARGEST_HOOK)]
