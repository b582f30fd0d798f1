"""Uses agents as models with OpenAI's Python library."""

import os

from openai import BadRequestError, NotFoundError, OpenAI

client = OpenAI(base_url=os.environ["HOMING_URL"] + "v1", api_key=os.environ["HOMING_TOKEN"], max_retries=0)
names = [model.id for model in client.models.list()]
assert "explore" in names, names
ask = [{"role": "user", "content": "needle"}]
whole = client.chat.completions.create(model="explore", messages=ask)
assert "hay.txt" in whole.choices[0].message.content and whole.choices[0].finish_reason == "stop", whole
assert whole.usage is not None
text = ""
for chunk in client.chat.completions.create(
    model="explore", messages=ask, stream=True, stream_options={"include_usage": True}
):
    text += "".join(choice.delta.content or "" for choice in chunk.choices)
    last = chunk
assert text == whole.choices[0].message.content and last.usage is not None, (text, last)
response = client.responses.create(model="explore", input="needle")
assert "hay.txt" in response.output_text and response.status == "completed", response
with client.responses.stream(model="explore", input="and again", previous_response_id=response.id) as stream:
    kinds = [event.type for event in stream]
    final = stream.get_final_response()
assert kinds[0] == "response.created" and kinds[-1] == "response.completed" and final.output_text, kinds
try:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    client.chat.completions.create(model="explore", messages=ask, tools=[tool])
    raise SystemExit("tools of the caller were accepted")
except BadRequestError as error:
    assert "tools of the caller" in str(error), error
try:
    client.chat.completions.create(model="gpt-99", messages=ask)
    raise SystemExit("an unknown model was accepted")
except NotFoundError:
    pass
print(f"{len(names)} agents")
