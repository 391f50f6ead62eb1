// Texts of pages come from the catalogues of both languages, and from nowhere else.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const SOURCES = new URL("../src/", import.meta.url);
/** Names and codes that are the same in every language. */
const NAMES = new Set(["Id", "SN", "TSL", "DevEUI", "MHz", "XLSX", "CSV", "JavaScript", "Python", "Base64", "Thingway", "English", "Ctrl", "Ctrl K", "Esc", "&nbsp;", "default", "thingway doctor", "direct.device.*.temperature"]);

/** The markup of a component without scripts, styles, comments and expressions. */
function markup(file: string): string {
  const text = readFileSync(new URL(file, SOURCES), "utf8").replace(/<script.*?<\/script>|<style.*?<\/style>|<!--.*?-->/gs, "");
  let depth = 0;
  return [...text].filter((letter) => ((depth += Number(letter === "{")), letter === "}" ? (depth -= 1, false) : depth === 0)).join("");
}

test("no component has a text of its own", () => {
  const files = readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".svelte"));
  const found = files.flatMap((file) => {
    const text = markup(file);
    const attributes = [...text.matchAll(/\b(?:label|title|aria-label|placeholder|alt|text|hint|action)="([^"]+)"/g)].map((match) => match[1]!);
    const nodes = [...text.replace(/=>/g, "").matchAll(/>([^<>]*)</g)].map((match) => match[1]!.trim());
    return [...attributes, ...nodes].filter((one) => /[A-Za-z]{2,}|\p{Script=Han}/u.test(one) && !NAMES.has(one) && one !== "中文").map((one) => `${file}: ${one}`);
  });
  assert.ok(files.length > 100);
  assert.deepEqual(found, []);
});
