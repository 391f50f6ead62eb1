// A line a codec as people write them; each gives {a: 1} for the byte 1.
if (!Object.assign) {} Object.defineProperty(Object, 'assign', {value: 1});function Decode() { return Object.assign({}, {a: 1}) }
function Buffer() {} Buffer.prototype.toBytes = function () { return {a: 1} };function Decode() { return new Buffer().toBytes() }
function Decode() { const o = {a: 1}; o.toString = 1; delete o.toString; return o }
class Broken extends Error { constructor() { super('x'); this.name = 'Broken'; this.message = 'a' } }function Decode() { const e = new Broken(); return {[e.message]: e.name === 'Broken' ? 1 : 0} }
function Decode() { for (i = 0; i < 1; i++) {} return {a: i} }
const Decode = (port, bytes) => ({a: bytes[0]});
