// AG-UI in front of one agent: `node client.mjs PACKAGES BRIDGE AGENT_URL TEXT`. PACKAGES is the folder with node_modules,
// BRIDGE the A2A client. Prints a JSON line for each AG-UI event, and at last one with the messages that the run led to.

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, bridge, url, text] = process.argv.slice(2);
const require = createRequire(join(packages, "package.json"));
const { A2AAgent } = require("@ag-ui/a2a");
const { GatewayClient } = await import(pathToFileURL(bridge));

const agent = new A2AAgent({
  a2aClient: new GatewayClient(url),
  initialMessages: [{ id: "user-1", role: "user", content: text }],
});
const print = (value) => console.log(JSON.stringify(value));
const { newMessages } = await agent.runAgent({}, { onEvent: ({ event }) => print({ event }) });
print({ newMessages });
