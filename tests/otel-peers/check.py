"""Asks Phoenix what it shows of a run and of a team."""

import json
import sys
import time
import urllib.request

url = sys.argv[1]


def spans():
    with urllib.request.urlopen(f"{url}/v1/projects/default/spans?limit=1000") as response:
        return json.load(response)["data"]


for _ in range(120):
    found = spans()
    roots = [span for span in found if span["name"].startswith(("invoke_agent general", "invoke_workflow pair"))]
    if len(roots) == 2:
        break
    time.sleep(0.5)

passed = failed = 0


def check(what, is_true, shown=None):
    global passed, failed
    if is_true:
        passed += 1
        print(f"passed: {what}")
    else:
        failed += 1
        print(f"FAILED: {what}: {json.dumps(shown)[:2000]}")


def named(name):
    return [span for span in found if span["name"].startswith(name)]


run = (named("invoke_agent general") or [{"attributes": {}, "span_kind": None}])[0]
own = [span for span in found if span["context"]["trace_id"] == run.get("context", {}).get("trace_id")]
chats = [span for span in own if span["name"].startswith("chat ")]
tools = [span for span in own if span["name"].startswith("execute_tool ")]
of = run["attributes"]
check("a run is an agent", run["span_kind"] == "AGENT", run)
check("a run shows its task", "needle" in str(of.get("input.value")), of)
check("a run shows its answer", "hay.txt" in str(of.get("output.value")), of)
check("model calls are LLM spans below the run", chats and all(span["span_kind"] == "LLM" for span in chats), chats)
chats.sort(key=lambda span: span["start_time"])
first, last = (chats[0]["attributes"], chats[-1]["attributes"]) if len(chats) == 2 else ({}, {})
at = "llm.input_messages"
check("a model call shows the system prompt first", first.get(f"{at}.0.message.role") == "system", first)
check("then the task as the user's message", first.get(f"{at}.1.message.content") == "Where is the needle?", first)
call = "message.tool_calls.0.tool_call"
check("a reply shows its tool call with the provider's ID",
      (first.get(f"llm.output_messages.0.{call}.id"), first.get(f"llm.output_messages.0.{call}.function.name"))
      == ("call_needle", "read"), first)
check("the next request shows the call and its result",
      (last.get(f"{at}.2.{call}.id"), last.get(f"{at}.3.message.tool_call_id")) == ("call_needle", "call_needle"), last)
check("a model call shows its answer", last.get("llm.output_messages.0.message.content") == "The needle is in hay.txt.", last)
count = "llm.token_count"
tokens = [first.get(f"{count}.{kind}") for kind in ("prompt", "completion", "prompt_details.cache_read")]
check("tokens are shown, the cached ones too", tokens == [120, 30, 64], first)
check("reasoning tokens and the time to the first token are kept",
      last.get("gen_ai.usage.reasoning.output_tokens") == 12
      and "gen_ai.response.time_to_first_chunk" in last, last)
tool = tools[0]["attributes"] if tools else {}
check("a tool call is a TOOL span with its ID, arguments and result",
      tools and tools[0]["span_kind"] == "TOOL"
      and (tool.get("tool.id"), tool.get("tool.parameters.path")) == ("call_needle", "hay.txt")
      and "the needle is here" in tool.get("output.value", ""), tools)
team = (named("invoke_workflow pair") or [{}])[0]
trace = team.get("context", {}).get("trace_id")
check("a team is a workflow in the trace of its caller", trace == "4bf92f3577b34da6a3ce929d0e0e4736", team)
members = [span for span in named("invoke_agent explore") if span["context"]["trace_id"] == trace]
check("its members are in the same trace", len(members) == 1, members)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
