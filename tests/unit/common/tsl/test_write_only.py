"""Values of access mode W: the TSL takes them in writes only, and removes them from all else."""

import msgspec
import pytest

from libs.common.tsl import InvalidValues, keep_given, list_hidden_texts, mask_text
from services.device.telemetry.events import concerns_write_only
from tests.unit.common.tsl.documents import prop, tsl

THING = tsl(
    prop("temperature", "FLOAT", fractionDigits=1),
    prop("pin", "STRING", "W", minSize=4),
    prop("wifi", "STRUCT", "RW"),
    prop("wifi.ssid", "STRING", "RW"),
    prop("wifi.key", "STRING", "W", required=True, minSize=4),
    prop("users", "ARRAY", "RW"),
    prop("users._item", "STRUCT", "RW"),
    prop("users._item.name", "STRING", "RW"),
    prop("users._item.code", "STRING", "W", required=True),
    prop("vault", "STRUCT", "W"),
    prop("vault.number", "INT", "RW"),
    prop("codes", "ARRAY", "RW"),
    prop("codes._item", "INT", "W"),
)
VALUES = {
    "temperature": 21.5,
    "pin": "8642",
    "wifi": {"ssid": "home", "key": "s3cret-wifi"},
    "users": [{"name": "ann", "code": "c0de-1"}, {"name": "bob", "code": "c0de-2"}],
    "vault": {"number": 97531},
    "codes": [1357, 2468],
}
READABLE = {
    "temperature": 21.5,
    "wifi": {"ssid": "home"},
    "users": [{"name": "ann"}, {"name": "bob"}],
}


@pytest.mark.parametrize("key", ["pin", "wifi", "users", "vault", "codes"])
def test_a_report_with_a_write_only_value_is_a_fault_of_its_property(key):
    report = THING.decode_report(
        msgspec.json.encode({"properties": {**READABLE, key: VALUES[key]}})
    )

    assert report.properties == {name: READABLE[name] for name in READABLE if name != key}
    assert {fault.reason for fault in report.faults} == {"is write-only"}
    assert all(fault.path.startswith(f"properties.{key}") for fault in report.faults)


def test_readable_values_are_reported_without_the_required_write_only_ones():
    report = THING.decode_report(msgspec.json.encode({"properties": READABLE}))

    assert (report.properties, report.faults) == (READABLE, [])


def test_readable_leaves_out_write_only_values_at_every_level():
    assert THING.readable(VALUES) == READABLE


def test_write_only_members_are_found_by_the_paths_of_mongodb():
    assert THING.write_only_paths() == ["pin", "wifi.key", "users.code", "vault", "codes"]


def test_masked_shows_where_write_only_values_are():
    assert THING.masked(VALUES) == {
        "temperature": 21.5,
        "pin": "******",
        "wifi": {"ssid": "home", "key": "******"},
        "users": [{"name": "ann", "code": "******"}, {"name": "bob", "code": "******"}],
        "vault": "******",
        "codes": "******",
    }


def test_faults_of_what_holds_a_write_only_value_do_not_repeat_it():
    given = {"wifi": "s3cret-wifi", "users": [{"name": 5, "code": "c0de-1"}], "pin": 8642}

    faults = THING.check_report(given)[1]
    with pytest.raises(InvalidValues) as refused:
        THING.check_write({"wifi": {"key": 97531}, "pin": "642", "vault": "97531"}, {})

    args = [fault.args for fault in (*faults, *refused.value.faults)]
    assert {argument["value"] for argument in args if "value" in argument} == {"******"}


def test_a_write_in_part_needs_no_write_only_member_and_gets_none():
    written = THING.check_write({"wifi": {"ssid": "new"}}, {"wifi": {"ssid": "home"}})

    assert written == {"wifi": {"ssid": "new"}}


def test_a_write_takes_write_only_values():
    given = {key: VALUES[key] for key in ("pin", "wifi", "users", "vault", "codes")}

    assert THING.check_write(given, {}) == given


def test_an_element_is_written_with_its_required_write_only_members():
    with pytest.raises(InvalidValues, match=r"users\[0\]\.code: is required"):
        THING.check_write({"users": [{"name": "ann"}]}, {})


def test_settings_of_things_that_are_no_devices_take_write_only_values():
    values, faults = THING.check_settings({"pin": "8642", "wifi": {"key": "s3cret-wifi"}, "no": 1})

    assert values == {"pin": "8642", "wifi": {"key": "s3cret-wifi"}}
    assert [fault.path for fault in faults] == ["properties.no"]


def test_a_text_that_repeats_a_write_only_value_is_masked():
    secrets = list_hidden_texts(VALUES, READABLE)

    assert mask_text("the lock refused 8642", secrets) == "******"
    assert mask_text("ann cannot reach c0de-1", secrets) == "******"
    assert mask_text("ann is not at home", secrets) == "ann is not at home"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "42 is out of range"),
        ("ab", "cannot be 'AB'"),
        (2718.0, "refused 2718"),
        ('a"b\\c', r'{"pin": "a\"b\\c"}'),
        ("s3cret", "S3CRET is wrong"),
    ],
)
def test_a_repeated_value_is_found_however_it_is_written(value, text):
    assert mask_text(text, list_hidden_texts({"pin": value}, {})) == "******"


def test_a_short_value_is_not_found_within_a_word_or_number():
    secrets = list_hidden_texts({"pin": 42, "code": "ab"}, {})

    assert mask_text("about 1420", secrets) == "about 1420"


def test_readable_leaves_out_what_is_named_by_an_id_or_a_dotted_path():
    lock = tsl(
        prop("secretPin", "STRING", "W") | {"propertyKey": "pin"},
        prop("wifi", "STRUCT", "RW"),
        prop("wifi.key", "STRING", "W"),
        prop("vault", "STRUCT", "W"),
        prop("vault.number", "INT", "RW"),
    )
    secret = {"secretPin": "8642", "pin": "1", "wifi.key": "x", "vault.number": 1}

    assert lock.readable({**secret, "wifi.ssid": "a"}) == {"wifi.ssid": "a"}


def test_accepted_gives_the_members_that_were_sent_as_they_were_checked():
    given = {"a": 50.06, "s": {"x": 1}}
    checked = {"a": 50.1, "s": {"x": 1.0, "y": 2}, "other": 3}

    assert keep_given(given, checked) == {"a": 50.1, "s": {"x": 1.0}}


@pytest.mark.parametrize(
    "given",
    [
        {"Pin": "8642"},
        {"wifi.key": "8642"},
        {"data": [{"pin": "8642"}]},
        {"wifi": {"KEY": "8642"}},
        {"wifi": "8642"},
        {"vault.number": 8642},
    ],
)
def test_what_may_be_a_write_only_value_by_its_name_is_known_by_its_fault(given):
    (fault,) = THING.check_decoded(given)[1]

    assert concerns_write_only([fault])


def test_a_fault_shows_a_value_without_what_bears_the_name_of_a_write_only_member():
    (fault,) = THING.check_report({"temperature": {"pin": "8642", "unit": "C"}})[1]

    assert fault.args["value"] == {"pin": "******", "unit": "C"}
    assert not concerns_write_only(THING.check_report({"humidity": 5, "temperature": "x"})[1])


@pytest.mark.parametrize("key", ["temperature", "unknown"])
def test_values_of_any_depth_are_refused(key):
    depth = 900
    report = f'{{"properties": {{"{key}": {"[" * depth}1{"]" * depth}, "wifi": {{"ssid": "a"}}}}}}'

    assert THING.decode_report(report.encode()).properties == {"wifi": {"ssid": "a"}}
