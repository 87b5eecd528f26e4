// The agent's page: which view is shown, its key, and whether the agent answers.

import { h, show } from "../common/dom.js";
import { AnswerError, AwayError, get } from "../common/http.js";
import { key, login, logout } from "../common/session.js";
import { timeOfDay } from "../common/times.js";
import { AppView } from "./app.js";
import { AppsView } from "./apps.js";

const REFRESH_MS = 3000;
const main = document.getElementById("main");
const connection = document.getElementById("connection");
const logoutButton = document.getElementById("logout");
let view = null;
let timer = 0;
let running = new AbortController();
let awaySince = null;

/** Show the view of the address. */
async function open() {
  close();
  const { signal } = running;
  try {
    const { body: access } = await get("/access", { signal });
    document.getElementById("hostname").textContent = access.hostname;
    const name = /^#\/app\/([a-z0-9_.-]+)$/.exec(location.hash)?.[1];
    view = name === undefined ? new AppsView() : new AppView(name, access, refresh);
    show(main, view.element);
    refresh();
  } catch (error) {
    if (signal.aborted) return;
    failed(error);
    timer = setTimeout(() => key() !== null && open(), REFRESH_MS);
  }
}

/** Ask now, and again every few seconds. A request under way is given up. */
async function refresh() {
  clearTimeout(timer);
  running.abort();
  running = new AbortController();
  const { signal } = running;
  try {
    if (!document.hidden) {
      await view.refresh((path) => get(path, { signal }));
      if (signal.aborted) return;
      awaySince = null;
      state("live", "Live");
    }
  } catch (error) {
    if (signal.aborted) return;
    failed(error);
  }
  if (view !== null) timer = setTimeout(refresh, REFRESH_MS);
}

function close() {
  clearTimeout(timer);
  running.abort();
  running = new AbortController();
  view?.close();
  view = null;
}

function failed(error) {
  if (error instanceof AnswerError && error.status === 401) {
    logout();
    askForKey("The agent does not know this key.");
  } else if (error instanceof AwayError) {
    awaySince ??= Date.now();
    state("away", `The agent does not answer since ${timeOfDay(awaySince)}. What is shown may be out of date.`);
  } else if (error instanceof AnswerError) {
    state("away", error.message);
  } else {
    throw error;
  }
}

function state(kind, text) {
  if (connection.textContent === text) return;
  connection.className = kind;
  connection.textContent = text;
}

function askForKey(problem) {
  close();
  logoutButton.hidden = true;
  state("", "");
  document.getElementById("hostname").textContent = "agent";
  const field = h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "key-help key-problem" });
  show(main, h("form", { class: "login card", onsubmit: (event) => {
    event.preventDefault();
    login(field.value.trim());
    start();
  } },
  h("h1", {}, "Log in"),
  h("label", { for: "key" }, "Key"),
  field,
  h("p", { id: "key-help", class: "hint" }, "A key of the agent's settings that may read. It stays in this tab and is gone when you close it."),
  h("p", { id: "key-problem", class: "problem", role: "alert" }, problem),
  h("button", { type: "submit" }, "Log in")));
  field.focus();
}

function start() {
  if (key() === null) {
    askForKey("");
    return;
  }
  logoutButton.hidden = false;
  open();
}

logoutButton.addEventListener("click", () => {
  logout();
  askForKey("");
});
window.addEventListener("hashchange", () => key() !== null && open());
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part of the address after # is the view
  main.focus();
});
start();
