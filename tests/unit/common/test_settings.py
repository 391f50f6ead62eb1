"""Settings from the environment."""

import math
from dataclasses import dataclass, fields

import pytest

from libs.common.identity import HeaderSigner, HeaderVerifier, generate_keys
from libs.common.settings import ServiceSettings, SettingsInvalid, StoreSettings, load_settings
from libs.common.store_metrics import storage_bytes
from services.auth.settings import AuthSettings
from services.device.settings import DeviceSettings
from services.gateway.settings import GatewaySettings
from services.workflow.settings import WorkflowSettings


@dataclass(frozen=True, kw_only=True)
class Mine(ServiceSettings):
    needed: str
    count: int = 3
    factor: float = 0.5
    on: bool = False


def test_variables_are_read_by_type():
    """Text becomes what the field is; what is not set keeps its default."""
    found = load_settings(
        Mine,
        {"THINGWAY_NEEDED": "x", "THINGWAY_COUNT": "7", "THINGWAY_ON": "true", "OTHER": "1"},
    )
    assert (found.needed, found.count, found.factor, found.on) == ("x", 7, 0.5, True)


def test_every_bad_variable_is_named():
    """One error tells of all of them, in one line."""
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(Mine, {"THINGWAY_COUNT": "many", "THINGWAY_FACTOR": "", "THINGWAY_PORT": "x"})
    text = str(caught.value)
    for name in ("NEEDED", "COUNT", "FACTOR", "PORT"):
        assert f"THINGWAY_{name}" in text
    assert "\n" not in text


@pytest.mark.parametrize("value", ["LOUD", "info", ""])
def test_log_level_is_one_that_there_is(value: str):
    """A level that does not exist is a bad variable, not a service that says nothing."""
    with pytest.raises(SettingsInvalid, match=r"^THINGWAY_LOG_LEVEL: "):
        load_settings(ServiceSettings, {"THINGWAY_LOG_LEVEL": value})


GIVEN = {
    "THINGWAY_INTERNAL_PRIVATE_KEY": "A" * 43,
    "THINGWAY_INTERNAL_PUBLIC_KEY": "A" * 43,
    "THINGWAY_SECRETS_KEY": "A" * 43,
    "THINGWAY_CALLOUT_SEED": "seed",
    "THINGWAY_UPSTREAMS": "device=http://d",
}
NUMBERS = [
    (kind, f"THINGWAY_{field.name.upper()}")
    for kind in (AuthSettings, DeviceSettings, GatewaySettings, WorkflowSettings)
    for field in fields(kind)
    if isinstance(field.default, int | float)
]


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "99999999999999999999"])
@pytest.mark.parametrize(("kind", "variable"), NUMBERS)
def test_a_number_that_makes_no_sense_is_a_bad_variable(kind: type, variable: str, value: str):
    """Below nothing and beyond everything nothing starts, so nothing acts on such a number."""
    with pytest.raises(SettingsInvalid, match=f"^{variable}: "):
        load_settings(kind, {**GIVEN, variable: value})


@pytest.mark.parametrize(
    ("kind", "variable"),
    [
        (AuthSettings, "THINGWAY_ACCESS_TOKEN_LIFE"),
        (DeviceSettings, "THINGWAY_RETENTION_DAYS"),
        (DeviceSettings, "THINGWAY_COMMAND_LIFE"),
        (DeviceSettings, "THINGWAY_INGEST_BATCH"),
        (GatewaySettings, "THINGWAY_REQUEST_TIMEOUT"),
        (GatewaySettings, "THINGWAY_PRINCIPAL_BURST"),
        (WorkflowSettings, "THINGWAY_FLOW_LOG_DAYS"),
    ],
)
def test_zero_is_refused_where_it_would_not_mean_without_limit(kind: type, variable: str):
    """A retention of 0 days would drop all history, and no other of these could work."""
    with pytest.raises(SettingsInvalid, match=f"^{variable}: "):
        load_settings(kind, {**GIVEN, variable: "0"})


def test_alarms_and_audit_entries_may_be_kept_forever():
    """A retention of 0 days is accepted where the description says that it means forever."""
    environment = {"THINGWAY_AUDIT_RETENTION_DAYS": "0", "THINGWAY_ALARM_RETENTION_DAYS": "0"}
    assert load_settings(AuthSettings, {**GIVEN, **environment}).audit_retention_days == 0
    assert load_settings(DeviceSettings, {**GIVEN, **environment}).alarm_retention_days == 0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CALLOUT_SEED", None),
        ("ACCESS_TOKEN_LIFE", "an hour"),
        ("AUDIT_RETENTION_DAYS", "24856"),
        ("TENANT_LIMITS", "{"),
        ("TENANT_LIMITS", '{"requests": 0}'),
        ("TENANT_LIMITS", '{"teapots": 1}'),
    ],
)
def test_invalid_settings_of_auth_are_rejected(variable: str, value: str | None):
    """One line reports a missing variable, a wrong type or an impossible value."""
    environment = {**GIVEN, f"THINGWAY_{variable}": value}
    environment = {name: text for name, text in environment.items() if text is not None}
    with pytest.raises(SettingsInvalid, match=rf"\ATHINGWAY_{variable}[^\n]+\Z"):
        load_settings(AuthSettings, environment)


KEYS = [
    (GatewaySettings, "THINGWAY_INTERNAL_PRIVATE_KEY"),
    (StoreSettings, "THINGWAY_INTERNAL_PUBLIC_KEY"),
]


@pytest.mark.parametrize(
    "value", [None, "", "short", "!" * 43, "é" * 43, "A" * 42, "A" * 43 + "\n"]
)
@pytest.mark.parametrize(("kind", "variable"), KEYS)
def test_text_that_is_no_key_is_a_bad_variable(kind: type, variable: str, value: str | None):
    """A key that is missing or none is named before anything starts, and not repeated."""
    environment = {"THINGWAY_UPSTREAMS": "device=http://d"}
    if value is not None:
        environment[variable] = value
    with pytest.raises(SettingsInvalid, match=f"^{variable}") as caught:
        load_settings(kind, environment)
    assert not value or value not in str(caught.value)


def test_every_accepted_key_can_be_used():
    """Signer and verifier accept generated keys and extreme ones that the settings accept."""
    private, public = generate_keys()
    for secret, proof in ((private, public), ("A" * 43, "_" * 43), ("-" * 43, "z" * 43)):
        environment = {
            "THINGWAY_UPSTREAMS": "device=http://d",
            "THINGWAY_INTERNAL_PRIVATE_KEY": secret,
            "THINGWAY_INTERNAL_PUBLIC_KEY": proof,
        }
        HeaderSigner(load_settings(GatewaySettings, environment).internal_private_key)
        HeaderVerifier(load_settings(StoreSettings, environment).internal_public_key)


def test_a_storage_size_has_a_binary_unit() -> None:
    """Without a size, the volume counts as unlimited."""
    assert storage_bytes("20Gi") == 20 * 1024**3
    assert storage_bytes("") == math.inf
