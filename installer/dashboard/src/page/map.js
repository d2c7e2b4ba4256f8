// The map: a square per node on a canvas. Only what is in view is drawn, so that 10,000 nodes cost
// as much as a few hundred. It is one element with arrow keys, and the table says the same.

import { byId } from "./dom.js";
import { groups, inOneLine, use } from "./fleet.js";
import { count } from "./words.js";

const SIDE = { least: 10, usual: 20, most: 56 };
/** Up to how many times larger squares are drawn of few nodes, and which share of the map is theirs. */
const LARGER = 3;
const ROOM = 0.42;

const GAP = 3;
const HEADING = 24;
const MARGIN = 4;

const box = byId("map");
const canvas = box.querySelector("canvas");
const space = byId("map-space");
const hint = byId("hint");
const pen = canvas.getContext("2d");

let options = { nodes: [], color: "nodePool", fill: "most", matches: () => true };
let squares = [];
let headings = [];
let rows = [];
let selected = null;
let hovered = null;
let onSelect = () => {};
let asked = 0;

/** Calls `select(node, explain)` when a node is chosen; `explain` if more is wanted about it. */
export function start(select) {
  onSelect = select;
  box.addEventListener("scroll", () => draw());
  new ResizeObserver(() => layOut()).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
  box.addEventListener("pointermove", (event) => hover(squareAt(event), event));
  box.addEventListener("pointerleave", () => hover(null));
  box.addEventListener("click", (event) => {
    const square = squareAt(event);
    if (square) choose(square, true);
  });
  box.addEventListener("keydown", onKey);
}

/** Shows these nodes; `matches` says which of them the filter lets through. */
export function show(given) {
  options = { ...options, ...given };
  layOut();
}

/** Marks a node, without telling about it. */
export function mark(key) {
  selected = key;
  const square = squares.find((it) => it.node.key === key);
  if (square) reveal(square);
  draw();
}

/**
 * Sides by price: the area is proportional, within bounds in which a square can be hit. Few nodes
 * are drawn larger, as far as there is room.
 */
function sides(nodes) {
  const prices = nodes.map((node) => node.pricePerHour).filter((price) => price > 0);
  prices.sort((a, b) => a - b);
  const median = prices[prices.length >> 1] ?? 1;
  const bounded = (node) => {
    const side = SIDE.usual * Math.sqrt((node.pricePerHour ?? 0) / median);
    return Math.min(SIDE.most, Math.max(SIDE.least, side));
  };
  const area = nodes.reduce((sum, node) => sum + (bounded(node) + GAP) ** 2, 1);
  const room = Math.sqrt((ROOM * box.clientWidth * box.clientHeight) / area);
  const scale = Math.min(LARGER, Math.max(1, room));
  return (node) => Math.round(scale * bounded(node));
}

function layOut() {
  const width = box.clientWidth - 2 * MARGIN;
  squares = [];
  headings = [];
  rows = [];
  if (width <= 0) return;
  const side = sides(options.nodes);
  let y = MARGIN;
  for (const group of groups(options.nodes, options.color)) {
    headings.push({ y, text: `${group.name} (${count(group.nodes.length, "node")})` });
    y += HEADING;
    const sized = group.nodes.map((node) => ({ node, side: side(node), color: group.color }));
    sized.sort((a, b) => b.side - a.side || (a.node.key < b.node.key ? -1 : 1));
    let x = MARGIN;
    let row = null;
    for (const square of sized) {
      if (row === null || x + square.side > width) {
        if (row !== null) y += row.height + GAP;
        x = MARGIN;
        row = { y, height: square.side, from: squares.length, to: squares.length };
        rows.push(row);
      }
      squares.push(Object.assign(square, { x, y, row: rows.length - 1 }));
      row.to = squares.length;
      x += square.side + GAP;
    }
    if (row !== null) y += row.height + GAP;
    y += MARGIN;
  }
  space.style.height = `${Math.max(0, y - box.clientHeight)}px`;
  draw();
}

/** Draws in the next frame, once, however often it is asked for. */
function draw() {
  if (asked === 0) asked = requestAnimationFrame(paint);
}

function paint() {
  asked = 0;
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [box.clientWidth, box.clientHeight];
  if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const style = getComputedStyle(box);
  const [ink, paper] = ["--ink", "--paper"].map((name) => style.getPropertyValue(name).trim());
  const top = box.scrollTop;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = paper;
  pen.fillRect(0, 0, width, height);
  pen.setTransform(ratio, 0, 0, ratio, 0, -top * ratio);
  pen.fillStyle = ink;
  pen.font = `600 13px ${style.fontFamily}`;
  pen.textBaseline = "middle";
  for (const heading of headings) {
    if (heading.y + HEADING >= top && heading.y <= top + height) {
      pen.fillText(heading.text, MARGIN, heading.y + HEADING / 2, width - 2 * MARGIN);
    }
  }
  for (let at = firstRowBelow(top); at < rows.length && rows[at].y <= top + height; at += 1) {
    for (let i = rows[at].from; i < rows[at].to; i += 1) drawSquare(squares[i], ink);
  }
  pen.globalAlpha = 1;
}

function drawSquare({ x, y, side, color, node }, ink) {
  const full = Math.round(side * use(node, options.fill));
  const weight = options.matches(node) ? 1 : 0.15;
  pen.fillStyle = color;
  pen.globalAlpha = 0.22 * weight;
  pen.fillRect(x, y, side, side);
  pen.globalAlpha = weight;
  pen.fillRect(x, y + side - full, side, full);
  pen.lineWidth = 1;
  pen.strokeStyle = color;
  // What is on its way in or out has a broken outline: no color is needed to see it.
  pen.setLineDash(node.disruption === "steady" || node.blocked ? [] : [3, 2]);
  pen.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
  pen.setLineDash([]);
  if (node.key === selected || node === hovered) {
    pen.globalAlpha = 1;
    pen.lineWidth = node.key === selected ? 4 : 2;
    pen.strokeStyle = ink;
    pen.strokeRect(x - 1, y - 1, side + 2, side + 2);
  }
}

/** The first row that ends below a height. */
function firstRowBelow(y) {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].y + rows[middle].height < y) low = middle + 1;
    else high = middle;
  }
  return low;
}

function squareAt(event) {
  const frame = box.getBoundingClientRect();
  const [x, y] = [event.clientX - frame.left, event.clientY - frame.top + box.scrollTop];
  const row = rows[firstRowBelow(y)];
  if (!row || y < row.y) return null;
  for (let i = row.from; i < row.to; i += 1) {
    const square = squares[i];
    if (x >= square.x && x < square.x + square.side && y < square.y + square.side) return square;
  }
  return null;
}

function hover(square, event) {
  const node = square?.node ?? null;
  if (node !== hovered) {
    hovered = node;
    hint.hidden = node === null;
    if (node) hint.textContent = inOneLine(node);
    draw();
  }
  if (node) {
    hint.style.left = `${Math.min(event.clientX + 14, innerWidth - hint.offsetWidth - 8)}px`;
    hint.style.top = `${Math.min(event.clientY + 14, innerHeight - hint.offsetHeight - 8)}px`;
  }
}

function choose(square, explain) {
  selected = square.node.key;
  byId("map-selected").textContent = inOneLine(square.node);
  reveal(square);
  draw();
  onSelect(square.node, explain);
}

function reveal({ y, side }) {
  if (y - HEADING < box.scrollTop) box.scrollTop = y - HEADING;
  const bottom = y + side + MARGIN;
  if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
}

function onKey(event) {
  if (squares.length === 0 || event.ctrlKey || event.altKey || event.metaKey) return;
  const found = squares.findIndex((it) => it.node.key === selected);
  const at = Math.max(0, found);
  const steps = {
    ArrowRight: () => (found < 0 ? 0 : at + 1),
    ArrowLeft: () => at - 1,
    ArrowDown: () => nearest(at, 1),
    ArrowUp: () => nearest(at, -1),
    PageDown: () => nearest(at, 10),
    PageUp: () => nearest(at, -10),
    Home: () => 0,
    End: () => squares.length - 1,
    Enter: () => at,
    " ": () => at,
  };
  const step = steps[event.key];
  if (!step) return;
  event.preventDefault();
  const next = Math.min(squares.length - 1, Math.max(0, step()));
  choose(squares[next], event.key === "Enter" || event.key === " ");
}

/** The square of another row that is nearest in x. */
function nearest(at, by) {
  const { x, side, row } = squares[at];
  const other = rows[Math.min(rows.length - 1, Math.max(0, row + by))];
  let best = other.from;
  for (let i = other.from; i < other.to; i += 1) {
    const off = (square) => Math.abs(square.x + square.side / 2 - x - side / 2);
    if (off(squares[i]) < off(squares[best])) best = i;
  }
  return best;
}
