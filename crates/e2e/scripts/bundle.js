// What a bundler does: reads many modules, rewrites and joins them, and writes one file with a map.
'use strict';
const fs = require('fs');
const path = require('path');
const crypto = require('crypto');
const zlib = require('zlib');
const dir = fs.mkdtempSync('bundle-');
const N = 1500;
for (let i = 0; i < N; i++) {
  const imports = [i * 2 + 1, i * 2 + 2].filter((k) => k < N).map((k) => `const m${k} = require('./m${k}.js');\n`);
  const body = Array.from({ length: 40 }, (_, k) => `function f${k}(a, b) { /* ${'x'.repeat(60)} */ return a * ${k} + b - ${i}; }\n`);
  fs.writeFileSync(path.join(dir, `m${i}.js`), imports.join('') + body.join('') + 'module.exports = { f0, f1 };\n');
}
for (let round = 0; round < 3; round++) {
  const seen = new Map();
  const visit = (name) => {
    if (seen.has(name)) return;
    const text = fs.readFileSync(path.join(dir, name), 'utf8');
    const tokens = text.match(/[A-Za-z_$][\w$]*|\d+|'[^']*'|\/\*[\s\S]*?\*\/|\S/g).filter((token) => !token.startsWith('/*'));
    seen.set(name, tokens);
    for (const found of text.matchAll(/require\('\.\/(.*?)'\)/g)) visit(found[1]);
  };
  visit('m0.js');
  let bundle = '';
  const map = [];
  for (const [name, tokens] of seen) {
    map.push({ name, at: bundle.length, tokens: tokens.length });
    bundle += `define(${JSON.stringify(name)},()=>{${tokens.join(' ')}});\n`;
  }
  const packed = zlib.gzipSync(bundle, { level: 5 });
  const hash = crypto.createHash('sha256').update(bundle).update(JSON.stringify(map)).digest('hex');
  console.log(round, seen.size, bundle.length, hash, zlib.gunzipSync(packed).toString() === bundle);
}
fs.rmSync(dir, { recursive: true });
