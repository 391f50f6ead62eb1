"""Two tenants and three households: Mallory, Nora of her tenant, and Alice of another.

Each has an application that hears events, a device with a key, an integration's login, a user of
the console and a flow with a hook. Mallory's logins attack; the others must not notice.
"""

from dataclasses import dataclass, field
from uuid import uuid4

from tests.contract.console import Console, new_admin
from tests.e2e.callers import Application
from tests.e2e.devices import Device
from tests.e2e.platform import PRODUCT, Platform
from tests.integration.workflow.designs import design, edge, node


@dataclass
class Home:
    """A household and its devices, application and user."""

    platform: Platform
    tenant: str
    application: Application
    device: Device
    sleeper: Device
    """A device that is away, and has a command waiting in its MQTT session."""
    console: Console
    integration: str
    integration_secret: str
    hook: str
    """The token of a flow's hook."""
    secret: str
    """Stands in whatever this household says and is told, and nowhere else."""
    model: str
    client: tuple[str, str] = ("", "")
    """What an MQTT client of the tenant that is no device logs in with."""
    passing: list[Device] = field(default_factory=list)
    """Devices that were added for one test."""

    async def add_device(self, **fields: str) -> Device:
        """Add a device for one test."""
        device = await self.application.add_device(model=self.model, **fields)
        self.passing.append(device)
        return device

    async def renew_client(self) -> None:
        """Log clients in under another access key from now on."""
        listed = await self.console.done("GET", "/credentials?credentials_type=MQTT")
        ids = {"ids": [entry["id"] for entry in listed["content"]]}
        self.client = f"m{uuid4().hex[:12]}@{self.tenant}", uuid4().hex
        key, secret = self.client
        body = {"credentials_type": "MQTT", "access_key": key, "access_secret": secret}
        for path, given in (("/credentials/delete", ids), ("/credentials", body)):
            answer = await self.console.ask("POST", path, given)
            assert answer.status_code == 200, answer.text

    @property
    def serials(self) -> set[str]:
        """Return the SNs of its devices."""
        return {device.sn for device in (self.device, self.sleeper, *self.passing)}

    @property
    def marks(self) -> set[str | int]:
        """Return the values that identify this household in a document."""
        devices = {self.device.id, self.sleeper.id}
        return {*self.serials, *devices, self.application.client_id, self.model}

    def value_key(self, member: str) -> str:
        """Return the key of an entity of its device."""
        return f"direct.device.{self.device.sn}.{member}"

    async def close(self) -> None:
        """Close its connections."""
        await self.application.close()
        await self.console.http.aclose()


@dataclass
class Town:
    """Everybody."""

    mallory: Home
    nora: Home
    alice: Home

    @property
    def others(self) -> tuple[Home, Home]:
        """Whom Mallory must not harm."""
        return self.nora, self.alice

    @property
    def names(self) -> dict[str, str]:
        """Return the names that generated messages may use.

        `<their_sn>` is Alice's, `<neighbour_sn>` Nora's.
        """
        homes = {"my": self.mallory, "neighbour": self.nora, "their": self.alice}
        found = {}
        for whose, home in homes.items():
            found |= {
                f"<{whose}_sn>": home.device.sn,
                f"<{whose}_sleeper>": home.sleeper.sn,
                f"<{whose}_device>": str(home.device.id),
                f"<{whose}_client>": home.application.client_id,
                f"<{whose}_application>": str(home.application.id),
                f"<{whose}_tenant>": home.tenant,
                f"<{whose}_integration>": home.integration,
                f"<{whose}_model>": home.model,
            }
        return found | {"<their_hook>": self.alice.hook, "<my_hook>": self.mallory.hook}

    def fill(self, text: str) -> str:
        """Put the names of this town into a text."""
        for name, value in self.names.items():
            if name in text:
                text = text.replace(name, value)
        return text

    async def close(self) -> None:
        """Close all connections."""
        for home in (self.mallory, *self.others):
            await home.close()


async def make_town(platform: Platform) -> Town:
    """Create the tenants and their contents."""
    hostile, peaceful = await new_admin(platform), await new_admin(platform)
    mallory = await _home(platform, *hostile)
    nora = await _home(platform, *hostile)
    alice = await _home(platform, *peaceful)
    return Town(mallory, nora, alice)


async def _home(platform: Platform, tenant: str, console: Console) -> Home:
    secret = uuid4().hex
    application = await make_application(platform, tenant)
    model = f"M{secret[:10]}"
    await application.data("PUT", f"/products/{model}", {**PRODUCT, "snPrefixes": []})
    named = {"model": model, "name": f"secret {secret}"}
    login = platform.command("integration", "create", f"i{secret[:12]}")
    device = await application.add_device(**named)
    return Home(
        platform=platform,
        tenant=tenant,
        application=application,
        device=device,
        sleeper=await application.add_device(**named),
        console=console,
        integration=login["integration"],
        integration_secret=login["secret"],
        hook=await _flow(console),
        secret=secret,
        model=model,
        passing=[device],  # an attack may get another one, while this one falls silent
    )


async def make_application(platform: Platform, tenant: str) -> Application:
    """Create an application of a tenant that may receive its events."""
    made = await platform.make_application(f"app {uuid4().hex[:8]}", tenant, events=True)
    application = platform.application(made["clientId"], made["clientSecret"])
    application.id = int(made["applicationId"])
    return application


async def _flow(console: Console) -> str:
    """Create a flow that starts with a hook; return the token of the hook."""
    token = uuid4().hex
    text = design([node("hook", "httpIn", token=token), node("end", "output")], edge("hook", "end"))
    body = {"name": f"flow {token[:8]}", "enabled": True, "design_data": text}
    await console.done("POST", "/workflow/flows/design", body)
    return token
