// Microsoft's client of Direct Line: `node client.mjs PACKAGES URL TOKEN WEBSOCKET TEXT COUNT`. PACKAGES is the folder with
// node_modules; WEBSOCKET is `true` or `false`. Prints a JSON line for the id of the message, and one for each of COUNT activities
// that are not its own.

import { createRequire } from "node:module";
import { join } from "node:path";

const [packages, domain, token, webSocket, text, count] = process.argv.slice(2);
const require = createRequire(join(packages, "package.json"));
global.XMLHttpRequest = require("xhr2");
global.WebSocket = require("ws");
global.window = global;
const { DirectLine } = require("botframework-directlinejs");

const print = (value) => console.log(JSON.stringify(value));
const line = new DirectLine({ token, domain, webSocket: webSocket === "true", pollingInterval: 200 });
let left = Number(count);
line.activity$.subscribe(({ type, text, from, suggestedActions }) => {
  if (from.role === "user") return;
  print({ type, text, actions: suggestedActions?.actions.map(({ value }) => value) });
  left -= 1;
  if (left === 0) process.exit(0);
});
line.postActivity({ type: "message", from: { id: "u1" }, text }).subscribe(
  (id) => print({ posted: id }),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
