"""A provider that streams chat completions: first a call of `read`, then an answer. Prints its port."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USAGE = {"prompt_tokens": 120, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 64},
         "completion_tokens_details": {"reasoning_tokens": 12}}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        has_result = any(message["role"] == "tool" for message in request["messages"])
        call = {"index": 0, "id": "call_needle", "type": "function",
                "function": {"name": "read", "arguments": '{"path": "hay.txt"}'}}
        deltas = [{"content": "The needle is "}, {"content": "in hay.txt."}] if has_result else [{"tool_calls": [call]}]
        finish = "stop" if has_result else "tool_calls"
        chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        chunks.append({"choices": [], "usage": USAGE})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"data: {json.dumps({'id': 'x', 'model': 'large-2026', **chunk})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
