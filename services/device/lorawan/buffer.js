// Implements `Buffer` of Node.js and ChirpStack with `Uint8Array`. Evaluated before `engine.js` seals a context, and only
// for scripts that name it. It keeps no state of its own.
"use strict";
(() => {
  const { fromBase64 } = Uint8Array;
  const { toBase64, toHex, fill: fillBytes } = Uint8Array.prototype;
  const { fromCharCode } = String;
  const ENCODINGS = ["hex", "utf8", "utf-8", "ascii", "latin1", "binary", "base64", "base64url", "ucs2", "ucs-2", "utf16le", "utf-16le"];

  function Buffer(value, encodingOrOffset, length) {
    if (typeof value !== "number") return Buffer.from(value, encodingOrOffset, length);
    if (typeof encodingOrOffset === "string") throw new TypeError('The "string" argument must be of type string. Received type number');
    return Buffer.alloc(value);
  }
  Object.setPrototypeOf(Buffer, Uint8Array);
  Object.setPrototypeOf(Buffer.prototype, Uint8Array.prototype);
  const wrap = (bytes) => Object.setPrototypeOf(bytes, Buffer.prototype);
  const encodingOf = (name) => {
    const encoding = name === undefined || name === null || name === "" ? "utf8" : `${name}`.toLowerCase();
    if (!Buffer.isEncoding(encoding)) throw new TypeError(`Unknown encoding: ${name}`);
    return encoding;
  };

  const utf8Bytes = (text) => {
    const bytes = [];
    for (const character of text) {
      let code = character.codePointAt(0);
      if (code >= 0xd800 && code <= 0xdfff) code = 0xfffd;
      if (code < 0x80) bytes.push(code);
      else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 0x3f));
      else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
      else bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 0x3f), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    }
    return bytes;
  };
  const utf8Text = (bytes) => {
    let text = "";
    for (let at = 0; at < bytes.length; ) {
      const lead = bytes[at++];
      if (lead < 0x80) {
        text += fromCharCode(lead);
        continue;
      }
      const more = lead >= 0xc2 && lead <= 0xdf ? 1 : lead >= 0xe0 && lead <= 0xef ? 2 : lead >= 0xf0 && lead <= 0xf4 ? 3 : 0;
      let low = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80, high = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
      let code = lead & (0x3f >> more), taken = 0;
      while (taken < more && bytes[at] >= low && bytes[at] <= high) {
        code = (code << 6) | (bytes[at++] & 0x3f);
        (low = 0x80), (high = 0xbf), taken++;
      }
      text += more && taken === more ? String.fromCodePoint(code) : "\ufffd";
    }
    return text;
  };
  const bytesOf = (text, encoding) => {
    switch (encoding) {
      case "hex": {
        const bytes = [];
        for (let at = 0; at + 2 <= text.length && /^[0-9a-f]{2}$/i.test(text.slice(at, at + 2)); at += 2) bytes.push(parseInt(text.slice(at, at + 2), 16));
        return bytes;
      }
      case "base64": case "base64url": {
        const digits = text.split("=")[0].replace(/-/g, "+").replace(/_/g, "/").replace(/[^+/0-9A-Za-z]/g, "");
        return fromBase64(digits.length % 4 === 1 ? digits.slice(0, -1) : digits);
      }
      case "ascii": case "latin1": case "binary": return Array.from(text, (_, at) => text.charCodeAt(at) & 0xff);
      case "ucs2": case "ucs-2": case "utf16le": case "utf-16le": {
        const bytes = [];
        for (let at = 0; at < text.length; at++) bytes.push(text.charCodeAt(at) & 0xff, text.charCodeAt(at) >> 8);
        return bytes;
      }
      default: return utf8Bytes(text);
    }
  };
  const textOf = (bytes, encoding) => {
    if (encoding === "hex") return toHex.call(bytes);
    if (encoding === "base64") return toBase64.call(bytes);
    if (encoding === "base64url") return toBase64.call(bytes, { alphabet: "base64url", omitPadding: true });
    if (encoding === "utf8" || encoding === "utf-8") return utf8Text(bytes);
    let text = "";
    if (encoding === "ascii") for (let at = 0; at < bytes.length; at++) text += fromCharCode(bytes[at] & 0x7f);
    else if (encoding === "latin1" || encoding === "binary") for (let at = 0; at < bytes.length; at++) text += fromCharCode(bytes[at]);
    else for (let at = 0; at + 1 < bytes.length; at += 2) text += fromCharCode(bytes[at] | (bytes[at + 1] << 8));
    return text;
  };

  const staticMethods = {
    from(value, encodingOrOffset, length) {
      if (typeof value === "string") return wrap(new Uint8Array(bytesOf(value, encodingOf(encodingOrOffset))));
      if (value instanceof ArrayBuffer) {
        if (encodingOrOffset > value.byteLength) throw new RangeError('"offset" is outside of buffer bounds');
        if ((encodingOrOffset || 0) + (length || 0) > value.byteLength) throw new RangeError('"length" is outside of buffer bounds');
        return wrap(new Uint8Array(value, encodingOrOffset, length));
      }
      if (typeof value === "object" && value !== null) {
        const primitive = value.valueOf?.();
        if (primitive !== undefined && primitive !== null && primitive !== value) return Buffer.from(primitive, encodingOrOffset, length);
        if (value.length !== undefined) return wrap(Uint8Array.from(typeof value.length === "number" ? value : [], (byte) => byte & 255));
        if (value.type === "Buffer" && Array.isArray(value.data)) return Buffer.from(value.data);
      }
      throw new TypeError(`The first argument must be one of type string, Buffer, ArrayBuffer, Array, or Array-like Object. Received type ${typeof value}`);
    },
    alloc(size, fill, encoding) {
      if (typeof size !== "number") throw new TypeError('"size" argument must be of type number');
      if (!(size >= 0)) throw new RangeError(`The value "${size}" is invalid for option "size"`);
      const made = wrap(new Uint8Array(size));
      return fill === undefined || !size ? made : made.fill(fill, encoding);
    },
    isBuffer: (value) => value instanceof Buffer && value !== Buffer.prototype,
    isEncoding: (name) => ENCODINGS.includes(`${name}`.toLowerCase()),
    byteLength(value, encoding) {
      if (typeof value !== "string") return value.byteLength;
      return bytesOf(value, Buffer.isEncoding(encoding) ? encodingOf(encoding) : "utf8").length;
    },
    compare(one, other) {
      for (let at = 0; at < one.length && at < other.length; at++) if (one[at] !== other[at]) return one[at] < other[at] ? -1 : 1;
      return Math.sign(one.length - other.length);
    },
    concat(list, length) {
      if (!Array.isArray(list)) throw new TypeError('"list" argument must be an Array of Buffers');
      const bytes = [];
      for (const one of list) for (let at = 0; at < one.length; at++) bytes.push(one[at]);
      const made = Buffer.alloc(length === undefined ? bytes.length : length);
      for (let at = 0; at < made.length && at < bytes.length; at++) made[at] = bytes[at];
      return made;
    },
  };
  staticMethods.allocUnsafe = staticMethods.allocUnsafeSlow = (size) => Buffer.alloc(size);

  const position = (value, fallback, length) => {
    const at = value === undefined ? fallback : Math.trunc(value) || 0;
    return Math.min(Math.max(at < 0 ? at + length : at, 0), length);
  };
  const search = (buffer, value, from, encoding, step) => {
    if (typeof from === "string") (encoding = from), (from = undefined);
    const wanted = typeof value === "number" ? [value & 255] : typeof value === "string" ? Buffer.from(value, encoding) : value;
    const last = buffer.length - wanted.length;
    let at = from === undefined || Number.isNaN(+from) ? (step > 0 ? 0 : last) : Math.trunc(from);
    if (at < 0) at += buffer.length;
    if (step < 0) at = Math.min(at, last);
    else at = Math.max(at, 0);
    for (; at >= 0 && at <= last; at += step) {
      let same = 0;
      while (same < wanted.length && buffer[at + same] === wanted[same]) same++;
      if (same === wanted.length) return at;
    }
    return -1;
  };
  const swap = (buffer, size) => {
    if (buffer.length % size) throw new RangeError(`Buffer size must be a multiple of ${size * 8}-bits`);
    for (let at = 0; at < buffer.length; at += size) new Uint8Array(buffer.buffer, buffer.byteOffset + at, size).reverse();
    return buffer;
  };
  const methods = {
    toString(encoding, start, end) {
      const from = start === undefined || !(start > 0) ? 0 : Math.trunc(start), to = end === undefined || end > this.length ? this.length : Math.trunc(end);
      return from < to ? textOf(this.slice(from, to), encodingOf(encoding)) : "";
    },
    toJSON() {
      return { type: "Buffer", data: Array.from(this) };
    },
    equals(other) {
      if (!Buffer.isBuffer(other) && !(other instanceof Uint8Array)) throw new TypeError("Argument must be a Buffer");
      return Buffer.compare(this, other) === 0;
    },
    compare(other, start, end, ownStart, ownEnd) {
      return Buffer.compare(this.slice(ownStart, ownEnd), Buffer.from(other).slice(start, end));
    },
    slice(start, end) {
      const from = position(start, 0, this.length), to = position(end, this.length, this.length);
      return wrap(new Uint8Array(this.buffer, this.byteOffset + from, Math.max(to - from, 0)));
    },
    copy(target, targetStart = 0, start = 0, end = this.length) {
      const count = Math.max(Math.min(end, this.length) - start, 0), bytes = Uint8Array.from(this.slice(start, start + Math.min(count, target.length - targetStart)));
      for (let at = 0; at < bytes.length; at++) target[targetStart + at] = bytes[at];
      return bytes.length;
    },
    fill(value, start, end, encoding) {
      if (typeof start === "string") (encoding = start), (start = undefined), (end = undefined);
      else if (typeof end === "string") (encoding = end), (end = undefined);
      if (typeof value !== "string" && !(value instanceof Uint8Array)) return fillBytes.call(this, value & 255, start, end);
      const bytes = typeof value === "string" ? Buffer.from(value, encoding) : value;
      const from = position(start, 0, this.length), to = position(end, this.length, this.length);
      for (let at = from; at < to; at++) this[at] = bytes.length ? bytes[(at - from) % bytes.length] : 0;
      return this;
    },
    write(text, offset, length, encoding) {
      if (typeof offset === "string") (encoding = offset), (offset = undefined), (length = undefined);
      else if (typeof length === "string") (encoding = length), (length = undefined);
      const from = offset >>> 0, bytes = bytesOf(text, encodingOf(encoding));
      if (from > this.length) throw new RangeError("Attempt to write outside buffer bounds");
      const count = Math.min(bytes.length, this.length - from, length === undefined ? Infinity : length);
      for (let at = 0; at < count; at++) this[from + at] = bytes[at];
      return count;
    },
    indexOf(value, from, encoding) {
      return search(this, value, from, encoding, 1);
    },
    lastIndexOf(value, from, encoding) {
      return search(this, value, from, encoding, -1);
    },
    includes(value, from, encoding) {
      return search(this, value, from, encoding, 1) !== -1;
    },
    swap16() {
      return swap(this, 2);
    },
    swap32() {
      return swap(this, 4);
    },
    swap64() {
      return swap(this, 8);
    },
  };
  methods.subarray = methods.slice;
  methods.toLocaleString = methods.toString;
  methods.inspect = function () {
    return `<Buffer ${this.toString("hex").replace(/(.{2})(?=.)/g, "$1 ")}>`;
  };

  // Numbers of 1, 2, 4 and 8 bytes.
  const place = (buffer, offset, size) => {
    if (offset === undefined) offset = 0;
    if (typeof offset !== "number") throw new TypeError('The "offset" argument must be of type number');
    if (offset % 1 || offset < 0 || offset !== offset) throw new RangeError("offset is not uint");
    if (offset + size > buffer.length) throw new RangeError("Trying to access beyond buffer length");
    return new DataView(buffer.buffer, buffer.byteOffset + offset, size);
  };
  const checked = (value, low, high) => {
    if (value > high || value < low) throw new RangeError('"value" argument is out of bounds');
    return value;
  };
  const number = (name, type, size, low, high) => {
    for (const order of size > 1 ? ["LE", "BE"] : [""]) {
      const read = function (offset) {
        return place(this, offset, size)[`get${type}`](0, order === "LE");
      };
      const write = function (value, offset = 0) {
        place(this, offset, size)[`set${type}`](0, low === undefined ? value : checked(value, low, high), order === "LE");
        return offset + size;
      };
      for (const alias of [name, name.replace("UInt", "Uint")]) (methods[`read${alias}${order}`] = read), (methods[`write${alias}${order}`] = write);
    }
  };
  for (const size of [1, 2, 4]) {
    const bits = size * 8;
    number(`UInt${bits}`, `Uint${bits}`, size, 0, 2 ** bits - 1);
    number(`Int${bits}`, `Int${bits}`, size, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1);
  }
  number("BigUInt64", "BigUint64", 8, 0n, 2n ** 64n - 1n);
  number("BigInt64", "BigInt64", 8, -(2n ** 63n), 2n ** 63n - 1n);
  number("Float", "Float32", 4);
  number("Double", "Float64", 8);

  // Whole numbers of 1 to 6 bytes.
  const size = (length) => {
    if (!Number.isInteger(length) || length < 1 || length > 6) throw new RangeError('The value of "byteLength" is out of range');
    return length;
  };
  const whole = (name, signed) => {
    for (const order of ["LE", "BE"]) {
      const index = (at, length) => (order === "BE" ? at : length - 1 - at);
      const read = function (offset, length) {
        const view = place(this, offset, size(length));
        let value = 0;
        for (let at = 0; at < length; at++) value = value * 256 + view.getUint8(index(at, length));
        return signed && value >= 2 ** (8 * length - 1) ? value - 2 ** (8 * length) : value;
      };
      const write = function (value, offset, length) {
        const view = place(this, offset, size(length)), most = 2 ** (8 * length - (signed ? 1 : 0));
        let left = Math.trunc(checked(+value, signed ? -most : 0, most - 1));
        if (left < 0) left += 2 ** (8 * length);
        for (let at = length - 1; at >= 0; at--) view.setUint8(index(at, length), left % 256), (left = Math.floor(left / 256));
        return offset + length;
      };
      for (const alias of [name, name.replace("UInt", "Uint")]) (methods[`read${alias}${order}`] = read), (methods[`write${alias}${order}`] = write);
    }
  };
  whole("UInt", false);
  whole("Int", true);

  const add = (target, members) => {
    for (const [name, value] of Object.entries(members)) Object.defineProperty(target, name, { value, writable: true, enumerable: false, configurable: true });
  };
  add(Buffer, staticMethods);
  add(Buffer.prototype, methods);
  add(globalThis, { Buffer });
})();
