// The page: it asks the server for the fleet and the decisions again and again, and passes what is
// new and what is chosen on to the parts of the page.

import * as api from "./api.js";
import * as details from "./details.js";
import { byId, element, failure } from "./dom.js";
import { groups, prepare } from "./fleet.js";
import * as map from "./map.js";
import * as pending from "./pending.js";
import * as table from "./table.js";
import * as timeline from "./timeline.js";
import * as whatIf from "./whatif.js";
import { count, percent, perHour } from "./words.js";

const EVERY = 5000;
const TABS = ["details", "decisions", "pending", "what-if"];

let state = null;

function controls() {
  const controls = byId("controls");
  controls.onsubmit = (event) => event.preventDefault();
  controls.oninput = () => drawNodes();
  for (const radio of controls.elements.view) {
    radio.onchange = () => {
      byId("map-view").hidden = radio.value !== "map";
      byId("table-view").hidden = radio.value !== "table";
      drawNodes();
    };
  }
  byId("fleet").addEventListener("keydown", (event) => {
    if (event.key === "Escape") byId("filter").value = "";
    if (event.key === "Escape") drawNodes();
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      byId("filter").focus();
    }
  });
}

function tabs() {
  for (const [at, name] of TABS.entries()) {
    const tab = byId(`tab-${name}`);
    tab.onclick = () => open(name);
    tab.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = TABS[(at + step + TABS.length) % TABS.length];
      open(next);
      byId(`tab-${next}`).focus();
    };
  }
  open("details");
}

function open(name) {
  for (const other of TABS) {
    const tab = byId(`tab-${other}`);
    tab.setAttribute("aria-selected", String(other === name));
    tab.tabIndex = other === name ? 0 : -1;
    byId(other).hidden = other !== name;
  }
}

function selectNode(node, explain) {
  map.mark(node.key);
  table.mark(node.key);
  if (explain) {
    open("details");
    details.node(node);
  }
}

function explain(kind, namespace, name) {
  open("details");
  details.explain(kind, namespace, name);
}

/** A node by the name of its Node or NodeClaim; one that is gone is only explained. */
function nodeByName(name) {
  const found = state?.nodes.find((node) => node.key === name || node.node === name);
  if (found) selectNode(found, true);
  else explain("nodeclaim", null, name);
}

function drawNodes() {
  if (state === null) return;
  const { color, fill, filter } = byId("controls").elements;
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (node) => words.every((word) => node.text.includes(word));
  legend(groups(state.nodes, color.value));
  map.show({ nodes: state.nodes, color: color.value, fill: fill.value, matches });
  table.show(state.nodes.filter(matches));
}

function legend(all) {
  const shown = all.slice(0, 8).map(({ name, color, nodes }, at) => {
    const swatch = element("span", { className: "swatch", "aria-hidden": "true" });
    swatch.style.backgroundColor = color;
    const more = all.length - 8;
    const text = at === 7 && more > 0 ? `${name} and ${count(more, "more group")}` : name;
    return element("li", {}, swatch, ` ${text} (${nodes.length.toLocaleString("en")})`);
  });
  byId("legend").replaceChildren(element("ul", { "aria-label": "Colors" }, shown));
}

function totals({ fleet, nodes }) {
  const { total, pendingPods, disrupting } = fleet;
  const sum = (of) =>
    nodes.reduce(([a, b], node) => [a + node[of][0], b + node[of][1]], [0, 0]);
  const waiting = pendingPods.reduce((all, group) => all + group.count, 0);
  const pairs = [
    ["nodes", total.nodes.toLocaleString("en")],
    ["price", perHour(total.pricePerHour)],
    ["spot", percent(total.spot, total.nodes)],
    ["CPU", percent(...sum("cpu"))],
    ["memory", percent(...sum("memory"))],
    ["pending pods", waiting.toLocaleString("en")],
    ["being removed", disrupting.length.toLocaleString("en")],
  ];
  byId("totals").replaceChildren(
    ...pairs.map(([term, value]) =>
      element("div", {}, element("dt", {}, term), element("dd", {}, value)),
    ),
  );
}

/** What is wrong; with a field for a token if another one would help. */
function trouble(error) {
  const place = byId("trouble");
  const needsToken = [401, 403].includes(error.status);
  // It stays while something is typed into it.
  if (needsToken && place.querySelector("form")) return;
  const field = element("input", {
    type: "password",
    autocomplete: "off",
    "aria-label": "Token",
    required: true,
  });
  const onsubmit = (event) => {
    event.preventDefault();
    api.useToken(field.value);
    place.replaceChildren();
    update();
    timeline.update();
  };
  const form = element("form", { onsubmit }, field, " ", element("button", {}, "Use this token"));
  place.replaceChildren(failure(error), ...(needsToken ? [form] : []));
}

async function update() {
  try {
    const read = await api.state();
    if (read !== null) {
      state = prepare(read);
      totals(state);
      drawNodes();
      pending.show(state);
      whatIf.show(state);
    }
    byId("trouble").replaceChildren();
    const time = new Date().toLocaleTimeString("en-GB");
    byId("freshness").textContent = `${state?.source ?? ""}, read at ${time}`;
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    trouble(error);
    byId("freshness").textContent = "not up to date";
  }
  return EVERY;
}

/** Calls a function again and again, in the pause that it asks for; not while no one looks. */
async function repeat(ask) {
  for (;;) {
    if (!document.hidden) {
      const pause = await ask();
      await new Promise((done) => setTimeout(done, pause));
    } else {
      await new Promise((done) =>
        document.addEventListener("visibilitychange", done, { once: true }),
      );
    }
  }
}

controls();
tabs();
details.empty();
map.start(selectNode);
table.start((node) => selectNode(node, true));
timeline.start({ node: nodeByName, pod: (namespace, name) => explain("pod", namespace, name) });
pending.start({
  pod: (namespace, name) => explain("pod", namespace, name),
  nodePool: (name) => explain("nodepool", null, name),
});
whatIf.start();
repeat(update);
repeat(timeline.update);
