"""The routing table."""

import pytest

from libs.common.settings import SettingsInvalid
from services.gateway.routes import CredentialType, Route, RouteTable
from services.gateway.settings import parse_upstreams


@pytest.mark.parametrize(
    ("path", "name", "target"),
    [
        (b"/oauth/token", "token", b"/oauth/token"),
        (b"/device/openapi/v1/devices/1", "device", b"/device/openapi/v1/devices/1"),
        (b"/device/openapi/v1.0/devices", "device", b"/device/openapi/v1/devices"),
        (b"/device/openapi/v1.0/limits", "device", b"/device/openapi/v1/limits"),
        (b"/api/v1/tenant/limits", "console", b"/tenant/limits"),
        (b"/ingest/v1/SN/report", "ingest", b"/ingest/v1/SN/report"),
        (b"/device/openapi/v1/products/A.B..C", "device", b"/device/openapi/v1/products/A.B..C"),
        (b"/oauth2/token", "sign-in", b"/oauth2/token"),
        (b"/api/v1/oauth2/token", "sign-in", b"/oauth2/token"),
        (b"/user", "console", b"/user"),
        (b"/user/status", "sign-in", b"/user/status"),
        (b"/user/status/", "sign-in", b"/user/status/"),
        (b"/api/v1/user/members/7/menus", "console", b"/user/members/7/menus"),
        (b"/device", "console", b"/device"),
        (b"/device/7", "console", b"/device/7"),
        (b"/device/openapi", "console", b"/device/openapi"),
        (b"/public/a/b.svg", "open", b"/public/a/b.svg"),
        (b"/api/v1/workflow/flows/search", "console", b"/workflow/flows/search"),
        (b"/workflow/hooks/x", "open", b"/workflow/hooks/x"),
    ],
)
def test_route_is_found(path: bytes, name: str, target: bytes) -> None:
    """A path finds its service, and what that is asked for."""
    route = RouteTable().find(path)
    assert route is not None
    assert (route.name, route.rewrite_path(path)) == (name, target)


@pytest.mark.parametrize(
    "path",
    [b"/", b"", b"/oauth/token//", b"/oauth/tokens", b"/device/openapi/v1", b"/DEVICE/openapi/v1/x",
     b"/device/openapi/v1/../x", b"/device/openapi/v1/%2E./x", b"/device/openapi/v1/a/.",
     b"/device/openapi/v1/a%2f..%5Cb", b"/api/v1/device/openapi/v1/devices", b"/api/v1",
     b"/api/v1/oauth/token", b"/device/openapi/v2/devices", b"/users", b"/api/v1/ingest/v1/SN/x"],
)  # fmt: skip
def test_no_route(path: bytes) -> None:
    """Other paths have no service, nor have those with dot segments."""
    assert RouteTable().find(path) is None


def test_longest_prefix_wins() -> None:
    """A line for a part of an API wins over the line for all of it."""
    whole = Route(name="a", prefix=b"/api/", upstream="a", credential=CredentialType.NONE)
    part = Route(name="b", prefix=b"/api/b/", upstream="b", credential=CredentialType.NONE)
    table = RouteTable([whole, part])
    assert (table.find(b"/api/b/x"), table.find(b"/api/c")) == (part, whole)


def test_services_that_do_not_run_have_no_routes() -> None:
    """Only the lines of the services that there are count."""
    table = RouteTable(upstreams={"auth"})
    found = [table.find(path) for path in (b"/user", b"/device", b"/public/x")]
    assert [route and route.upstream for route in found] == ["auth", None, None]


def test_upstreams_are_read() -> None:
    """Names and addresses of services come from one variable."""
    found = parse_upstreams("auth=http://127.0.0.1:1/, device=https://device")
    assert {name: str(url) for name, url in found.items()} == {
        "auth": "http://127.0.0.1:1",
        "device": "https://device",
    }


@pytest.mark.parametrize("text", ["auth", "=http://a", "auth=ftp://a", "auth=http://", "a=b:c:d"])
def test_bad_upstreams_are_named(text: str) -> None:
    """An entry that is none is named with its variable."""
    with pytest.raises(SettingsInvalid, match="THINGWAY_UPSTREAMS"):
        parse_upstreams(text)


@pytest.mark.parametrize(
    ("path", "query", "seconds"),
    [
        (b"/ingest/v1/SN/commands", b"wait=30", 30),
        (b"/ingest/v1/SN/commands", b"a=b&wait=0&wait=5", 5),
        (b"/ingest/v1/SN/commands", b"wait=99999", 600),
        (b"/ingest/v1/SN/commands", b"wait=0", 0),
        (b"/ingest/v1/SN/commands", b"wait=soon", 0),
        (b"/ingest/v1/SN/commands", b"", 0),
        (b"/ingest/v1/SN/report", b"wait=30", 0),
        (b"/device/openapi/v1/commands", b"wait=30", 0),
    ],
)
def test_a_long_poll_is_known_by_its_path_and_wait(
    path: bytes, query: bytes, seconds: float
) -> None:
    """Only where devices fetch commands, and only when they wait."""
    route = RouteTable().find(path)
    assert route is not None
    assert route.read_poll_seconds(path, query) == seconds
