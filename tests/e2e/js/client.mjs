// Drive Boxwright with the npm client, unmodified, and print one JSON line of what was seen.
// Usage: node client.mjs IMAGE direct|server-proxy   (OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY are set)
import { ConnectionConfig, Sandbox, SandboxApiException, SandboxManager } from "@alibaba-group/opensandbox";

const [image, route] = process.argv.slice(2);
const connectionConfig = new ConnectionConfig({ useServerProxy: route === "server-proxy" });
const mark = `js-${process.pid}-${route}`;
const seen = {};

const refused = async (call) => {
  try {
    await call();
  } catch (error) {
    if (error instanceof SandboxApiException) return { status: error.statusCode, code: error.error.code, message: error.message };
    throw error;
  }
  return { status: 0 };
};
const texts = (messages) => messages.map((message) => message.text);

let sandbox = await Sandbox.create({
  connectionConfig,
  image,
  timeoutSeconds: 600,
  env: { WHO: "agent" },
  metadata: { mark },
  resource: { cpu: "1", memory: "256Mi" },
  extensions: { "opensandbox.extensions.k": "v" },
});
const manager = SandboxManager.create({ connectionConfig });
try {
  const info = await sandbox.getInfo();
  seen.info = { state: info.status.state, metadata: info.metadata, expires: info.expiresAt instanceof Date };
  seen.healthy = await sandbox.isHealthy();
  seen.memory = (await sandbox.getMetrics()).memoryTotalMiB;

  const events = [];
  const run = await sandbox.commands.run('echo "hello $WHO"; echo; echo bad >&2', undefined, {
    onInit: () => events.push("init"),
    onExecutionComplete: () => events.push("complete"),
  });
  seen.run = { stdout: texts(run.logs.stdout), stderr: texts(run.logs.stderr), exitCode: run.exitCode, events };
  const failed = await sandbox.commands.run("exit 7");
  seen.failed = { exitCode: failed.exitCode, name: failed.error.name };
  const options = { workingDirectory: "/var", envs: { X: "$HOME" }, timeoutSeconds: 20 };
  seen.options = texts((await sandbox.commands.run('echo "$PWD $X"', options)).logs.stdout);

  const background = await sandbox.commands.run("echo one; sleep 60", { background: true });
  let logs = { content: "" };
  while (logs.content === "") logs = await sandbox.commands.getBackgroundCommandLogs(background.id);
  seen.logs = logs.content;
  await sandbox.commands.interrupt(background.id);
  seen.running = (await sandbox.commands.getCommandStatus(background.id)).running;

  const session = await sandbox.commands.createSession({ workingDirectory: "/tmp" });
  await sandbox.commands.runInSession(session, "export Y=kept");
  seen.session = texts((await sandbox.commands.runInSession(session, 'echo "$Y $PWD"')).logs.stdout);
  await sandbox.commands.deleteSession(session);

  const place = `/tmp/${mark}`;
  const bytes = Uint8Array.from({ length: 70000 }, (_, n) => n % 251);
  async function* stream() {
    yield new TextEncoder().encode("in ");
    yield new TextEncoder().encode("pieces");
  }
  await sandbox.files.createDirectories([{ path: place, mode: 755 }]);
  await sandbox.files.writeFiles([
    { path: `${place}/text é%20.txt`, data: "red\nand red\n", mode: 640 },
    { path: `${place}/bytes`, data: bytes },
  ]);
  await sandbox.files.writeFiles([{ path: `${place}/stream`, data: stream() }]);
  const back = await sandbox.files.readBytes(`${place}/bytes`);
  seen.bytes = back.length === bytes.length && back.every((byte, n) => byte === bytes[n]);
  await sandbox.files.replaceContents([{ path: `${place}/text é%20.txt`, oldContent: "red", newContent: "blue" }]);
  seen.text = await sandbox.files.readFile(`${place}/text é%20.txt`);
  seen.stream = await sandbox.files.readFile(`${place}/stream`);
  seen.window = await sandbox.files.readFile(`${place}/text é%20.txt`, { offset: 2, limit: 1 });
  const entry = (await sandbox.files.getFileInfo([`${place}/text é%20.txt`]))[`${place}/text é%20.txt`];
  seen.file = { mode: entry.mode, size: entry.size, type: entry.type };
  await sandbox.files.moveFiles([{ src: `${place}/stream`, dest: `${place}/b/moved` }]);
  const found = await sandbox.files.search({ path: place, pattern: "*" });
  seen.found = found.map((one) => one.path.slice(place.length + 1)).sort();
  await sandbox.files.deleteFiles([`${place}/bytes`]);
  seen.missing = await refused(() => sandbox.files.getFileInfo([`${place}/bytes`]));
  await sandbox.files.deleteDirectories([place]);

  seen.patched = (await sandbox.patchMetadata({ extra: "1" })).metadata;
  const listed = await manager.listSandboxInfos({ metadata: { mark }, states: ["Running"], pageSize: 5 });
  seen.listed = { mine: listed.items.map((one) => one.id === sandbox.id), total: listed.pagination.totalItems };
  await sandbox.renew(1200);
  await sandbox.pause();
  seen.paused = (await manager.getSandboxInfo(sandbox.id)).status.state;
  seen.pausedTwice = await refused(() => manager.pauseSandbox(sandbox.id));
  sandbox = await sandbox.resume(); // it takes the connection over, so the old object is not closed
  seen.resumed = texts((await sandbox.commands.run("echo again")).logs.stdout);
  seen.endpoint = (await sandbox.getEndpoint(8000)).endpoint;
} finally {
  await sandbox.kill();
}
seen.killed = await refused(() => sandbox.getInfo());
await sandbox.close();
await manager.close();
console.log(JSON.stringify(seen));
