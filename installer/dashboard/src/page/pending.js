// Pending pods by reason, and the NodePools: both lead to explanations.

import { byId, element, fill, link } from "./dom.js";
import { count, percent, perHour } from "./words.js";

const NAMED = 20;

let choose = { pod: () => {}, nodePool: () => {} };

/** Calls `pod(namespace, name)` and `nodePool(name)` for what is clicked. */
export function start(chosen) {
  choose = chosen;
}

/** Shows what the fleet says about pods without a node and about NodePools. */
export function show({ fleet, notes, warnings }) {
  fill(
    byId("pending"),
    element("h3", {}, "Pending pods"),
    fleet.pendingPods.length === 0
      ? element("p", {}, "None.")
      : element("ul", { className: "plain" }, fleet.pendingPods.map(reason)),
    element("h3", {}, "NodePools"),
    element("ul", { className: "plain" }, fleet.nodePools.map(nodePool)),
    warnings.length + notes.length > 0 && element("h3", {}, "Notes"),
    [...warnings, ...notes].map((it) => element("p", { className: "help" }, it)),
  );
}

function reason(group) {
  const shown = group.pods.slice(0, NAMED);
  const more = group.count - shown.length;
  return element(
    "li",
    {},
    element("p", {}, element("strong", {}, count(group.count, "pod")), `: ${group.reason}`),
    element(
      "p",
      {},
      shown.flatMap(({ namespace, name }) => [
        link(`${namespace}/${name}`, () => choose.pod(namespace, name)),
        " ",
      ]),
      more > 0 && `and ${more.toLocaleString("en")} more`,
    ),
  );
}

function nodePool(pool) {
  const parts = [
    count(pool.nodes, "node"),
    perHour(pool.pricePerHour),
    pool.nodes > 0 && `${percent(pool.spot, pool.nodes)} spot`,
    pool.starting > 0 && `${pool.starting} starting`,
    pool.paused && "paused",
    pool.problem,
  ].filter(Boolean);
  return element(
    "li",
    {},
    link(pool.name, () => choose.nodePool(pool.name)),
    ` ${parts.join(", ")}`,
  );
}
