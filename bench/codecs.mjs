// Runs codecs in V8, each call in a fresh context: one job a line on standard input, its answers a line on standard output.
import { createInterface } from "node:readline";
import vm from "node:vm";

const CLOCK = `{
  const NativeDate = Date, at = CLOCK;
  globalThis.Date = new Proxy(NativeDate, {
    apply: () => new NativeDate(at).toString(),
    construct: (target, given, kind) => Reflect.construct(target, given.length ? given : [at], kind),
    get: (target, name) => (name === "now" ? () => at : Reflect.get(target, name)),
  });
  Math.random = () => 0.5;
}`;
// Evaluated before a script, which may replace built-in functions.
const CALL = `((parse, stringify, apply, isView, listOf, Date) => (entry, args, given) => {
  const { bytes, data, port, at } = parse(given), variables = {}, recvTime = new Date(at), list = [];
  const known = { bytes, obj: data, port, fPort: port, variables, input: bytes ? { bytes, fPort: port, recvTime, variables } : { data, fPort: port, variables } };
  for (let n = 0; n < args.length; n++) list[n] = known[args[n]];
  const value = apply(entry, undefined, list);
  if (isView(value)) return stringify(listOf(value));
  if (value && isView(value.bytes)) value.bytes = listOf(value.bytes);
  return stringify(value);
})(JSON.parse, JSON.stringify, Reflect.apply, ArrayBuffer.isView, (view) => [...view], Date)`;
const quiet = Object.fromEntries(Object.keys(console).map((name) => [name, () => {}]));

function answer(source, conventions, { kind, port, bytes, data, at }) {
  const module = { exports: {} };
  const context = vm.createContext({ console: quiet, Buffer, module, exports: module.exports });
  const evaluate = (code) => vm.runInContext(code, context, { timeout: 2000 });
  try {
    evaluate(CLOCK.replace("CLOCK", String(at)));
    const call = evaluate(CALL);
    evaluate(source);
    const found = Object.entries(conventions[kind]).find(([name]) => evaluate(`typeof ${name}`) === "function" || typeof module.exports?.[name] === "function");
    if (!found) return { fault: "no entry point" };
    const [name, args] = found;
    const entry = evaluate(`typeof ${name} === "function" ? ${name} : module.exports.${name}`);
    context.$run = () => call(entry, args, JSON.stringify({ bytes, data, port, at }));
    const text = evaluate("$run()");
    return { value: text === undefined ? null : JSON.parse(text) };
  } catch (error) {
    return { fault: `${error}`.slice(0, 300) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { source, conventions, calls } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(calls.map((call) => answer(source, conventions, call)))}\n`);
}
