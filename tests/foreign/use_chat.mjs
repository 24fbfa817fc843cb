// Pages with `useChat` of the AI SDK, without a browser: `Chat` of @ai-sdk/react is what the hook holds.
// Commands come as lines of JSON, each is answered by one: {"op": "open", "page": "a", ...}.
import { createInterface } from "node:readline";

const [version, token] = process.argv.slice(2);
const own = version === "6";
const ai = await import(own ? "ai" : `ai-${version}`);
const { Chat } = await import(own ? "@ai-sdk/react" : `ai-react-${version}`);

const tools = {
  get_weather: { description: "The weather of a city.", inputSchema: { type: "object", properties: { city: { type: "string" } } } },
};
const pages = new Map();

function transportTo(address, secret) {
  return new ai.DefaultChatTransport({
    api: `http://${address}/aisdk/chat`,
    headers: { Authorization: `Bearer ${secret ?? token}` },
    body: { tools },
  });
}

function open({ page, chat: id, address, messages = [], secret, answers = true }) {
  const transport = transportTo(address, secret);
  const calls = [];
  const chat = new Chat({
    id,
    messages,
    transport,
    onToolCall({ toolCall }) {
      calls.push(toolCall.input);
      if (!answers) return;
      const output = { city: toolCall.input.city, weather: "rain" };
      chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output });
    },
    sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithToolCalls,
    onError() {},
  });
  pages.set(page, { chat, calls, transport, open: 0 });
}

// Begins what a person does; the page rests when all of it is done.
function begin(page, act) {
  const entry = pages.get(page);
  entry.open++;
  act(entry.chat).finally(() => entry.open--);
}

// The parts of a stream as the library reads them: the last form of its message, or an error.
async function whole(stream) {
  let message = null;
  let failed = "";
  const onError = (error) => (failed = error.message);
  for await (const one of ai.readUIMessageStream({ stream, onError })) message = one;
  return { message, failed };
}

const operations = {
  open,
  send({ page, ...message }) {
    begin(page, (chat) => chat.sendMessage(message));
  },
  resume({ page }) {
    begin(page, (chat) => chat.resumeStream());
  },
  async stop({ page }) {
    await pages.get(page).chat.stop();
  },
  regenerate({ page }) {
    begin(page, (chat) => chat.regenerate());
  },
  state({ page }) {
    const { chat, calls, open } = pages.get(page);
    return { status: open ? "at work" : chat.status, error: chat.error?.message ?? "", messages: chat.messages, calls };
  },
  // The same request once more, as a proxy or a person might send it.
  async again({ page, messages }) {
    const { chat, transport } = pages.get(page);
    return await whole(await transport.sendMessages({ chatId: chat.id, messages, trigger: "submit-message" }));
  },
  async parse({ data }) {
    const stream = new Blob([data]).stream();
    return await whole(transportTo("").processResponseStream(stream));
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...fields } = JSON.parse(line);
  let reply;
  try {
    reply = { result: (await operations[op](fields)) ?? null };
  } catch (error) {
    reply = { error: `${error.stack}` };
  }
  console.log(JSON.stringify(reply));
}
process.exit(0);
