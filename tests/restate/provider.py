"""A provider that answers as the role in the system prompt says, and logs each reply that it has finished, with the
idempotency key of the call, the API key (each worker has its own) and the times.

ROLE=lead delegates to three `mid`, ROLE=mid to two `leaf`, ROLE=leaf runs one command that must not run twice, ROLE=fan
delegates to COUNT `step`, ROLE=step makes three model calls. ROLE=asker asks the user, ROLE=listener waits and repeats the last
message that it got, ROLE=host delegates to one of them. ROLE=flaky fails twice before it answers.
"""
import http.server, json, re, sys, threading, time

LOG, DELAY, HOST = sys.argv[1], float(sys.argv[2]), sys.argv[3]
LOCK = threading.Lock()
FAILED = {}


def delegate(agent, tasks):
    return [("delegate", {"agent": agent, "task": task}) for task in tasks]


def text_of(message):
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def answer(system, messages):
    """The text and the calls of the next reply."""
    role = re.search(r"ROLE=(\w+)", system)
    task = next((m["content"] for m in messages if m["role"] == "user"), None)
    if not role or not task:
        # The last call within a limit may be shortened to almost nothing.
        return "that is all", []
    role = role.group(1)
    task = task if isinstance(task, str) else task[0]["text"]
    turn = sum(m["role"] == "assistant" for m in messages)
    name = task.split()[-1]
    if role == "lead" and turn == 0:
        return "", delegate("mid", [f"work on {name}.{i}" for i in range(3)])
    if role == "mid" and turn == 0:
        return "", delegate("leaf", [f"work on {name}.{i}" for i in range(2)])
    if role == "leaf" and turn == 0:
        return "", [("bash", {"command": f"echo {name} >> effects.log; sleep 0.3; echo {name} >> finished.log"})]
    if role == "asker" and turn == 0:
        return "", [("ask", {"question": f"Which colour for {name}?", "options": ["red", "green"]})]
    if role == "asker":
        return f"asker {name}: {text_of(messages[-1])}", []
    if role == "listener" and turn == 0:
        return "", [("bash", {"command": f"echo {name} >> effects.log; sleep 3; echo {name} >> finished.log"})]
    if role == "listener":
        told = [text_of(m) for m in messages if m["role"] == "user"]
        return f"listener {name} heard: {told[-1]}", []
    if role == "host" and turn == 0:
        return "", delegate(task.split()[0], [f"work on {name}.0"])
    if role == "host":
        return f"host {name} done: {text_of(messages[-1])}", []
    if role == "slow" and turn == 0:
        time.sleep(5)
    if role == "fan" and turn == 0:
        return "", delegate("step", [f"work on {name}.{i}" for i in range(int(task.split()[0]))])
    if role == "step" and turn < 2:
        return "", [("glob", {"pattern": f"nothing-{turn}"})]
    return f"{role} {name} done", []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        began = time.time()
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        messages = body["messages"]
        system = "".join(m["content"] if isinstance(m["content"], str) else m["content"][0]["text"]
                         for m in messages if m["role"] in ("system", "developer"))
        if "ROLE=flaky" in system and self.fails_first():
            return
        text, calls = answer(system, [m for m in messages if m["role"] not in ("system", "developer")])
        time.sleep(DELAY)
        delta = {"role": "assistant", "content": text or None}
        if calls:
            delta["tool_calls"] = [{"index": i, "id": f"c{i}", "type": "function",
                                    "function": {"name": name, "arguments": json.dumps(args)}}
                                   for i, (name, args) in enumerate(calls)]
        finish = "tool_calls" if calls else "stop"
        chunks = [{"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]},
                  {"id": "x", "choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}}]
        out = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        try:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(out.encode())))
            self.end_headers()
            self.wfile.write(out.encode())
            self.wfile.flush()
        except OSError:
            return
        entry = {"key": self.headers.get("idempotency-key"), "worker": self.headers.get("authorization", "").split()[-1],
                 "began": began, "ended": time.time()}
        with LOCK, open(LOG, "a") as log:
            log.write(json.dumps(entry) + "\n")

    def fails_first(self):
        """Answers the first two attempts at a call with an error that may be retried."""
        key = self.headers.get("idempotency-key")
        with LOCK:
            FAILED[key] = FAILED.get(key, 0) + 1
            if FAILED[key] > 2:
                return False
        self.send_response(503)
        self.send_header("content-length", "0")
        self.end_headers()
        return True


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 4096
    daemon_threads = True

    def handle_error(self, *_):
        """A worker that was killed leaves its connections behind."""


server = Server((HOST, 0), Handler)
print(f"http://{HOST}:{server.server_port}/v1", flush=True)
server.serve_forever()
