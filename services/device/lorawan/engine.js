// Runs codecs. Every call begins with fresh variables, and nothing that a call changes outlives it: built-in objects
// are frozen, except those that the codec's scripts are written to change. These are compared and restored after
// each call. `codec_context.py` evaluates this once in a context and calls the functions of `engine`.
//
// A script may have replaced any built-in while code below runs between its functions and `restoreAll`. That
// code therefore uses only functions that were captured here, and no iterators, array methods, inherited properties or
// template literals (for which QuickJS calls `concat`).
"use strict";
(() => {
  const { parse, stringify } = JSON;
  const compile = eval;
  const { apply, construct, defineProperty, deleteProperty, getOwnPropertyDescriptor, getPrototypeOf, isExtensible, ownKeys, setPrototypeOf } = Reflect;
  const { Error, InternalError, Number, String, TypeError, Uint8Array } = globalThis;
  const { freeze, keys: keysOf } = Object;
  const { isArray } = Array;
  const { isSafeInteger } = Number;
  const { isView } = ArrayBuffer;
  const ERRORS = [Error, AggregateError, EvalError, InternalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError];
  const { slice, toWellFormed } = String.prototype;
  const NativeDate = Date;
  const own = globalThis;
  const LONGEST_ANSWER = 65536, LONGEST_LOG = 100, LONGEST_LINE = 500;
  const first = (text, length) => apply(toWellFormed, apply(slice, text, [0, length]), []);
  const flat = (text) => apply(slice, text, [0]); // the Python binding cannot read a text that QuickJS keeps in parts
  let clock = 0;
  let chains = {};

  for (const name of ["WeakRef", "FinalizationRegistry", "SharedArrayBuffer", "Atomics", "performance", "navigator", "queueMicrotask"])
    delete globalThis[name];
  for (const name of ["prepareStackTrace", "stackTraceLimit"]) delete Error[name]; // QuickJS keeps their values outside of objects

  // The clock shows the time of the frame and random numbers are constant, so that decoding a frame again returns the same values.
  globalThis.Date = function Date(...given) {
    if (!new.target) return new NativeDate(clock).toString();
    return construct(NativeDate, given.length ? given : [clock], new.target);
  };
  defineProperty(globalThis, "Date", { enumerable: false });
  defineProperty(globalThis.Date, "prototype", { value: NativeDate.prototype, writable: false });
  NativeDate.prototype.constructor = globalThis.Date;
  for (const [name, value] of [["now", () => clock], ["parse", NativeDate.parse], ["UTC", NativeDate.UTC]])
    defineProperty(globalThis.Date, name, { value, writable: true, enumerable: false, configurable: true });
  Math.random = () => 0.5;

  // Localized dates and numbers have the format of V8 in English, for every requested locale.
  const { getFullYear, getMonth, getDate, getHours, getMinutes, getSeconds, getTime } = NativeDate.prototype;
  const { toFixed, valueOf } = Number.prototype;
  const two = (number) => (number < 10 ? "0" : "") + number;
  const part = (date, get) => apply(get, date, []);
  const dayOf = (date) => part(date, getMonth) + 1 + "/" + part(date, getDate) + "/" + part(date, getFullYear);
  const timeOf = (date) => {
    const hours = part(date, getHours);
    return (hours % 12 || 12) + ":" + two(part(date, getMinutes)) + ":" + two(part(date, getSeconds)) + (hours < 12 ? " AM" : " PM");
  };
  const valid = (write) => ({ write() { const time = part(this, getTime); return time === time ? write(this) : "Invalid Date"; } }).write;
  const writeNumber = (number) => {
    const text = apply(toFixed, number, [3]);
    if (number - number !== 0 || text.length > 25) return "" + number;
    let end = text.length, whole = "";
    while (text[end - 1] === "0") end--;
    if (text[end - 1] === ".") end--;
    const point = text.length - 4, begin = text[0] === "-" ? 1 : 0;
    for (let at = begin; at < point; at++) whole += (at > begin && (point - at) % 3 === 0 ? "," : "") + text[at];
    return (begin ? "-" : "") + whole + (end > point ? apply(slice, text, [point, end]) : "");
  };
  for (const [holder, name, value] of [
    [NativeDate.prototype, "toLocaleString", valid((date) => dayOf(date) + ", " + timeOf(date))],
    [NativeDate.prototype, "toLocaleDateString", valid(dayOf)],
    [NativeDate.prototype, "toLocaleTimeString", valid(timeOf)],
    [Number.prototype, "toLocaleString", { write() { return writeNumber(apply(valueOf, this, [])); } }.write],
  ]) defineProperty(holder, name, { value, writable: true, enumerable: false, configurable: true });

  // The console stores lines only while a user tests a codec.
  let lines = null, count = 0, indent = "", counts = {};
  const textOf = (value) => {
    if (typeof value === "string") return value;
    try {
      if (value instanceof Error) return value.name + ": " + value.message;
      const text = typeof value === "object" || typeof value === "bigint" ? stringify(value) : undefined;
      return text === undefined ? String(value) : text;
    } catch {
      return typeof value === "bigint" ? value + "n" : "[object]";
    }
  };
  const log = (given) => {
    if (lines === null || count >= LONGEST_LOG) return;
    let line = indent;
    for (let at = 0; at < given.length; at++) line += (at ? " " : "") + textOf(given[at]);
    lines += (count++ ? "," : "") + stringify(count === LONGEST_LOG ? "…" : first(line, LONGEST_LINE));
  };
  const label = (given) => (given === undefined ? "default" : String(given));
  const nothing = () => {};
  const methods = {
    assert(condition, ...given) {
      if (!condition) log(given.length ? given : ["Assertion failed"]);
    },
    count(name) {
      const key = label(name);
      counts[key] = (counts[key] || 0) + 1;
      log([key + ": " + counts[key]]);
    },
    countReset(name) {
      delete counts[label(name)];
    },
    group(...given) {
      if (given.length) log(given);
      indent += "  ";
    },
    groupEnd() {
      indent = indent.slice(2);
    },
    timeEnd: (name) => log([label(name) + ": 0 ms"]),
    timeLog: (name) => log([label(name) + ": 0 ms"]),
    clear: nothing, profile: nothing, profileEnd: nothing, time: nothing, timeStamp: nothing,
  };
  methods.groupCollapsed = methods.group;
  for (const name of ["debug", "dirxml", "error", "info", "log", "table", "trace", "warn"]) methods[name] = (...given) => log(given);
  methods.dir = (value) => log([value]);
  defineProperty(globalThis, "console", { value: methods, writable: true, enumerable: false, configurable: true });

  // Objects that scripts can change: name, and how to find the object.
  const changeable = [];
  const isChangeable = (object) => {
    for (let at = 0; at < changeable.length; at++) if (changeable[at].object === object) return true;
    return false;
  };
  const find = (path) => {
    const [name, prototype] = path.split(".");
    return prototype ? own[name]?.prototype : own[name];
  };
  const objectsOf = (paths) => {
    if (!paths.includes("*")) return paths.map(find);
    const found = [getPrototypeOf(Uint8Array), getPrototypeOf(Uint8Array.prototype)];
    for (const name of ownKeys(own)) if (own[name] !== own && (typeof own[name] === "object" || own[name]?.prototype)) found.push(own[name], own[name].prototype);
    return found;
  };
  const snapshot = (object) => {
    const keys = ownKeys(object), known = { __proto__: null };
    const properties = keys.map((key) => ({ __proto__: null, ...getOwnPropertyDescriptor(object, key) }));
    for (const key of keys) known[key] = true;
    const usual = properties.map((one) => (one.writable && !one.enumerable && one.configurable ? one.value : known)); // faster to compare
    return { object, parent: getPrototypeOf(object), keys, known, properties, usual };
  };

  // A new property of a changeable object or the global one stays configurable: it is deleted after the call.
  const FIELDS = ["value", "writable", "get", "set", "enumerable"];
  const removable = (target, key, description) => {
    if ((target !== own && !isChangeable(target)) || getOwnPropertyDescriptor(target, key) || typeof description !== "object" || description === null) return description;
    const copy = { __proto__: null, configurable: true };
    for (let at = 0; at < FIELDS.length; at++) if (FIELDS[at] in description) copy[FIELDS[at]] = description[FIELDS[at]];
    return copy;
  };
  const letDefine = () => {
    const one = Object.defineProperty;
    const replace = (holder, name, value) => defineProperty(holder, name, { value, writable: true, enumerable: false, configurable: true });
    replace(Reflect, "defineProperty", (target, key, description) => defineProperty(target, key, removable(target, key, description)));
    replace(Object, "defineProperty", function (target, key, description) {
      return one(target, key, removable(target, key, description));
    });
    const many = Object.defineProperties;
    replace(Object, "defineProperties", function (target, descriptions) {
      if (target !== own && !isChangeable(target)) return many(target, descriptions);
      const keys = ownKeys(descriptions);
      for (let at = 0; at < keys.length; at++)
        if (getOwnPropertyDescriptor(descriptions, keys[at])?.enumerable) one(target, keys[at], removable(target, keys[at], descriptions[keys[at]]));
      return target;
    });
  };

  // Return whether a changeable object was restored. An object that cannot be restored (frozen, or with a deleted
  // property, whose place in the order of keys is lost) requires a new context.
  const restore = ({ object, parent, keys, known, properties, usual }) => {
    if (getPrototypeOf(object) !== parent || !isExtensible(object)) return false;
    let now = ownKeys(object);
    if (now.length !== keys.length) {
      for (let at = 0; at < now.length; at++) if (!(now[at] in known) && !deleteProperty(object, now[at])) return false;
      now = ownKeys(object);
    }
    if (now.length !== keys.length) return false;
    for (let at = 0; at < keys.length; at++) {
      const key = keys[at];
      if (now[at] !== key) return false;
      const is = getOwnPropertyDescriptor(object, key);
      if (is.value === usual[at] && is.writable === true && is.enumerable === false && is.configurable === true) continue;
      const was = properties[at];
      if (is.value !== was.value || is.writable !== was.writable || is.get !== was.get || is.set !== was.set || is.enumerable !== was.enumerable || is.configurable !== was.configurable)
        if (!defineProperty(object, key, was)) return false;
    }
    return true;
  };

  // Delete the names that a call adds to the global object. Built-in names are on its prototype, so only few
  // names must be checked.
  const shared = {};
  let everything = false;
  const permanent = { __proto__: null };
  let permanents = 0;
  const restoreGlobals = () => {
    if (getPrototypeOf(own) !== shared || !isExtensible(own)) return false;
    const names = ownKeys(own);
    if (names.length !== permanents) for (let at = 0; at < names.length; at++) if (!(names[at] in permanent) && !deleteProperty(own, names[at])) return false;
    return true;
  };
  const restoreAll = () => {
    for (let at = 0; at < changeable.length; at++) if (!restore(changeable[at])) return false;
    return restoreGlobals();
  };

  const declare = (accessors) => {
    const keys = ownKeys(accessors);
    for (let at = 0; at < keys.length; at++) defineProperty(own, keys[at], getOwnPropertyDescriptor(accessors, keys[at]));
  };
  const hidden = [
    declare, function* () {}, async () => {}, async function* () {}, [][Symbol.iterator](), new Map().entries(), new Set().values(),
    ""[Symbol.iterator](), "".matchAll(/x/g), (function* () {})(), (async function* () {})(), new Uint8Array(),
    Iterator.from({ next() {} }), [].values().map(() => 0),
  ];
  // An object may have its own property with the name of a frozen property: `error.name = …`.
  const letOverride = (object) => {
    for (const key of ownKeys(object)) {
      const { value, writable, enumerable, configurable } = getOwnPropertyDescriptor(object, key);
      if (!writable || !configurable) continue;
      hidden.push(value);
      defineProperty(object, key, {
        get: () => value,
        set(given) {
          if (this === object) throw new TypeError("'" + String(key) + "' is read-only");
          if (typeof this === "object" || typeof this === "function") defineProperty(this, key, { value: given, writable: true, enumerable: true, configurable: true });
        },
        enumerable,
        configurable: false,
      });
    }
  };
  const seen = new Set([undefined, globalThis]);
  const harden = (one) => {
    if ((typeof one !== "object" && typeof one !== "function") || one === null || seen.has(one)) return;
    seen.add(one);
    if (!isChangeable(one)) freeze(one);
    harden(getPrototypeOf(one));
    for (const key of ownKeys(one)) {
      const { value, get, set } = getOwnPropertyDescriptor(one, key);
      harden(value), harden(get), harden(set);
    }
  };

  // Freeze everything that calls share, except objects with these paths (`Array.prototype`; `*` is all).
  const seal = (paths) => {
    const objects = new Set(objectsOf(parse(paths)).filter((one) => one !== undefined && one !== null));
    letDefine();
    everything = paths.includes("*");
    if (objects.delete(Object.prototype)) changeable.push(snapshot(Object.prototype)); // first, because descriptors inherit from it
    for (const object of objects) changeable.push(snapshot(object));
    for (const kind of [Object, getPrototypeOf(Uint8Array), ...ERRORS]) if (!isChangeable(kind.prototype)) letOverride(kind.prototype);
    hidden.forEach(harden);
    for (const key of ownKeys(own)) {
      const { value, configurable } = getOwnPropertyDescriptor(own, key);
      harden(value);
      defineProperty(shared, key, { value });
      if (!configurable || !deleteProperty(own, key)) (permanent[key] = true), permanents++;
    }
    harden(shared);
    setPrototypeOf(own, shared);
  };

  const readName = (name) => `typeof ${name} === "undefined" ? undefined : ${name}`;
  const found = (name) => `$entry(${readName(name)}, "${name}")`;
  const load = (codec) => {
    const { scripts, decoder, encoder } = parse(codec);
    const ready = ({ script, entry, args }) => ({ ...prepare(scripts[script], found(entry)), args });
    chains = { decoder: decoder.map(ready), encoder: encoder.map(ready) };
  };
  // A script is the body of a function, so that each call has variables of its own.
  const prepare = ({ source, strict, parameters, replaced, globals, exports }, result) => {
    const names = ["$declare", "$entry", ...parameters];
    const live = globals.map((name) => `get ${name}() { return ${readName(name)} }, set ${name}($value) { ${name} = $value }`);
    const head = `${strict ? '"use strict";' : ""}${live.length ? `$declare({${live}});` : ""}`;
    const make = compile(`(function (${names}) {${head}${source}\n;return ${result};})`);
    freeze(make.prototype);
    return { make: freeze(make), parameters, replaced: everything ? ownKeys(shared) : replaced, exports };
  };
  const instantiate = ({ make, parameters, replaced, exports }) => {
    let module;
    for (let at = 0; at < replaced.length; at++) define(replaced[at], own[replaced[at]]);
    const given = { __proto__: null, length: parameters.length + 2, 0: declare, 1: (entry, name) => entryOf(entry, name, module) };
    if (exports) {
      module = { exports: {} };
      define("module", module), define("exports", module.exports);
    }
    for (let at = 0; at < parameters.length; at++) given[at + 2] = own[parameters[at]];
    return apply(make, undefined, given);
  };
  const define = (name, value) => defineProperty(own, name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  const entryOf = (entry, name, module) => {
    if (typeof entry === "function" || module === undefined) return entry;
    const exported = module.exports;
    return methodOf(exported, name) ?? methodOf(exported?.default, name);
  };
  // The entry point of an exported object may be a method that uses its other members.
  const methodOf = (holder, name) => {
    const method = holder?.[name];
    if (typeof method === "function") return (...given) => apply(method, holder, given);
    return typeof holder === "function" && holder.name === name ? holder : undefined;
  };

  const run = (steps, payload, known) => {
    for (let at = 0; at < steps.length; at++) {
      const { args } = steps[at];
      const entry = instantiate(steps[at]);
      const given = { __proto__: null, length: args.length };
      for (let place = 0; place < args.length; place++) given[place] = args[place].payload ? payload : known[args[place].id];
      payload = apply(entry, undefined, given);
    }
    return payload;
  };
  // A value that has no JSON does not fail the call: it becomes null, which no TSL accepts.
  // A BigInt becomes a number, or its digits as text where a number would lose some.
  const exact = (_, one) => (typeof one === "bigint" ? (isSafeInteger(Number(one)) ? Number(one) : "" + one) : one);
  const jsonOf = (value) => {
    try {
      return stringify(value);
    } catch {
      return membersOf(value, 2);
    }
  };
  const membersOf = (value, depth) => {
    if (!depth || typeof value !== "object" || value === null || isArray(value) || value.toJSON) return exactly(value);
    const names = keysOf(value);
    let all = "";
    for (let at = 0; at < names.length; at++) {
      const one = memberOf(value, names[at], depth - 1);
      if (one !== undefined) all += (all && ",") + stringify(names[at]) + ":" + one;
    }
    return "{" + all + "}";
  };
  const memberOf = (value, name, depth) => {
    try {
      return membersOf(value[name], depth);
    } catch {
      return "null";
    }
  };
  const exactly = (value) => {
    try {
      return stringify(value, exact);
    } catch {
      return "null";
    }
  };
  // Return JSON with the `value` or the `fault` of a call, its console's `log`, and whether the context is `spent`.
  const answer = (chain, payload, known, at, logging) => {
    clock = at;
    (lines = logging ? "" : null), (count = 0), (indent = ""), (counts = { __proto__: null });
    let text;
    try {
      text = jsonOf(withPlainBytes(run(chain, payload, known)));
      if (text === undefined) text = "null";
      text = text.length > LONGEST_ANSWER ? '"fault":"gives more than ' + LONGEST_ANSWER + ' characters"' : '"value":' + text;
    } catch (error) {
      text = '"fault":' + stringify(faultOf(error)) + ',"broken":' + (error === null || error instanceof InternalError);
    }
    if (lines) text += ',"log":[' + lines + "]";
    return flat("{" + text + (restoreAll() ? "}" : ',"spent":true}'));
  };
  // An encoder may return its bytes as a Buffer or another typed array.
  const withPlainBytes = (value) => {
    if (isView(value)) return listOf(value);
    if (typeof value === "object" && value !== null && isView(value.bytes)) defineProperty(value, "bytes", { __proto__: null, value: listOf(value.bytes), enumerable: true });
    return value;
  };
  const listOf = (view) => {
    let text = "";
    for (let at = 0; at < view.length; at++) text += (at ? "," : "") + view[at];
    return parse("[" + text + "]");
  };
  const faultOf = (error) => {
    try {
      return first(String(error instanceof Error ? error : stringify(error)), LONGEST_LINE);
    } catch {
      return "throws what has no text";
    }
  };

  const decode = (port, hex, at, logging) => {
    const bytes = [...Uint8Array.fromHex(hex)], variables = {};
    const input = { bytes, fPort: port, recvTime: new NativeDate(at), variables };
    return answer(chains.decoder, bytes, { __proto__: null, fPort: port, port, bytes, variables, input }, at, logging);
  };
  const encode = (port, values, at, logging) => {
    const data = parse(values), variables = {};
    const input = { data, fPort: port, variables };
    return answer(chains.encoder, data, { __proto__: null, fPort: port, port, variables, input }, at, logging);
  };

  const functions = (script, names) => {
    const wanted = parse(names);
    const types = instantiate(prepare(parse(script), `[${wanted.map((name) => `typeof ${found(name)}`)}]`));
    let list = "";
    for (let at = 0; at < wanted.length; at++) if (types[at] === "function") list += (list && ",") + '"' + wanted[at] + '"';
    return flat("[" + list + "]");
  };

  globalThis.engine = [seal, load, decode, encode, functions];
})();
