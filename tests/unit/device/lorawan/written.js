// A line a codec as people write them; each gives {a: 1} for the byte 1.
if (!Object.assign) {} Object.defineProperty(Object, 'assign', {value: (one, other) => other});function Decode() { return Object.assign({}, {a: 1}) }
function Buffer() {} Buffer.prototype.toBytes = function () { return {a: 1} };function Decode() { return new Buffer().toBytes() }
function Decode() { const o = {a: 1}; o.toString = 1; delete o.toString; return o }
class Broken extends Error { constructor() { super('x'); this.name = 'Broken'; this.message = 'a' } }function Decode() { const e = new Broken(); return {[e.message]: e.name === 'Broken' ? 1 : 0} }
function Decode() { for (i = 0; i < 1; i++) {} return {a: i} }
const Decode = (port, bytes) => ({a: bytes[0]});
"use strict"; Math.trunc = Math.trunc || function (x) { return x | 0 }; function Decode(p, bytes) { return { a: Math.trunc(bytes[0] + 0.5) } }
"use strict"; Object.assign = Object.assign || function () {}; String.prototype.pad = String.prototype.pad || function () { return `${this}1` }; function Decode() { return { a: Number("".pad()) } }
"use strict"; Object.prototype.at0 = function () { return this[0] }; function Decode(p, bytes) { return { a: bytes.at0() } }
Array.prototype.last = function () { return this[this.length - 1] }; function Decode(p, bytes) { return { a: bytes.last() } }
Math.twice = function (x) { return 2 * x }; function Decode(p, bytes) { return { a: Math.twice(bytes[0]) - 1 } }
Math.round = function () { return 7 }; function Decode() { return { a: Math.round(0.4) - 6 } }
Object.defineProperty(String.prototype, "one", { value: function () { return 1 } }); function Decode() { return { a: "".one() } }
Object.defineProperties(Number.prototype, { one: { get() { return this * 1 } } }); function Decode(p, bytes) { return { a: bytes[0].one } }
Object.assign(Array.prototype, { one() { return this[0] } }); function Decode(p, bytes) { return { a: bytes.one() } }
const proto = Array.prototype; proto["one"] = function () { return this[0] }; function Decode(p, bytes) { return { a: bytes.one() } }
function Decode(p, bytes) { Object.getPrototypeOf(bytes).one = () => 1; return { a: [].one() } }
function Decode(p, bytes) { bytes.__proto__.one = () => 1; return { a: [].one() } }
function Decode(p, bytes) { "".constructor.prototype.one = () => 1; return { a: "x".one() } }
const { prototype } = Array; prototype.one = () => 1; function Decode(p, bytes) { return { a: bytes.one() } }
for (const kind of [Array, String]) kind.prototype.one = () => 1; function Decode(p, bytes) { return { a: bytes.one() * "".one() } }
const M = Math; M.one = () => 1; function Decode() { return { a: Math.one() } }
delete Math.abs; function Decode() { return { a: Math.abs === undefined ? 1 : 0 } }
Object.freeze(Array.prototype); function Decode(p, bytes) { return { a: bytes[0] } }
Math = { round: () => 1 }; function Decode() { return { a: Math.round(9) } }
var parseInt = parseInt || 7; function Decode() { return { a: parseInt("1") } }
parseInt = () => 1; function Decode() { return { a: parseInt("9") } }
Date.now = () => 1; function Decode() { return { a: Date.now() } }
function Decode() { const list = []; list.values = 0; list.at = 1; return { a: list.at + list.values } }
function help() { return 1 } function Decode() { return { a: this.help() } }
function help() { return 1 } function Decode() { return { a: globalThis["he" + "lp"]() } }
function help() { return 1 } function Decode() { return { a: Function("return this")().help() } }
function help() { return 1 } function Decode() { return { a: new Function("return help()")() } }
function help() { return 1 } function Decode() { return { a: (0, eval)("help()") } }
"use strict"; function help() { return 1 } function Decode() { return { a: globalThis.help() } }
var n = 0; function Decode() { this.n = 1; return { a: n } }
var m = 1, n = 1; (function (root) { root.one = function () { return root.n } })(this); function Decode() { return { a: one() } }
this.Decode = function () { return { a: 1 } };
globalThis.Decode = () => ({ a: 1 });
Decode = function () { return { a: 1 } };
exports.Decode = function () { return { a: 1 } };
module.exports = { Decode: () => ({ a: 1 }) };
function Decode() { return { a: 1 } } exports.Decode = Decode;
function Decode() { return { a: 1 } } if (typeof module !== "undefined" && module.exports) module.exports = { Decode };
(function (root, make) { if (typeof exports === "object") module.exports = make(); else root.codec = make() })(this, function () { return { Decode: () => ({ a: 1 }) } });
var exports = exports || {}; exports.Decode = () => ({ a: 1 });
const exports = {}; function Decode() { return { a: 1 } }
function Decode() { return { a: typeof require === "undefined" ? 1 : 0 } }
function Decode(p, bytes) { console.log("%d", p); console.table(bytes); console.time(); console.dir({}); console.groupEnd(); return { a: bytes[0] } }
var console = console || { log() {} }; function Decode() { console.log(1); return { a: 1 } }
console.log = function () { this.n = 1 }; function Decode() { console.log(); return { a: console.n } }
let console = { log: () => 1 }; function Decode() { return { a: console.log() } }
function Decode(p, bytes) { return { a: Buffer.from(bytes).readUInt8(0) } }
function Decode(p, bytes) { return { a: new Buffer(bytes).readInt8() } }
if (typeof Buffer === "undefined") Buffer = 1; function Decode(p, bytes) { return { a: Buffer.from(bytes)[0] } }
Buffer.prototype.one = function () { return this[0] }; function Decode(p, bytes) { return { a: Buffer.from(bytes).one() } }
class Buffer { static from() { return 1 } } function Decode() { return { a: Buffer.from() } }
function Decode(p, bytes, variables) { return { a: Number(variables.one || 1) } }
class List extends Array { one() { return this[0] } } function Decode(p, bytes) { return { a: List.from(bytes).one() } }
class Day extends Date { one() { return this.getTime() } } function Decode() { return { a: new Day(1).one() } }
function List() {} List.prototype = Object.create(Array.prototype); List.prototype.push = () => 1; function Decode() { return { a: new List().push(5) } }
function help() { return 1 } function Decode() { return { a: Decode.constructor("return help()")() } }
const kind = [].constructor; kind.prototype.one = () => 1; function Decode(p, bytes) { return { a: bytes.one() } }
export function Decode() { return { a: 1 } }
globalThis.Math = { round: () => 1 }; function Decode() { return { a: Math.round(9) } }
"use strict"; globalThis.parseInt = () => 1; function Decode() { return { a: parseInt("9") } }
this.isNaN = () => 1; function Decode() { return { a: isNaN(9) } }
globalThis.console = { log: () => 1 }; function Decode() { return { a: console.log() } }
Object.defineProperty(globalThis, "Number", { value: () => 1 }); function Decode() { return { a: Number(9) } }
Object.defineProperties(this, { one: { get: () => 1 } }); function Decode() { return { a: one } }
globalThis["Array"].prototype.one = () => 1; function Decode(p, bytes) { return { a: bytes.one() } }
Function("Array.prototype.one = () => 1")(); function Decode(p, bytes) { return { a: bytes.one() } }
Function("return this")().Math.one = () => 1; function Decode() { return { a: Math.one() } }
function set(target, name, value) { target[name] = value } set(Array.prototype, "one", () => 1); function Decode(p, bytes) { return { a: bytes.one() } }
function Decode() { const text = "x"; text.toString = 1; return { a: text.length } }
function Decode() { const help = () => 0; help.call = 0; help.toString = 1; return { a: help.call + help.toString } }
function Decode() { const error = new RangeError("x"); error.name = "A"; error.message = "b"; return { a: `${error}` === "A: b" ? 1 : 0 } }
String.prototype.concat = () => 7; function Decode() { return { a: 1 } }
Array.prototype[Symbol.iterator] = Array.prototype.map = Array.prototype.push = Reflect.apply = JSON.stringify = String.prototype.slice = () => 7; function Decode() { return { a: 1 } }
Object.prototype.value = Object.prototype.get = Object.prototype.length = 7; delete Object.prototype.length; function Decode() { return { a: 1 } }
const d = (p, bytes) => ({ a: bytes[0] });export{d as Decode};
function Decode() { return { a: 1 } }export{Decode};
function Decode() { return { a: 1 } }; export default { Decode };
export default { one: 1, Decode() { return { a: this.one } } };
module.exports = { one: (bytes) => bytes[0], Decode(p, bytes) { return { a: this.one(bytes) } } };
class Codec { constructor() { this.one = 1 } Decode() { return { a: this.one } } } module.exports = new Codec();
module.exports = function Decode() { return { a: 1 } };
"use strict"; Uint8Array.prototype.slice = Uint8Array.prototype.slice || 0; function Decode(p, bytes) { return { a: Uint8Array.from(bytes).slice()[0] } }
Uint8Array.prototype.fill = () => 1; function Decode(p, bytes) { return { a: new Uint8Array(1).fill() } }
