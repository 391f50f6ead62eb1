// Check texts with Harper: `node grammar.mjs` reads {dialect, rules, texts} from stdin and writes its findings.
import { readFileSync } from "node:fs";

import { Dialect, LocalLinter } from "harper.js";
import { binary } from "harper.js/binary";

const { dialect, rules, texts } = JSON.parse(readFileSync(0, "utf8"));
const linter = new LocalLinter({ binary, dialect: Dialect[dialect] });
await linter.setup();
const known = Object.keys(await linter.getDefaultLintConfig());
const unknown = rules.filter((rule) => !known.includes(rule));
if (unknown.length) throw new Error(`Harper has no rules ${unknown.join(", ")}. Remove them from rules.toml.`);
await linter.setLintConfig(Object.fromEntries(known.map((rule) => [rule, rules.includes(rule)])));

const found = [];
for (const [text, content] of texts.entries()) {
  for (const [rule, lints] of Object.entries(await linter.organizedLints(content, { language: "markdown" }))) {
    for (const lint of lints) found.push({ text, rule, start: lint.span().start, problem: lint.get_problem_text(), message: lint.message() });
  }
}
process.stdout.write(JSON.stringify(found));
