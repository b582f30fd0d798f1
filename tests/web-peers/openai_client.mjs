// Uses agents as models with OpenAI's Node library.
import assert from "node:assert";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.HOMING_URL}v1`, apiKey: process.env.HOMING_TOKEN, maxRetries: 0 });
const names = [];
for await (const model of client.models.list()) names.push(model.id);
assert(names.includes("explore"), names.join());
const messages = [{ role: "user", content: "needle" }];
const whole = await client.chat.completions.create({ model: "explore", messages });
assert(whole.choices[0].message.content.includes("hay.txt"));
let text = "";
const stream = await client.chat.completions.create({ model: "explore", messages, stream: true });
for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
assert.equal(text, whole.choices[0].message.content);
const response = await client.responses.create({ model: "explore", input: "needle" });
assert(response.output_text.includes("hay.txt"));
const kinds = [];
for await (const event of await client.responses.create({ model: "explore", input: "needle", stream: true })) kinds.push(event.type);
assert.equal(kinds.at(-1), "response.completed");
await assert.rejects(
  client.chat.completions.create({ model: "explore", messages, tools: [{ type: "function", function: { name: "f" } }] }),
  /tools of the caller/,
);
console.log(`${names.length} agents`);
