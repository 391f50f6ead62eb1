// A line an expression and its value in Node.js.
Buffer.from("0a0bzz", "hex").toString("hex") // "0a0b"
Buffer.from("AQI-_w", "base64").toString("hex") // "01023eff"
Buffer.from("aé€😀", "utf8").toString("hex") // "61c3a9e282acf09f9880"
Buffer.from("61c3a9e282acf09f9880ff", "hex").toString() // "aé€😀�"
Buffer.from("e282", "hex").toString("utf-8") // "�"
Buffer.from([1, 257, -1, 2.7]).toString("base64") // "AQH/Ag=="
Buffer.from("ÿa", "latin1").toString("binary") // "ÿa"
Buffer.from("hé", "ascii").toString("hex") // "68e9"
Buffer.from("ab", "utf16le").toString("hex") // "61006200"
Buffer.from("6100e900", "hex").toString("ucs2") // "aé"
Buffer.from(Buffer.from([1, 2])).equals(Buffer.from([1, 2])) // true
Buffer.from(new Uint8Array([1, 2, 3]).buffer, 1, 1).toString("hex") // "02"
Buffer.from({ type: "Buffer", data: [7, 8] }).toString("hex") // "0708"
Buffer.alloc(4, "ab").toString() // "abab"
Buffer.alloc(3, 257).toString("hex") // "010101"
new Buffer([1, 2]).length // 2
JSON.stringify(Buffer.from([1])) // "{\"type\":\"Buffer\",\"data\":[1]}"
Buffer.concat([Buffer.from([1]), Buffer.from([2, 3])]).toString("hex") // "010203"
Buffer.concat([Buffer.from([1, 2, 3])], 2).toString("hex") // "0102"
Buffer.byteLength("é€") // 5
Buffer.isBuffer(Buffer.alloc(1)) && !Buffer.isBuffer(new Uint8Array(1)) // true
Buffer.isEncoding("UTF-8") && !Buffer.isEncoding("no") // true
Buffer.compare(Buffer.from([1, 2]), Buffer.from([1, 3])) // -1
Buffer.from([1, 2, 3, 4]).slice(-3, -1).toString("hex") // "0203"
(() => { const b = Buffer.from([1, 2]); b.slice(0, 1)[0] = 9; return b[0] })() // 9
Buffer.from([1, 2, 3]).subarray(1).readUInt8() // 2
Buffer.from([1, 2, 3]).map((x) => x * 2).toString("hex") // "020406"
[...Buffer.from([1, 2]).entries()] // [[0,1],[1,2]]
Buffer.from([1, 2, 3]).indexOf(3) // 2
Buffer.from("abcab").lastIndexOf("ab") // 3
Buffer.from("abc").includes("bc") // true
Buffer.from("abc").indexOf("z") // -1
Buffer.from("abcab").indexOf("ab", 1) // 3
(() => { const b = Buffer.alloc(4); return [b.write("hi", 1), b.toString("hex")] })() // [2,"00686900"]
(() => { const b = Buffer.alloc(3); return [Buffer.from([1, 2]).copy(b, 1), b.toString("hex")] })() // [2,"000102"]
Buffer.from([1, 2, 3, 4]).swap16().toString("hex") // "02010403"
Buffer.from([1, 2, 3, 4]).swap32().toString("hex") // "04030201"
Buffer.from([0xff, 0x80]).readInt16BE(0) // -128
Buffer.from([0xff, 0x80]).readInt16LE(0) // -32513
Buffer.from([0xff, 0x80]).readUInt16LE() // 33023
Buffer.from([1, 2, 3, 4]).readUint32BE(0) // 16909060
Buffer.from([0xff, 0xff, 0xff, 0xfe]).readInt32BE(0) // -2
Buffer.from([0xc0, 0x49, 0x0f, 0xdb]).readFloatBE(0) // -3.1415927410125732
Buffer.from([0, 0, 0, 0, 0, 0, 0xf0, 0x3f]).readDoubleLE(0) // 1
Buffer.from([1, 2, 3]).readUIntBE(0, 3) // 66051
Buffer.from([0xfe, 0xff, 0xff]).readIntLE(0, 3) // -2
Buffer.from([1, 2, 3, 4, 5, 6]).readUIntLE(0, 6) // 6618611909121
String(Buffer.from([255, 255, 255, 255, 255, 255, 255, 254]).readBigInt64BE(0)) // "-2"
String(Buffer.from([0, 0, 0, 0, 0, 0, 1, 0]).readBigUInt64LE(0)) // "281474976710656"
(() => { const b = Buffer.alloc(8); return [b.writeUInt16BE(258, 0), b.writeInt32LE(-2, 2), b.writeInt8(-1, 6), b.toString("hex")] })() // [2,6,7,"0102feffffffff00"]
(() => { const b = Buffer.alloc(6); return [b.writeIntBE(-5, 0, 3), b.writeUIntLE(258, 3, 3), b.toString("hex")] })() // [3,6,"fffffb020100"]
(() => { const b = Buffer.alloc(8); b.writeDoubleBE(1.5); return b.toString("hex") })() // "3ff8000000000000"
(() => { try { Buffer.from([1]).readUInt16BE(0) } catch (error) { return error instanceof RangeError } })() // true
(() => { try { Buffer.alloc(1).writeUInt8(256, 0) } catch (error) { return error instanceof RangeError } })() // true
(() => { try { Buffer.from([1]).toString("no") } catch (error) { return error instanceof TypeError } })() // true
(() => { try { Buffer.from(5) } catch (error) { return error instanceof TypeError } })() // true
Buffer.from("abc").toString("utf8", 1, 2) // "b"
Buffer.from([5, 6]).fill(0, 1).toString("hex") // "0500"
Buffer.from("ab") instanceof Uint8Array // true
`${Buffer.from("ab")}` // "ab"
Array.from(Buffer.from([1, 2]).values()) // [1,2]
Buffer.from([3, 1, 2]).sort().toString("hex") // "010203"
Buffer.from([1, 2]).reverse().toString("hex") // "0201"
Buffer.from([1, 2]).readUIntBE(0, 2).toString(16) // "102"
Buffer.from([251, 255]).toString("base64url") // "-_8"
Buffer.from("-_8", "base64url").toString("hex") // "fbff"
