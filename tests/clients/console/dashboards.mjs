// A user builds a dashboard that has widgets of another console, arranges it, and sees live values.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, signIn }) => {
  const { device, toggle, board } = given;
  await signIn();
  await page.getByRole("link", { name: "Dashboards" }).click();
  await page.getByRole("heading", { name: "Dashboards" }).waitFor();
  await page.getByRole("button", { name: "New dashboard" }).click();
  await typeInto(page.getByLabel("Name", { exact: true }), `${board}-new`);
  await page.getByRole("radio").first().check();
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByText("No widgets yet").waitFor();
  await page.getByRole("navigation", { name: "Parent pages" }).getByRole("link").click();
  await typeInto(page.getByRole("searchbox"), board);
  await page.getByRole("link", { name: `${board}-new` }).waitFor();
  await look("dashboards");
  await page.getByRole("button", { name: `Actions for ${board}-new` }).click();
  await page.getByRole("menuitem", { name: "Set as home" }).click();
  await page.getByText("Home", { exact: true }).waitFor();
  await page.getByRole("button", { name: `Actions for ${board}-new` }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("link", { name: `${board}-new` }).waitFor({ state: "detached" });

  await page.getByRole("link", { name: board }).click();
  await page.getByText("Created in another console").waitFor();
  await page.getByRole("button", { name: "Edit" }).click();
  const add = async (kind, words, found, more = async () => {}) => {
    await page.getByRole("button", { name: "Add widget", exact: true }).click();
    await page.getByRole("menuitem", { name: kind, exact: true }).click();
    const dialog = page.getByRole("dialog");
    if (words) {
      const all = Promise.withResolvers(); // the answer to the empty search arrives after the answer to the words
      await page.route("**/entity/search", (route) => all.promise.then(() => route.continue()), { times: 1 });
      await typeInto(dialog.getByRole("combobox", { name: /^Entit/ }), words);
      all.resolve();
      const option = page.getByRole("option", { name: found });
      if (kind === "Switch") {
        await option.and(page.locator("[data-highlighted]")).waitFor();
        await page.keyboard.press("Enter");
      } else await option.click();
    }
    await more(dialog);
    if (kind === "Chart over time") await look("dashboard-widget");
    await dialog.getByRole("button", { name: "Apply" }).click();
    await dialog.waitFor({ state: "detached" });
  };
  // Back, Escape and the close button ask for confirmation before they discard the text of a dialog.
  await page.getByRole("button", { name: "Add widget", exact: true }).click();
  await page.getByRole("menuitem", { name: "Text", exact: true }).click();
  await typeInto(page.getByRole("dialog").getByLabel("Text", { exact: true }), "Not lost");
  const ways = [
    () => page.goBack(),
    () => page.keyboard.press("Escape"),
    () => page.getByRole("dialog").getByRole("button", { name: "Close" }).click(),
  ];
  for (const leave of ways) {
    await leave();
    await page.getByRole("alertdialog").getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("alertdialog").waitFor({ state: "detached" });
  }
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  const temperature = new RegExp(`${device.name} · Temperature`);
  await add("Value", device.sn, temperature);
  await add("Gauge", device.sn, temperature, (dialog) => typeInto(dialog.getByLabel("Title"), "Gauge of it"));
  await add("Chart over time", device.sn, temperature, (dialog) => typeInto(dialog.getByLabel("Title"), "Over time"));
  await add("Comparison", device.sn, temperature, (dialog) => typeInto(dialog.getByLabel("Title"), "The mean"));
  await add("Table", device.sn, temperature, (dialog) => typeInto(dialog.getByLabel("Title"), "All"));
  await add("Switch", toggle.name, toggle.name);
  await add("Status", toggle.name, toggle.name, (dialog) => typeInto(dialog.getByLabel("Title"), "Lamp"));
  await add("Command", toggle.name, toggle.name, async (dialog) => {
    await typeInto(dialog.getByLabel("Title"), "All off");
    await typeInto(dialog.getByLabel("Value to send"), "false");
  });
  await add("Text", "", "", (dialog) => typeInto(dialog.getByLabel("Text", { exact: true }), "The roof of house 7"));
  await add("Picture", "", "", async (dialog) => {
    await typeInto(dialog.getByLabel("Title"), "Roof");
    await dialog.getByLabel("Picture", { exact: true }).setInputFiles({
      name: "roof.svg",
      mimeType: "image/svg+xml",
      buffer: Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 2"><rect width="4" height="2" fill="teal"/></svg>'),
    });
    await dialog.getByRole("button", { name: "Remove picture" }).waitFor();
  });

  const text = page.getByRole("article", { name: "Text", exact: true });
  const handle = page.getByRole("button", { name: "Move Text", exact: true });
  await handle.focus();
  for (const key of ["ArrowRight", "ArrowRight", "Shift+ArrowRight"]) await page.keyboard.press(key);
  const told = await page.getByText(/^Column \d/).textContent();
  const before = await text.boundingBox();
  await page.mouse.move(before.x + 60, before.y + 24);
  await page.mouse.down();
  await page.mouse.move(before.x + 300, before.y + 30, { steps: 8 });
  await page.mouse.up();
  const dragged = (await text.boundingBox()).x - before.x;
  await look("dashboard-edited");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The dashboard was saved").waitFor();

  await page.reload();
  const value = page.getByRole("article", { name: temperature }).locator("strong");
  await page.waitForFunction((it) => /\d/.test(it.textContent), await value.elementHandle());
  const first = await value.textContent();
  await page.waitForFunction(([it, first]) => it.textContent !== first, [await value.elementHandle(), first]);
  const lamp = page.getByRole("switch", { name: toggle.name });
  await lamp.click();
  await page.getByRole("article", { name: "Lamp", exact: true }).getByText("On", { exact: true }).waitFor();
  await page.getByRole("button", { name: "All off" }).click();
  await page.getByRole("article", { name: "Lamp", exact: true }).getByText("Off", { exact: true }).waitFor();
  await page.getByRole("article", { name: "Over time" }).locator("canvas").waitFor();
  await page.getByRole("article", { name: "The mean" }).getByText(/\d/).first().waitFor();
  const seen = await page.getByRole("img", { name: "Roof" }).evaluate((it) => it.naturalWidth > 0);
  await page.evaluate(() => scrollTo(0, 0));
  await look("dashboard");
  // An entity that the user may not see has neither name nor key; the others are shown.
  await page.route(/\/canvas\/\d+$/, async (route) => {
    const answer = await route.fetch();
    const json = await answer.json();
    for (const { data } of json.data.widgets) if (data.kind === "bar") data.settings.entities.push({ id: "1", key: "direct.device.HIDDEN.temperature" });
    await route.fulfill({ response: answer, json });
  });
  // A user without permission to send commands sees the same dashboard.
  await page.route(/\/user$/, async (route) => {
    const answer = await route.fetch();
    const json = await answer.json();
    json.data.may_command = false;
    await route.fulfill({ response: answer, json });
  });
  await page.reload();
  const mean = page.getByRole("article", { name: "The mean" });
  await mean.getByText("Not available").waitFor();
  await mean.getByText(/\d/).first().waitFor();
  const keys = await page.getByText("HIDDEN").count();
  const commands = [await lamp.isDisabled(), await page.getByRole("button", { name: "All off" }).isDisabled()];
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await page.setViewportSize({ width: 390, height: 844 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  return { told, keys, commands, dragged: dragged > 100, changed: true, seen, fits: wide <= 390 };
});
