// A user creates products from device templates, describes a product in the form, sees a fault at its field,
// saves a second version, compares both versions, and adds a codec.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, signIn, problems }) => {
  const { model } = given;
  await signIn();
  await page.getByRole("link", { name: "Products", exact: true }).click();
  await page.getByRole("table", { name: "Products" }).waitFor();
  await page.getByRole("row").nth(1).getByRole("link").nth(1).waitFor();
  await look("products");

  await page.getByRole("link", { name: "Import templates" }).click();
  const file = (name, base64) => page.getByLabel("Templates (ZIP)").setInputFiles({ name, mimeType: "application/zip", buffer: Buffer.from(base64, "base64") });
  await file("odd.zip", given.odd);
  const refused = await page.getByRole("alert").first().textContent();
  problems.splice(0, Infinity, ...problems.filter((one) => !one.includes("status of 400"))); // the browser logs it
  await file("acme.zip", given.library);
  const templates = page.getByRole("table", { name: "Device templates" });
  const wrong = await templates.getByRole("row", { name: /The odd/ }).getByRole("listitem").textContent();
  await look("templates");
  await typeInto(page.getByRole("searchbox", { name: "Model, name or vendor" }), given.template);
  await templates.getByRole("row", { name: /The odd/ }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Select all shown" }).click();
  await page.getByRole("button", { name: "Import 1 template" }).click();
  const made = await page.getByRole("status").filter({ hasText: "failed: 0" }).textContent();
  await templates.getByRole("link", { name: `The ${given.template}` }).click();
  await page.getByRole("tab", { name: "Codec" }).click();
  await page.getByText("function Decode(bytes)").first().waitFor();
  await page.getByRole("link", { name: "Products", exact: true }).first().click();
  await page.getByRole("link", { name: "New product" }).click();
  await typeInto(page.getByLabel("Model"), model);
  await typeInto(page.getByLabel("Name", { exact: true }).first(), "Journey");
  // In an editor letters are text, although "g" and "l" open a page elsewhere. Opening a page by the palette saves nothing.
  const json = page.getByRole("textbox", { name: "TSL as JSON" });
  await json.press("ControlOrMeta+End");
  await json.pressSequentially(" args light");
  await page.getByText("is not a valid object").first().waitFor();
  for (let at = 0; at < " args light".length; at += 1) await json.press("Backspace");
  await page.getByLabel("Name", { exact: true }).first().press("ControlOrMeta+k");
  await page.getByPlaceholder("Type the name").pressSequentially("Alarms");
  await page.keyboard.press("Enter");
  await page.getByRole("alertdialog").getByRole("button", { name: "Cancel" }).click();
  await page.getByText("temperature", { exact: true }).first().click();
  await typeInto(page.getByLabel("Maximum"), "5");
  await typeInto(page.getByLabel("Minimum", { exact: true }), "10");
  await page.getByLabel("Unit").click();
  const fault = await page.getByRole("list", { name: "Problems" }).getByRole("listitem").first().textContent();
  await look("product-faults");
  await typeInto(page.getByLabel("Maximum"), "50");
  await page.getByLabel("Unit").click();
  await page.getByRole("list", { name: "Problems" }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "Journey", level: 1 }).waitFor();

  await page.getByRole("button", { name: "Add: Properties" }).click();
  await page.getByLabel("ID", { exact: true }).and(page.locator(":focus")).waitFor();
  await page.getByRole("button", { name: "v1.1" }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("tab", { name: /Versions\s*2/ }).click();
  const difference = await page.getByRole("region", { name: "properties.value1" }).getByText("added").textContent();
  await look("versions");

  // A codec is tested with bytes and with values while it is edited. An example is stored with it.
  await page.getByRole("tab", { name: "Codec" }).click();
  await page.getByRole("button", { name: "Write a codec" }).click();
  const script = page.getByRole("textbox", { name: "script" });
  await typeInto(script, "// args: light\nfunction decodeUplink(input) { return 1 +* 2 }");
  const trial = page.getByRole("region", { name: "Test the codec" });
  await typeInto(trial.getByLabel("Bytes (hex)"), "0x15");
  const broken = await trial.getByRole("list", { name: "Problems" }).textContent();
  problems.splice(0, Infinity, ...problems.filter((one) => !one.includes("status of 400"))); // the browser logs it
  await typeInto(script, given.codec);
  await trial.getByRole("row", { name: /temperature 21 accepted/ }).waitFor();
  await trial.getByRole("region", { name: "Script output" }).getByText("[21]").waitFor();
  await typeInto(trial.getByLabel("Bytes (hex)"), "63");
  await trial.getByRole("row", { name: /temperature 99 / }).getByText("50").waitFor();
  await look("codec");
  await typeInto(trial.getByLabel("Bytes (hex)"), "15");
  await trial.getByRole("row", { name: /temperature 21 accepted/ }).waitFor();
  await trial.getByRole("button", { name: "Add to examples" }).click();
  await trial.getByRole("button", { name: "Encode values" }).click();
  await typeInto(trial.getByRole("textbox", { name: "Values (JSON)" }), '{"temperature": 7}');
  await trial.getByText("Base64").waitFor();
  const encoded = await trial.getByRole("definition").nth(1).textContent();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The codec was saved").waitFor();
  await page.reload();
  await page.getByRole("listitem").filter({ hasText: '{"temperature":21}' }).waitFor();

  await page.getByRole("tab", { name: "Used by" }).click();
  await page.getByRole("link", { name: "Devices: 0" }).waitFor();
  await look("product-uses");
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await typeInto(page.getByLabel(`Type ${model} to confirm`), model);
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("heading", { name: "Products" }).waitFor();
  return { broken, refused: refused.trim(), wrong: wrong.trim(), made, encoded, fault: fault.replace(/\s+/g, " ").trim(), difference };
});
