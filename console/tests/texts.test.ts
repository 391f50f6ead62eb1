// Texts of pages come only from the catalogues; each text is used and has a translation.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const SOURCES = new URL("../src/", import.meta.url);
/** Names and codes that are the same in every language. */
const NAMES = new Set(["ID", "SN", "TSL", "DevEUI", "MHz", "XLSX", "CSV", "JavaScript", "Python", "Base64", "Thingway", "English", "Ctrl", "Ctrl K", "Esc", "&nbsp;", "default", "thingway doctor", "direct.device.*.temperature"]);

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

/** All texts of one language by key. */
function catalogue(language: "en" | "zh"): Map<string, string> {
  const files = ["i18n", ...readdirSync(new URL("features/", SOURCES)).map((feature) => `features/${feature}`)].map((folder) => new URL(`${folder}/${language}.ts`, SOURCES));
  const entries = files.filter(existsSync).flatMap((file) => [...readFileSync(file, "utf8").matchAll(/^ {2}"([^"]+)":\s+"((?:[^"\\]|\\.)*)",$/gm)]);
  return new Map(entries.map(([, key, text]) => [key!, text!]));
}

test("each text has a translation with the same values", () => {
  const [english, chinese] = [catalogue("en"), catalogue("zh")];
  const values = (text: string | undefined) => [...new Set([...(text ?? "").matchAll(/\{(\w+)/g)].map((match) => match[1]!))].sort();
  assert.ok(english.size > 1000);
  assert.deepEqual([...chinese.keys()].sort(), [...english.keys()].sort());
  assert.deepEqual([...english].filter(([key, text]) => `${values(text)}` !== `${values(chinese.get(key))}`), []);
});

test("each text is used", () => {
  const files = readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).filter((file) => /\.(svelte|ts)$/.test(file) && !/(^|\/)(en|zh)\.ts$|generated/.test(file));
  const sources = files.map((file) => readFileSync(new URL(file, SOURCES), "utf8")).join("\n");
  const named = new Set([...sources.matchAll(/"([\w.-]+)"/g)].map((match) => match[1]!));
  // A key that is composed of parts, such as `severity.${one}`.
  const composed = [...sources.matchAll(/`([a-z][\w-]*\.(?:[\w.-]|\$\{[^}]*\})*)`/g)].map((match) => new RegExp(`^${match[1]!.replace(/\./g, "\\.").replace(/\$\{[^}]*\}/g, "[^.]+")}$`));
  assert.deepEqual([...catalogue("en").keys()].filter((key) => !named.has(key) && !composed.some((pattern) => pattern.test(key))), []);
});
