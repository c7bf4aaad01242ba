// Server-sent events of a fetched body, and errors of the wire.

export class WireError extends Error {
  // `status` is that of HTTP, 0 for an error in a stream; `words` are what the gateway said.
  constructor(status, said) {
    super(`${status}`);
    this.status = status;
    this.words = said;
    try {
      this.words = JSON.parse(said).error.message;
    } catch { /* what is no JSON is shown as it came */ }
  }
}

export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value.replaceAll("\r", "");
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const found = { id: "", name: "", data: [] };
      for (const line of rest.slice(0, end).split("\n")) {
        const at = line.indexOf(":");
        const field = line.slice(0, at < 0 ? line.length : at);
        const text = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
        if (field === "id") found.id = text;
        else if (field === "event") found.name = text;
        else if (field === "data") found.data.push(text);
      }
      rest = rest.slice(end + 2);
      if (found.data.length) yield { ...found, data: found.data.join("\n") };
    }
  }
}
