// A super-admin makes a role that shows one device, and a user who has it; the user sees that device
// and nothing else, and ends a session of its own elsewhere.
import { journey } from "./page.mjs";

await journey(async ({ page, given, look, signIn, problems }) => {
  const { baseUrl, device, role, person } = given;
  await signIn();

  await page.goto(`${baseUrl}/#/people/roles`);
  await page.getByRole("button", { name: "Add a role" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill(role);
  await look("role-form");
  await dialog.getByRole("button", { name: "Add a role" }).click();
  await page.getByRole("heading", { name: role }).waitFor();
  await page.getByRole("group", { name: "Devices" }).getByLabel("See", { exact: true }).check();
  await look("role-permissions");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The permissions hold").waitFor();
  await page.getByRole("tab", { name: "What it shows" }).click();
  await page.getByLabel("Add from Devices").fill(device);
  await page.getByRole("option", { name: device }).click();
  await page.getByRole("button", { name: "Grant", exact: true }).click();
  await page.getByRole("cell", { name: device, exact: true }).waitFor();
  await look("role-grants");

  await page.goto(`${baseUrl}/#/people/users`);
  await page.getByRole("button", { name: "Add a user" }).click();
  await dialog.getByLabel("Name", { exact: true }).fill("Ann");
  await dialog.getByLabel("E-mail address").fill(person.email);
  await dialog.getByLabel("First password").fill(person.password);
  await dialog.getByLabel(role).check();
  await look("user-form");
  await dialog.getByRole("button", { name: "Add a user" }).click();
  await page.getByText("Ann was added.").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Password").waitFor();

  await signIn(person.email, person.password);
  const menu = await page.getByRole("navigation", { name: "Menu" }).getByRole("link").allTextContents();
  await page.goto(`${baseUrl}/#/fleet/groups`);
  await page.goto(`${baseUrl}/#/fleet/places?without=1`);
  await page.getByRole("table", { name: "Places" }).waitFor();
  const devices = await page.getByRole("table", { name: "Places" }).getByRole("link").allTextContents();

  const elsewhere = await (await page.context().browser().newContext({ locale: "en-GB" })).newPage();
  await elsewhere.goto(`${baseUrl}/#/`);
  await elsewhere.getByLabel("E-mail address").fill(person.email);
  await elsewhere.getByLabel("Password").fill(person.password);
  await elsewhere.getByRole("button", { name: "Sign in" }).click();
  await elsewhere.getByRole("navigation", { name: "Menu" }).waitFor();

  await page.goto(`${baseUrl}/#/account`);
  const end = page.getByRole("button", { name: /^End / }).and(page.locator("td button"));
  await end.waitFor();
  await look("account");
  await end.click();
  await page.getByText("The session has ended.").waitFor();
  await elsewhere.goto(`${baseUrl}/#/fleet/groups`);
  const ended = await elsewhere.getByRole("status").filter({ hasText: "session" }).textContent();

  await page.getByLabel("Password until now").fill("Not it 1");
  await page.getByLabel("New password").fill(`${person.password}2`);
  await page.getByRole("button", { name: "Change the password" }).click();
  const wrong = await page.getByText("old password is not correct").textContent();
  const expected = problems.filter((problem) => !problem.includes("400 (Bad Request)"));
  problems.splice(0, problems.length, ...expected); // the browser tells of every 400
  await page.getByLabel("Password until now").fill(person.password);
  await page.getByRole("button", { name: "Change the password" }).click();
  await page.getByText("Your password was changed.").waitFor();
  return { menu, devices, ended, wrong };
});
