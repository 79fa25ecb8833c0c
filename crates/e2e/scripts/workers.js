// Worker threads with heaps of their own, a shared array, and buffers that move between them.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const N = 1 << 20;
if (isMainThread) {
  const shared = new Int32Array(new SharedArrayBuffer(4 * N));
  const sums = [];
  const run = (i) => new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: { i, shared } });
    worker.on('message', (array) => { sums[i] = array.reduce((a, b) => a + b, 0); });
    worker.on('error', reject);
    worker.on('exit', resolve);
  });
  (async () => {
    for (let batch = 0; batch < 3; batch++) await Promise.all([0, 1, 2, 3].map((i) => run(batch * 4 + i)));
    console.log(sums.join(' '), shared.reduce((a, b) => a + b, 0));
  })();
} else {
  const { i, shared } = workerData;
  const own = new Float64Array(N).fill(i);
  for (let k = i; k < N; k += 12) Atomics.add(shared, k, 1);
  parentPort.postMessage(own, [own.buffer]);
}
