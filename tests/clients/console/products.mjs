// Somebody describes a product in the form, is told of a fault where it is, saves a second version, and
// compares the two.
import { journey } from "./page.mjs";

await journey(async ({ page, given, look, signIn }) => {
  const { model } = given;
  await signIn();
  await page.getByRole("link", { name: "Products", exact: true }).click();
  await page.getByRole("table", { name: "Products" }).waitFor();
  await look("products");
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
  await page.getByRole("tab", { name: "Used by" }).click();
  await page.getByRole("link", { name: "Devices: 0" }).waitFor();
  await look("product-uses");
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByLabel(`Type ${model} to confirm`).fill(model);
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("heading", { name: "Products" }).waitFor();
  return { fault: fault.replace(/\s+/g, " ").trim(), difference };
});
