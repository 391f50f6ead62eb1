// A super-admin creates a role that grants one device, and a user with this role. The user sees only this
// device, and ends another session.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, signIn, problems }) => {
  const { baseUrl, device, role, person } = given;
  /** The browser tells of every refusal; this one was wanted. */
  const forget = (status) => problems.splice(0, problems.length, ...problems.filter((one) => !one.includes(` ${status} `)));
  const settings = { viewers_may_command: true, notice: true };
  await page.route("**/tenant/settings", (route) => route.fulfill({ json: { status: "Success", request_id: "1", data: settings } }), { times: 1 });
  await signIn();
  await page.getByText("setting controls whether users who may only view devices").waitFor();
  await look("command-notice");
  await page.getByRole("button", { name: "Dismiss" }).click();

  await page.goto(`${baseUrl}/#/people/roles`);
  await page.getByRole("button", { name: "Add role" }).click();
  const dialog = page.getByRole("dialog");
  await typeInto(dialog.getByLabel("Name"), role);
  await look("role-form");
  await dialog.getByRole("button", { name: "Add role" }).click();
  await page.getByRole("heading", { name: role }).waitFor();
  await page.getByRole("group", { name: "Devices" }).getByLabel("View", { exact: true }).check();
  await look("role-permissions");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Permissions saved").waitFor();
  await page.getByRole("tab", { name: "Grants" }).click();
  await typeInto(page.getByLabel("Find in Devices"), device);
  await page.getByRole("option", { name: device }).click();
  await page.getByRole("button", { name: "Grant access", exact: true }).click();
  await page.getByRole("cell", { name: device, exact: true }).waitFor();
  await look("role-grants");

  await page.goto(`${baseUrl}/#/people/users`);
  await page.getByRole("cell", { name: "Super-admin", exact: true }).first().waitFor();
  await page.getByRole("button", { name: "Add user" }).click();
  await typeInto(dialog.getByLabel("Name", { exact: true }), "Ann");
  await typeInto(dialog.getByLabel("Email address"), person.email);
  await typeInto(dialog.getByLabel("Initial password"), person.password);
  await dialog.getByLabel(role).check();
  await look("user-form");
  await dialog.getByRole("button", { name: "Add user" }).click();
  await page.getByText("Ann was added.").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Password").waitFor();

  await signIn(person.email, person.password);
  const menu = await page.getByRole("navigation", { name: "Menu" }).getByRole("link").allTextContents();
  await page.goto(`${baseUrl}/#/fleet/groups`);
  await page.goto(`${baseUrl}/#/fleet/places?without=1`);
  await page.getByRole("table", { name: "Locations" }).waitFor();
  const devices = await page.getByRole("table", { name: "Locations" }).getByRole("link").allTextContents();

  const refused = [];
  for (const path of ["/people/users", "/products/new"]) {
    await page.goto(`${baseUrl}/#${path}`);
    refused.push(await page.getByRole("heading", { name: "You do not have access" }).textContent());
  }
  await look("no-access");

  const elsewhere = await tokenOf(baseUrl, person);
  await page.goto(`${baseUrl}/#/account`);
  const end = page.getByRole("table", { name: "Sessions" }).getByRole("button", { name: /^End / });
  await end.waitFor();
  await look("account");
  await end.click();
  await page.getByText("Session ended.").waitFor();
  const dead = (await call(baseUrl, "GET", "/user", elsewhere)).status;

  const other = await tokenOf(baseUrl, person);
  for (const one of (await (await call(baseUrl, "GET", "/user/sessions", other)).json()).data) {
    if (!one.current) await call(baseUrl, "DELETE", `/user/sessions/${one.session_id}`, other);
  }
  // The form stays open while the password is requested, and is then sent again.
  await typeInto(page.getByLabel("Current password"), "Not it 1");
  await typeInto(page.getByLabel("New password"), `${person.password}2`);
  await page.getByRole("button", { name: "Change password" }).click();
  const again = page.getByRole("dialog", { name: "Your session has ended" });
  await typeInto(again.getByLabel("Password"), "Not it 1");
  await page.keyboard.press("Enter");
  const ended = await again.getByRole("alert").textContent();
  await look("sign-in-again");
  await typeInto(again.getByLabel("Password"), person.password);
  await page.keyboard.press("Enter");
  const wrong = await page.getByText("current password is not correct").textContent();
  forget("400");
  forget("401");
  await typeInto(page.getByLabel("Current password"), person.password);
  await page.getByRole("button", { name: "Change password" }).click();
  await page.getByText("Your password was changed.").waitFor();

  // Signing out in another tab keeps an unfinished form, but another user who signs in there does not see it.
  await typeInto(page.getByLabel("New password"), "Begun1234");
  const tab = await page.context().newPage();
  await tab.goto(`${baseUrl}/#/`);
  await tab.getByRole("button", { name: "Sign out" }).click();
  await again.waitFor();
  const form = [await page.getByLabel("New password").inputValue()];
  await typeInto(tab.getByLabel("Email address"), given.email);
  await typeInto(tab.getByLabel("Password"), given.password);
  await tab.getByRole("button", { name: "Sign in" }).click();
  await page.locator("header").getByText(given.email).waitFor();
  form.push(await page.getByLabel("New password").inputValue());
  return { menu, devices, refused, dead, ended, wrong, form };
});

function call(baseUrl, method, path, token) {
  return fetch(`${baseUrl}${path}`, { method, headers: { Authorization: `Bearer ${token}` } });
}

/** Another session of somebody, in another program. */
async function tokenOf(baseUrl, { email, password }) {
  const body = new URLSearchParams({ grant_type: "password", client_id: "thingway-console", username: email, password });
  return (await (await fetch(`${baseUrl}/oauth2/token`, { method: "POST", body })).json()).access_token;
}
