// A line a codec that tries to keep something from one call to the next.
var n = 0; function Decode() { return ++n }
function Decode() { n = (typeof n === 'undefined' ? 0 : n) + 1; return n }
function Decode() { globalThis.n = (globalThis.n || 0) + 1; return globalThis.n }
function Decode() { const s = Symbol.for('n'); globalThis[s] = (globalThis[s] || 0) + 1; return globalThis[s] }
function Decode() { (0, eval)('var n = (globalThis.n || 0) + 1'); return n }
function Decode() { return new Function('return globalThis.n = (globalThis.n || 0) + 1')() }
function Decode() { Array.n = (Array.n || 0) + 1; return Array.n }
function Decode() { Object.prototype.n = ({}).n === undefined ? 1 : ({}).n + 1; return ({}).n || 1 }
function Decode() { ''.__proto__.n = (''.n || 0) + 1; return ''.n || 1 }
function Decode() { const p = (function*(){}).constructor; p.n = (p.n || 0) + 1; return p.n || 1 }
function Decode() { const p = (async () => {}).__proto__; p.n = (p.n || 0) + 1; return p.n || 1 }
function Decode() { const p = [][Symbol.iterator]().__proto__; p.n = (p.n || 0) + 1; return p.n || 1 }
function Decode() { const p = Reflect.getPrototypeOf(new Uint8Array()); p.n = (p.n || 0) + 1; return p.n || 1 }
var f = arguments.callee; function Decode() { f.n = (f.n || 0) + 1; return f.n || 1 }
var f = arguments.callee.prototype; function Decode() { f.n = (f.n || 0) + 1; return f.n || 1 }
function Decode() { Date.n = (Date.n || 0) + 1; return Date.n || 1 }
function Decode() { Math.max = () => 7; return Math.max(1) === 7 ? 2 : 1 }
function Decode() { Promise.resolve().then(() => { globalThis.n = 2 }); return globalThis.n || 1 }
function Decode() { JSON.stringify = () => '{"value": 2}'; return 1 }
function Decode() { try { null.x } catch (e) { e.__proto__.n = (e.n || 0) + 1; return e.n || 1 } }
function Decode() { const n = (Math.n || 0) + 1; Reflect.defineProperty(globalThis, 'Math', {value: {n}, configurable: true}); return n }
function Decode() { const n = (globalThis.n || 0) + 1; Reflect.defineProperty(globalThis, 'n', {get: () => n, configurable: true}); return n }
function Decode() { const p = Reflect.getPrototypeOf(globalThis); p.n = (p.n || 0) + 1; return p.n || 1 }
function Decode() { (0, eval)('var Math = {n: (Math.n || 0) + 1}'); return Math.n || 1 }
function Decode() { const p = Reflect.getPrototypeOf(globalThis); Reflect.deleteProperty(p, 'Math'); return typeof Math }
function Decode() { const f = ({}).hasOwnProperty; f.n = (f.n || 0) + 1; return f.n || 1 }
function Decode() { const f = new Error('x').toString; f.n = (f.n || 0) + 1; return f.n || 1 }
function Decode() { const p = Reflect.getPrototypeOf(Iterator.from({next() {}})); p.n = (p.n || 0) + 1; return p.n || 1 }
function Decode() { const p = Reflect.getPrototypeOf([].values().map(() => 0)); p.n = (p.n || 0) + 1; return p.n || 1 }
function Decode() { const n = Error.prepareStackTrace ? 2 : 1; Error.prepareStackTrace = () => 1; return n }
function Decode() { const n = Error.stackTraceLimit; Error.stackTraceLimit = 77; return n === 77 ? 2 : 1 }
function Decode() { const n = (Array.prototype.n || 0) + 1; Array.prototype.n = n; return [n, [].n, Object.keys(Array.prototype)] }
function Decode() { const n = 'n' in Math; Object.defineProperty(Math, 'n', {value: 1}); return n }
function Decode() { const n = 'n' in Math; Object.defineProperties(Math, {n: {value: 1}, m: {get: () => 2}}); return [n, Math.n, Math.m] }
function Decode() { const n = 'n' in Math; Math.__defineGetter__('n', () => 2); return n }
function Decode() { const n = Object.getOwnPropertyDescriptor(Math, 'abs').enumerable; class Given { constructor() { return Math } } class Adds extends Given { abs = 1 } try { new Adds() } catch {} return n }
function Decode() { const n = Object.getOwnPropertyNames(Math).join(); const abs = Math.abs; delete Math.abs; Math.abs = abs; return n }
function Decode() { const n = Object.getOwnPropertyNames(Math).join(); try { Object.defineProperty(Math, 'abs', {enumerable: true}) } catch {} return n + Object.keys(Math) }
function Decode() { const n = Math.round(1.5); const {round} = Math; Object.prototype.value = round; Object.prototype.get = () => 7; Object.prototype.writable = true; try { Object.defineProperty(Math, 'round', {__proto__: null, get: Object.prototype.get, set: undefined, configurable: true}) } catch {} return n }
function Decode() { const n = Object.isExtensible(Math); Object.preventExtensions(Math); return n }
function Decode() { const n = Object.isFrozen(Math) && 'abs' in Math; try { Object.freeze(Math) } catch {} return n }
function Decode() { const n = ''.last; try { Object.setPrototypeOf(String.prototype, {last: 2}) } catch {} return n }
function Decode() { const n = [].length + [][0]; Array.prototype[0] = 5; Array.prototype.push(1); return n }
function Decode() { let n = 0; Object.defineProperty(Array.prototype, 0, {set() { n++ }, configurable: true}); try { n += [1].concat([2]).length } catch {} return n }
function Decode() { const n = Object.getOwnPropertyNames(Array.prototype).length; Array.prototype.map = Array.prototype.every = Array.prototype[Symbol.iterator] = Set.prototype.has = function (...given) { (globalThis.all = globalThis.all || []).push(given, this); return true }; return [n, globalThis.all === undefined] }
function Decode() { const n = JSON.stringify({a: 1}); Object.prototype.toJSON = function () { return 7 }; return n }
function Decode() { const n = typeof Reflect.ownKeys; Reflect.ownKeys = Reflect.deleteProperty = Reflect.getPrototypeOf = Reflect.isExtensible = () => []; return n }
function Decode() { const n = Object.getOwnPropertyDescriptor; Object.getOwnPropertyDescriptor = () => ({}); Object.defineProperty = () => 1; return [n.name, n.n, n.n = 1] }
function Decode() { const n = typeof console.log; console.log = 1; console.n = (console.n || 0) + 1; return n }
function Decode() { const n = typeof Buffer.n; Buffer.n = 1; Buffer.prototype.n = 1; Uint8Array.prototype.n = 2; return [n, Buffer.from([1]).n === undefined ? 0 : 1] }
function Decode() { console.count(); console.group('n'); module.n = (module.n || 0) + 1; exports.n = (exports.n || 0) + 1; return [module.n, exports.n] }
function Decode() { $declare.n = ($declare.n || 0) + 1; $entry.n = ($entry.n || 0) + 1; return [$declare.n, $entry.n] }
var n = 0; function next() { return ++n } function Decode() { return this.next() + globalThis.next() + Function('return next()')() }
var n = 0; Array.prototype.next = function () { return ++n }; function Decode() { return [].next() + [].next() }
function Decode() { const n = Symbol.n; Symbol.n = 1; Symbol.prototype.n = 2; Promise.prototype.then = 3; return [n, Symbol().n] }
function Decode() { const n = Date.now(); Date.now = () => 5; Date.prototype.getTime = () => 6; return [n, new Date(3).valueOf()] }
function Decode() { const n = RegExp.prototype.exec.name; RegExp.prototype.exec = () => null; RegExp.lastMatch = 1; return [n, /x/g.lastIndex] }
function Decode() { const n = typeof parseInt; parseInt = 7; isNaN = 8; return n }
function Decode(p, bytes, variables) { const n = variables.n; variables.n = 1; bytes.n = 2; return n }
function Decode() { const n = Math.n; globalThis.Math = { n: 1 }; return [n, Math.n] }
function Decode() { const n = typeof parseInt; Object.defineProperty(globalThis, 'parseInt', {value: 1}); return [n, typeof parseInt] }
function Decode() { const s = Symbol.for('n'), n = globalThis[s]; Object.defineProperty(globalThis, s, {value: 1}); return n }
function Decode() { const n = JSON.n; Reflect.defineProperty(globalThis, 'JSON', {value: {n: 1}, configurable: false}); return n }
function Decode(p, bytes) { const n = new Uint8Array(1).slice.n; Uint8Array.prototype.slice = () => 7; Uint8Array.prototype.slice.n = 1; return { a: typeof n } }
