// Measures the console in Chromium: `node console/speed.mjs GIVEN`. `bench/console.py` describes the output.
import { journey } from "./page.mjs";

/** Milliseconds for which frames are counted. */
const COUNTED = 10_000;
/** Milliseconds before the first look at the heap: pages grow until all of them has been used once. */
const WARM = 15_000;

await journey(async ({ page, given, signIn }) => {
  const { baseUrl, device, board, entity, seconds } = given;
  const scripts = [];
  page.on("requestfinished", (request) => request.resourceType() === "script" && scripts.push(request.sizes()));
  await page.addInitScript(watch, entity);
  await signIn();
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.waitForLoadState("networkidle");
  const sizes = (await Promise.all(scripts)).reduce((sum, one) => sum + one.responseBodySize, 0);

  // Again with an empty cache; the session continues.
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Network.enable");
  await cdp.send("Network.clearBrowserCache");
  const ready = [];
  for (let round = 0; round < 5; round += 1) {
    await page.goto("about:blank");
    await cdp.send("Network.clearBrowserCache");
    await page.goto(`${baseUrl}/#/`, { waitUntil: "commit" });
    await page.locator("main h1").waitFor();
    ready.push(await page.evaluate(() => performance.now()));
  }

  await page.goto(`${baseUrl}/#/dashboards/${board}`);
  await page.locator("canvas").waitFor();
  await page.waitForFunction(() => globalThis.drawn > globalThis.given);
  await page.waitForTimeout(500);
  const chart = [];
  for (let round = 0; round < 5; round += 1) {
    await page.reload();
    await page.waitForFunction(() => globalThis.drawn > globalThis.given);
    await page.waitForTimeout(500);
    chart.push(await page.evaluate(() => globalThis.drawn - globalThis.given));
  }

  await page.goto(`${baseUrl}/#/devices/${device}`);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.waitForTimeout(3_000);
  const frames = await page.evaluate(frameTimes, COUNTED);

  await page.waitForTimeout(WARM);
  const before = await heap(page, cdp);
  await page.waitForTimeout(seconds * 1000);
  const after = await heap(page, cdp);
  return { scripts: sizes, ready, chart, frames, heap: { before, after } };
});

/** In the page: boards get a history that is made up; when it was there, and when it was drawn first. */
function watch(entity_id) {
  globalThis.given = Infinity;
  globalThis.drawn = 0;
  const now = Date.now();
  const content = Array.from({ length: 100_000 }, (_, at) => ({
    id: String(at),
    entity_id,
    timestamp: now - at * 800,
    value: 20 + 5 * Math.sin(at / 900) + Math.random(),
    value_type: "DOUBLE",
  }));
  const page = { page_size: content.length, page_number: 1, total: content.length, content };
  const { fetch } = globalThis;
  globalThis.fetch = async (request, ...more) => {
    const isHistory = (request.url ?? String(request)).endsWith("/entity/history/search");
    if (!isHistory || !location.hash.startsWith("#/dashboards")) return fetch(request, ...more);
    const answer = Response.json({ data: page, status: "Success", request_id: "0" });
    for (const name of ["text", "json"]) {
      const read = answer[name];
      answer[name] = async () => {
        const found = await read.call(answer);
        globalThis.given = performance.now();
        return found;
      };
    }
    return answer;
  };
  const { stroke } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.stroke = function (...words) {
    stroke.apply(this, words);
    const now = performance.now();
    if (now < globalThis.given || globalThis.drawn) return;
    queueMicrotask(() => (globalThis.drawn = performance.now())); // it is drawn in one piece
  };
}

/** In the page: frames a second, and the longest time between two of them (ms). */
function frameTimes(counted) {
  return new Promise((resolve) => {
    const begin = performance.now();
    let last = begin;
    let longest = 0;
    let frames = 0;
    const tick = (now) => {
      frames += 1;
      longest = Math.max(longest, now - last);
      last = now;
      if (now - begin < counted) requestAnimationFrame(tick);
      else resolve({ rate: (frames * 1000) / (now - begin), longest });
    };
    requestAnimationFrame(tick);
  });
}

async function heap(page, cdp) {
  await page.requestGC();
  await cdp.send("Performance.enable");
  const { metrics } = await cdp.send("Performance.getMetrics");
  return metrics.find((one) => one.name === "JSHeapUsedSize").value;
}
