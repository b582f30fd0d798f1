"""A model provider on loopback for real CLIs: it calls our `delegate` once and then repeats what came back.

It speaks Anthropic messages and OpenAI responses, streamed, and prints its address: mock.py LOG."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TASK = {"agent": "explore", "task": "where is the needle?"}


def delegate_in(tools: list, inside: str = "") -> tuple[str, str] | None:
    """The name under which a client offers our tool, and the namespace it stands in, if any."""
    for tool in tools:
        if found := delegate_in(tool.get("tools", []), tool.get("name", "")):
            return found
        name = tool.get("name", "")
        if name.endswith("homing__delegate") or (name == "delegate" and "homing" in inside):
            return name, inside
    return None


def anthropic(request: dict) -> list[tuple[str, dict]]:
    parts = [part for message in request["messages"] if isinstance(message["content"], list) for part in message["content"]]
    results = [part for part in parts if part.get("type") == "tool_result"]
    tool = delegate_in(request.get("tools", []))
    if tool and not results:
        block = {"type": "tool_use", "id": "toolu_1", "name": tool[0], "input": {}}
        delta, stop = {"type": "input_json_delta", "partial_json": json.dumps(TASK)}, "tool_use"
    else:
        text = "It came back: " + json.dumps([it.get("content") for it in results]) if results else "Nothing to do."
        block, delta, stop = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}, "end_turn"
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request.get("model", "mock"), "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}
    return [
        ("message_start", {"type": "message_start", "message": message}),
        ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}),
        ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}),
        ("content_block_stop", {"type": "content_block_stop", "index": 0}),
        ("message_delta", {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}),
        ("message_stop", {"type": "message_stop"}),
    ]


def responses(request: dict) -> list[tuple[str, dict]]:
    results = [it for it in request["input"] if it.get("type") == "function_call_output"]
    tool = delegate_in(request.get("tools", []))
    if tool and not results:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool[0], "arguments": json.dumps(TASK)}
        if tool[1]:
            item["namespace"] = tool[1]
    else:
        text = "It came back: " + json.dumps([it["output"] for it in results]) if results else "Nothing to do."
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
             "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    done = {"id": "resp_1", "status": "completed", "output": [item], "usage": usage}
    return [
        ("response.created", {"type": "response.created", "response": {"id": "resp_1"}}),
        ("response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}),
        ("response.completed", {"type": "response.completed", "response": done}),
    ]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        with open(sys.argv[1], "a") as log:
            names = [(it.get("name"), [inner.get("name") for inner in it.get("tools", [])]) for it in body.get("tools", [])]
            print(self.path, json.dumps(names), file=log)
        if self.path.split("?")[0].endswith("/count_tokens"):
            return self.answer("application/json", b'{"input_tokens": 10}')
        events = anthropic(body) if "/messages" in self.path else responses(body)
        if body.get("stream") is False or ("/messages" in self.path and "stream" not in body):
            return self.answer("application/json", json.dumps(whole(events)).encode())
        text = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
        self.answer("text/event-stream", text.encode())

    def do_GET(self) -> None:
        self.answer("application/json", b'{"data": [], "models": []}')

    def do_HEAD(self) -> None:
        self.answer("application/json", b"")

    def answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


def whole(events: list[tuple[str, dict]]) -> dict:
    """An Anthropic answer in one piece, for the small questions that are not streamed."""
    message = dict(events[0][1]["message"])
    message["content"] = [{"type": "text", "text": "ok"}]
    message["stop_reason"] = "end_turn"
    return message


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
