// A lock at Redis, in Node.js, with what comes with it: node lock.mjs
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const ACQUIRE = `if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('incr', KEYS[1] .. ':token') end return 0`;
const RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
const ERRORS = { "held by another": "fail", "not held": "fail", "connect ": "fail", "*": "info" };

// CLOCK_BOOTTIME, which no fault moves, rounded down.
const now = () => Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]);
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

let config, socket, owner;

// Run a script once, on a connection that is kept, with one deadline.
function ask(script) {
  return new Promise((done, failed) => {
    const words = ["EVAL", script, "1", config.lock, owner, String(Math.round(config.ttl * 1000))];
    if (socket === undefined) {
      const [host, port] = config.endpoints[0];
      socket = connect({ host, port, noDelay: true });
    }
    const mine = socket;
    const end = (error) => {
      clearTimeout(limit);
      mine.removeAllListeners().on("error", () => {});
      mine.destroy(); // what comes late must not be taken for the next answer
      socket = undefined;
      failed(error);
    };
    const limit = setTimeout(() => end(new Error("no answer in time")), config.operation_seconds * 1000);
    mine.removeAllListeners().once("error", end);
    mine.once("close", () => end(new Error("closed")));
    mine.once("data", (data) => {
      clearTimeout(limit);
      const line = String(data).trim();
      line[0] === ":" ? done(Number(line.slice(1))) : failed(new Error("redis: " + line.slice(1)));
    });
    mine.write(`*${words.length}\r\n` + words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join(""));
  });
}

function failed(error) {
  const keys = Object.keys(ERRORS).filter((key) => key !== "*" && error.startsWith(key));
  const longest = keys.sort((a, b) => b.length - a.length)[0] ?? "*";
  return { type: ERRORS[longest], error };
}

async function acquire(wait) {
  owner = randomBytes(12).toString("hex");
  for (const end = now() + wait; ; await sleep(50)) {
    const sent = now(); // before the request: from then on the lease may count
    const token = await ask(ACQUIRE);
    if (token > 0) return { type: "ok", token, since: { at: sent } };
    if (now() >= end) return failed("held by another");
  }
}

async function compared(script) {
  if (await ask(script)) return { type: "ok", proves: true };
  return { ...failed("not held"), held: false }; // the script compared the owner: it is the service's word
}

for await (const line of createInterface({ input: process.stdin })) {
  const said = JSON.parse(line);
  if (config === undefined) {
    config = said;
    const what = { library: "redis by hand", version: "1", language: "Node.js " + process.version };
    say({ hello: { protocol: 1, ...what, renewals: "asked", tokens: true, expires: true, errors: ERRORS } });
    continue;
  }
  const todo = { acquire: () => acquire(said.wait), renew: () => compared(RENEW), release: () => compared(RELEASE) };
  const answer = await todo[said.do]().catch((error) => failed(error.message || String(error)));
  say({ id: said.id, ...answer });
}
process.exit(0);
