"""What an existing console calls, replayed letter by letter."""

from uuid import uuid4

import pytest

from tests.contract.browser import FORM, Browser
from tests.contract.console import PASSWORD, Console, new_email, new_tenant
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")


async def test_first_start(platform: Platform) -> None:
    """Status, registration, log-in and the page's own request, as the first user meets them."""
    name, client = await new_tenant(platform)
    browser = Browser(platform.base_url)
    browser.http.headers["TENANT_ID"] = name
    assert (await browser.get("/user/status"))["init"] is False
    email = new_email()
    text = f'{{"email":"{email}","nickname":"First","password":"{PASSWORD}"}}'
    assert await browser.post("/user/register", text) is None
    assert (await browser.get("/user/status"))["init"] is True
    await browser.sign_in(Console(platform.base_url, client, email))
    user = await browser.get("/user")
    assert (user["nickname"], user["email"], user["is_super_admin"]) == ("First", email, True)
    assert user["user_id"]
    await browser.http.aclose()


async def test_refresh(browser: Browser, admin: Console) -> None:
    """Its fields come in another order; `*` is not escaped."""
    text = (
        f"refresh_token={browser.refresh_token}&grant_type=refresh_token"
        f"&client_id={admin.client_id}&client_secret={admin.client_secret}"
    )
    answer = await browser.http.post("/oauth2/token", content=text, headers=FORM)
    await browser.take(answer.json())
    assert (await browser.get("/user"))["email"] == admin.email


async def test_a_lost_token_leads_to_the_login_page(browser: Browser) -> None:
    """The console needs the code `authentication_failed` from every operation."""
    browser.http.headers["Authorization"] = "Bearer gone"
    for path in ("/user", "/user/menus"):
        body = (await browser.http.get(path)).json()
        assert (body["status"], body["error_code"]) == ("Failed", "authentication_failed")


async def test_users_page(browser: Browser) -> None:
    """Search, add, edit, reset and delete as on the page of users."""
    email = new_email()
    search = '{"keyword":"","page_size":10,"page_number":1}'
    found = await browser.post("/user/members/search", search)
    assert found["total"] >= len(found["content"]) > 0
    for user in found["content"]:
        assert user["user_id"]
        assert float(user["created_at"]) > 1_600_000_000_000
    text = f'{{"nickname":"Page","email":"{email}","password":"{PASSWORD}"}}'
    assert await browser.post("/user/members", text) is None
    found = await browser.post(
        "/user/members/search", f'{{"keyword":"{email}","page_size":10,"page_number":1}}'
    )
    user_id = found["content"][0]["user_id"]
    text = f'{{"nickname":"Renamed","email":"{email}"}}'
    assert await browser.put(f"/user/members/{user_id}", text) is None
    text = '{"password":"Another22"}'
    assert await browser.put(f"/user/members/{user_id}/change-password", text) is None
    assert not await browser.post("/user/batch-delete", f'{{"user_id_list":["{user_id}"]}}')


async def test_delete_comes_with_an_empty_object(browser: Browser, admin: Console) -> None:
    """A DELETE with the body `{}` deletes."""
    user, role = await admin.add_user(), await admin.add_role()
    assert not await browser.delete(f"/user/members/{user}")
    assert not await browser.delete(f"/user/roles/{role}")


async def test_roles_page(browser: Browser, admin: Console) -> None:
    """The tabs of a role: members, permissions and resources."""
    every = '{"page_number":1,"page_size":999}'
    name = f"Console {uuid4().hex[:8]}"
    role = (await browser.post("/user/roles", f'{{"name":"{name}"}}'))["role_id"]
    roles = (await browser.post("/user/roles/search", every))["content"]
    assert name in {one["name"] for one in roles}
    assert "super_admin" in {one["name"] for one in roles}
    assert not await browser.put(f"/user/roles/{role}", f'{{"name":"{name} 2"}}')

    listing, user = '{"keyword":"","page_size":10,"page_number":1}', await admin.add_user()
    free = await browser.post(f"/user/roles/{role}/undistributed-users", listing)
    assert user in {entry["user_id"] for entry in free["content"]}
    assert not await browser.post(
        f"/user/roles/{role}/associate-user", f'{{"user_ids":["{user}"]}}'
    )
    members = await browser.post(f"/user/roles/{role}/members", listing)
    assert [entry["user_id"] for entry in members["content"]] == [user]
    assert not await browser.post(
        f"/user/roles/{role}/disassociate-user", f'{{"user_ids":["{user}"]}}'
    )

    tree = await browser.get("/user/menus")
    page = next(one for one in tree if one["code"] == "dashboard")
    wanted = [page["menu_id"], page["children"][0]["menu_id"]]
    quoted = ",".join(f'"{one}"' for one in wanted)
    assert not await browser.post(
        f"/user/roles/{role}/associate-menu", f'{{"menu_ids":[{quoted}]}}'
    )
    held = await browser.get(f"/user/roles/{role}/menus")
    assert sorted(entry["menu_id"] for entry in held) == sorted(wanted)

    for what in ("integrations", "devices", "dashboards"):
        for prefix in ("", "undistributed-"):
            found = await browser.post(f"/user/roles/{role}/{prefix}{what}", listing)
            assert isinstance(found["content"], list)
            assert isinstance(found["total"], int)
    resource = '{"resources":[{"id":"direct","type":"INTEGRATION"}]}'
    assert not await browser.post(f"/user/roles/{role}/associate-resource", resource)
    assert not await browser.post(f"/user/roles/{role}/disassociate-resource", resource)
    assert not await browser.delete(f"/user/roles/{role}")
