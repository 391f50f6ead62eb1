// Runs codecs in V8, each call in a fresh context: one job a line on standard input, its answers a line on standard output.
import { createInterface } from "node:readline";
import vm from "node:vm";

const CLOCK = `{
  const NativeDate = Date, at = CLOCK;
  globalThis.Date = class Date extends NativeDate { constructor(...given) { super(...(given.length ? given : [at])); } static now() { return at; } };
  Math.random = () => 0.5;
}`;
const quiet = Object.fromEntries(Object.keys(console).map((name) => [name, () => {}]));

function answer(source, conventions, { kind, port, bytes, data, at }) {
  const module = { exports: {} };
  const context = vm.createContext({ console: quiet, Buffer, module, exports: module.exports });
  const evaluate = (code) => vm.runInContext(code, context, { timeout: 2000 });
  try {
    evaluate(CLOCK.replace("CLOCK", String(at)));
    evaluate(source);
    const found = Object.entries(conventions[kind]).find(([name]) => evaluate(`typeof ${name}`) === "function" || typeof module.exports?.[name] === "function");
    if (!found) return { fault: "no entry point" };
    const [name, args] = found;
    context.$function = evaluate(`typeof ${name} === "function" ? ${name} : module.exports.${name}`);
    context.$given = JSON.stringify({ bytes, data, port });
    const text = evaluate(`(() => {
      const { bytes, data, port } = JSON.parse($given), variables = {}, recvTime = new Date(${at});
      const known = { bytes, obj: data, port, fPort: port, variables, input: bytes ? { bytes, fPort: port, recvTime, variables } : { data, fPort: port, variables } };
      const value = $function(...${JSON.stringify(args)}.map((arg) => known[arg]));
      if (ArrayBuffer.isView(value)) return JSON.stringify(Array.from(value));
      if (value && ArrayBuffer.isView(value.bytes)) value.bytes = Array.from(value.bytes);
      return JSON.stringify(value);
    })()`);
    return { value: text === undefined ? null : JSON.parse(text) };
  } catch (error) {
    return { fault: `${error}`.slice(0, 300) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { source, conventions, calls } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(calls.map((call) => answer(source, conventions, call)))}\n`);
}
