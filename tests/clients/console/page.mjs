// A journey through the console in Chromium: `node console/X.mjs GIVEN`, GIVEN being JSON with at least
// `baseUrl`. It prints its results as JSON. `problems` contains errors of the browser's console and findings
// of axe on the visited pages.
//
// axe checks names of controls only (a tenth of the time of all rules), unless AXE_RULES is `all`.
//
// If GIVEN has the directory `screenshots`, each page is stored there: light and dark, desktop and phone.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

import packed from "@sparticuz/chromium";
import { chromium } from "playwright-core";

const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
/** What a phone shows in another way: every control has a name there, too. */
const NAMES = ["button-name", "link-name", "label", "select-name", "input-button-name", "aria-command-name", "aria-input-field-name", "aria-toggle-field-name"];
const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
/** Pages are drawn without a graphics card, and without a program that stands for one: it takes twice as long. */
const GRAPHICS = /web-security|use-gl|use-angle|swiftshader/;
/** Milliseconds that anything may take to be there. */
const PATIENCE = 15_000;

/**
 * Take somebody on a journey: `steps({ page, given, look, signIn, problems })` answers what it found. Without
 * `serviceWorkers: "allow"` files come from the platform each time, and routes of Playwright see all requests.
 */
export async function journey(steps, { serviceWorkers = "block" } = {}) {
  const given = JSON.parse(process.argv[2]);
  const browser = await chromium.launch({
    executablePath: await packed.executablePath(),
    args: [...packed.args.filter((word) => !GRAPHICS.test(word)), "--disable-gpu"],
    ignoreDefaultArgs: ["--enable-unsafe-swiftshader"],
    headless: true,
  });
  const problems = [];
  const context = await browser.newContext({ viewport: DESKTOP, locale: "en-GB", colorScheme: "light", serviceWorkers });
  const page = await context.newPage();
  try {
    page.setDefaultTimeout(PATIENCE);
    page.on("console", (said) => said.type() === "error" && problems.push(said.text()));
    page.on("pageerror", (error) => problems.push(String(error)));
    const look = (name) => lookAt(page, name, given.screenshots, problems);
    const signIn = (email = given.email, password = given.password) => signInTo(page, given.baseUrl, email, password);
    const found = await steps({ page, given, look, signIn, problems });
    console.log(JSON.stringify({ ...found, problems }));
  } catch (error) {
    if (given.screenshots) await page.screenshot({ path: `${given.screenshots}/failed.png` });
    console.error(problems);
    throw error;
  } finally {
    await browser.close();
  }
}

/** Type a text with the keyboard, as people do, in place of the present one. */
export async function typeInto(field, text) {
  await field.press("ControlOrMeta+a");
  if (!text) await field.press("Delete");
  await field.pressSequentially(text);
}

/** Sign in where somebody signed out stands. */
async function signInTo(page, baseUrl, email, password) {
  await page.goto(`${baseUrl}/#/`);
  await typeInto(page.getByLabel("Email address"), email);
  await typeInto(page.getByLabel("Password"), password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("navigation", { name: "Menu" }).waitFor();
}

/** Let axe look at the page as it stands; keep pictures of it when there is a place for them. */
async function lookAt(page, name, screenshots, problems) {
  // Most pages share a document. Compiling axe again takes a third of the time of its check.
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  const all = screenshots || process.env.AXE_RULES === "all";
  const violations = all ? await violationsOf(page, { type: "tag", values: RULES }) : [];
  await page.setViewportSize(PHONE);
  violations.push(...(await violationsOf(page, { type: "rule", values: NAMES })));
  await page.setViewportSize(DESKTOP);
  for (const { id, nodes } of violations) {
    problems.push(`${name}: ${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).join(" | ")}`);
  }
  if (!screenshots) return;
  for (const [size, viewport] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
    await page.setViewportSize(viewport);
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    await page.waitForFunction(() => !document.querySelector("main [aria-busy=true]")); // charts load again
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: `${screenshots}/${name}-${size}-${colorScheme}.png` });
    }
  }
  await page.setViewportSize(DESKTOP);
  await page.emulateMedia({ colorScheme: "light" });
}

/** What axe finds. A page that changes under its eyes makes it fail: then it looks again. */
async function violationsOf(page, runOnly, tries = 3) {
  try {
    return await page.evaluate(
      // Menus and dialogs are outside of every landmark.
      async (runOnly) => (await globalThis.axe.run({ runOnly, ...(runOnly.type === "tag" && { rules: { region: { enabled: false } } }) })).violations,
      runOnly,
    );
  } catch (error) {
    if (tries === 1) throw error;
    return violationsOf(page, runOnly, tries - 1);
  }
}
