// A page of a device stays open while the platform stops and starts: it shows that its data is outdated, and recovers.
import { writeFile } from "node:fs/promises";

import { journey } from "./page.mjs";

const PATIENCE = 90_000;

await journey(async ({ page, given, signIn, problems }) => {
  const { baseUrl, entity, opened, stale } = given;
  page.setDefaultTimeout(PATIENCE);
  await signIn();
  await page.goto(`${baseUrl}/#/entities/${entity}`);
  await page.getByText("Live", { exact: true }).waitFor();
  const value = page.locator("main .now");
  const before = await value.textContent();
  await writeFile(opened, "");
  await page.getByText("Disconnected, reconnecting").waitFor();
  await writeFile(stale, "");
  await page.getByText("Live", { exact: true }).waitFor();
  await page.waitForFunction(([node, before]) => node.textContent !== before, [await value.elementHandle(), before]);
  const after = await value.textContent();
  // The browser logs each connection that was refused while the platform was stopped.
  const known = /ERR_CONNECTION|WebSocket connection|50[234] \(/;
  problems.splice(0, problems.length, ...problems.filter((problem) => !known.test(problem)));
  return { before, after };
});
