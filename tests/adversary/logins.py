"""Who attacks: every kind of login that comes from outside, and nobody."""

from dataclasses import dataclass

from tests.adversary.town import Home, Town


@dataclass(frozen=True)
class Login:
    """A name and a password."""

    user: str
    password: str
    right: bool = True


def logins(town: Town) -> dict[str, Login | None]:
    """Mallory's logins on the bus, and what strangers try."""
    mallory, alice = town.mallory, town.alice
    return {
        "device": Login(mallory.device.sn, mallory.device.key),
        "application": Login(mallory.application.client_id, mallory.application.client_secret),
        "integration": Login(f"integration.{mallory.integration}", mallory.integration_secret),
        "client": Login(*mallory.client),
        "nobody": None,
        "impostor": Login(alice.device.sn, mallory.device.key, right=False),
    }


ON_THE_BUS = ("device", "application", "integration", "nobody", "impostor")
"""The kinds of `logins`, but for clients of a tenant, which speak MQTT only."""
OVER_MQTT = (*ON_THE_BUS, "client")


async def fresh_logins(town: Town) -> dict[str, Login | None]:
    """Return the logins, with a device and a client that have not logged in before.

    Each login has a rate limit.
    """
    town.mallory.device = await town.mallory.add_device()
    await town.mallory.renew_client()
    return logins(town)


def secrets_from(kind: str, town: Town) -> list[Home]:
    """Return the households whose secrets a kind of login must not receive.

    An application may receive the events of its tenant.
    """
    return [town.alice] if kind == "application" else list(town.others)


def assert_ignorant(heard: bytes, kind: str, town: Town) -> None:
    """Fail when a login has received something that only others know."""
    for home in secrets_from(kind, town):
        assert home.secret.encode() not in heard
