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
