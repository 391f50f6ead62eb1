// A device reports while a user watches: the Events page follows a group of filters, the device page lists events,
// the entity of an event has a value, and a notification channel shows why a test failed.
import { journey } from "./page.mjs";

await journey(async ({ page, given, look, signIn }) => {
  const { baseUrl, device, called: name, event } = given;
  await signIn();

  await page.goto(`${baseUrl}/#/events`);
  await page.getByLabel("Device name or entity key").pressSequentially(name);
  const rows = page.getByRole("table", { name: "Live changes" }).getByRole("row");
  await rows.filter({ hasText: "21.5" }).first().waitFor();
  await rows.filter({ hasText: "20.5" }).first().waitFor();
  await page.getByLabel("Value contains").pressSequentially("On");
  await rows.filter({ hasText: "LED" }).first().waitFor();
  const values = new Set((await rows.getByRole("cell").filter({ hasText: /^(On|21.5 ℃)$/ }).allTextContents()));
  await page.getByLabel("Value contains").clear();
  await page.getByLabel("Type").selectOption("Event");
  await page.getByRole("button", { name: "Clear", exact: true }).click();
  await rows.filter({ hasText: "20.5" }).first().waitFor();
  const followed = new Set((await rows.allTextContents()).slice(1).map((text) => text.includes(name)));
  const properties = await rows.filter({ hasText: "21.5" }).count();
  await page.getByRole("button", { name: "Pause" }).click();
  await look("events-followed");

  await page.goto(`${baseUrl}/#/devices/${device}?tab=events`);
  await page.getByRole("table", { name: "Events" }).getByRole("row").nth(1).waitFor();
  await page.getByLabel("Event", { exact: true }).selectOption("Historical data");
  const [first] = (await page.getByRole("table", { name: "Events" }).getByRole("row").allTextContents()).slice(1);
  await look("device-events");

  await page.goto(`${baseUrl}/#/entities/${event}`);
  await page.getByRole("heading", { level: 1, name: "Historical data" }).waitFor();
  const value = await page.locator(".now").textContent();

  await page.goto(`${baseUrl}/#/alarms/notifications`);
  await page.getByLabel("By webhook").check();
  await page.getByLabel("URL").pressSequentially("http://169.254.1.1/");
  await page.getByText("Save your changes to send a test.").waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Send a test to the webhook" }).click();
  const reason = await page.getByText("is not a public address").textContent();
  await look("notifications-tested");
  return { followed: [...followed], values: [...values], properties, first: first.trim().replace(/\s+/g, " "), value, reason };
});
