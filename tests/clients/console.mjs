// node console.mjs GIVEN: somebody signs in at the console and looks at a device, in a real browser.
import packed from "@sparticuz/chromium";
import { chromium } from "playwright-core";

const { baseUrl, email, first, password, device, screenshots } = JSON.parse(process.argv[2]);
const browser = await chromium.launch({
  executablePath: await packed.executablePath(),
  args: packed.args.filter((word) => word !== "--disable-web-security"),
  headless: true,
});
const problems = [];
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, locale: "en-GB" });
  page.on("console", (said) => said.type() === "error" && problems.push(said.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  const shot = (name) => screenshots && page.screenshot({ path: `${screenshots}/${name}.png` });

  const link = `${baseUrl}/#/welcome?${new URLSearchParams({ email, password: first })}`;
  await page.goto(link);
  await page.getByLabel("New password").fill(password);
  await shot("welcome");
  await page.getByRole("button", { name: "Begin" }).click();
  await page.getByRole("heading", { name: "What is alive" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.goto("about:blank");
  await page.goto(link);
  const used = await page.getByRole("alert").textContent();

  await page.getByRole("link", { name: "Sign in" }).click();
  await page.getByLabel("E-mail address").fill(email);
  await page.getByLabel("Password").fill("Not it 1");
  await page.getByRole("button", { name: "Sign in" }).click();
  const refusal = await page.getByRole("alert").textContent();
  problems.length = 0; // the browser tells of every 401
  await page.getByLabel("Password").fill(password);
  await shot("sign-in");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "What is alive" }).waitFor();
  await shot("start");

  await page.getByRole("link", { name: "Devices", exact: true }).click();
  await page.getByRole("searchbox").fill(device.name);
  await page.waitForFunction((name) => location.hash.includes(encodeURIComponent(name).replaceAll("%20", "+")), device.name);
  await page.reload(); // the session and the search stay
  const row = page.getByRole("link", { name: device.name });
  await row.waitFor();
  await shot("devices");
  await row.click();
  const card = page.locator(`[data-key$=".${device.property}"] strong`);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.waitForFunction((it) => it.textContent !== "–", await card.elementHandle());
  const before = await card.textContent();
  await page.waitForFunction(
    ([it, before]) => it.textContent !== before,
    [await card.elementHandle(), before],
  );
  await page.locator(".uplot").waitFor();
  await shot("device");
  const after = await card.textContent();

  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Password").waitFor();
  await page.reload();
  await page.getByLabel("Password").waitFor();
  console.log(JSON.stringify({ used, refusal, before, after, problems }));
} finally {
  await browser.close();
}
