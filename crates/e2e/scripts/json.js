// Large JSON there and back, with buffers of its own.
'use strict';
const crypto = require('crypto');
const hash = (data) => crypto.createHash('sha256').update(data).digest('hex');
for (let round = 0; round < 4; round++) {
  const rows = [];
  for (let i = 0; i < 150000; i++) rows.push({ id: i, name: `name ${i % 977}`, tags: ['a', `t${i % 31}`], v: i * 0.5 });
  const text = JSON.stringify(rows);
  const again = JSON.parse(text);
  again.sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : b.id - a.id);
  const buffer = Buffer.alloc(24 << 20);
  if (buffer.some((byte) => byte !== 0)) throw new Error('Buffer.alloc is not zero');
  buffer.write(text.slice(0, 1 << 20));
  console.log(round, text.length, hash(JSON.stringify(again)), hash(buffer));
}
