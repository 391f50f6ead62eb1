"""Each service is given what it needs and nothing that belongs to another."""

from dataclasses import fields

import pytest

from deploy.local.process import base_environment
from deploy.platform import keys, services
from deploy.platform.redis_server import render_acl
from deploy.platform.services import SERVICES, Doors
from deploy.platform.state import State
from libs.common.settings import PREFIX

DOORS = Doors(
    "0.0.0.0",
    8080,
    "http://127.0.0.1:8080",
    "nats://127.0.0.1:4222",
    "mqtt://127.0.0.1:1883",
    "mqtt://127.0.0.1:1883",
)


@pytest.fixture
def state() -> State:
    made = State()
    made.claim_ports(["mongod", "redis", *services.internal_port_names()], reserved=())
    return made


@pytest.fixture
def environments(state: State) -> dict[str, dict[str, str]]:
    return {one.name: services.environment(one, state, DOORS) for one in SERVICES}


@pytest.mark.parametrize(
    ("variable", "owner"),
    [
        ("THINGWAY_INTERNAL_PRIVATE_KEY", "gateway"),
        ("THINGWAY_CALLOUT_SEED", "auth"),
        ("THINGWAY_CONSOLE_CLIENT_SECRET", "auth"),
        ("THINGWAY_SYS_NATS_PASSWORD", "device"),
        ("THINGWAY_UPSTREAMS", "gateway"),
        ("THINGWAY_WATCHED", "gateway"),
    ],
)
def test_a_secret_has_one_owner(
    environments: dict[str, dict[str, str]], variable: str, owner: str
) -> None:
    """Signing keys and the system user are given to a single service."""
    assert [name for name, given in environments.items() if variable in given] == [owner]


def test_no_service_sees_another_ones_password(environments: dict[str, dict[str, str]]) -> None:
    """NATS passwords differ."""
    passwords = [given["THINGWAY_NATS_PASSWORD"] for given in environments.values()]
    assert len(set(passwords)) == len(SERVICES)


def test_the_gateway_has_no_database(environments: dict[str, dict[str, str]]) -> None:
    """The public door reaches no database and knows where the services are."""
    gateway = environments["gateway"]
    assert "THINGWAY_MONGO_URL" not in gateway
    assert gateway["THINGWAY_HOST"] == "0.0.0.0"
    assert gateway["THINGWAY_UPSTREAMS"].startswith("auth=http://127.0.0.1:")
    assert gateway["THINGWAY_WATCHED"].startswith("device-ingest=http://127.0.0.1:")


def test_ingest_shares_the_database_of_device(environments: dict[str, dict[str, str]]) -> None:
    """Both processes of the device service log in as the same database user."""
    device, ingest = environments["device"], environments["device-ingest"]
    assert device["THINGWAY_MONGO_URL"] == ingest["THINGWAY_MONGO_URL"]
    assert device["THINGWAY_NATS_USER"] != ingest["THINGWAY_NATS_USER"]


def test_the_public_key_belongs_to_the_private_one(
    environments: dict[str, dict[str, str]],
) -> None:
    """What the gateway signs, every service can verify."""
    public = keys.public_key(environments["gateway"]["THINGWAY_INTERNAL_PRIVATE_KEY"])
    name = "THINGWAY_INTERNAL_PUBLIC_KEY"
    assert {given[name] for given in environments.values() if name in given} == {public}


def test_the_acl_knows_nobody_else(state: State) -> None:
    """The default user is off, passwords are hashed, dangerous commands are nobody's."""
    users = services.redis_users(state)
    lines = render_acl(users).splitlines()
    assert lines[0].startswith("user default off")
    assert {line.split()[1] for line in lines[1:]} == {
        "auth",
        "device",
        "gateway",
        "gateway-bus",
        "management",
    }
    for line, user in zip(lines[1:], users, strict=True):
        assert user.password not in line
        rights = "+@read +@connection -@dangerous" if user.reads else "+@all -@admin -@dangerous"
        assert line.endswith(rights)


def test_who_only_looks_at_redis_writes_nothing(state: State) -> None:
    """`management` at tokens and `gateway-bus` at tenants; only who issues them may change them."""
    readers = {user.name: user for user in services.redis_users(state) if user.reads}
    patterns = {
        name: line.split()[4]
        for name, user in readers.items()
        for line in render_acl([user]).splitlines()
        if f"user {name} " in line
    }
    assert patterns == {"management": "%R~tw:*", "gateway-bus": "%R~tw:bus-tenant:*"}


SETTINGS = {one.name: one.settings for one in SERVICES}
NOT_NEEDED = {"THINGWAY_SYS_NATS_USER", "THINGWAY_SYS_NATS_PASSWORD", "THINGWAY_REDIS_URL"}
"""Shared fields that a service may have no use for: only `device` hears of connections."""


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_the_launchers_own_or_the_operators(
    environments: dict[str, dict[str, str]], name: str
) -> None:
    """What the launcher does not set itself it passes on from the shell, so each one can be set."""
    variables = {f"{PREFIX}{field.name.upper()}" for field in fields(SETTINGS[name])}
    passed_on = base_environment(dict.fromkeys(variables, "1"))
    assert variables - environments[name].keys() - NOT_NEEDED == passed_on.keys()
