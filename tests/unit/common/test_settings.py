"""Settings from the environment."""

from dataclasses import dataclass

import pytest

from libs.common.settings import ServiceSettings, SettingsInvalid, load


@dataclass(frozen=True, kw_only=True)
class Mine(ServiceSettings):
    needed: str
    count: int = 3
    factor: float = 0.5
    on: bool = False


def test_variables_are_read_by_type():
    """Text becomes what the field is; what is not set keeps its default."""
    found = load(
        Mine,
        {"THINGWAY_NEEDED": "x", "THINGWAY_COUNT": "7", "THINGWAY_ON": "true", "OTHER": "1"},
    )
    assert (found.needed, found.count, found.factor, found.on) == ("x", 7, 0.5, True)


def test_every_bad_variable_is_named():
    """One error tells of all of them, in one line."""
    with pytest.raises(SettingsInvalid) as caught:
        load(Mine, {"THINGWAY_COUNT": "many", "THINGWAY_FACTOR": "", "THINGWAY_PORT": "x"})
    text = str(caught.value)
    for name in ("NEEDED", "COUNT", "FACTOR", "PORT"):
        assert f"THINGWAY_{name}" in text
    assert "\n" not in text
