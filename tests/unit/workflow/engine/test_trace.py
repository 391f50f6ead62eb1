"""What the log shows of values."""

import msgspec
import pytest

from services.workflow.engine.trace import MASK_TEXT, MAX_TEXT_CHARACTERS, render_value


@pytest.mark.parametrize(
    "name",
    [
        *("password", "smtpPassword", "passphrase", "PASSWD", "secretKey"),
        *("access_token", "Authorization", "Cookie", "apiKey", "api_key", "api-key"),
        *("privateKey", "private_key", "credentials"),
    ],
)
def test_a_secret_is_masked_wherever_it_is(name):
    """By the name of its key, in any case, however deep."""
    shown = msgspec.json.decode(render_value({"a": [{name: "hunter2", "b": 1}]}))
    assert shown == {"a": [{name: MASK_TEXT, "b": 1}]}


def test_nothing_is_hidden_where_there_is_nothing():
    """An empty secret is shown as empty, and a text that speaks of one as it is."""
    assert render_value({"token": None, "password": ""}) == '{"token":null,"password":""}'
    assert render_value(["my password: x"]) == '["my password: x"]'


def test_a_long_value_shows_its_beginning():
    """As JSON, with how long it is."""
    shown = msgspec.json.decode(render_value(["x" * 100_000]))
    assert len(shown["truncated"]) == MAX_TEXT_CHARACTERS
    assert shown["characters"] == 100_004


def test_nothing_is_shown_as_nothing():
    """A node that was given nothing has no input."""
    assert render_value(None) is None
