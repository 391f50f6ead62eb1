"""What pages hear live updates with: a password of their own, as long as their log-in lasts."""

import msgspec

from libs.common.contracts.mqtt import LivePages, LoginRef, live_topic
from libs.common.identity import Principal
from libs.common.identity.tokens import live_password_key
from services.auth.live import build_broker_info
from services.auth.tokens import writer
from tests.integration.auth.people import (
    PASSWORD,
    add_user,
    caller,
    first_user,
    refresh,
    register,
    signed_in,
)

PATH = "/mqtt/web/credentials"


async def page(auth, by) -> dict[str, str]:
    return await auth.done("GET", PATH, caller=by)


async def kept(auth, credentials) -> int:
    """Milliseconds for which Redis keeps a credential, negative when it does not."""
    return int(await auth.redis.pttl(live_password_key(credentials["password"])))


async def test_each_page_gets_a_password_of_its_own(auth):
    """The user name is the user's, the client id the page's; Redis knows no password."""
    user = await first_user(auth)

    first, second = await page(auth, user), await page(auth, user)

    assert set(first) == {"client_id", "username", "password"}
    assert first["username"] == second["username"]
    assert not set("/+#") & set(first["username"])
    assert first["client_id"] != second["client_id"]
    assert first["password"] != second["password"]
    stored = await auth.redis.get(live_password_key(first["password"]))
    assert msgspec.json.decode(stored, type=Principal) == msgspec.structs.replace(
        user, functions=frozenset(), super_admin=False, access=0
    )
    assert first["password"] not in str([key async for key in auth.redis.scan_iter("*")])


async def test_a_log_in_is_known_by_its_pages(auth):
    """Existing consoles from v1.2 on ask for a password with each page, older ones never do."""
    user = await first_user(auth)
    login = LoginRef(user.family)

    before = await auth.call("has_live_pages", login, LivePages)
    await page(auth, user)
    after = await auth.call("has_live_pages", login, LivePages)

    assert (before.any, after.any) == (False, True)


async def test_users_have_topics_of_their_own(auth):
    """Each user has separate topics."""
    boss = await first_user(auth)
    await add_user(auth, boss)
    other = await caller(auth, await signed_in(auth, "second@example.com"))

    names = {(await page(auth, one))["username"] for one in (boss, other)}

    assert len(set(map(live_topic, names))) == 2


async def test_a_refresh_keeps_pages_and_prolongs_their_passwords(auth):
    """A page asks for its password once, however long it is open."""
    await register(auth)
    tokens = await signed_in(auth)
    credentials = await page(auth, await caller(auth, tokens))
    await auth.redis.pexpire(live_password_key(credentials["password"]), 60_000)

    assert (await refresh(auth, tokens["refresh_token"])).status_code == 200

    assert await kept(auth, credentials) > 600_000_000


async def test_a_password_ends_with_its_log_in(auth):
    """That of another one goes on; a stolen refresh token that is used again ends it, too."""
    await register(auth)
    tokens, others = await signed_in(auth), await signed_in(auth)
    stolen = await page(auth, await caller(auth, tokens))
    good = await page(auth, await caller(auth, others))
    renewed = (await refresh(auth, tokens["refresh_token"])).json()["data"]
    await refresh(auth, renewed["refresh_token"])

    await refresh(auth, tokens["refresh_token"])

    assert await kept(auth, stolen) < 0 < await kept(auth, good)


async def test_a_changed_password_ends_all_of_them(auth):
    """Before it is answered; the principal of a token that has ended gets no other."""
    user = await first_user(auth)
    credentials = await page(auth, user)
    body = {"old_password": PASSWORD, "new_password": "Another22"}

    await auth.done("PUT", "/user/password", body, caller=user)

    assert await kept(auth, credentials) < 0
    await auth.refused(401, "GET", PATH, caller=user)


async def test_a_log_in_has_a_bounded_number_of_pages(auth, monkeypatch):
    """Beyond the limit, the oldest page loses its updates."""
    monkeypatch.setattr(writer, "MAX_LIVE_CREDENTIALS", 2)
    user = await first_user(auth)

    pages = [await page(auth, user) for _ in range(3)]

    assert [await kept(auth, one) > 0 for one in pages] == [False, True, True]


async def test_a_console_learns_where_mqtt_is(auth):
    """The path at its own origin always, ports of other clients where the operator said them."""
    assert await auth.done("GET", "/mqtt/broker-info", caller=await first_user(auth)) == {
        "ws_path": "/mqtt"
    }
    told = build_broker_info("mqtt://iot.example.org,mqtts://iot.example.org:8884")
    assert (told.ws_path, told.mqtt_port, told.mqtts_port) == ("/mqtt", 1883, 8884)
