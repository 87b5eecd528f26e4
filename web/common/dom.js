// Elements from texts. Nothing here reads HTML, so what hosts say about themselves stays text.

const SVG = "http://www.w3.org/2000/svg";
// Control characters, and those that change the direction or hide text, but white space.
const UNSAFE = /(?![\t\n\r])\p{Cc}|[\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;
const SHOWN = ["title", "aria-label"];

/** Return a text in which what could feign another one is written as an escape. */
export function visible(text) {
  return String(text).replace(UNSAFE, (character) => {
    const code = character.codePointAt(0);
    const [letter, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${letter}${code.toString(16).padStart(digits, "0")}`;
  });
}

/** Return an element; `on…` are listeners, false and null leave an attribute out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return an element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function" && name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (name === "href") {
      if (isLink(value)) element.setAttribute("href", value);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : SHOWN.includes(name) ? visible(value) : String(value));
    }
  }
  const given = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...given.map(part));
  return element;
}

function part(child) {
  return child instanceof Node ? child : visible(child);
}

function isLink(text) {
  return String(text).startsWith("#") || webAddress(text) !== null;
}

/** Return the URL if it is one of http or https without a login in it, else null. */
export function webAddress(text) {
  try {
    const url = new URL(text);
    const plain = ["http:", "https:"].includes(url.protocol) && !url.username && !url.password;
    return plain ? url.href : null;
  } catch {
    return null;
  }
}

/** Put children into an element. The one with the same data-key keeps the focus. */
export function show(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const open = new Set(Array.from(element.querySelectorAll("details[open]"), (details) => details.dataset.key));
  element.replaceChildren(...children.flat(Infinity).filter(Boolean).map(part));
  for (const details of element.querySelectorAll("details")) {
    if (details.dataset.key !== undefined && open.has(details.dataset.key)) details.open = true;
  }
  if (focused === undefined) return;
  Array.from(element.querySelectorAll("[data-key]"))
    .find((candidate) => candidate.dataset.key === focused && candidate.tagName !== "DETAILS")
    ?.focus({ preventScroll: true });
}

/** Return a text, cut where it is longer than so many characters. */
export function clipped(text, length) {
  return text.length > length ? `${text.slice(0, length)}…` : text;
}
