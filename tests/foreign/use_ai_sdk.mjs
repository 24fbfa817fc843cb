// The AI SDK with its provider for OpenAI's protocol, and OpenAI's client for JavaScript.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const [address, token] = process.argv.slice(2);
const baseURL = `http://${address}/v1`;
const shoal = createOpenAICompatible({ name: "shoal", baseURL, apiKey: token, supportsStructuredOutputs: true, includeUsage: true });
const model = shoal("shoal");
const maxRetries = 0;
const found = {};

const whole = await generateText({ model, prompt: "weather", maxRetries });
found.chat = whole.text;
found.usage = whole.usage.inputTokens > 0;
const stream = streamText({ model, prompt: "weather", maxRetries });
found.stream = "";
for await (const piece of stream.textStream) found.stream += piece;
found["stream usage"] = (await stream.usage).inputTokens > 0;
const weather = tool({ description: "The weather of a city.", inputSchema: z.object({ city: z.string() }), execute: () => "rain" });
found.tools = (await generateText({ model, prompt: "weather", tools: { weather }, maxRetries })).text;
found.stop = (await generateText({ model, prompt: "count", stopSequences: ["END"], maxOutputTokens: 100, maxRetries })).text;
const schema = z.object({ city: z.string(), people: z.number() });
found.schema = (await generateText({ model, prompt: "city", output: Output.object({ schema }), maxRetries })).output;
try {
  await generateText({ model, prompt: "refuse", maxRetries });
} catch (error) {
  found["refused by the provider"] = [error.statusCode, error.isRetryable];
}

const client = new OpenAI({ baseURL, apiKey: token, maxRetries });
const asked = { model: "shoal", messages: [{ role: "user", content: "weather" }] };
found["openai chat"] = (await client.chat.completions.create(asked)).choices[0].message.content;
found["openai stream"] = "";
for await (const piece of await client.chat.completions.create({ ...asked, stream: true })) {
  found["openai stream"] += piece.choices[0].delta.content ?? "";
}
const response = await client.responses.create({ model: "shoal", input: "weather" });
found["openai response"] = response.output_text;
found["openai response streamed"] = "";
for await (const event of await client.responses.create({ model: "shoal", input: "weather", stream: true })) {
  if (event.type === "response.output_text.delta") found["openai response streamed"] += event.delta;
}
found["openai response read again"] = (await client.responses.retrieve(response.id)).output_text;
try {
  await client.chat.completions.create({ ...asked, model: "gpt-4o" });
} catch (error) {
  found["no such model"] = [error.constructor.name, error.status, error.code];
}
console.log(JSON.stringify(found));
