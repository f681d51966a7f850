// The real BullMQ as a program that the tests talk to: a JSON document per line in and out.
//
//   node peer.mjs '{"major": 6, "ports": [6379], "isCluster": false}'
//
// Commands: begin, add, bulk, work, job, counts, pause, resume, limit, result, board. Each is answered by one
// line; a worker prints one more for every job that it begins or ends. `begin` starts a test: another
// prefix, and none of the workers of the last test.

import { createInterface } from "node:readline";
import { Cluster, Redis } from "ioredis";

const plan = JSON.parse(process.argv[2]);
const { Queue, Worker, QueueEvents } = await import(plan.major === 5 ? "bullmq5" : "bullmq");

function connect() {
  const nodes = plan.ports.map((port) => ({ host: "127.0.0.1", port }));
  return plan.isCluster
    ? new Cluster(nodes, { redisOptions: { maxRetriesPerRequest: null } })
    : new Redis({ ...nodes[0], maxRetriesPerRequest: null });
}

const queues = new Map();
let workers = [];
const print = (line) => console.log(JSON.stringify(line));

function queue(name) {
  if (!queues.has(name)) queues.set(name, new Queue(name, { connection: connect(), prefix: plan.prefix }));
  return queues.get(name);
}

async function work({ queue: name, mode, options = {} }) {
  const seen = new Map();
  const { prefix } = plan;
  // A worker of an earlier test may still end a job: no test hears of that.
  const say = (line) => prefix === plan.prefix && print(line);
  const worker = new Worker(
    name,
    async (job) => {
      seen.set(job.id, (seen.get(job.id) ?? 0) + 1);
      say({ event: "begun", id: job.id, name: job.name, data: job.data, opts: job.opts });
      if (mode === "hang") await new Promise(() => {});
      if (mode === "fail") throw new Error("no such channel");
      if (mode === "failOnce" && seen.get(job.id) === 1) throw new Error("try again");
      return { done: job.id };
    },
    { connection: connect(), prefix: plan.prefix, ...options },
  );
  worker.on("completed", (job) => say({ event: "completed", id: job.id }));
  worker.on("failed", (job, error) => say({ event: "failed", id: job?.id, error: error.message }));
  worker.on("stalled", (id) => say({ event: "stalled", id }));
  worker.on("error", (error) => say({ event: "error", error: error.message }));
  workers.push(worker);
  await worker.waitUntilReady();
  return {};
}

async function begin({ prefix }) {
  plan.prefix = prefix ?? plan.prefix;
  for (const one of [...workers, ...queues.values()]) one.close(true).catch(() => {});
  workers = [];
  queues.clear();
  return {};
}

async function describe({ queue: name, id }) {
  const job = await queue(name).getJob(id);
  if (!job) return { state: null };
  return { state: await job.getState(), job: job.asJSON(), returnvalue: job.returnvalue };
}

async function board({ queues: names }) {
  const { createBullBoard } = await import("@bull-board/api");
  const { BullMQAdapter } = await import("@bull-board/api/bullMQAdapter");
  const adapters = names.map((name) => new BullMQAdapter(queue(name)));
  let listed;
  const server = new Proxy(
    {},
    {
      get: (_, method) => (value) => {
        if (method === "setQueues") listed = value;
        return server;
      },
    },
  );
  createBullBoard({ queues: adapters, serverAdapter: server });
  const found = {};
  for (const [name, adapter] of listed) {
    found[name] = { counts: await adapter.getJobCounts(), ids: [] };
    const jobs = await adapter.getJobs(["prioritized", "delayed", "active", "completed"], 0, 100);
    found[name].ids = jobs.map((job) => job.toJSON().id);
  }
  return { listed: found };
}

const commands = {
  begin,
  add: async ({ queue: name, name: job, data, opts }) => ({ id: (await queue(name).add(job, data, opts)).id }),
  bulk: async ({ queue: name, jobs }) => ({ ids: (await queue(name).addBulk(jobs)).map((job) => job.id) }),
  work,
  job: describe,
  counts: async ({ queue: name }) => queue(name).getJobCounts(),
  pause: async ({ queue: name }) => (await queue(name).pause(), {}),
  // A global rate limit, or (`stop`) no job for so many milliseconds.
  limit: async ({ queue: name, max, duration, stop }) => {
    if (stop) await queue(name).rateLimit(stop);
    else await queue(name).setGlobalRateLimit(max, duration);
    return {};
  },
  resume: async ({ queue: name }) => (await queue(name).resume(), {}),
  // Waits for the result of a job as a Node API does.
  result: async ({ queue: name, id }) => {
    // From the first event on: the last one may come before the first read.
    const options = { connection: connect(), prefix: plan.prefix, lastEventId: "0-0" };
    const events = new QueueEvents(name, options);
    await events.waitUntilReady();
    print({ event: "listening", id });
    const job = await queue(name).getJob(id);
    try {
      return { result: await job.waitUntilFinished(events, 20_000) };
    } catch (error) {
      return { error: error.message };
    }
  },
  board,
};

print({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...given } = JSON.parse(line);
  try {
    print({ answer: await commands[command](given) });
  } catch (error) {
    print({ answer: { error: error.message } });
  }
}
process.exit(0);
