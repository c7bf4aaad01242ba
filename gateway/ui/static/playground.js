// A client of the public wire: messages, streams, files, approvals, tools of the client, cancellation, and streams that are resumed.
// What others have written is put into the page as text, never as HTML.

import { events, WireError } from "./wire.js";

const $ = (id) => document.getElementById(id);
const play = $("play").dataset;
const params = new URLSearchParams(location.search);

const TERMINAL = new Set(["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"]);
const WAITING = new Set(["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"]);
const UNSEEN = new RegExp(play.unseen, "gu"); // the table of the pages
const CONFIRMATION = "adk_request_confirmation"; // the question of another kind of client
const LONGEST = 100_000;
const KEPT_EVENTS = 500;

const current = { task: play.task, state: "", last: "" };
const entries = new Map();

// --- text of others

function visible(text) {
  const cut = text.length > LONGEST ? `${text.slice(0, LONGEST)} … ${text.length - LONGEST} more characters` : text;
  return cut.replace(UNSEEN, (found) => `⟨${names([...found])}⟩`);
}

function names(characters) {
  const shown = characters.slice(0, play.named).map((each) => `U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
  const more = characters.length - shown.length;
  return shown.join(" ") + (more ? ` and ${more} more` : "");
}

function element(tag, text = "", more = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  return Object.assign(made, more);
}

function say(text) {
  if ($("status").textContent !== text) $("status").textContent = text;
}

// --- the conversation

function entry(key, who, kind = "") {
  let found = entries.get(key);
  if (!found) {
    const item = element("li", "", { className: kind });
    const body = element("span");
    const files = element("span");
    item.append(element("span", who, { className: "who" }), body, files);
    $("talk").append(item);
    found = { body, files, text: "" };
    entries.set(key, found);
  }
  return found;
}

function write(found, text, append) {
  found.text = append ? found.text + text : text;
  found.body.textContent = visible(found.text);
}

function file(found, part) {
  const name = part.filename || part.mediaType || "file";
  if (part.raw === undefined) {
    found.files.append(element("span", ` [${visible(name)} at ${visible(part.url)}]`));
    return;
  }
  const bytes = Uint8Array.from(atob(part.raw), (character) => character.charCodeAt(0));
  const link = element("a", `${visible(name)} (${bytes.length} bytes)`, {
    href: URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" })),
    download: name,
  });
  found.files.append(" ", link);
}

function clear(found) {
  for (const link of found.files.querySelectorAll("a")) URL.revokeObjectURL(link.href);
  found.files.replaceChildren();
  write(found, "", false);
}

// What does not append takes the place of what came before, such as of a message that was sent and comes back with its task.
function parts(key, list, who, kind, append = false) {
  if (!append && entries.has(key)) clear(entries.get(key));
  let text = "";
  for (const part of list ?? []) {
    const facts = part.metadata?.[play.extension];
    if (facts && part.data && (part.data.args || part.data.response)) {
      toolCall(part.data, facts);
    } else if (part.text !== undefined) {
      text += part.text;
    } else if (part.raw !== undefined || part.url !== undefined) {
      const found = entry(key, who, kind);
      if (found.files.childElementCount < 20) file(found, part);
    } else if (part.data !== undefined && part.data?.name !== CONFIRMATION) {
      text += JSON.stringify(part.data);
    }
  }
  if (text) write(entry(key, who, kind), text, append);
}

function toolCall(data, facts) {
  const found = entry(`tool:${data.id}`, `tool · ${facts.origin}${facts.server ? ` · ${visible(facts.server)}` : ""}`, "tool");
  found.call ??= `${data.name} ${JSON.stringify(data.args ?? {})}`;
  if (data.args) found.call = `${data.name} ${JSON.stringify(data.args)}`;
  if (data.response) found.outcome = JSON.stringify(data.response);
  phase(found, facts.phase);
}

function phase(found, name) {
  found.phase = name;
  write(found, `${found.call}\n${name}${found.outcome ? `: ${found.outcome}` : ""}`, false);
}

function message(given) {
  const mine = given.role === "ROLE_USER";
  parts(`message:${given.messageId}`, given.parts, mine ? "you" : "agent", mine ? "you" : "");
}

function showTask(task) {
  current.task = task.id;
  $("context").value = task.contextId;
  for (const each of task.history ?? []) message(each);
  for (const each of task.artifacts ?? []) parts(`artifact:${task.id}:${each.artifactId}`, each.parts, "agent", "");
  showStatus(task.status);
}

function showStatus(status, metadata) {
  current.state = status.state;
  const facts = metadata?.[play.extension];
  if (facts?.phase && entries.has(`tool:${facts.callId}`)) phase(entries.get(`tool:${facts.callId}`), facts.phase);
  if (status.message) message(status.message);
  const words = {
    TASK_STATE_SUBMITTED: "The task waits for its turn.",
    TASK_STATE_WORKING: "The agent works.",
    TASK_STATE_INPUT_REQUIRED: "The task waits for you.",
    TASK_STATE_AUTH_REQUIRED: "The task waits for your consent elsewhere.",
  };
  say(words[status.state] ?? `The task is ${status.state.replace("TASK_STATE_", "").toLowerCase()}.`);
  $("cancel").hidden = !status.state || TERMINAL.has(status.state);
  if (WAITING.has(status.state)) ask(status);
  else $("questions").replaceChildren();
  remember();
}

function remember() {
  const query = new URLSearchParams({ agent: $("agent").value });
  if ($("context").value) query.set("context", $("context").value);
  if (current.task) query.set("task", current.task);
  history.replaceState(null, "", `?${query}`);
  $("links").hidden = !current.task;
  $("tasklink").href = `/ui/tasks/${encodeURIComponent(current.task)}`;
}

// --- questions of a task that waits

function ask(status) {
  const facts = status.message?.metadata?.[play.extension] ?? {};
  // A task that is read anew tells nothing else of what its calls wait for.
  for (const id of [...(facts.approval?.tools ?? []).map((tool) => tool.id), ...(facts.consent?.links ?? []).map((link) => link.callId)]) {
    const found = entries.get(`tool:${id}`);
    if (found) phase(found, play.asking);
  }
  const asked = [
    ...(facts.approval?.tools ?? []).map((tool) => approval(tool)),
    ...(status.message?.parts ?? [])
      .filter((part) => part.metadata?.[play.extension]?.origin === "client" && part.data?.args)
      .map((part) => ownTool(part.data)),
  ];
  const box = element("div", "", { className: "notice" });
  box.setAttribute("aria-label", "Questions");
  box.setAttribute("role", "group");
  for (const link of facts.consent?.links ?? []) box.append(consent(link));
  const answers = new Map();
  for (const { id, made, decided } of asked) {
    box.append(made);
    decided((part) => {
      answers.set(id, part);
      if (answers.size === asked.length) send(joined([...answers.values()]));
    });
  }
  $("questions").replaceChildren(...(box.childNodes.length ? [box] : []));
}

// Decisions travel in one list, results of tools each in a part of its own.
function joined(answers) {
  const approvals = answers.filter((each) => each.approved !== undefined);
  const results = answers.filter((each) => each.approved === undefined);
  return [...(approvals.length ? [{ data: { approvals } }] : []), ...results];
}

function approval(tool) {
  const made = element("fieldset");
  const reason = element("input", "", { placeholder: "why not", maxLength: 500 });
  reason.setAttribute("aria-label", `Reason to refuse ${visible(tool.name)}`);
  const yes = element("button", "Allow", { type: "button", className: "main" });
  const no = element("button", "Refuse", { type: "button" });
  made.append(
    element("legend", `May ${visible(tool.tool ?? tool.name)} run?`),
    element("pre", visible(JSON.stringify(tool.args, null, 2))), yes, " ", no, " ", reason,
  );
  const decided = (then) => {
    const decide = (decision) => { made.disabled = true; then({ id: tool.id, ...decision }); };
    yes.onclick = () => decide({ approved: true });
    no.onclick = () => decide({ approved: false, ...(reason.value ? { reason: reason.value } : {}) });
  };
  return { id: tool.id, made, decided };
}

function ownTool(call) {
  const made = element("fieldset");
  const result = element("textarea", "", { className: "mono", value: '{"result": ""}' });
  result.setAttribute("aria-label", `Result of ${visible(call.name)}`);
  const fault = element("p", "", { className: "soft" });
  const button = element("button", "Send the result", { type: "button", className: "main" });
  made.append(
    element("legend", `Your tool ${visible(call.name)} is called`),
    element("pre", visible(JSON.stringify(call.args, null, 2))), result, button, fault,
  );
  const decided = (then) => {
    button.onclick = () => {
      try {
        const given = JSON.parse(result.value);
        const response = given && typeof given === "object" && !Array.isArray(given) ? given : { result: given };
        made.disabled = true;
        then({ data: { id: call.id, name: call.name, response }, metadata: { type: "function_response" } });
      } catch {
        fault.textContent = "This is no JSON.";
      }
    };
  };
  return { id: call.id, made, decided };
}

function consent(link) {
  const made = element("p", "");
  const address = URL.parse ? URL.parse(link.url) : new URL(link.url);
  if (address?.protocol === "https:" || address?.protocol === "http:") {
    made.append("Consent at ", element("a", visible(address.host), { href: address.href, target: "_blank", rel: "noopener noreferrer" }));
  }
  made.append(element("span", ` ${visible(link.text ?? "")} Then send any message.`));
  return made;
}

// --- the wire

function record(method, path, body) {
  const item = element("li");
  const details = element("details");
  const line = element("summary", `${method} ${path.split("?")[0].slice(0, 60)}`);
  const raw = element("pre", "");
  raw.tabIndex = 0;
  details.append(line, element("pre", curl(method, path, body)), raw);
  item.append(details);
  $("wire").append(item);
  let number = 0;
  return {
    status: (code) => { line.textContent += ` → ${code}`; },
    event: (id, data) => {
      number += 1;
      if (number <= KEPT_EVENTS) raw.append(visible(`${id ? `id: ${id}\n` : ""}${data}\n\n`));
      else if (number === KEPT_EVENTS + 1) raw.append("… more events are not kept here\n");
    },
  };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(method, path, body) {
  const words = ["curl", "-N", "-X", method, quoted(`${play.public}/${path}`), "-H", quoted(`A2A-Version: ${play.version}`)];
  words.push("-H", quoted(`A2A-Extensions: ${play.extension}`));
  if (play.keysAsked === "1") words.push("-H", '"Authorization: Bearer $A2A_GATEWAY_KEY"');
  if (body) words.push("-H", quoted("Content-Type: application/json"), "-d", quoted(body.length > 4000 ? `${body.slice(0, 4000)}…` : body));
  return visible(words.join(" "));
}

async function call(method, path, body, more = {}) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  const noted = record(method, path, text);
  const headers = { "a2a-version": play.version, "a2a-extensions": play.extension, "x-ui-token": play.token, ...more };
  if (text !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(`${play.wire}/${path}`, { method, headers, body: text });
  noted.status(answer.status);
  if (!answer.ok) {
    const said = await answer.text();
    noted.event("", said);
    throw new WireError(answer.status, said);
  }
  return { answer, noted };
}

async function listen({ answer, noted }) {
  for await (const { id, name, data } of events(answer.body)) {
    noted.event(id, data);
    if (id) current.last = id;
    const value = JSON.parse(data);
    if (name === "error") throw new WireError(0, data);
    if (value.task) showTask(value.task);
    if (value.message) { message(value.message); say("The agent has answered with a message alone."); }
    if (value.statusUpdate) {
      current.task = value.statusUpdate.taskId;
      showStatus(value.statusUpdate.status, value.statusUpdate.metadata);
    }
    if (value.artifactUpdate) {
      const { taskId, artifact, append } = value.artifactUpdate;
      parts(`artifact:${taskId}:${artifact.artifactId}`, artifact.parts, "agent", "", append);
    }
  }
}

// A stream that breaks off goes on behind its last event, as long as the task is at work.
async function follow(first) {
  let open = first;
  for (let tries = 0; tries < 5;) {
    try {
      const before = current.last;
      await listen(open ?? await call("POST", `tasks/${encodeURIComponent(current.task)}:subscribe`, undefined, current.last ? { "last-event-id": current.last } : {}));
      if (current.last !== before) tries = 0;
    } catch (error) {
      if (error instanceof WireError && error.status >= 400 && error.status < 500) throw error;
    }
    if (!current.task || TERMINAL.has(current.state) || WAITING.has(current.state)) return;
    open = undefined;
    tries += 1;
    say("The stream broke off; it is resumed.");
    await new Promise((resolve) => { setTimeout(resolve, 500 * tries); });
  }
  say("The stream cannot be resumed. Reload the page to try again.");
}

async function send(list, metadata) {
  const goesOn = current.task && WAITING.has(current.state);
  const given = { messageId: crypto.randomUUID?.() ?? `m-${Date.now()}-${Math.random()}`, role: "ROLE_USER", parts: list };
  if ($("context").value) given.contextId = $("context").value;
  if (goesOn) given.taskId = current.task;
  if (metadata) given.metadata = metadata;
  $("submit").disabled = true;
  $("questions").replaceChildren();
  message(given);
  say("Sent.");
  if (!goesOn) Object.assign(current, { task: "", state: "", last: "" });
  await guarded(async () => follow(await call("POST", "message:stream", { message: given }, { "idempotency-key": given.messageId })));
  $("submit").disabled = false;
}

async function guarded(work) {
  try {
    await work();
  } catch (error) {
    const text = error instanceof WireError ? error.words : "The gateway did not answer.";
    write(entry(`fault:${entries.size}`, "gateway", "fault"), text, false);
    say("That did not work.");
  }
}

async function base64(given) {
  const bytes = new Uint8Array(await given.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

$("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  const list = $("message").value ? [{ text: $("message").value }] : [];
  for (const given of $("files").files) {
    list.push({ raw: await base64(given), filename: given.name, mediaType: given.type || "application/octet-stream" });
  }
  if (!list.length) { say("There is nothing to send."); return; }
  let metadata;
  if ($("tools").value.trim()) {
    try {
      metadata = { [play.extension]: { tools: JSON.parse($("tools").value) } };
    } catch {
      say("The tools are no JSON.");
      return;
    }
  }
  $("message").value = "";
  $("files").value = "";
  await send(list, metadata);
});

$("cancel").addEventListener("click", () => guarded(async () => {
  const { answer, noted } = await call("POST", `tasks/${encodeURIComponent(current.task)}:cancel`, {});
  const text = await answer.text();
  noted.event("", text);
  showTask(JSON.parse(text));
}));

// After a reload: the task as it is, then its stream from here on.
if (current.task) {
  guarded(async () => {
    const { answer, noted } = await call("GET", `tasks/${encodeURIComponent(current.task)}`);
    const text = await answer.text();
    noted.event("", text);
    showTask(JSON.parse(text));
    if (!TERMINAL.has(current.state) && !WAITING.has(current.state)) await follow();
  });
} else if (params.get("context")) {
  say("The next message goes on in this context.");
}
