// Commands for a shell, which a button copies.

import { h } from "./dom.js";

/** Return a command with a button that copies it. */
export function command(text) {
  const code = h("code", {}, text);
  const said = h("span", { class: "more", role: "status" });
  const copy = () => {
    getSelection().selectAllChildren(code);
    // navigator.clipboard is missing where the page came over plain HTTP.
    said.textContent = document.execCommand("copy") ? "copied" : "selected: copy it with the keyboard";
  };
  return h("div", { class: "command" }, code, h("button", { type: "button", "data-key": `copy ${text}`, "aria-label": `Copy ${text}`, onclick: copy }, "Copy"), said);
}
