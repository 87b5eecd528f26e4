// How an app is, in one line, in the words of `rollcall why`.

const WINDOW_MS = 10 * 60 * 1000;
const DOWN = ["created", "exited", "dead", "restarting"];
const LOST = { failed: "it could not be created", missing: "its container is gone" };
const PORT = /port is already allocated|address already in use|port \d+ is (held|in use)/;
const IMAGE = /no such image|manifest unknown|image .* is gone/i;
const UNHEALTHY = /^unhealthy.*?: (.*)/s;
const LAST_LINES = /[;,]? ?it wrote:\n.*/s;
const SIGNALS = { 129: "SIGHUP", 130: "SIGINT", 131: "SIGQUIT", 132: "SIGILL", 133: "SIGTRAP", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 137: "SIGKILL", 138: "SIGUSR1", 139: "SIGSEGV", 140: "SIGUSR2", 141: "SIGPIPE", 142: "SIGALRM", 143: "SIGTERM" };

/** Return how an app is, by its record and its last events, the oldest first. */
export function verdict(app, events) {
  const message = (app.message ?? "").replace(LAST_LINES, "");
  if (app.state === "running" && app.desired === "running") return running(app, events, message);
  if (app.progress) return changing(app.progress);
  if (app.state in LOST) return caused(LOST[app.state], message);
  if (app.desired === "stopped") return stopped(events);
  if (app.crashing) return end(app, events) + times(events);
  if (!DOWN.includes(app.state)) return caused(app.state, message);
  if (PORT.test(message)) return `port taken: ${message}`;
  if (IMAGE.test(message)) return `image gone: ${message}`;
  return caused(app.state === "created" ? "not started" : end(app, events), message);
}

function running(app, events, message) {
  if (app.crashing) return end(app, events) + times(events);
  if (app.healthy === false) return caused("check failed", UNHEALTHY.exec(message)?.[1] ?? message);
  if (app.healthy) return "healthy";
  return app.health ? "running; its check has not passed yet" : "running, unchecked";
}

function caused(text, message) {
  return message ? `${text}: ${message}` : text;
}

function changing({ operation, step, percent, by }) {
  const done = percent === null ? "" : ` (${percent} %)`;
  return `being changed${by ? ` by ${by}` : ""}: ${operation}, ${step ?? "begun"}${done}`;
}

function stopped(events) {
  const last = events.findLast(({ action, outcome }) => action === "stop" && outcome === "done");
  return last ? `stopped by ${last.by} at ${last.time}` : "stopped";
}

function end(app, events) {
  const code = app.exit_code ?? null;
  if (app.oom_killed || ranOutOfMemory(events)) return "out of memory";
  if (code === null) return "ended";
  if (code === 126 || code === 127) return `exit ${code}: its command cannot be run`;
  return code in SIGNALS ? `killed (${SIGNALS[code]})` : `exit ${code}`;
}

// Whether the engine has said so since the start of the last run that ended.
function ranOutOfMemory(events) {
  const before = events.slice(0, events.findLastIndex(({ action }) => action === "die"));
  return before.findLast(({ action }) => action === "start" || action === "oom")?.action === "oom";
}

function times(events) {
  const ends = events.filter(({ action }) => action === "die").map(({ time }) => Date.parse(time));
  const count = ends.filter((time) => ends.at(-1) - time <= WINDOW_MS).length;
  return count > 1 ? `, ${count} times in ten minutes` : "";
}
