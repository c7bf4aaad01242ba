// Talks to an agent with nothing but fetch, and takes up its stream where a connection broke. Node.js 20 or later.
//
//   node examples/clients/client.mjs http://127.0.0.1:8080/a2a/trips "What do I pack?" "Oslo"

const [agent, ...texts] = process.argv.slice(2);
const ENDED = ["COMPLETED", "FAILED", "CANCELED", "REJECTED"].map((state) => `TASK_STATE_${state}`);
const WAITS = ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"];

async function call(method, params, headers = {}) {
  const response = await fetch(agent, {
    method: "POST",
    headers: { "Content-Type": "application/json", "A2A-Version": "1.0", ...headers },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  });
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    const { error } = await response.json();
    throw new Error(error?.message ?? `HTTP ${response.status}`);
  }
  return response.body.pipeThrough(new TextDecoderStream());
}

async function* eventsOf(stream) {
  let text = "";
  for await (const chunk of stream) {
    text += chunk;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const fields = new Map(block.split("\n").map((line) => line.split(/: (.*)/s)));
      if (fields.has("data")) yield { ...JSON.parse(fields.get("data")), id: fields.get("id") };
    }
  }
}

async function say(text, where) {
  const message = { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text }], ...where };
  let stream = await call("SendStreamingMessage", { message });
  let contextId, taskId, state, last;
  while (!ENDED.includes(state) && !WAITS.includes(state)) {
    try {
      for await (const { id, result, error } of eventsOf(stream)) {
        if (error) throw new Error(error.message);
        last = id ?? last;
        const { task, artifactUpdate, statusUpdate } = result;
        if (task) ({ id: taskId, contextId } = task);
        if (artifactUpdate) print(artifactUpdate.artifact.parts);
        if (statusUpdate) state = statusUpdate.status.state;
        if (WAITS.includes(state)) print(statusUpdate.status.message.parts);
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // what fetch throws for a lost connection
    }
    if (!ENDED.includes(state) && !WAITS.includes(state)) stream = await takeUp(taskId, last);
  }
  process.stdout.write("\n");
  return WAITS.includes(state) ? { contextId, taskId } : { contextId };
}

async function takeUp(taskId, last) {
  for (let wait = 500; ; wait *= 2) {
    try {
      return await call("SubscribeToTask", { id: taskId }, last ? { "Last-Event-ID": last } : {});
    } catch (error) {
      // A server that starts again refuses connections for some seconds.
      if (!(error instanceof TypeError) || wait > 30_000) throw error;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

function print(parts) {
  process.stdout.write(parts.map((part) => part.text ?? "").join(""));
}

let where = {};
for (const text of texts) where = await say(text, where);
