// What if: a NodePool is edited here, and the planner says what the operator would do with it.
// Nothing is written to the cluster.

import * as api from "./api.js";
import { byId, element, failure, fill } from "./dom.js";
import { count, difference, perHour } from "./words.js";

/** How many nodes are named. */
const NAMED = 5;

let select;
let editor;
let result;
let run;

/** Builds the form. */
export function start() {
  select = element("select", { id: "pool" });
  editor = element("textarea", { id: "manifest", rows: 18, spellcheck: false, wrap: "off" });
  result = element("div", { id: "answer", "aria-live": "polite" });
  run = element("button", { type: "submit", className: "primary" }, "Show what would happen");
  const load = element("button", { type: "button", id: "load" }, "Load");
  load.onclick = () => fetchManifest();
  const form = element(
    "form",
    {},
    element(
      "p",
      { className: "help" },
      "Edit a NodePool, or paste another one. The planner answers for the cluster as it is now; ",
      "nothing is written.",
    ),
    element("p", {}, element("label", { htmlFor: "pool" }, "NodePool "), select, " ", load),
    element("label", { htmlFor: "manifest" }, "Manifest"),
    editor,
    element("p", {}, run),
  );
  form.onsubmit = (event) => {
    event.preventDefault();
    ask();
  };
  byId("what-if").append(form, result);
}

/** Offers these NodePools. */
export function show({ fleet }) {
  const names = fleet.nodePools.map((pool) => pool.name);
  if (names.join() === [...select.options].map((option) => option.value).join()) return;
  const before = select.value;
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(before)) select.value = before;
}

async function fetchManifest() {
  try {
    editor.value = (await api.nodePool(select.value)).yaml;
    result.replaceChildren();
    editor.focus();
    editor.setSelectionRange(0, 0);
    editor.scrollTop = 0;
  } catch (error) {
    result.replaceChildren(failure(error));
  }
}

async function ask() {
  run.disabled = true;
  result.setAttribute("aria-busy", "true");
  result.replaceChildren(element("p", {}, "Planning…"));
  try {
    fill(result, answer(await api.whatIf(editor.value)));
  } catch (error) {
    result.replaceChildren(failure(error));
  }
  result.removeAttribute("aria-busy");
  run.disabled = false;
}

function answer({ before, after, drift, warnings }) {
  const saved = after.totals.pricePerHourAfter - before.totals.pricePerHourAfter;
  const now = before.totals.pricePerHourBefore;
  return [
    element("h3", {}, "What would happen"),
    element(
      "p",
      { className: "verdict" },
      saved === 0
        ? "The price would be the same"
        : `${difference(saved)} compared with no change`,
    ),
    comparison(before, after, now),
    drift.map(({ nodePool, nodeClaims, reason }) =>
      element(
        "p",
        {},
        `${count(nodeClaims, "NodeClaim")} of NodePool ${nodePool} would drift (${reason}) and be ` +
          "replaced as disruption budgets allow.",
      ),
    ),
    section("Would be launched", after.launches, launch),
    section("Would be removed", byReason(after.disruptions), removal),
    section("Would no longer find a place", after.newlyUnschedulable, (pod) => [
      `${pod.namespace}/${pod.name}`,
    ]),
    warnings.map((it) => element("p", { className: "help" }, it)),
    element(
      "p",
      { className: "help" },
      "This is one round of planning: budgets let the operator continue in later rounds.",
    ),
  ].flat();
}

function comparison(before, after, now) {
  const row = (title, value) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, title),
      element("td", {}, value(before)),
      element("td", {}, value(after)),
    );
  const head = ["", "as it is", "with the change"].map((it) =>
    it === "" ? element("td", {}) : element("th", { scope: "col" }, it),
  );
  return element(
    "table",
    { className: "comparison" },
    element("caption", {}, `The nodes cost ${perHour(now)} now. After one round of planning:`),
    element("thead", {}, element("tr", {}, head)),
    element(
      "tbody",
      {},
      row("price", ({ totals }) => perHour(totals.pricePerHourAfter)),
      row("nodes", ({ totals }) => totals.nodesAfter.toLocaleString("en")),
      row("launches", ({ launched }) => launched.toLocaleString("en")),
      row("removals", ({ removed }) => removed.toLocaleString("en")),
      row("pods without a place", ({ unschedulable }) => unschedulable.toLocaleString("en")),
    ),
  );
}

function section(title, items, words) {
  if (items.length === 0) return [];
  return [
    element("h4", {}, title),
    element("ul", { className: "plain" }, items.map((it) => element("li", {}, words(it)))),
  ];
}

function launch({ nodePool, instanceType, capacityTypes, nodes, pods, pricePerHour }) {
  const what = `${nodes} × ${instanceType ?? "a node"} (${capacityTypes.join(" or ")})`;
  return [`${what} of NodePool ${nodePool} for ${count(pods, "pod")}, ${perHour(pricePerHour)} each`];
}

/** Removals with the same reason and replacements together. */
function byReason(disruptions) {
  const together = new Map();
  for (const { reason, nodes, replacements, savingsPerHour } of disruptions) {
    const key = JSON.stringify([reason, replacements]);
    const all = together.get(key) ?? { reason, nodes: [], replacements, usd: 0, times: 0 };
    all.nodes.push(...nodes);
    all.usd -= savingsPerHour;
    all.times += 1;
    together.set(key, all);
  }
  return [...together.values()];
}

function removal({ reason, nodes, replacements, usd, times }) {
  const more = nodes.length - NAMED;
  const named = nodes.slice(0, NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
  const by = replacements.length > 0 ? `, replaced by ${replacements.join(", ")}` : "";
  const each = by && times > 1 ? " each" : "";
  return [`${count(nodes.length, "node")} (${reason})${by}${each}, ${difference(usd)}: ${named}`];
}
