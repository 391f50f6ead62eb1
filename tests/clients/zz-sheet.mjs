import packed from "@sparticuz/chromium"; import { chromium } from "playwright-core"; import { readFile } from "node:fs/promises";
const [out, width, ...names] = process.argv.slice(2);
const b = await chromium.launch({ executablePath: await packed.executablePath(), args: packed.args, headless: true });
const p = await b.newPage({ viewport: { width: 1600, height: 800 } });
const imgs = await Promise.all(names.map(async n => `<figure style="margin:3px;display:inline-block"><img width="${width}" src="data:image/png;base64,${(await readFile(`/tmp/cf-shots/${n}.png`)).toString("base64")}"></figure>`));
await p.setContent(`<body style="margin:0;background:#888;font-size:0">${imgs.join("")}</body>`);
await p.screenshot({ path: out, fullPage: true }); await b.close();
