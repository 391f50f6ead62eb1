"""An API error explains why a command failed."""

import pytest

from deploy.platform.openapi import ApiRejected


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"errCode": "device_not_found", "errMsg": "there is no device 7"}, "there is no device 7"),
        ({"error_code": "x", "error_message": "the password is wrong"}, "the password is wrong"),
        ({"error_code": "authentication_failed"}, "authentication_failed"),
        ("<html>", "HTTP 401"),
    ],
)
def test_errors_of_both_apis_contain_the_cause(body: object, text: str) -> None:
    assert str(ApiRejected(401, body)) == text
