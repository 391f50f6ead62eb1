// Visits every page in `pages` (name: path after `#`).
import { journey } from "./page.mjs";

await journey(async ({ page, given, look, signIn, problems }) => {
  await signIn();
  for (const [name, path] of Object.entries(given.pages)) {
    await page.goto(`${given.baseUrl}/#${path}`);
    await page.locator("main h1").first().waitFor();
    await page.waitForFunction(() => !document.querySelector("main [aria-busy=true]"));
    const failed = await page.locator("main .notice.bad[role=alert]").allTextContents();
    problems.push(...failed.map((text) => `${name}: ${text.trim()}`));
    await look(name);
  }
  return {};
});
