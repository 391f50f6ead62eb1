// A user imports a sheet with a fault, sees the fault in its cell and corrects it. Then the user claims an alarm.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, signIn, problems }) => {
  const { baseUrl, sheet, mended, device, note } = given;
  await signIn();

  const send = async (text) => {
    await page.goto(`${baseUrl}/#/fleet/imports`);
    await page.getByRole("button", { name: "Import sheet" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Integration").selectOption("direct");
    await dialog.getByLabel("Sheet").setInputFiles({ name: "devices.csv", mimeType: "text/csv", buffer: Buffer.from(text) });
    await look("import-form");
    await dialog.getByRole("button", { name: "Import", exact: true }).click();
  };
  await send(sheet);
  await page.getByText("Nothing was added").waitFor();
  const row = page.getByRole("region", { name: "Errors in the sheet" }).getByRole("row").nth(1);
  await row.waitFor();
  const number = await row.getByRole("rowheader").textContent();
  const faulty = await row.locator("td.faulty").allTextContents();
  await look("import-refused");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download rows with errors (CSV)" }).click(),
  ]);
  await send(mended);
  await page.getByText("Done", { exact: true }).waitFor();
  await look("import-done");

  await page.goto(`${baseUrl}/#/alarms?keyword=${encodeURIComponent(device)}`);
  const claim = page.getByRole("button", { name: /^Claim/ });
  await claim.waitFor();
  await look("alarms-open");
  await claim.click();
  await typeInto(page.getByRole("dialog").getByLabel("Note"), note);
  await page.getByRole("dialog").getByRole("button", { name: "Claim" }).click();
  await page.getByText(`“${note}”`).waitFor();
  const claimed = await page.getByText(/^Claimed by/).textContent();
  await look("alarms-claimed");

  const faults = await rejectForms(page, given, problems);
  const selection = await selectAll(page, baseUrl);

  await page.keyboard.press("Control+k");
  await typeInto(page.getByPlaceholder("Type the name"), device);
  const found = page.getByRole("option", { name: device });
  await found.waitFor();
  await look("palette");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: device }).waitFor();
  return { number, faulty: faulty.map((text) => text.trim().replace(/\s+/g, " ")), file: download.suggestedFilename(), claimed, faults, selection };
});

/** Send a rule and an application with a wrong part of a value; what the fields say. */
async function rejectForms(page, { baseUrl, rule }, problems) {
  const dialog = page.getByRole("dialog");
  await page.goto(`${baseUrl}/#/alarms/rules?keyword=${encodeURIComponent(rule)}`);
  await page.getByRole("button", { name: `Edit ${rule}` }).click();
  await dialog.getByLabel("Value type").selectOption("text");
  await dialog.getByRole("button", { name: "Save" }).click();
  const faults = [await dialog.getByRole("alert").textContent()];
  await page.goto(`${baseUrl}/#/applications`);
  await page.getByRole("button", { name: "Discard changes" }).click();
  await page.getByRole("button", { name: "Add application" }).click();
  await typeInto(dialog.getByLabel("Name"), "Wrong address");
  await typeInto(dialog.getByLabel("Allowed addresses"), "300.1.1.1");
  await dialog.getByRole("button", { name: "Add application" }).click();
  faults.push(await dialog.getByRole("alert").textContent());
  await page.goto(`${baseUrl}/#/alarms`);
  await page.getByRole("button", { name: "Discard changes" }).click();
  await page.getByRole("heading", { name: "Alarms" }).waitFor();
  // The browser logs each 400.
  problems.splice(0, problems.length, ...problems.filter((problem) => !problem.includes(" 400 ")));
  return faults;
}

/** Select 1,200 devices that are made up: actions wait for all of them, and a change of the filters selects none. */
async function selectAll(page, baseUrl) {
  const total = 1_200;
  const held = [];
  await page.route("**/device/search", async (route) => {
    const { page_size, page_number, name } = route.request().postDataJSON();
    if (page_size > 100 && page_number > 1) await new Promise((resolve) => held.push(resolve));
    const first = (page_number - 1) * page_size;
    const content = Array.from({ length: Math.max(0, Math.min(page_size, total - first)) }, (_, at) => ({ id: String(first + at + 1), name: `Made up ${first + at}`, identifier: "", model: name ?? "", status: "ONLINE", tags: [], entities: [] }));
    await route.fulfill({ json: { status: "Success", request_id: "0", data: { page_size, page_number, total, content } } });
  });
  const go = async () => {
    held.splice(0).forEach((resolve) => resolve());
    await page.waitForTimeout(100);
  };
  await page.goto(`${baseUrl}/#/fleet/selection`);
  const remove = page.getByRole("button", { name: "Delete" });
  const all = page.getByRole("button", { name: "Select all 1,200 results" });
  await all.click();
  await page.getByText("Selecting: 500 of 1,200").waitFor();
  const during = await remove.isDisabled();
  await typeInto(page.getByRole("searchbox", { name: "Name" }), "x");
  await page.waitForFunction(() => location.hash.includes("name=x"));
  await go();
  await all.waitFor();
  const cancelled = await remove.isDisabled();
  await all.click();
  while (!(await page.getByText("1,200 selected").first().isVisible())) await go();
  await remove.click();
  const asked = await page.getByRole("alertdialog").getByRole("heading").textContent();
  await page.getByRole("alertdialog").getByRole("button", { name: "Cancel" }).click();
  await page.unroute("**/device/search");
  return { during, cancelled, asked };
}
