"""Settings of a tenant, which its super-admins change."""

from libs.common.errors import NotFound
from libs.common.identity import Caller
from libs.common.store.mongo import Session
from services.auth.accounts.tenants import CommandSetting, TenantStore
from services.auth.audit.schemas import Subject
from services.auth.changes import Change, Changes
from services.auth.tenants.schemas import ChangeTenantSettings, TenantSettings


class TenantSettingsService:
    """Return and change the settings of tenants."""

    def __init__(self, changes: Changes, store: TenantStore) -> None:
        self._changes = changes
        self._store = store

    async def get(self, tenant: str) -> TenantSettings:
        """Return the settings; raise `NotFound` without the tenant."""
        return _response(await self._setting(tenant))

    async def change(self, caller: Caller, wanted: ChangeTenantSettings) -> TenantSettings:
        """Set the settings for every replica before the answer; raise `NotFound`.

        Setting the same value again ends the notice and is not audited.
        """
        tenant, viewers = caller.principal.tenant, wanted.viewers_may_command

        async def change_settings(change: Change) -> None:
            before = await self._setting(tenant, change.session)
            await self._store.set_command_setting(
                tenant, change.session, viewers_may_command=viewers
            )
            if before.viewers_may_command != viewers:
                change.record_access(
                    "updated",
                    Subject("tenant", tenant, tenant),
                    before={"viewers_may_command": before.viewers_may_command},
                    after={"viewers_may_command": viewers},
                )

        await self._changes.run(caller, change_settings)
        return TenantSettings(viewers_may_command=viewers, notice=False)

    async def _setting(self, tenant: str, session: Session | None = None) -> CommandSetting:
        found = await self._store.command_setting(tenant, session)
        if found is None:
            raise NotFound(f"there is no tenant {tenant}", field="tenant")
        return found


def _response(setting: CommandSetting) -> TenantSettings:
    return TenantSettings(viewers_may_command=setting.viewers_may_command, notice=setting.notice)
