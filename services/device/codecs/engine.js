// What runs codecs: every call begins with fresh variables, and nothing that a call does outlives it.
// Evaluated once in a context; `load`, `decode` and `encode` are taken out of it by `context.py`.
"use strict";
(() => {
  const { parse, stringify } = JSON;
  const compile = eval;
  const { ownKeys, deleteProperty, getPrototypeOf, setPrototypeOf, isExtensible } = Reflect;
  const { Error, InternalError, Uint8Array } = globalThis;
  const { freeze, defineProperty, getOwnPropertyDescriptor, keys } = Object;
  const { isArray } = Array;
  const { isSafeInteger } = Number;
  const NativeDate = Date;
  let clock = 0;
  let chains = {};

  for (const name of ["WeakRef", "FinalizationRegistry", "SharedArrayBuffer", "Atomics", "performance", "navigator", "queueMicrotask"])
    delete globalThis[name];
  for (const name of ["prepareStackTrace", "stackTraceLimit"]) delete Error[name]; // they keep what they are given

  // The moment is the frame's: a frame that is read again gives what it gave.
  globalThis.Date = function Date(...given) {
    if (!new.target) return new NativeDate(clock).toString();
    return given.length ? new NativeDate(...given) : new NativeDate(clock);
  };
  defineProperty(globalThis, "Date", { enumerable: false });
  globalThis.Date.prototype = NativeDate.prototype;
  NativeDate.prototype.constructor = globalThis.Date;
  globalThis.Date.now = () => clock;
  globalThis.Date.parse = NativeDate.parse;
  globalThis.Date.UTC = NativeDate.UTC;
  Math.random = () => 0.5;

  const hidden = [
    function* () {}, async () => {}, async function* () {}, [][Symbol.iterator](), new Map().entries(), new Set().values(),
    ""[Symbol.iterator](), "".matchAll(/x/g), (function* () {})(), (async function* () {})(), new Uint8Array(),
    Iterator.from({ next() {} }), [].values().map(() => 0),
  ];

  // An object may have a property of its own that a frozen prototype has, too.
  for (const shared of [Object.prototype, Error.prototype])
    for (const key of ownKeys(shared)) {
      const { value, writable, enumerable, configurable } = getOwnPropertyDescriptor(shared, key);
      if (!writable || !configurable) continue;
      hidden.push(value);
      defineProperty(shared, key, {
        get: () => value,
        set(own) {
          if (this === shared) throw new TypeError("this cannot be changed");
          defineProperty(this, key, { value: own, writable: true, enumerable: true, configurable: true });
        },
        enumerable,
        configurable: false,
      });
    }

  // A polyfill of what is there does nothing.
  const seen = new Set([undefined, globalThis]);
  const known = (one) => seen.has(one);
  Object.defineProperty = function (target, key, description) {
    return known(target) && key in target ? target : defineProperty(target, key, description);
  };
  const harden = (one) => {
    if ((typeof one !== "object" && typeof one !== "function") || one === null || seen.has(one)) return;
    seen.add(one);
    freeze(one);
    harden(getPrototypeOf(one));
    for (const key of ownKeys(one)) {
      const { value, get, set } = getOwnPropertyDescriptor(one, key);
      harden(value), harden(get), harden(set);
    }
  };
  hidden.forEach(harden);

  const load = (codec) => {
    const { scripts, decoder, encoder } = parse(codec);
    const ready = ({ script, entry, args }) => {
      const make = compile(`(function () {${scripts[script]}\n;return ${entry};})`);
      freeze(make.prototype);
      return { make: freeze(make), args };
    };
    chains = { decoder: decoder.map(ready), encoder: encoder.map(ready) };
  };

  const run = (steps, payload, known) => {
    for (const { make, args } of steps)
      payload = make()(...args.map((one) => (one.payload ? payload : known[one.id])));
    return payload;
  };
  // What JSON cannot carry costs that value, not the call: it becomes null, which no TSL accepts.
  // A BigInt becomes a number, or text that is one where a number would lose digits.
  const exact = (_, one) => (typeof one === "bigint" ? (isSafeInteger(Number(one)) ? Number(one) : `${one}`) : one);
  const written = (value) => {
    try {
      return stringify({ value });
    } catch {
      return `{"value":${members(value, 2)}}`;
    }
  };
  const members = (value, depth) => {
    if (!depth || typeof value !== "object" || value === null || isArray(value) || value.toJSON) return text(value);
    let all = "";
    for (const key of keys(value)) {
      const one = member(value, key, depth - 1);
      if (one !== undefined) all += `${all && ","}${stringify(key)}:${one}`;
    }
    return `{${all}}`;
  };
  const member = (value, key, depth) => {
    try {
      return members(value[key], depth);
    } catch {
      return "null";
    }
  };
  const text = (value) => {
    try {
      return stringify(value, exact);
    } catch {
      return "null";
    }
  };
  const told = (chain, payload, known, at) => {
    clock = at;
    let told;
    try {
      told = written(run(chain, payload, known));
    } catch (error) {
      told = { fault: textOf(error), broken: error === null || error instanceof InternalError };
      told = stringify(told);
    }
    return tidy() ? told : stringify({ fault: "changes what other calls see", broken: true });
  };
  const textOf = (error) => {
    try {
      return `${error instanceof Error ? error : stringify(error)}`.slice(0, 500);
    } catch {
      return "throws what has no text";
    }
  };

  const decode = (port, hex, at) => {
    const bytes = [...Uint8Array.fromHex(hex)];
    return told(chains.decoder, bytes, { fPort: port, port, bytes, input: { bytes, fPort: port, recvTime: new NativeDate(at) } }, at);
  };
  const encode = (port, values, at) => {
    const data = parse(values);
    return told(chains.encoder, data, { fPort: port, port, input: { data, fPort: port } }, at);
  };

  const functions = (source, names) => {
    const types = parse(names).map((name) => `typeof ${name}`);
    const found = compile(`(function () {${source}\n;return [${types}];})`)();
    return stringify(parse(names).filter((_, at) => found[at] === "function"));
  };

  // Names that scripts use without declaring them are there until the call is over. What all see is
  // behind the global object, which has hardly a name of its own: they are looked at after each call.
  const own = globalThis;
  const shared = {};
  const names = new Set();
  const tidy = () => {
    if (getPrototypeOf(own) !== shared || !isExtensible(own)) return false;
    const all = ownKeys(own);
    return all.length === names.size || all.every((name) => names.has(name) || deleteProperty(own, name));
  };

  globalThis.engine = [load, decode, encode, functions];
  globalThis.sealed = () => {
    for (const key of ownKeys(own)) {
      const { value, configurable } = getOwnPropertyDescriptor(own, key);
      harden(value);
      defineProperty(shared, key, { value });
      if (!configurable || !deleteProperty(own, key)) names.add(key);
    }
    harden(shared);
    setPrototypeOf(own, shared);
  };
})();
