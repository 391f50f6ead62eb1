// A user adds a device, sends a report with the command from the page, reads the device with the program from the
// page, sees live values, renames a value, finds why a report was rejected, sets a property and sees that the
// device confirms it. Then the user gives a new key to a device whose login is rejected.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { promisify } from "node:util";

import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, signIn, problems }) => {
  const { baseUrl, name, product, python, host, port, stranger } = given;
  let secret;
  await signIn();
  await page.getByRole("link", { name: "Connect a device" }).first().click();
  await typeInto(page.getByLabel("Name"), name);
  await page.getByLabel("Product").selectOption(product);
  await look("connect");
  await page.getByRole("button", { name: "Add device" }).click();
  await page.getByRole("heading", { name: "Waiting for the first report" }).waitFor();
  await look("connect-waiting");
  await page.getByRole("tab", { name: "Python" }).click();
  const program = await page.locator("pre").textContent();
  await page.setViewportSize({ width: 1280, height: 480 });
  await once(spawn(python, ["-c", program], { stdio: "inherit" }), "exit");
  await page.getByRole("heading", { name: "First report received" }).waitFor();
  const seen = await page.evaluate(seenBeside);
  await page.setViewportSize({ width: 1280, height: 800 });
  const [sn, key] = await page.locator(".secret code").allTextContents();
  const read = await readByProgram();
  await page.getByRole("link", { name: `Open ${name}` }).click();

  const device = spawn(python, ["console/device.py", host, String(port), sn, key], { stdio: ["pipe", "pipe", "inherit"] });
  try {
    await once(device.stdout, "data");
    const say = (properties) => device.stdin.write(`${JSON.stringify({ properties })}\n`);
    const card = page.locator('[data-key$=".temperature"] strong');
    await page.getByText("Live", { exact: true }).waitFor();
    say({ temperature: 23.5 });
    await card.getByText("23.5").waitFor();
    const current = await page.evaluate(() => {
      const age = document.querySelector('[data-key$=".temperature"] .age').textContent;
      return document.querySelector("main .head").textContent.includes(`reported ${age}`);
    });
    await page.getByRole("link", { name: product, exact: true }).waitFor();
    await look("device");

    await card.click();
    await page.getByRole("link", { name: "Open this value" }).click();
    await page.getByRole("button", { name: "Rename" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText(`${name} · Temperature`).waitFor();
    await typeInto(dialog.getByLabel("Name"), `Heat of ${name}`);
    await dialog.getByRole("button", { name: "Save" }).click();
    await page.getByRole("heading", { name: `Heat of ${name}` }).waitFor();
    await page.keyboard.press("Control+k");
    await typeInto(page.getByPlaceholder("Type the name"), `Heat of ${name}`);
    await page.getByRole("option", { name: `Heat of ${name} ${name}` }).click();
    await page.getByRole("main").getByRole("link", { name, exact: true }).click();

    say({ temperature: 999 });
    await page.getByRole("tab", { name: "Rejected" }).click();
    const refusal = page.getByRole("article");
    await refusal.waitFor();
    await refusal.locator("summary").click();
    const why = (await refusal.locator("li").textContent()).replace(/\s+/g, " ").trim();
    await look("refusals");

    await page.getByRole("tab", { name: "Commands" }).click();
    await page.getByLabel("LED").selectOption({ label: "On" });
    await page.getByRole("button", { name: "Send 1 change" }).click();
    await page.getByText("Confirmed", { exact: true }).waitFor();
    await look("commands");
    await typeInto(page.getByLabel("Time", { exact: true }), "0");
    await page.getByRole("button", { name: "Send 1 change" }).click();
    const fault = await page.getByRole("alert").textContent();
    await typeInto(page.getByLabel("Time", { exact: true }), "29");
    await page.keyboard.press("Control+k");
    await page.getByPlaceholder("Type the name").pressSequentially("Alarms");
    await page.keyboard.press("Enter");
    await page.getByRole("alertdialog").getByRole("button", { name: "Discard changes" }).click();
    await page.getByRole("heading", { name: "Alarms" }).waitFor();
    await page.locator("main:focus").waitFor();
    await page.goBack();
    await page.getByText("Confirmed", { exact: true }).waitFor();
    const commands = await page.getByRole("table", { name: "Commands" }).getByRole("row").count();
    problems.splice(0, Infinity, ...problems.filter((one) => !one.includes("status of 400"))); // the browser logs it

    await page.getByRole("tab", { name: "History" }).click();
    await page.locator(".uplot").waitFor();
    await look("history");
    await page.getByRole("button", { name: "As a table" }).click();
    await page.getByRole("cell", { name: /23\.5/ }).first().waitFor();
    await page.getByRole("tab", { name: "Connections" }).click();
    await page.getByRole("cell", { name: "Online" }).first().waitFor();
    await look("connections");
    await page.getByRole("tab", { name: "About" }).click();
    await page.getByText("Not used by any flow").waitFor();
    await page.getByText(`Heat of ${name}: 999 ℃, must be at most 70`).waitFor();
    await look("about");
    await page.getByRole("button", { name: "More" }).click();
    await page.getByRole("menuitem", { name: `Unassign from reads ${name}` }).click();
    await page.getByRole("alertdialog").getByRole("button", { name: "Unassign" }).click();
    await page.getByText("is no longer assigned to an application").waitFor();
    await page.getByRole("button", { name: "More" }).click();
    await page.getByRole("menuitem", { name: "Assign to an application" }).click();
    await dialog.getByLabel("Application", { exact: true }).selectOption(`reads ${name}`);
    await dialog.getByRole("button", { name: "Assign", exact: true }).click();
    await dialog.getByText("Replace YOUR_CLIENT_SECRET with").waitFor();
    await look("give-known");
    const again = await run((await dialog.locator("details pre").textContent()).replace("YOUR_CLIENT_SECRET", secret));
    await dialog.getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "More" }).click();
    await page.getByRole("menuitem", { name: "Rename device" }).waitFor();
    await page.getByRole("menuitem", { name: "Delete" }).click();
    await typeInto(page.getByLabel(`Type ${name} to confirm`), name);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.waitForURL(`${baseUrl}/#/devices`);

    await page.goto(`${baseUrl}/#/devices/${stranger}?tab=refusals`);
    const box = page.getByRole("status").filter({ hasText: "Login failed" });
    await box.getByText("Its key is wrong.").waitFor();
    await page.getByText("This device has never connected").waitFor();
    await look("not-let-in");
    await page.getByRole("tab", { name: "Connections" }).click();
    await page.getByText("This device has never connected").waitFor();
    await box.getByRole("button", { name: "Issue new key" }).click();
    await page.getByRole("alertdialog").getByRole("button", { name: "Issue new key" }).click();
    await dialog.getByText("MQTT port").waitFor();
    await look("new-key");
    const login = await dialog.locator(".secret").allTextContents();
    return { why, fault, commands: commands - 1, read, again, seen, current, login: login.map((text) => text.trim().replace(/\s+/g, " ")) };
  } finally {
    device.kill();
  }

  /** Give the device to a new application, and run the program that is offered; what it prints. */
  async function readByProgram() {
    const dialog = page.getByRole("dialog");
    await page.getByRole("button", { name: "Assign to an application" }).click();
    await typeInto(dialog.getByLabel("Application name"), `reads ${name}`);
    await look("give");
    await dialog.getByRole("button", { name: "Assign", exact: true }).click();
    const reader = await dialog.locator("details pre").textContent();
    secret = await dialog.locator("dd code").nth(1).textContent();
    await look("give-program");
    const printed = await run(reader);
    await dialog.getByRole("button", { name: "I have saved it" }).click();
    return printed;
  }

  /** Run a program; what it prints. */
  async function run(program) {
    return (await promisify(execFile)(python, ["-c", program])).stdout;
  }
});

/** Whether the first report is in sight when it comes, and covers nothing wherever the page stands. */
function seenBeside() {
  const cards = [...document.querySelectorAll(".steps > *")];
  const box = (card) => card.getBoundingClientRect();
  const { top, bottom } = box(document.querySelector("section[role=status]"));
  const inSight = top >= 0 && bottom <= innerHeight;
  scrollTo(0, 0);
  const beside = cards.every((one) => cards.every((other) => one === other || box(one).bottom <= box(other).top || box(other).bottom <= box(one).top));
  return { inSight, beside };
}
