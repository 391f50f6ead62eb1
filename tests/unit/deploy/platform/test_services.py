"""Each service gets the settings it needs and none that belong to another."""

from dataclasses import fields

import pytest

from deploy.local.process import inheritable_environment
from deploy.platform import keys, services
from deploy.platform.redis_server import render_acl
from deploy.platform.services import SERVICES, Endpoints
from deploy.platform.state import State
from libs.common.settings import VARIABLE_PREFIX

ENDPOINTS = Endpoints(
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
    made.claim_ports(["mongod", "redis", *services.internal_service_names()], reserved=())
    return made


@pytest.fixture
def environments(state: State) -> dict[str, dict[str, str]]:
    return {each.name: services.build_environment(each, state, ENDPOINTS) for each in SERVICES}


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
    """A signing key and the system user belong to a single service."""
    assert [name for name, given in environments.items() if variable in given] == [owner]


def test_nats_passwords_of_services_differ(environments: dict[str, dict[str, str]]) -> None:
    passwords = [given["THINGWAY_NATS_PASSWORD"] for given in environments.values()]
    assert len(set(passwords)) == len(SERVICES)


def test_the_gateway_has_no_database(environments: dict[str, dict[str, str]]) -> None:
    """It knows the addresses of the services instead."""
    gateway = environments["gateway"]
    assert "THINGWAY_MONGO_URL" not in gateway
    assert gateway["THINGWAY_HOST"] == "0.0.0.0"
    assert gateway["THINGWAY_UPSTREAMS"].startswith("auth=http://127.0.0.1:")
    assert gateway["THINGWAY_WATCHED"].startswith("device-ingest=http://127.0.0.1:")


def test_ingest_shares_the_database_of_device(environments: dict[str, dict[str, str]]) -> None:
    """Both processes of the device service use the same database user."""
    device, ingest = environments["device"], environments["device-ingest"]
    assert device["THINGWAY_MONGO_URL"] == ingest["THINGWAY_MONGO_URL"]
    assert device["THINGWAY_NATS_USER"] != ingest["THINGWAY_NATS_USER"]


def test_the_public_key_belongs_to_the_private_one(
    environments: dict[str, dict[str, str]],
) -> None:
    """Every service can verify the gateway's signatures."""
    public = keys.public_key(environments["gateway"]["THINGWAY_INTERNAL_PRIVATE_KEY"])
    name = "THINGWAY_INTERNAL_PUBLIC_KEY"
    assert {given[name] for given in environments.values() if name in given} == {public}


def test_the_redis_acl_contains_only_services(state: State) -> None:
    """The default user is disabled, passwords are hashed, admin commands are forbidden."""
    users = services.redis_users(state)
    lines = render_acl(users).splitlines()
    assert lines[0].startswith("user default off")
    assert {line.split()[1] for line in lines[1:]} == {
        "auth",
        "gateway",
        "gateway-bus",
        "management",
    }
    for line, user in zip(lines[1:], users, strict=True):
        assert user.password not in line
        rights = (
            "+@read +@connection -@dangerous" if user.reads else "+@all -@admin -@dangerous +info"
        )
        assert line.endswith(rights)


def test_redis_readers_cannot_write(state: State) -> None:
    """`management` reads tokens, `gateway-bus` reads tenants."""
    readers = {user.name: user for user in services.redis_users(state) if user.reads}
    patterns = {
        name: line.split()[4]
        for name, user in readers.items()
        for line in render_acl([user]).splitlines()
        if f"user {name} " in line
    }
    assert patterns == {"management": "%R~tw:*", "gateway-bus": "%R~tw:bus-tenant:*"}


SETTINGS = {each.name: each.settings for each in SERVICES}
NOT_NEEDED = {"THINGWAY_SYS_NATS_USER", "THINGWAY_SYS_NATS_PASSWORD", "THINGWAY_REDIS_URL"}
"""Shared settings that some services do not use."""


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_comes_from_launcher_or_operator(
    environments: dict[str, dict[str, str]], name: str
) -> None:
    """Settings that the launcher does not compute are inherited from the shell."""
    variables = {f"{VARIABLE_PREFIX}{field.name.upper()}" for field in fields(SETTINGS[name])}
    passed_on = inheritable_environment(dict.fromkeys(variables, "1"))
    assert variables - environments[name].keys() - NOT_NEEDED == passed_on.keys()
