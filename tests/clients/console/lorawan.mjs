// A user adds a sensor by its QR code, sees its first frame next to its values, corrects the codec with
// that frame, previews the changes of decoding again, and adds a list of sensors.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, signIn }) => {
  const { baseUrl, model, eui, more } = given;
  await signIn();
  await page.goto(`${baseUrl}/#/connect`);
  await page.getByRole("radio", { name: /LoRaWAN sensors/ }).check();
  await page.getByLabel("Network server", { exact: true }).selectOption("chirpstack");
  await page.getByLabel("Product").selectOption(model);
  const code = page.getByLabel("QR code on the device");
  await typeInto(code, `LW:D0:1122334455667788:${eui}:AABB1122:SJ24:C0000`);
  const fault = await page.getByRole("alert").textContent();
  await typeInto(code, `LW:D0:1122334455667788:${eui}:AABB1122:SJ24`);
  await look("connect-sensor");
  await page.getByRole("button", { name: "Add device" }).click();
  await page.getByRole("heading", { name: "First report received" }).waitFor();
  await page.getByRole("link", { name: "Open J24" }).click();

  await page.getByRole("tab", { name: "Frames" }).click();
  const frame = page.getByRole("row", { name: /d7/ });
  await frame.getByText("21.5 °C").waitFor();
  const heard = await frame.locator("summary").textContent();
  await page.locator(".uplot").waitFor();
  await page.getByText("Battery 80%").waitFor();
  await look("frames");
  await page.getByRole("tab", { name: "Gaps" }).click();
  const missing = await page.getByRole("row", { name: /Open/ }).getByRole("cell").nth(2).textContent();
  await look("gaps");
  await page.getByRole("tab", { name: "Frames" }).click();
  await frame.getByRole("link", { name: "Test the codec" }).click();

  await page.getByRole("region", { name: "Test the codec" }).getByRole("row", { name: /temperature 21\.5 accepted/ }).waitFor();
  const last = page.getByRole("region", { name: "Last frames" });
  await last.getByText("as stored").nth(1).waitFor();
  const script = page.getByRole("textbox", { name: "script" });
  await typeInto(script, "function decodeUplink({bytes}) { return {data: {temperature: bytes[0] / 10 - 40}} }");
  await last.getByRole("row", { name: /-18\.5/ }).waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The codec was saved").waitFor();
  const again = page.getByRole("region", { name: "Decode frames again" });
  await again.getByRole("button", { name: "Preview changes" }).click();
  await again.getByText("Frames whose results would change: 2").waitFor();
  const changes = (await again.getByRole("row", { name: /21\.5/ }).getByRole("cell").allTextContents()).slice(2).join("").replace(/\s+/g, "");
  await look("redecode");

  await page.goto(`${baseUrl}/#/connect?kind=lorawan&server=chirpstack&model=${model}`);
  await page.getByRole("button", { name: "Several sensors" }).click();
  const list = page.getByRole("textbox", { name: "Sensors" });
  await typeInto(list, `${more}, Cellar\nx`);
  const line = (await page.getByRole("list", { name: "Problems" }).textContent()).trim();
  await look("connect-sensors");
  await typeInto(list, `DevEUI;Name\n${more};Cellar`);
  await page.getByRole("button", { name: "Add 1 sensor" }).click();
  await page.getByText("1 of 1 rows").waitFor();

  await page.goto(`${baseUrl}/#/integrations/webhook`);
  const server = page.getByLabel("Network server");
  await page.getByLabel("Frequency").waitFor();
  await server.selectOption("Helium");
  await page.getByText("JSON pointers are not needed").waitFor();
  const pointers = await page.getByLabel("Frequency").count();
  await look("webhook");
  await server.selectOption("Custom JSON pointers");
  await page.getByLabel("Frequency").waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Settings saved").waitFor();
  return { fault, line, heard, missing, changes, pointers };
});
