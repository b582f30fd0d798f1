// Runs an agent over AG-UI and checks every event with the schemas of @ag-ui/core.
import assert from "node:assert";
import { EventSchemas } from "@ag-ui/core/schemas";

const input = {
  threadId: "thread", runId: "run", messages: [{ id: "1", role: "user", content: "needle" }],
  tools: [], context: [], state: {}, forwardedProps: { agent: "explore" },
};
const response = await fetch(`${process.env.HOMING_URL}agui`, {
  method: "POST",
  headers: { authorization: `Bearer ${process.env.HOMING_TOKEN}`, "content-type": "application/json" },
  body: JSON.stringify(input),
});
assert.equal(response.status, 200);
const lines = (await response.text()).split("\n").filter((line) => line.startsWith("data: "));
const events = lines.map((line) => EventSchemas.parse(JSON.parse(line.slice(6))));
assert.equal(events[0].type, "RUN_STARTED");
assert.equal(events.at(-1).type, "RUN_FINISHED");
assert(events.some((event) => event.type === "TOOL_CALL_RESULT"));
console.log(`${events.length} events`);
