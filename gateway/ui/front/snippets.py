"""What a developer types to reach an agent: lines for a shell, and programs with the official SDKs. Law: pure; a test runs
every one of them as it stands on the page.

A key is read from the variable that the command line reads as well. Texts of others stand in none.
"""

import json
from shlex import quote

import msgspec

KEY = "A2A_GATEWAY_KEY"
"""The variable of the environment that holds the caller's key."""

_BODY = '{"message": {"messageId": "hello-1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}}'


class Snippet(msgspec.Struct, frozen=True):
    """`language` is that of `text`; `needs` installs what it imports."""

    title: str
    language: str
    text: str
    needs: str = ""


def snippets(address: str, card: str, *, keyed: bool, talks: bool) -> tuple[Snippet, ...]:
    """`address` is that of the agent, `card` that of its card. `keyed`: callers authenticate. Only an agent that `talks` takes
    text, which the others send it."""
    shown = Snippet("curl: the card", "sh", f"curl {quote(card)}\n")
    if not talks:
        return (shown,)
    return (
        shown,
        Snippet("curl: a message and its answer", "sh", _curl(f"{address}/message:send", "", keyed=keyed)),
        Snippet("curl: the answer as it comes", "sh", _curl(f"{address}/message:stream", "--no-buffer ", keyed=keyed)),
        Snippet("Python: a2a-sdk", "python", _python(address, keyed=keyed), "pip install 'a2a-sdk>=1.3'"),
        Snippet("JavaScript: @a2a-js/sdk", "js", _javascript(card, keyed=keyed), "npm install @a2a-js/sdk@1"),
    )


def _curl(url: str, option: str, *, keyed: bool) -> str:
    lines = [
        f"curl {option}{quote(url)}",
        *([f'-H "Authorization: Bearer ${KEY}"'] if keyed else []),
        "-H 'A2A-Version: 1.0'",
        "-H 'Content-Type: application/json'",
        f"-d '{_BODY}'",
    ]
    return " \\\n  ".join(lines) + "\n"


def _python(address: str, *, keyed: bool) -> str:
    environment, key, headers = "", "", ""
    if keyed:
        environment, headers = "import os\n", "headers=headers, "
        key = f'    headers = {{"Authorization": "Bearer " + os.environ["{KEY}"]}}\n'
    return f"""\
import asyncio
{environment}from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest


async def main():
{key}    async with httpx.AsyncClient({headers}timeout=60) as http:
        card = await A2ACardResolver(http, {json.dumps(address)}).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text="Hello")])
        async for event in client.send_message(SendMessageRequest(message=message)):
            for said in (event.artifact_update.artifact, event.status_update.status.message, event.message):
                print("".join(part.text for part in said.parts), end="", flush=True)


asyncio.run(main())
"""


def _javascript(card: str, *, keyed: bool) -> str:
    key, options = "", ""
    if keyed:
        key = f"const serviceParameters = {{ Authorization: `Bearer ${{process.env.{KEY}}}` }};\n"
        options = ", { serviceParameters }"
    return f"""\
import {{ SendMessageRequest, StreamResponse }} from "@a2a-js/sdk";
import {{ ClientFactory }} from "@a2a-js/sdk/client";

{key}const card = {json.dumps(card)};
const client = await new ClientFactory().createFromUrl(card, "");
const request = SendMessageRequest.fromJSON({{
  message: {{ messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{{ text: "Hello" }}] }},
}});
for await (const event of client.sendMessageStream(request{options})) {{
  const {{ artifactUpdate, statusUpdate, message }} = StreamResponse.toJSON(event);
  for (const said of [artifactUpdate?.artifact, statusUpdate?.status?.message, message]) {{
    process.stdout.write((said?.parts ?? []).map((part) => part.text ?? "").join(""));
  }}
}}
"""
