"""The Python SDK's client delegates through our server, over stdio and over HTTP: client.py HOMING FOLDER URL TOKEN."""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


def check(what: str, fine: bool) -> None:
    print(("passed: " if fine else "FAILED: ") + what)
    check.failed += not fine


check.failed = 0


async def converse(kind: str, read, write) -> None:
    progress = []

    async def on_progress(*news) -> None:
        progress.append(news)

    async with ClientSession(read, write, read_timeout_seconds=60) as session:
        hello = await session.initialize()
        check(f"{kind}: initialize", hello.server_info.name == "homing")
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        check(f"{kind}: tools", set(tools) == {"delegate", "wait", "tell", "cancel", "runs", "resume"})
        check(f"{kind}: agents", "explore" in tools["delegate"].input_schema["properties"]["agent"]["enum"])
        task = {"agent": "explore", "task": "where is the needle?"}
        # This client checks structured content against the schema that the tool promised.
        result = await session.call_tool("delegate", task, progress_callback=on_progress)
        envelope = result.structured_content
        done = not result.is_error and envelope["status"] == "done" and "hay.txt" in envelope["output"]
        check(f"{kind}: delegate", done)
        check(f"{kind}: progress", len(progress) > 0)
        started = await session.call_tool("delegate", {**task, "background": True})
        run = started.structured_content["run"]
        waited = await session.call_tool("wait", {"runs": [run]})
        check(f"{kind}: background and wait", waited.structured_content["runs"][0]["status"] == "done")
        listed = await session.call_tool("runs", {})
        check(f"{kind}: runs", len(listed.structured_content["runs"]) >= 2)
        resources = [str(it.uri) for it in (await session.list_resources()).resources]
        check(f"{kind}: resources", f"homing://runs/{run}/transcript" in resources)
        text = (await session.read_resource(f"homing://runs/{run}")).contents[0].text
        check(f"{kind}: read a result", '"status": "done"' in text)
        nobody = await session.call_tool("cancel", {"run": "019a0000-0000-7000-8000-000000000000"})
        check(f"{kind}: a run that is not ours", nobody.is_error)


async def main(homing: str, folder: str, url: str, token: str) -> None:
    params = StdioServerParameters(command=homing, args=["mcp", "--model", "offline"], cwd=folder)
    async with stdio_client(params) as (read, write):
        await converse("stdio", read, write)
    async with create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http:
        async with streamable_http_client(url, http_client=http) as streams:
            await converse("http", streams[0], streams[1])


asyncio.run(main(*sys.argv[1:]))
sys.exit(min(check.failed, 1))
