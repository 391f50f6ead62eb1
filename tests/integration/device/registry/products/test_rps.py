"""RPS records: one per SN, and none for a device."""

import pytest

from tests.integration.device.registry.devices.platform import Platform, together

PROFILE = "https://example.com/profile.json"


def body(sn: str = "SN1", url: str = PROFILE) -> dict[str, str]:
    return {"sn": sn, "profileUrl": url}


def page(**more: object) -> dict[str, object]:
    return {"pageSize": 10, "pageNumber": 1, **more}


async def test_a_profile_is_set_found_and_deleted(platform: Platform) -> None:
    """The result text is `success`."""
    assert await platform.mine.done("POST", "/rps/profile", body()) == "success"
    found = await platform.mine.done("POST", "/rps/search", page(pageSize="10"))
    assert found == {"pageSize": 10, "pageNumber": 1, "total": 1, "content": [body()]}
    assert await platform.mine.done("DELETE", "/rps/sn1") == "success"
    found = await platform.mine.done("POST", "/rps/search", page())
    assert found == {"pageSize": 10, "pageNumber": 1, "total": 0, "content": []}


async def test_a_record_stays_unique(platform: Platform) -> None:
    """The same SN again changes the URL of the application's own record."""
    await platform.mine.done("POST", "/rps/profile", body())
    await platform.mine.done("POST", "/rps/profile", body("sn1", "http://example.com/2"))
    found = await platform.mine.done("POST", "/rps/search", page())
    assert found["content"] == [body("SN1", "http://example.com/2")]


async def test_a_record_of_another_application_is_not_touched(platform: Platform) -> None:
    """It can be neither changed nor seen nor deleted."""
    await platform.mine.done("POST", "/rps/profile", body())
    for other in (platform.sibling, platform.foreign):
        refusal = await other.refused(409, "POST", "/rps/profile", body())
        assert refusal["errCode"] == "rps_record_exists"
        await other.refused(404, "DELETE", "/rps/SN1")
        assert (await other.done("POST", "/rps/search", page()))["total"] == 0


async def test_records_are_sorted_and_paged(platform: Platform) -> None:
    """By SN unless asked otherwise."""
    for number in (2, 3, 1):
        await platform.mine.done(
            "POST", "/rps/profile", body(f"SN{number}", f"{PROFILE}{9 - number}")
        )
    asked = page(pageSize=2, sorts=[{"direction": "DESC", "property": "sn"}])
    found = await platform.mine.done("POST", "/rps/search", asked)
    assert [record["sn"] for record in found["content"]] == ["SN3", "SN2"]
    found = await platform.mine.done("POST", "/rps/search", {**asked, "pageNumber": 2})
    assert [record["sn"] for record in found["content"]] == ["SN1"]
    found = await platform.mine.done(
        "POST", "/rps/search", page(sorts=[{"direction": "asc", "property": "profileUrl"}])
    )
    assert [record["sn"] for record in found["content"]] == ["SN3", "SN2", "SN1"]


async def test_a_device_gets_no_profile(platform: Platform) -> None:
    """409, also when the device belongs to somebody else."""
    await platform.foreign.add("SN1")
    refusal = await platform.mine.refused(409, "POST", "/rps/profile", body("sn1"))
    assert refusal["errCode"] == "device_already_exists"


async def test_an_sn_with_a_record_is_not_added_until_it_is_deleted(platform: Platform) -> None:
    """409 first, then it is a device."""
    await platform.mine.done("POST", "/rps/profile", body())
    device = {"snDevEUI": "sn1", "name": "x"}
    refusal = await platform.mine.refused(409, "POST", "/devices", device)
    assert refusal["errCode"] == "rps_record_exists"
    await platform.mine.done("DELETE", "/rps/SN1")
    await platform.mine.done("POST", "/devices", device)


async def test_a_deleted_device_may_get_a_profile(platform: Platform) -> None:
    """Deleting a device frees its SN."""
    device = await platform.mine.add("SN1")
    await platform.mine.done("DELETE", f"/devices/{device}")
    await platform.mine.done("POST", "/rps/profile", body())


async def test_a_record_and_a_device_of_one_sn_never_both_exist(platform: Platform) -> None:
    """One of two simultaneous calls is rejected."""
    for number in range(10):
        sn = f"SN{number}"
        answers = await together(
            platform.mine.ask("POST", "/rps/profile", body(sn)),
            platform.mine.ask("POST", "/devices", {"snDevEUI": sn.lower(), "name": "x"}),
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        records = await platform.database["rps"].count_documents({"_id": sn})
        devices = await platform.database["devices"].count_documents({"snKey": sn})
        assert records + devices == 1


async def test_profiles_set_at_the_same_time_leave_one(platform: Platform) -> None:
    """The same application may say it twice."""
    answers = await together(*(platform.mine.ask("POST", "/rps/profile", body()) for _ in range(5)))
    assert [answer.status_code for answer in answers] == [200] * 5
    assert (await platform.mine.done("POST", "/rps/search", page()))["total"] == 1


async def test_bad_input_is_refused(platform: Platform, subtests: pytest.Subtests) -> None:
    """400 that names the field."""
    for operation, given, named in [
        ("profile", {"sn": "SN1"}, "profileUrl"),
        ("profile", {"profileUrl": PROFILE}, "sn"),
        ("profile", body("a.b"), "sn"),
        ("profile", body(""), "sn"),
        ("profile", body("x" * 65), "sn"),
        ("profile", body("SN1", "ftp://example.com"), "profileUrl"),
        ("profile", body("SN1", "https://"), "profileUrl"),
        ("profile", body("SN1", "https://exa mple.com"), "profileUrl"),
        ("profile", body("SN1", "https://[::1"), "profileUrl"),
        ("profile", body("SN1", "https://example.com:99999"), "profileUrl"),
        ("profile", body("SN1", "https://example.com/" + "x" * 2048), "profileUrl"),
        ("profile", {**body(), "more": 1}, "more"),
        ("search", {"pageNumber": 1}, "pageSize"),
        ("search", {"pageSize": 10}, "pageNumber"),
        ("search", page(pageSize=0), "pageSize"),
        ("search", page(pageNumber=0), "pageNumber"),
        ("search", page(sorts=[{"property": "x"}]), "sorts[0].property"),
        ("search", page(sorts=[{"property": "sn", "direction": "up"}]), "sorts[0].direction"),
    ]:
        with subtests.test(str((operation, given, named))):
            assert (
                named
                in (await platform.mine.refused(400, "POST", f"/rps/{operation}", given))["errMsg"]
            )


@pytest.mark.parametrize("sn", ["SN1", "a%20b", "%00", "%ff"])
async def test_an_unknown_record_is_not_deleted(platform: Platform, sn: str) -> None:
    """404, whatever it is called."""
    assert (await platform.mine.refused(404, "DELETE", f"/rps/{sn}"))["errCode"] == (
        "rps_record_not_found"
    )
