// Names what all calls share and that is not frozen: whatever is reached from the global object and from what syntax makes.
function Decode() {
  const seen = new Set(), found = [];
  const walk = (one, name) => {
    if ((typeof one !== "object" && typeof one !== "function") || one === null || seen.has(one)) return;
    seen.add(one);
    if (!Object.isFrozen(one)) found.push(name);
    within(one, name);
  };
  const within = (one, name, values = true) => {
    walk(Reflect.getPrototypeOf(one), name + ".__proto__");
    for (const key of Reflect.ownKeys(one)) {
      const { value, get, set } = Reflect.getOwnPropertyDescriptor(one, key);
      if (values) walk(value, name + "." + String(key));
      walk(get, name + ".get " + String(key)), walk(set, name + ".set " + String(key));
    }
  };
  const strict = (function () { "use strict"; return arguments; })();
  const made = {
    globalThis, strict, call: (function () { return arguments; })(), error: new TypeError("x"), array: [1].values(), text: "x"[Symbol.iterator](),
    matches: "x".matchAll(/x/g), map: new Map([[1, 1]]).entries(), set: new Set([1]).values(), from: Iterator.from({ next() {} }),
    helper: [].values().map(() => 0), generator: (function* () {}).prototype, asynchronous: (async function* () {}).prototype, promise: (async () => {})(),
    make: function () {}, arrow: () => 0, makes: function* () {}, waits: async () => {}, waitsAndMakes: async function* () {}, kind: class {},
    pattern: /x/.exec("x"), bytes: new Uint8Array(1), view: new DataView(new ArrayBuffer(1)), date: new Date(), proxy: new Proxy({}, {}),
    word: Object(Symbol()), big: Object(1n), number: Object(1), bool: Object(true), string: Object(""),
  };
  for (const [name, one] of Object.entries(made)) {
    seen.add(one);
    within(one, name, false);
  }
  return [seen.size > 500, ...found];
}
