"""Stands in for a model: a Chat Completions server that calls one tool, then repeats its result.

python examples/approvals/model.py
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CALL = {
    "id": "call_1",
    "type": "function",
    "index": 0,
    "function": {"name": "pay", "arguments": '{"to": "ada", "amount": 25}'},
}


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        events = [{"delta": answer(request["messages"][-1]), "index": 0}]
        events.append(
            {"delta": {}, "index": 0, "finish_reason": "stop" if "content" in events[0]["delta"] else "tool_calls"}
        )
        chunks = [{"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [event]} for event in events]
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


def answer(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "assistant", "content": f"The bank says: {message['content']}"}
    return {"role": "assistant", "tool_calls": [CALL]}


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 9000), Model).serve_forever()
