"""What every device has beside its TSL, and what a widget shows of it first."""

from libs.common.things import MAX_MEMBER_NUMBER, MAX_TSL_MEMBER_NUMBER
from services.device.members.entity import (
    COMMON_MEMBERS,
    MAX_PROPERTIES,
    MAX_SERVICES,
    select_important_members,
)
from services.device.members.members import Member, MemberSet


def member(number: int, path: str, **given: object) -> Member:
    """A property that can be read, unless told otherwise."""
    fields = {"type": "PROPERTY", "value_type": "LONG", "access_mod": "R"} | given
    return Member(number=number, path=path, name=path, **fields)  # type: ignore[arg-type]


def test_numbers_are_kept_apart():
    """They are those that no member of a TSL gets, and stay what they are."""
    assert all(
        MAX_TSL_MEMBER_NUMBER < number <= MAX_MEMBER_NUMBER for number in COMMON_MEMBERS.by_number
    )
    assert {one.path: MAX_MEMBER_NUMBER - one.number for one in COMMON_MEMBERS.members} == {
        "@status": 0,
        "@location": 1,
        "@location.@latitude": 2,
        "@location.@longitude": 3,
        "@location.@address": 4,
        "@alarm": 5,
        "@alarm.@alarm_status": 6,
        "@alarm.@alarm_time": 7,
        "@alarm.@alarm_content": 8,
    }
    assert {one.access_mod for one in COMMON_MEMBERS.members} == {"R"}


def test_important_members():
    """Values that can be read and services, in the order of the TSL, each with its place."""
    found = select_important_members(
        MemberSet(
            [
                member(1, "z", attribute={"unit": "m"}),
                member(2, "struct", value_type="OBJECT"),
                member(3, "struct.a", parent="struct"),
                member(4, "secret", access_mod="W"),
                member(5, "reboot", type="SERVICE", value_type="OBJECT"),
                member(6, "a"),
                member(7, "hidden", visible=False),
                member(8, "event", type="EVENT", value_type="OBJECT"),
            ]
        )
    )
    assert [(entry.path, entry.attribute) for entry in found] == [
        ("z", {"unit": "m", "important": 1}),
        ("a", {"important": 2}),
        ("reboot", {"important": 3}),
    ]


def test_important_members_are_few():
    """However long a TSL is."""
    services = {"type": "SERVICE", "value_type": "OBJECT"}
    many = [member(at, f"p{at}") for at in range(1, 50)]
    many += [member(at, f"s{at}", **services) for at in range(50, 99)]
    assert len(select_important_members(MemberSet(many))) == MAX_PROPERTIES + MAX_SERVICES
