// Reads, in Chinese, texts that the platform sends in English: entities of an integration, states of services and
// fields of the audit log. What a page without data says fits the page and its filters.
// Sizes have readable units.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, signIn }) => {
  await signIn();
  await page.evaluate(() => localStorage.setItem("thingway.language", "zh"));
  await page.goto(`${given.baseUrl}/#/entities?name=Accepted&key=chirpstack`);
  await page.reload();
  const entity = page.getByRole("link", { name: "已接受上行数" });
  await entity.waitFor();
  const source = await page.getByRole("row").filter({ has: entity }).getByRole("cell").nth(2).innerText();
  await entity.click();
  await page.getByRole("heading", { name: "已接受上行数", level: 1 }).waitFor();
  const empty = await page.locator("main section").filter({ hasText: "时间范围" }).last().innerText();
  await look("entity-chinese");
  await page.keyboard.press("ControlOrMeta+k");
  await typeInto(page.getByRole("dialog").getByRole("combobox"), "Accepted uplinks");
  const found = await page.getByRole("option", { name: "已接受上行数" }).first().innerText();
  await page.keyboard.press("Escape");

  await page.route("**/readyz", (route) => route.fulfill({ json: { auth: "not ready", redis: "ok" } }));
  await page.goto(`${given.baseUrl}/#/system`);
  const notice = await page.locator("main .notice.bad").first().innerText();
  const size = await page.getByRole("row", { name: "上传图片的总大小" }).getByRole("cell").nth(2).innerText();
  await look("system-chinese");
  await page.goto(`${given.baseUrl}/#/audit?keyword=operator`);
  const actor = await page.getByRole("row").nth(1).getByRole("cell").nth(1).innerText();
  await page.goto(`${given.baseUrl}/#/audit?object_type=user&action=created`);
  await page.getByRole("row").nth(1).getByRole("button").click();
  const fields = await page.getByRole("dialog").getByRole("row").locator("td:first-child").allInnerTexts();
  await page.keyboard.press("Escape");
  await page.goto(`${given.baseUrl}/#/events?keyword=no-such-entity`);
  await page.getByText("尚无符合筛选条件的变化").waitFor();
  const credentials = await addCredentials();
  return { source, found, empty, notice, size, actor, fields, credentials };

  /** What the form sends for a mail server and for an HTTP client whose access key the user leaves as it is. */
  async function addCredentials() {
    const sent = [];
    await page.route("**/credentials", (route) => {
      if (route.request().method() !== "POST") return route.fallback();
      sent.push(route.request().postDataJSON().access_key);
      return route.fulfill({ json: { status: "Success", request_id: "0" } });
    });
    for (const type of ["SMTP", "HTTP"]) {
      await page.goto(`${given.baseUrl}/#/credentials`);
      await page.reload();
      await page.getByRole("button", { name: "添加凭证" }).click();
      const form = page.getByRole("dialog");
      await form.getByLabel("用途").selectOption(type);
      await typeInto(form.getByLabel(type === "SMTP" ? "主机" : "密钥"), "mail.example.com");
      await form.getByRole("button", { name: "保存" }).click();
      await form.waitFor({ state: "detached" });
    }
    await page.unroute("**/credentials");
    return sent;
  }
});
