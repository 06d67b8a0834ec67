// node trace_processor.mjs FOLDER REQUESTS REPLIES
// Runs Perfetto's trace processor, the WebAssembly that ui.perfetto.dev runs in a worker: FOLDER holds its
// engine_bundle.js, REQUESTS the bytes of a TraceProcessorRpcStream; what it answers goes to REPLIES.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const [folder, requests, replies] = process.argv.slice(2);
const beside = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));
const exit = process.exit;

globalThis.self = globalThis;
globalThis.location = { href: `file://${folder}/engine_bundle.js` };
globalThis.WorkerGlobalScope = function () {};
globalThis.importScripts = () => {};
globalThis.fetch = async (url) => new Response(beside(url), { headers: { "Content-Type": "application/wasm" } });
globalThis.XMLHttpRequest = class {
  open(_, url) { this.url = url; }
  send() { const read = beside(this.url); this.status = 200; this.response = new Uint8Array(read).buffer; }
};
delete globalThis.process; // by it the bundle would know Node, for which it is not built
vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), { filename: "engine_bundle.js" });

const out = fs.openSync(replies, "w");
const port = { postMessage: (bytes) => fs.writeSync(out, bytes) };
globalThis.onmessage({ data: port });
const asked = new Uint8Array(fs.readFileSync(requests));
for (let tries = 0; ; tries++) {
  await new Promise((done) => setTimeout(done, 20));
  try {
    port.onmessage({ data: asked });
    break;
  } catch (error) {
    if (!(error instanceof TypeError) || tries > 2000) throw error; // TypeError: its memory is not there yet
  }
}
fs.closeSync(out);
exit(0);
