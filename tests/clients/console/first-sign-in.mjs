// Somebody begins with the link, signs in again, finds a device and sees it live; and out.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, problems }) => {
  const { baseUrl, email, first, password, device } = given;
  const link = `${baseUrl}/#/welcome?${new URLSearchParams({ email, password: first })}`;
  await page.goto(link);
  await page.getByLabel("New password").waitFor();
  await page.waitForURL(/#\/welcome$/);
  await page.reload(); // signed in, and without a password of their own
  await page.getByRole("heading", { name: "What is alive" }).waitFor();
  await page.goto("about:blank");
  await page.goto(link);
  await typeInto(page.getByLabel("New password"), password);
  await look("welcome");
  await page.getByRole("button", { name: "Begin" }).click();
  await page.getByRole("heading", { name: "What is alive" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.goto("about:blank");
  await page.goto(link);
  const used = await page.getByRole("alert").textContent();

  await page.getByRole("link", { name: "Sign in" }).click();
  await typeInto(page.getByLabel("E-mail address"), email);
  await typeInto(page.getByLabel("Password"), "Not it 1");
  await page.getByRole("button", { name: "Sign in" }).click();
  const refusal = await page.getByRole("alert").textContent();
  problems.length = 0; // the browser tells of every 401
  await typeInto(page.getByLabel("Password"), password);
  await look("sign-in");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "What is alive" }).waitFor();
  await look("start");

  await page.getByRole("link", { name: "Devices", exact: true }).click();
  await typeInto(page.getByRole("searchbox"), device.name);
  await page.waitForFunction((name) => location.hash.includes(encodeURIComponent(name).replaceAll("%20", "+")), device.name);
  await page.reload(); // the session and the search stay
  const row = page.getByRole("link", { name: device.name });
  await row.waitFor();
  await look("devices");
  await row.click();
  const card = page.locator(`[data-key$=".${device.property}"] strong`);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.waitForFunction((it) => it.textContent !== "–", await card.elementHandle());
  const before = await card.textContent();
  await page.waitForFunction(
    ([it, before]) => it.textContent !== before,
    [await card.elementHandle(), before],
  );
  const after = await card.textContent();
  await page.getByRole("tab", { name: "History" }).click();
  await page.locator(".uplot").waitFor();

  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Password").waitFor();
  await page.reload();
  await page.getByLabel("Password").waitFor();
  return { used, refusal, before, after };
});
