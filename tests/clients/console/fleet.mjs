// Somebody imports a sheet with a fault, sees it in its cell, mends it; and claims an alarm.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, signIn }) => {
  const { baseUrl, sheet, mended, device, note } = given;
  await signIn();

  const send = async (text) => {
    await page.goto(`${baseUrl}/#/fleet/imports`);
    await page.getByRole("button", { name: "Import a sheet" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Integration").selectOption("direct");
    await dialog.getByLabel("Sheet").setInputFiles({ name: "devices.csv", mimeType: "text/csv", buffer: Buffer.from(text) });
    await look("import-form");
    await dialog.getByRole("button", { name: "Import", exact: true }).click();
  };
  await send(sheet);
  await page.getByText("Nothing was added").waitFor();
  const row = page.getByRole("region", { name: "Faults in the sheet" }).getByRole("row").nth(1);
  await row.waitFor();
  const number = await row.getByRole("rowheader").textContent();
  const faulty = await row.locator("td.faulty").allTextContents();
  await look("import-refused");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Rows with faults, CSV" }).click(),
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

  await page.keyboard.press("Control+k");
  await typeInto(page.getByPlaceholder("Type the name"), device);
  const found = page.getByRole("option", { name: device });
  await found.waitFor();
  await look("palette");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: device }).waitFor();
  return { number, faulty: faulty.map((text) => text.trim().replace(/\s+/g, " ")), file: download.suggestedFilename(), claimed };
});
