// An A2A 1.0 client for `A2AAgent` of @ag-ui/a2a (CopilotKit), which itself speaks A2A 0.3:
//
//   import { A2AAgent } from "@ag-ui/a2a";
//   import { GatewayClient } from "./a2a_client.mjs";
//   const agent = new A2AAgent({ a2aClient: new GatewayClient("http://localhost:8080/a2a/support") });
//
// That library shows the text and the tool calls of status messages, and nothing of artifacts. So artifacts become status
// messages here, and the parts of tool-calls/v1 become the `tool-call` and `tool-result` parts that it knows.

const TOOL_CALLS = "https://a2a-gateway.dev/extensions/tool-calls/v1";
const NOTED = new Set(["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);

export class GatewayClient {
  /** `url` is the agent's, `headers` go with every request. */
  constructor(url, headers = {}) {
    this.url = url;
    this.headers = headers;
  }

  async *sendMessageStream(params) {
    const response = await this.#post("SendStreamingMessage", params, "text/event-stream");
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
      throw new Error((await response.json()).error?.message ?? `HTTP ${response.status}`);
    }
    const translation = new Translation();
    for await (const event of eventsOf(response)) {
      if (event.error) throw new Error(event.error.message);
      yield* translation.of(event.result);
    }
  }

  async sendMessage(params) {
    const response = await this.#post("SendMessage", params, "application/json");
    const { result, error } = await response.json();
    if (error) return { jsonrpc: "2.0", id: 1, error };
    const [first] = new Translation().of(result);
    return { jsonrpc: "2.0", id: 1, result: first };
  }

  isErrorResponse(response) {
    return "error" in response;
  }

  async #post(method, params, accept) {
    const { message } = params;
    const parts = message.parts.map(({ kind, text, data }) => (kind === "text" ? { text } : { data }));
    const { messageId, contextId, taskId } = message;
    const sent = { messageId, contextId, taskId, role: "ROLE_USER", parts };
    return fetch(this.url, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        Accept: accept,
        "A2A-Version": "1.0",
        "A2A-Extensions": TOOL_CALLS,
        ...this.headers,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { message: sent } }),
    });
  }
}

/** Events of A2A 1.0 as those of 0.3 that @ag-ui/a2a can show. One for each stream. */
class Translation {
  #artifacts = new Map();

  *of(event) {
    if (event.task) {
      const { id, contextId, status } = event.task;
      yield { kind: "task", id, contextId, status: { state: state(status.state) } };
    } else if (event.message) {
      yield { ...message(event.message), parts: event.message.parts.map(part) };
    } else if (event.statusUpdate) {
      const { taskId, contextId, status } = event.statusUpdate;
      // What is said of the work would become text of the answer.
      const parts = (status.message?.parts ?? []).filter(({ text }) => text === undefined || !NOTED.has(status.state));
      yield statusUpdate(taskId, contextId, state(status.state), parts.map(part), status.message?.messageId);
    } else if (event.artifactUpdate) {
      const { taskId, contextId, artifact, append } = event.artifactUpdate;
      const before = append ? (this.#artifacts.get(artifact.artifactId) ?? "") : "";
      const said = artifact.parts.map((part) => part.text ?? "").join("");
      this.#artifacts.set(artifact.artifactId, before + said);
      const others = artifact.parts.filter(({ text }) => text === undefined).map(part);
      // The text so far, whole: the library takes off what it has shown already.
      const text = [...this.#artifacts.values()].join("");
      yield statusUpdate(taskId, contextId, "working", said ? [{ kind: "text", text }, ...others] : others);
    }
  }
}

function statusUpdate(taskId, contextId, state, parts, messageId = `${taskId}:answer`) {
  const message = parts.length ? { kind: "message", messageId, role: "agent", taskId, contextId, parts } : undefined;
  return { kind: "status-update", taskId, contextId, status: { state, message }, final: false };
}

function part({ text, data, url, raw, mediaType, filename, metadata }) {
  if (text !== undefined) return { kind: "text", text };
  if (metadata?.[TOOL_CALLS] && data.args) {
    return { kind: "data", data: { type: "tool-call", id: data.id, name: data.name, arguments: data.args } };
  }
  if (metadata?.[TOOL_CALLS] && data.response) {
    return { kind: "data", data: { type: "tool-result", toolCallId: data.id, payload: data.response } };
  }
  if (data !== undefined) return { kind: "data", data };
  return { kind: "file", file: { uri: url, bytes: raw, mimeType: mediaType, name: filename } };
}

function message({ messageId, contextId, taskId, role }) {
  return { kind: "message", messageId, contextId, taskId, role: role === "ROLE_USER" ? "user" : "agent" };
}

function state(name) {
  return name.replace("TASK_STATE_", "").toLowerCase().replace("_", "-");
}

async function* eventsOf(response) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of response.body) {
    rest += decoder.decode(chunk, { stream: true });
    const lines = rest.split(/\r?\n/);
    rest = lines.pop();
    // The gateway writes each event on one line.
    for (const line of lines) if (line.startsWith("data:")) yield JSON.parse(line.slice(5));
  }
}
