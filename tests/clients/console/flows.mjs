// A user draws a flow, tests it, enables it, follows a run, and views earlier versions.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, signIn, problems }) => {
  const { baseUrl, name, theirs, lamp } = given;
  await signIn();
  await page.getByRole("link", { name: "Flows" }).click();
  await page.getByRole("heading", { name: "Flows" }).waitFor();
  await page.getByRole("link", { name: "New flow" }).click();
  await typeInto(page.getByRole("textbox", { name: "Name", exact: true }), name);
  const palette = page.getByRole("group", { name: "Add nodes" });
  const panel = page.getByRole("complementary", { name: "Details" });

  await palette.getByRole("button", { name: "Trigger" }).click();
  await typeInto(panel.getByLabel("Node name"), "Asked");
  await panel.getByRole("group", { name: "Inputs" }).getByRole("button", { name: "Add" }).click();
  await typeInto(panel.getByLabel("Identifier"), "guests");
  await typeInto(panel.getByRole("group", { name: "Inputs 1" }).getByLabel("Name", { exact: true }), "Guests");
  await panel.getByRole("group", { name: "Inputs 1" }).getByLabel("Type").selectOption("LONG");
  await palette.getByRole("button", { name: "Code" }).click();
  await typeInto(panel.getByLabel("Node name"), "Tables");
  await typeInto(panel.getByRole("textbox", { name: "Code" }), "return {tables: Math.ceil(guests / 6)}");
  const inputs = panel.getByRole("group", { name: "Inputs" });
  await inputs.getByRole("button", { name: "Add" }).click();
  await typeInto(inputs.getByLabel("Name", { exact: true }), "guests");
  await page.keyboard.press("Tab");
  await inputs.getByRole("button", { name: "Insert a value of an earlier node" }).click();
  await page.getByRole("menuitem", { name: /Asked · Guests/ }).click();
  const outputs = panel.getByRole("group", { name: "Outputs" });
  await outputs.getByRole("button", { name: "Add" }).click();
  await typeInto(outputs.getByLabel("Name", { exact: true }), "tables");
  await outputs.getByLabel("Type").selectOption("LONG");
  await palette.getByRole("button", { name: "Output" }).click();
  await typeInto(panel.getByLabel("Node name"), "Answer");
  const variables = panel.getByRole("group", { name: /Variables|Outputs|Output/ }).last();
  await variables.getByRole("button", { name: "Add" }).click();
  await typeInto(variables.getByLabel("Name", { exact: true }), "tables");
  await page.keyboard.press("Tab");
  await variables.getByRole("button", { name: "Insert a value of an earlier node" }).click();
  await page.getByRole("menuitem", { name: /Tables · tables/ }).click();
  await page.getByText("Valid", { exact: true }).waitFor();
  await look("flow-drawn");

  // An additional node is rejected until it is valid. Undo removes it.
  await palette.getByRole("button", { name: "Webhook" }).click();
  await page.getByRole("button", { name: /Problems/ }).waitFor();
  const fault = await panel.getByRole("alert").first().textContent();
  await look("flow-problem");
  await panel.getByRole("heading", { name: "Webhook" }).click();
  await page.keyboard.press("Control+z");
  await page.getByText("Valid", { exact: true }).waitFor();

  // The value of a boolean property is chosen from a list. An empty condition is a problem.
  await page.getByRole("group", { name: "Answer", exact: true }).focus();
  await page.keyboard.press("Enter");
  await palette.getByRole("button", { name: "Entity Assigner" }).click();
  await typeInto(panel.getByRole("combobox", { name: "Add entity" }), lamp);
  await page.getByRole("option", { name: lamp }).click();
  await panel.getByRole("combobox", { name: `Value of ${lamp}` }).selectOption({ label: "On" });
  await page.getByText("Valid", { exact: true }).waitFor();
  await palette.getByRole("button", { name: "If / Else" }).click();
  await panel.getByRole("button", { name: "Add branch" }).click();
  await panel.getByRole("alert").filter({ hasText: "must not be empty; choose a value to compare" }).waitFor();
  await panel.getByRole("button", { name: "Insert a value of an earlier node" }).first().click();
  await page.getByRole("menuitem", { name: `Entity Assigner · ${lamp}` }).click();
  await panel.getByRole("combobox", { name: "Right side" }).selectOption({ label: "Off" });
  await page.getByText("Valid", { exact: true }).waitFor();
  await look("flow-choice");
  await panel.getByRole("button", { name: "Delete node" }).click();
  await page.getByRole("group", { name: /^Entity Assigner/ }).focus();
  await page.keyboard.press("Enter");
  await panel.getByRole("button", { name: "Delete node" }).click();
  await page.getByText("Valid", { exact: true }).waitFor();

  // A user who leaves unsaved changes by a link, Back, a shortcut or signing out must confirm, and may stay.
  const address = page.url();
  const leave = {
    link: () => page.getByRole("navigation", { name: "Parent pages" }).getByRole("link").click(),
    back: () => page.goBack(),
    jump: () => page.getByRole("group", { name: "Answer", exact: true }).press("g").then(() => page.keyboard.press("a")),
    out: () => page.getByRole("button", { name: "Sign out" }).click(),
  };
  for (const way of Object.values(leave)) {
    await way();
    await page.getByRole("alertdialog").getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("alertdialog").waitFor({ state: "detached" });
    await page.getByText("Valid", { exact: true }).waitFor();
  }
  if (page.url() !== address) problems.push(`the address is ${page.url()}`);

  await panel.getByRole("button", { name: "Test", exact: true }).click();
  await typeInto(panel.getByRole("textbox", { name: "Input, as JSON" }), '{"guests": 13}');
  await panel.getByRole("button", { name: "Run test" }).click();
  const timeline = panel.getByRole("list", { name: "Results by node" });
  await timeline.getByRole("button", { name: /Answer/ }).click();
  const tested = await panel.getByRole("region", { name: "Output", exact: true }).textContent();
  await look("flow-tested");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved as version 1").waitFor();
  await page.waitForFunction(() => /flows\/\d+/.test(location.hash));
  const id = page.url().match(/flows\/(\d+)/)[1];
  await page.getByText("Disabled", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Enable", exact: true }).click();
  await page.locator('[role="switch"]:focus:checked').waitFor();

  const called = await call(given, `system.integration.${id}`, { guests: 25 });
  await panel.getByRole("button", { name: "Runs" }).click();
  await panel.getByRole("link", { name: /Done/ }).click();
  await timeline.getByRole("button", { name: /Tables/ }).click();
  const given_ = await panel.getByRole("region", { name: "Input", exact: true }).textContent();
  const ran = await page.locator(".svelte-flow__node .ran.SUCCESS").count();
  await look("flow-run");

  await panel.getByRole("button", { name: "Node", exact: true }).click();
  await page.getByRole("group", { name: "Answer", exact: true }).focus();
  await page.keyboard.press("Enter");
  await typeInto(panel.getByLabel("Node name"), "The answer");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved as version 2").waitFor();
  await panel.getByRole("button", { name: "Versions" }).click();
  await panel.getByRole("button", { name: /Version 1/ }).click();
  await panel.getByRole("heading", { name: "The answer" }).waitFor();
  await look("flow-versions");
  await panel.getByRole("button", { name: "View this version" }).click();
  await page.getByText("You are viewing version 1").waitFor();

  // A design of another editor opens unchanged, and only its remark is edited. The page is new, so the
  // earlier message about a saved version 1 is gone.
  await page.goto(`${baseUrl}/#/flows/${theirs}`);
  await page.reload();
  await typeInto(panel.getByLabel("Remark"), "Looked at");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved as version 1").waitFor();

  await page.getByRole("navigation", { name: "Parent pages" }).getByRole("link").click();
  await typeInto(page.getByRole("searchbox"), name);
  await page.getByRole("link", { name }).waitFor();
  await look("flows");
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    (async () => {
      await page.getByRole("button", { name: `Actions for ${name}` }).click();
      await page.getByRole("menuitem", { name: "Export" }).click();
    })(),
  ]);
  await page.locator("input[type=file]").setInputFiles(await file.path());
  await page.getByText("Valid", { exact: true }).waitFor();
  const imported = await page.locator(".svelte-flow__node").count();
  return { id, fault, tested: JSON.parse(tested), called, given: JSON.parse(given_), ran, imported };
});

/** Call the service of a flow, as an application of a user does. */
async function call({ baseUrl, email, password }, key, inputs) {
  const grant = { grant_type: "password", client_id: "thingway-console", username: email, password };
  const token = await fetch(`${baseUrl}/oauth2/token`, { method: "POST", body: new URLSearchParams(grant) });
  const { access_token } = await token.json();
  const exchange = Object.fromEntries(Object.entries(inputs).map(([name, value]) => [`${key}.${name}`, value]));
  const answer = await fetch(`${baseUrl}/entity/service/call`, {
    method: "POST",
    headers: { Authorization: `Bearer ${access_token}`, "Content-Type": "application/json" },
    body: JSON.stringify({ exchange }),
  });
  return (await answer.json()).data;
}
