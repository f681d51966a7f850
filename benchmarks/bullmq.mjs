// BullMQ under the load of `make bench`: many submitters, each adds one job at a time and waits for it; one worker does all of them.
// Everything else is as BullMQ has it by default; finished jobs are kept, as gesta keeps its requests.
//
//   node bullmq.mjs '{"port": 6379, "requests": 20000, "submitters": 2000, "concurrency": 50, "textLength": 300}'
//
// prints one JSON document; ends with 1 when a job was not done, or not once.

import { createRequire } from "node:module";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const STALL_MS = 30_000;
const plan = JSON.parse(process.argv[2]);
const connection = { host: "127.0.0.1", port: plan.port, maxRetriesPerRequest: null };
const text = "x".repeat(plan.textLength);

const queue = new Queue("bench", { connection });
const worker = new Worker("bench", async (job) => job.id, { connection, concurrency: plan.concurrency });
await queue.waitUntilReady();
await worker.waitUntilReady();

const timesDone = new Map();
let lastDoneAt = performance.now();
const allDone = new Promise((resolve, reject) => {
  worker.on("completed", (job) => {
    timesDone.set(job.id, (timesDone.get(job.id) ?? 0) + 1);
    lastDoneAt = performance.now();
    if (timesDone.size === plan.requests) resolve();
  });
  worker.on("failed", (job, error) => reject(error));
  worker.on("error", reject);
  queue.on("error", reject);
  setInterval(() => {
    if (performance.now() - lastDoneAt > STALL_MS) reject(new Error(`nothing was done for ${STALL_MS} ms`));
  }, 1_000).unref();
});

let next = 0;
async function submit() {
  while (next < plan.requests) {
    const number = next++;
    await queue.add("note", { number, text });
  }
}

const startedAt = performance.now();
await Promise.all([allDone, ...Array.from({ length: Math.min(plan.submitters, plan.requests) }, submit)]);
const seconds = (performance.now() - startedAt) / 1000;

const kept = await queue.getCompletedCount();
const twice = [...timesDone.values()].filter((times) => times > 1).length;
if (kept !== plan.requests || twice > 0) throw new Error(`${kept} of ${plan.requests} jobs are kept as done, ${twice} were done twice`);

const server = new Redis(connection);
const version = /^valkey_version:(\S+)/m.exec(await server.info("server"))?.[1] ?? "of an unknown version";
await server.quit();
const { version: bullmq } = createRequire(import.meta.url)("bullmq/package.json");
console.log(
  JSON.stringify({
    peer: `BullMQ ${bullmq}`,
    runtime: `Node ${process.versions.node}`,
    store: `Valkey ${version}`,
    requests: plan.requests,
    requests_per_second: Math.round(plan.requests / seconds),
  }),
);
await worker.close();
await queue.close();
