"""A provider on loopback whose replies are written in the system prompt: `SCRIPT=[reply, …]`, one JSON line. A run gets the reply
of its turn; the last one repeats. It logs each request with its key and times.

A reply is {"text": …}, {"calls": [[tool, arguments], …]}, {"pieces": [text, …], "pause": seconds between them}, or an error
{"status": 429, "times": 2, "retry_after": 1}, which is given `times` times before the reply after it. "delay" is in seconds. In texts
and arguments, $TASK is the last word of the task and $LAST the text of the latest message.
"""
import http.server, json, re, sys, threading, time

LOG = sys.argv[1]
LOCK = threading.Lock()
FAILED = {}


def text_of(message):
    content = message["content"] or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def filled(value, task, last):
    return json.loads(json.dumps(value).replace("$TASK", task).replace("$LAST", json.dumps(last)[1:-1]))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        began = time.time()
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_system = lambda message: message["role"] in ("system", "developer")
        system = "".join(text_of(message) for message in body["messages"] if is_system(message))
        messages = [message for message in body["messages"] if not is_system(message)]
        script = json.loads(re.search(r"SCRIPT=(.*)", system).group(1))
        reply, status = self.reply_of(script, sum(message["role"] == "assistant" for message in messages))
        task = text_of(next(message for message in messages if message["role"] == "user")).split()[-1]
        reply = filled(reply, task, text_of(messages[-1]))
        time.sleep(reply.get("delay", 0))
        try:
            self.fail(reply) if status != 200 else self.stream(reply)
        except OSError:
            pass
        entry = {"key": self.headers.get("idempotency-key"), "status": status, "began": began, "ended": time.time(), "task": task}
        with LOCK, open(LOG, "a") as log:
            log.write(json.dumps(entry) + "\n")

    def reply_of(self, script, turn):
        """The reply of a turn, and its status. Errors belong to the turn of the reply after them."""
        key, tried = self.headers.get("idempotency-key"), 0
        with LOCK:
            tried = FAILED.get(key, 0)
            FAILED[key] = tried + 1
        at = -1
        for entry in script:
            if "status" not in entry:
                at += 1
                if at == min(turn, sum("status" not in entry for entry in script) - 1):
                    return entry, 200
            elif at + 1 == turn:
                if tried < entry.get("times", 10**9):
                    return entry, entry["status"]
                tried -= entry["times"]
        return {"text": "the script has no reply"}, 200

    def fail(self, reply):
        body = json.dumps({"error": {"message": reply.get("message", "scripted"), "type": "scripted"}}).encode()
        self.send_response(reply["status"])
        if "retry_after" in reply:
            self.send_header("retry-after", str(reply["retry_after"]))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, reply):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        send = lambda chunk: (self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode()), self.wfile.flush())
        for piece in reply.get("pieces", [reply["text"]] if "text" in reply else []):
            send({"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": piece}}]})
            time.sleep(reply.get("pause", 0))
        calls = [{"index": i, "id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                 for i, (name, arguments) in enumerate(reply.get("calls", []))]
        delta = {"tool_calls": calls} if calls else {}
        send({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls" if calls else "stop"}]})
        send({"id": "x", "choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True

    def handle_error(self, *_):
        """A process that was killed leaves its connections behind."""


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()
