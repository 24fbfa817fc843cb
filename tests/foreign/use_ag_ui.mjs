// HttpAgent of AG-UI, told what to do by lines on stdin. It answers with lines: each event as it came, then the end.
import { createInterface } from "node:readline";
import { HttpAgent, verifyEvents } from "@ag-ui/client";
import { from, lastValueFrom, tap } from "rxjs";

const agents = new Map();
const warned = [];
console.warn = (...words) => warned.push(words.join(" "));
// A connection that breaks rejects the run, and also a promise of the client that nothing waits for.
process.on("unhandledRejection", () => {});
console.error = () => {};
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

// The events are noted before the client removes what it does not know, which it warns of.
class Noting extends HttpAgent {
  noted = [];
  run(input) {
    return super.run(input).pipe(tap((event) => { this.noted.push(event); say({ id: this.asked, event }); }));
  }
}

async function run({ id, agent: name, thread = name, url, token, add = [], without, ask }) {
  if (!agents.has(name)) agents.set(name, new Noting({ threadId: thread }));
  const agent = agents.get(name);
  Object.assign(agent, { url, headers: { Authorization: `Bearer ${token}` }, asked: id });
  if (without) agent.messages = [];
  agent.addMessages(add);
  const end = {};
  try {
    end.added = (await agent.runAgent(ask)).newMessages;
  } catch (error) {
    end.error = { status: error.status ?? null, payload: error.payload ?? null, message: error.message };
  }
  say({ id, end: { ...end, messages: agent.messages, warned } });
}

// All runs of one agent, one after the other, as a client that keeps them would check them.
async function verify({ id, agent }) {
  const end = {};
  try {
    await lastValueFrom(from(agents.get(agent).noted).pipe(verifyEvents(false)));
  } catch (error) {
    end.error = error.message;
  }
  say({ id, end: { ...end, warned } });
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  if (asked.do === "run") void run(asked);
  if (asked.do === "verify") void verify(asked);
  if (asked.do === "leave") agents.get(asked.agent).abortRun();
}
