"""The accounts of tenants at other platforms."""

from collections.abc import Callable
from typing import Any

from libs.common.contracts.integrations import MISSING_SETTING_CODE
from libs.common.errors import InvalidInput
from libs.common.http.outgoing import validate_url
from libs.common.integrations import IntegrationThings
from services.management.builtin.openapi_client.remote import RemoteAccount, RemotePlatform
from services.management.builtin.openapi_client.store import AccountSecret, OpenApiStore

SECRET_PROPERTY = "client_secret"  # noqa: S105 - a property name


class RemoteAccounts:
    """The accounts of all tenants.

    Base URL and client id are properties of the integration's thing; the secret is stored here. It
    is used only with the address and client for which it was entered, so that a user who may change
    the address cannot obtain the secret.
    """

    def __init__(
        self,
        things: IntegrationThings,
        store: OpenApiStore,
        connect: Callable[[RemoteAccount], RemotePlatform],
        allowed_networks: tuple[str, ...],
    ) -> None:
        self._things = things
        self._store = store
        self._connect = connect
        self._allowed_networks = allowed_networks
        self._remotes: dict[str, RemotePlatform] = {}

    async def handle_changed_settings(self, tenant: str, properties: dict[str, Any]) -> None:
        """Check a new base URL, and store a new secret; raise `InvalidInput` for the URL."""
        if url := properties.get("base_url"):
            validate_url(url, "base_url", self._allowed_networks)
        secret = properties.get(SECRET_PROPERTY)
        if secret:
            all_properties = (await self._things.get_own_values(tenant)).properties | properties
            stored_secret = AccountSecret(
                secret,
                _read_text(all_properties, "base_url"),
                _read_text(all_properties, "client_id"),
            )
            await self._store.save_secret(tenant, stored_secret)

    async def get_platform(self, tenant: str) -> RemotePlatform:
        """Return the client of a tenant's other platform.

        Raises `InvalidInput` for a missing or wrong property.
        """
        account = await self._read_account(tenant)
        cached = self._remotes.get(tenant)
        if cached is None or cached.account != account:
            cached = self._remotes[tenant] = self._connect(account)
        return cached

    async def _read_account(self, tenant: str) -> RemoteAccount:
        values = (await self._things.get_own_values(tenant)).properties
        url, client_id = _read_text(values, "base_url"), _read_text(values, "client_id")
        if url is None:
            raise InvalidInput("is not set", field="base_url", code=MISSING_SETTING_CODE)
        if client_id is None:
            raise InvalidInput("is not set", field="client_id", code=MISSING_SETTING_CODE)
        base = validate_url(url, "base_url", self._allowed_networks)
        secret = await self._store.find_secret(tenant)
        if secret is None:
            raise InvalidInput("is not set", field=SECRET_PROPERTY, code=MISSING_SETTING_CODE)
        if secret.url is None or secret.client_id is None:
            bound = AccountSecret(secret.secret, secret.url or url, secret.client_id or client_id)
            await self._store.save_secret(tenant, bound)
            secret = bound
        if (secret.url, secret.client_id) != (url, client_id):
            text = "was entered for another base_url or client_id: enter it again"
            raise InvalidInput(text, field=SECRET_PROPERTY)
        return RemoteAccount(base_url=base, client_id=client_id, client_secret=secret.secret)


def _read_text(values: dict[str, Any], name: str) -> str | None:
    return str(values.get(name) or "").strip() or None
