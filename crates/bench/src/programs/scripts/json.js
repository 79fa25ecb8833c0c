// Builds, writes and reads back a large JSON text.
const count = Number(process.argv[2]);
const records = [];
for (let i = 0; i < count; i++) {
  records.push({ id: i, name: `record ${i}`, tags: [i % 7, i % 11, i % 13], at: { x: i / 3, y: -i, ok: i % 2 === 0 } });
}
const text = JSON.stringify(records);
const again = JSON.parse(text);
let sum = 0;
for (const record of again) sum = (sum + record.id * record.tags[1] + record.name.length) % 1000000007;
console.log(text.length, sum);
