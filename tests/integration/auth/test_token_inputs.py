"""What the token endpoint says to bad input, in the open API's envelope."""

import pytest

FORM = "application/x-www-form-urlencoded"
CREDENTIALS = b"grant_type=client_credentials&client_id=a&client_secret=b"


async def test_a_bad_form_is_answered_by_name(auth, subtests: pytest.Subtests):
    """Status, envelope and the field at fault."""
    for body, status, field in [
        (b"", 400, "grant_type"),
        (b"grant_type=", 400, "grant_type"),
        (b"grant_type=password&client_id=a", 400, "grant_type"),
        (b"grant_type=client_credentials", 400, "client_id"),
        (b"grant_type=client_credentials&client_id=%20&client_secret=b", 400, "client_id"),
        (b"grant_type=client_credentials&client_id=a", 400, "client_secret"),
        (b"grant_type=client_credentials&client_id=a&client_secret=", 400, "client_secret"),
        (CREDENTIALS + b"&client_id=c", 400, "client_id"),
        (b"grant_type=refresh_token", 400, "refresh_token"),
        (b"grant_type=refresh_token&refresh_token=", 400, "refresh_token"),
        (b"grant_type", 400, "grant_type"),
        (b"grant_type=%zz", 400, ""),
        (b"grant_type=%ff", 400, ""),
        (b"\xff\xfe=1", 400, ""),
        (b"grant_type=" + b"a" * 20_000, 413, ""),
        (CREDENTIALS, 401, ""),
        (b"grant_type=refresh_token&refresh_token=unknown", 401, ""),
    ]:
        with subtests.test(str((body, status, field))):
            answer = await auth.http.post(
                "/oauth/token", content=body, headers={"Content-Type": FORM}
            )

            failure = answer.json()
            assert (answer.status_code, failure["status"]) == (status, "Failed")
            assert sorted(failure) == ["errCode", "errMsg", "requestId", "status"]
            assert field in failure["errMsg"]


async def test_a_bad_json_body_is_answered_by_name(auth, subtests: pytest.Subtests):
    """JSON is read as well, and judged alike."""
    for body, status, field in [
        (b"{", 400, ""),
        (b"[]", 400, ""),
        (b'{"grant_type": 1}', 400, "grant_type"),
        (b'{"grant_type":"client_credentials","client_id":null}', 400, "client_id"),
        (b'{"grant_type":"client_credentials","client_id":"a","client_secret":"b"}', 401, ""),
        (b"[" * 15_000, 400, ""),
    ]:
        with subtests.test(str((body, status, field))):
            headers = {"Content-Type": "application/json"}
            answer = await auth.http.post("/oauth/token", content=body, headers=headers)

            assert answer.status_code == status
            assert field in answer.json()["errMsg"]


async def test_every_spelling_of_a_form_is_read(auth, subtests: pytest.Subtests):
    """With and without `application/`, in any case, with a charset."""
    application = await auth.application()
    body = (
        f"grant_type=client_credentials&client_id={application.client_id}"
        f"&client_secret={application.client_secret}"
    )
    for content_type in [
        FORM,
        "x-www-form-urlencoded",
        "X-WWW-Form-Urlencoded; charset=UTF-8",
        f"{FORM};charset=utf-8",
    ]:
        with subtests.test(str(content_type)):
            answer = await auth.http.post(
                "/oauth/token", content=body, headers={"Content-Type": content_type}
            )

            assert answer.status_code == 200


async def test_other_content_types_are_415(auth, subtests: pytest.Subtests):
    """A type that is not read is named."""
    for content_type in ["text/plain", "multipart/form-data; boundary=x", "?"]:
        with subtests.test(str(content_type)):
            answer = await auth.http.post(
                "/oauth/token", content=CREDENTIALS, headers={"Content-Type": content_type}
            )

            assert (answer.status_code, answer.json()["errCode"]) == (415, "unsupported_media_type")


async def test_other_methods_are_405(auth):
    """The path exists; the answer says which methods it has."""
    answer = await auth.http.get("/oauth/token")

    assert "POST" in answer.headers["allow"]
    assert (answer.status_code, answer.json()["status"]) == (405, "Failed")


async def test_an_unknown_client_is_answered_like_a_wrong_secret(auth):
    """The response does not reveal whether a client id exists."""
    application = await auth.application()
    answers = []
    for client_id in (application.client_id, "4f2c8a1e-0000-4000-8000-000000000000"):
        form = {
            "grant_type": "client_credentials",
            "client_id": client_id,
            "client_secret": "wrong",
        }
        answer = await auth.http.post("/oauth/token", data=form)
        answers.append((answer.status_code, answer.json()["errCode"], answer.json()["errMsg"]))

    assert answers[0] == answers[1]


async def test_the_operation_is_documented(auth):
    """OpenAPI has the form body for client generators, and the errors."""
    document = (await auth.http.get("/schema/openapi.json")).json()
    operation = document["paths"]["/oauth/token"]["post"]

    assert set(operation["requestBody"]["content"]) == {FORM}
    assert {"200", "400", "401", "413", "415", "429", "503"} <= set(operation["responses"])


async def test_it_is_ready(auth):
    """Readiness looks at all three servers."""
    answer = await auth.http.get("/readyz")

    assert (answer.status_code, answer.json()) == (
        200,
        {"mongo": "ok", "redis": "ok", "nats": "ok"},
    )
