// Elements made of texts; no text of a job ever becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element: h("p", {class: "x"}, "text", child, null). */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element, made the same way. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const shown = new WeakMap();

/** Refill an element only if its content has changed, so that a selection or a focus in it stays. */
export function put(place, content, build) {
  const key = JSON.stringify(content);
  if (shown.get(place) === key) return;
  shown.set(place, key);
  place.replaceChildren(...[build(content)].flat().filter(Boolean));
}

/** Code of at most so many characters stays on one line, on a telephone too. */
const ON_A_LINE = 38;

/** A text whose parts between backticks are code. */
export function coded(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", { class: part.length <= ON_A_LINE && "whole" }, part) : part));
}
