// The network fails: pages that were never visited open from the cache of the service worker, and load data later.
import { journey } from "./page.mjs";

await journey(
  async ({ page, signIn, problems }) => {
    await signIn();
    await page.evaluate(() => navigator.serviceWorker.ready.then(({ active }) => active));
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
    await page.context().setOffline(true);
    await page.getByRole("link", { name: "Users" }).click();
    await page.getByRole("heading", { name: "Users" }).waitFor();
    await page.getByRole("alert").getByText("The platform does not answer").waitFor();
    await page.reload();
    const offline = await page.getByRole("main").innerText();
    await page.context().setOffline(false);
    await page.getByRole("table", { name: "Users" }).waitFor();
    const kept = await page.evaluate(async () => {
      const names = await caches.keys();
      const requests = await Promise.all(names.map(async (name) => (await caches.open(name)).keys()));
      return [...new Set(requests.flat().map(({ url }) => new URL(url).pathname.replace(/^\/assets\/.*/, "/assets/")))].sort();
    });
    problems.splice(0, Infinity, ...problems.filter((one) => !/ERR_(INTERNET|NETWORK|CONNECTION|FAILED)|WebSocket/.test(one))); // the browser logs them
    return { offline: offline.replace(/\s+/g, " ").trim(), kept };
  },
  { serviceWorkers: "allow" },
);
