// Somebody describes a product in the form, is told of a fault where it is, saves a second version, and
// compares the two, and gives it a codec. Before that products are made of device templates.
import { journey } from "./page.mjs";

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
  problems.splice(0, Infinity, ...problems.filter((one) => !one.includes("status of 400"))); // the browser tells of it
  await file("acme.zip", given.library);
  const templates = page.getByRole("table", { name: "Device templates" });
  const wrong = await templates.getByRole("row", { name: /The odd/ }).getByRole("listitem").textContent();
  await look("templates");
  await page.getByRole("searchbox", { name: "Model, name or vendor" }).fill(given.template);
  await templates.getByRole("row", { name: /The odd/ }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Choose all that are shown" }).click();
  await page.getByRole("button", { name: "Import: 1" }).click();
  const made = await page.getByRole("status").filter({ hasText: "with faults: 0" }).textContent();
  await templates.getByRole("link", { name: `The ${given.template}` }).click();
  await page.getByRole("tab", { name: "Codec" }).click();
  await page.getByText("function Decode(bytes)").first().waitFor();
  await page.getByRole("link", { name: "Products", exact: true }).first().click();
  await page.getByRole("link", { name: "New product" }).click();
  await page.getByLabel("Model").fill(model);
  await page.getByLabel("Name", { exact: true }).first().fill("Journey");
  await page.getByText("temperature", { exact: true }).first().click();
  await page.getByLabel("Greatest").fill("5");
  await page.getByLabel("Least", { exact: true }).fill("10");
  await page.getByLabel("Unit").click();
  const fault = await page.getByRole("list", { name: "What is wrong" }).getByRole("listitem").first().textContent();
  await look("product-faults");
  await page.getByLabel("Greatest").fill("50");
  await page.getByLabel("Unit").click();
  await page.getByRole("list", { name: "What is wrong" }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "Journey", level: 1 }).waitFor();

  await page.getByRole("button", { name: "Add: Properties" }).click();
  await page.getByRole("button", { name: "v1.1" }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("tab", { name: /Versions\s*2/ }).click();
  const difference = await page.getByRole("region", { name: "properties.value1" }).getByText("added").textContent();
  await look("versions");

  // A codec is tried while it is written, on bytes and on values; an example is kept with it.
  await page.getByRole("tab", { name: "Codec" }).click();
  await page.getByRole("button", { name: "Write a codec" }).click();
  const script = page.getByRole("textbox", { name: "script" });
  // Chromium writes over what is chosen with inline styles, of which it complains itself.
  const empty = () => script.press("ControlOrMeta+a").then(() => script.press("Delete"));
  await empty();
  await script.fill("function decodeUplink(input) { return {data: {temperature: input.bytes[0]}");
  const trial = page.getByRole("region", { name: "Trial" });
  await trial.getByLabel("Bytes (hex)").fill("0x15");
  const broken = await trial.getByRole("list", { name: "What is wrong" }).textContent();
  problems.splice(0, Infinity, ...problems.filter((one) => !one.includes("status of 400"))); // the browser tells of it
  await empty();
  await script.fill(given.codec);
  await trial.getByRole("row", { name: /temperature 21 taken/ }).waitFor();
  await trial.getByLabel("Bytes (hex)").fill("63");
  await trial.getByRole("row", { name: /temperature 99 / }).getByText("50").waitFor();
  await look("codec");
  await trial.getByLabel("Bytes (hex)").fill("15");
  await trial.getByRole("row", { name: /temperature 21 taken/ }).waitFor();
  await trial.getByRole("button", { name: "Keep as an example" }).click();
  await trial.getByRole("button", { name: "Encode values" }).click();
  await trial.getByRole("textbox", { name: "Values (JSON)" }).fill('{"temperature": 7}');
  await trial.getByText("Base64").waitFor();
  const encoded = await trial.getByRole("definition").nth(1).textContent();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The codec is saved").waitFor();
  await page.reload();
  await page.getByRole("listitem").filter({ hasText: '{"temperature":21}' }).waitFor();

  await page.getByRole("tab", { name: "Used by" }).click();
  await page.getByRole("link", { name: "Devices: 0" }).waitFor();
  await look("product-uses");
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByLabel(`Type ${model} to confirm`).fill(model);
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("heading", { name: "Products" }).waitFor();
  return { broken, refused: refused.trim(), wrong: wrong.trim(), made, encoded, fault: fault.replace(/\s+/g, " ").trim(), difference };
});
