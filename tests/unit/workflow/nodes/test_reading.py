"""Parameters are read as editors write them."""

import msgspec
import pytest

from services.workflow.nodes.code import CodeParameters
from services.workflow.nodes.entities import EntityAssignerParameters
from services.workflow.nodes.outgoing import EmailParameters
from services.workflow.nodes.parameters import convert_parameters
from services.workflow.nodes.triggers import SimpleTimerParameters, TimerRule, TriggerParameters


def test_numbers_may_come_as_text() -> None:
    """Forms give text for numbers, at any depth."""
    settings = convert_parameters(
        SimpleTimerParameters,
        {
            "timerSettings": {
                "type": "SCHEDULE",
                "expirationEpochSecond": "1800000000",
                "rules": [{"hour": "7", "minute": "5", "daysOfWeek": None}],
            }
        },
    ).timer_settings

    assert settings.rules == [TimerRule(hour=7, minute=5)]
    assert settings.expiration_epoch_second == 1_800_000_000


def test_null_is_the_default() -> None:
    """A field that nobody filled in is as if it were not there."""
    mail = convert_parameters(
        EmailParameters,
        {
            "emailConfig": {
                "provider": None,
                "smtpConfig": {"host": "mail.example", "port": "25", "username": None},
            },
            "recipients": ["a@example.org"],
            "subject": None,
        },
    )

    assert (mail.subject, mail.email_config.smtp_config.username) == ("", "")
    assert (mail.email_config.provider, mail.email_config.smtp_config.port) == ("SMTP", 25)
    assert convert_parameters(TriggerParameters, {"entityConfigs": None}).entity_configs == []


def test_values_stay_as_they_are() -> None:
    """Null and text in values and arguments do not change."""
    payload = {"a.b.c": None, "a.b.d": "5", "a.b.e": {"x": None}}
    code = {
        "expression": {"language": "js", "expression": "return 1"},
        "inputArguments": {"a": None, "b": "1"},
        "payload": None,
    }

    assert (
        convert_parameters(EntityAssignerParameters, {"exchangePayload": payload}).exchange_payload
        == payload
    )
    assert convert_parameters(CodeParameters, code).input_arguments == {"a": None, "b": "1"}


@pytest.mark.parametrize("hour", [None, "", "7.5", "x", "24", True])
def test_an_invalid_number_is_rejected(hour: object) -> None:
    """Numbers outside their bounds and missing fields are rejected."""
    rule = {"hour": hour, "minute": 0}

    with pytest.raises(msgspec.ValidationError, match=r"rules\[0\]\.hour"):
        convert_parameters(
            SimpleTimerParameters, {"timerSettings": {"type": "SCHEDULE", "rules": [rule]}}
        )
