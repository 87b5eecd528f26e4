// Commands for a shell, which a button copies.

import { h } from "./dom.js";

/** Return a command, with an argument and an option, and a button that copies it.
 *
 * An argument that begins like an option, as a hostname may, is last, after `--`. */
export function command(start, argument = "", option = "") {
  const isLikeOption = argument.startsWith("-");
  const text = [start, ...(isLikeOption ? [option, "--", argument] : [argument, option])].filter(Boolean).join(" ");
  const code = h("code", {}, text);
  const said = h("span", { class: "more", role: "status" });
  const copy = () => {
    getSelection().selectAllChildren(code);
    // navigator.clipboard is missing where the page came over plain HTTP.
    said.textContent = document.execCommand("copy") ? "copied" : "selected: copy it with the keyboard";
  };
  return h("div", { class: "command" }, code, h("button", { type: "button", "data-key": `copy ${text}`, "aria-label": `Copy ${text}`, onclick: copy }, "Copy"), said);
}
