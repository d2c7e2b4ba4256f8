// When decisions were made: a bar per slice of time, stacked by kind. The list below has each of
// them, so this is a picture with one sentence.

import { element } from "./dom.js";
import { count } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const SLICES = 60;
const [WIDTH, HEIGHT] = [600, 60];

/** Kinds with their colors, in the order in which they are stacked. */
export const KINDS = [
  ["launch", "#2f6fab"],
  ["consolidation", "#2e8540"],
  ["drift", "#8a4fa3"],
  ["expiration", "#b0892a"],
  ["interruption", "#b3261e"],
  ["repair", "#28818c"],
  ["cleanup", "#c2571a"],
  ["refusal", "#6b7280"],
];

/** The picture, with the colors of the kinds that are in it; null of fewer than two decisions. */
export function strip(decisions) {
  const times = decisions.map((it) => Date.parse(it.time)).filter(Number.isFinite);
  const [from, to] = [Math.min(...times), Math.max(...times)];
  if (times.length < 2 || from === to) return null;
  const slices = Array.from({ length: SLICES }, () => new Map());
  for (const { time, kind } of decisions) {
    const at = Math.floor(((Date.parse(time) - from) / (to - from)) * (SLICES - 1));
    slices[at]?.set(kind, (slices[at].get(kind) ?? 0) + 1);
  }
  const sum = (slice) => [...slice.values()].reduce((all, n) => all + n, 0);
  const most = Math.max(...slices.map(sum));
  const clock = (time) => new Date(time).toISOString().slice(0, 16).replace("T", " ");
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "strip" });
  const range = `${clock(from)} to ${clock(to)}`;
  picture.setAttribute("aria-label", `${count(times.length, "decision")} from ${range}`);
  slices.forEach((slice, at) => {
    let y = HEIGHT;
    for (const [kind, color] of KINDS) {
      const height = (HEIGHT * (slice.get(kind) ?? 0)) / most;
      if (height === 0) continue;
      y -= height;
      const x = (at * WIDTH) / SLICES;
      picture.append(shape("rect", { x, y, width: WIDTH / SLICES - 1, height, fill: color }));
    }
  });
  const present = KINDS.filter(([kind]) => decisions.some((it) => it.kind === kind));
  const legend = present.map(([kind, color]) => {
    const swatch = element("span", { className: "swatch", "aria-hidden": "true" });
    swatch.style.backgroundColor = color;
    return element("li", {}, swatch, ` ${kind}`);
  });
  return element(
    "figure",
    {},
    picture,
    element("figcaption", { className: "help" }, range),
    element("ul", { className: "colors", "aria-label": "Kinds" }, legend),
  );
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
