// A model whose replies follow from the task, over OpenAI's chat completions, streamed. Runs against it are real in everything
// but the model: browser tests and the pictures in docs/WEB.md use it.
//
// The first user message is a list of steps, one per line after "script:", such as
//   script:
//   delegate 3 explore | read README.md | say found it
//   bash git push
//   say done
// Each reply takes the next line. A task whose first line is a key of `scripts` follows that script. Any other task is answered
// with a text at once.
import { createServer } from "node:http";

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function step(task, turn, scripts) {
  const first = task.trim().split("\n")[0];
  const known = Object.keys(scripts).find((key) => first.startsWith(key));
  const script = known === undefined ? task.split(/^script:\n/m)[1] : scripts[known];
  if (script === undefined) return `say I looked at this: ${task.slice(0, 200)}`;
  const lines = script.split("\n").map((line) => line.trim()).filter(Boolean);
  return lines[turn] ?? "say done";
}

/** The calls and the text of one step. */
function reply(line, task) {
  const [word, ...rest] = line.split(" ");
  const text = rest.join(" ");
  const call = (name, args) => ({ name, args });
  switch (word) {
    case "delegate": {
      // delegate N AGENT | first step | second step
      const [head, ...steps] = text.split("|").map((part) => part.trim());
      const [number, agent] = head.split(" ");
      const title = task.split(/^script:\n/m)[0].trim();
      const tasks = Array.from({ length: Number(number) }, (_, index) => `${title}, part ${index + 1} of ${number}\nscript:\n${steps.join("\n").replaceAll("#", String(index + 1))}`);
      return { calls: tasks.map((one) => call("delegate", { agent, task: one })) };
    }
    // spawn AGENT: task one | task two
    case "spawn": {
      const [agent, tasks] = text.split(/: (.*)/s);
      return { calls: tasks.split("|").map((one) => call("delegate", { agent, task: one.trim() })) };
    }
    case "read": return { calls: [call("read", { path: text })] };
    case "bash": return { calls: [call("bash", { command: text, description: "a step of the script" })] };
    case "write": { const [path, ...body] = rest; return { calls: [call("write", { path, content: body.join(" ").replaceAll("\\n", "\n") })] }; }
    case "edit": { const [path, ...body] = rest; const [old, fresh] = body.join(" ").split("=>").map((part) => part.trim()); return { calls: [call("edit", { path, old, new: fresh })] }; }
    case "ask": return { calls: [call("ask", { question: text })] };
    case "wait": return { text: "I have waited.", delay: Number(rest[0]), calls: [call("ls", {})] };
    case "fail": return { status: 400 };
    case "busy": return { status: 429 };
    default: return { text: text.replaceAll("\\n", "\n") };
  }
}

export function startModel({ delay = 120, port = 0, scripts = {} } = {}) {
  const busy = new Set();
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    if (!request.url.endsWith("/chat/completions")) {
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ data: [{ id: "scripted" }] }));
      return;
    }
    const body = JSON.parse(Buffer.concat(chunks));
    const content = (message) => (typeof message.content === "string" ? message.content : (message.content ?? []).map((part) => part.text ?? "").join(""));
    const task = content(body.messages.find((message) => message.role === "user") ?? { content: "" });
    const turn = body.messages.filter((message) => message.role === "assistant").length;
    const line = step(task, turn, scripts);
    let said = reply(line, task);
    // A busy provider is busy once.
    if (said.status === 429 && busy.has(task + turn)) said = { text: "It went on." };
    busy.add(task + turn);
    if (said.status) {
      response.writeHead(said.status, { "content-type": "application/json", ...(said.status === 429 ? { "retry-after": "1" } : {}) });
      response.end(JSON.stringify({ error: { message: said.status === 400 ? "this model cannot do that" : "too many requests" } }));
      return;
    }
    // `fast` is a model without delays, for large trees.
    const pause = body.model === "fast" ? 0 : delay;
    await sleep(said.delay ?? pause);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (delta, more = {}) => response.write(`data: ${JSON.stringify({ id: "1", model: body.model, choices: [{ index: 0, delta, finish_reason: null }], ...more })}\n\n`);
    for (const word of (said.text ?? "").match(/\S+\s*/g) ?? []) {
      send({ content: word });
      if (pause) await sleep(Math.min(30, pause / 4));
    }
    (said.calls ?? []).forEach((call, index) => send({ tool_calls: [{ index, id: `call_${turn}_${index}`, type: "function", function: { name: call.name, arguments: JSON.stringify(call.args) } }] }));
    const size = JSON.stringify(body.messages).length;
    const usage = { prompt_tokens: Math.round(size / 4), completion_tokens: 40 + Math.round(line.length / 3), total_tokens: 0 };
    usage.total_tokens = usage.prompt_tokens + usage.completion_tokens;
    response.write(`data: ${JSON.stringify({ id: "1", model: body.model, choices: [{ index: 0, delta: {}, finish_reason: said.calls?.length ? "tool_calls" : "stop" }] })}\n\n`);
    response.write(`data: ${JSON.stringify({ id: "1", model: body.model, choices: [], usage })}\n\ndata: [DONE]\n\n`);
    response.end();
  });
  return new Promise((ready) => server.listen(port, "127.0.0.1", () => ready({ url: `http://127.0.0.1:${server.address().port}/v1`, close: () => { server.closeAllConnections(); server.close(); } })));
}

if (process.argv[1] === new URL(import.meta.url).pathname) console.log((await startModel({ port: Number(process.argv[2] ?? 0) })).url);
