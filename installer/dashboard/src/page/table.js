// The table of nodes: the same as the map for those who read instead of look. A page has 100 rows,
// so that a large cluster does not cost a large document.

import { byId, element, link } from "./dom.js";
import { use } from "./fleet.js";
import { percent, perHour } from "./words.js";

const ROWS = 100;

const COLUMNS = [
  { title: "Node", value: (node) => node.node ?? node.key },
  { title: "NodePool", value: (node) => node.nodePool ?? "" },
  { title: "Type", value: (node) => node.instanceType ?? "" },
  { title: "Capacity", value: (node) => node.capacityType ?? "" },
  { title: "Zone", value: (node) => node.zone ?? "" },
  {
    title: "Price",
    value: (node) => node.pricePerHour ?? -1,
    text: (node) => perHour(node.pricePerHour),
  },
  { title: "CPU", value: (node) => use(node, "cpu"), text: (node) => percent(...node.cpu) },
  {
    title: "Memory",
    value: (node) => use(node, "memory"),
    text: (node) => percent(...node.memory),
  },
  { title: "Pods", value: (node) => node.pods },
  { title: "State", value: (node) => node.disruption },
];

let order = { column: COLUMNS[0], descending: false };
let page = 0;
let nodes = [];
let selected = null;
let onSelect = () => {};

/** Calls `select(node)` when a row is chosen. */
export function start(select) {
  onSelect = select;
}

/** Shows these nodes. */
export function show(given) {
  nodes = given;
  draw();
}

/** Marks a node. */
export function mark(key) {
  selected = key;
  draw();
}

function sorted() {
  const { value } = order.column;
  const sign = order.descending ? -1 : 1;
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return [...nodes].sort((a, b) => sign * compare(value(a), value(b)) || compare(a.key, b.key));
}

function draw() {
  if (byId("table-view").hidden) return;
  const pages = Math.max(1, Math.ceil(nodes.length / ROWS));
  page = Math.min(page, pages - 1);
  const focused = document.activeElement?.dataset?.focus;
  byId("columns").replaceChildren(...COLUMNS.map(header));
  const shown = sorted().slice(page * ROWS, (page + 1) * ROWS);
  byId("rows").replaceChildren(...shown.map(row));
  byId("pages").replaceChildren(
    turn("Previous", page - 1, page > 0),
    element("span", {}, `Page ${page + 1} of ${pages}`),
    turn("Next", page + 1, page + 1 < pages),
  );
  // What had the focus was made again.
  if (focused) {
    const again = [...byId("table-view").querySelectorAll("[data-focus]")];
    again.find((it) => it.dataset.focus === focused)?.focus();
  }
}

function header(column) {
  const is = order.column === column;
  const button = link(column.title, () => {
    order = { column, descending: is && !order.descending };
    draw();
  });
  button.dataset.focus = `column ${column.title}`;
  const direction = order.descending ? "descending" : "ascending";
  const cell = element("th", { scope: "col" }, button);
  if (is) cell.setAttribute("aria-sort", direction);
  return cell;
}

function row(node) {
  const cells = COLUMNS.map((column, at) => {
    const text = column.text ? column.text(node) : String(column.value(node));
    if (at > 0) return element("td", {}, text);
    const button = link(text, () => onSelect(node));
    button.dataset.focus = `node ${node.key}`;
    return element("th", { scope: "row" }, button);
  });
  const made = element("tr", {}, cells);
  if (node.key === selected) made.setAttribute("aria-current", "true");
  return made;
}

function turn(text, to, possible) {
  const button = element("button", { type: "button", disabled: !possible }, text);
  button.dataset.focus = text;
  button.onclick = () => {
    page = to;
    draw();
    byId("table-view").querySelector(".scroller").scrollTop = 0;
  };
  return button;
}
