// The nodes as they were read last, and what is derived of them: groups, colors, use. Nothing here
// touches the page.

import { count } from "./words.js";

/** Colors of groups, by their number; more groups than that share the last one. */
const COLORS = [
  "#2f6fab",
  "#c2571a",
  "#2e8540",
  "#8a4fa3",
  "#b0892a",
  "#b83a5b",
  "#28818c",
  "#6b7280",
];

/** States of a node, the most urgent first, with colors of their own. */
const STATES = [
  ["being removed", "#b3261e"],
  ["kept from disruption", "#b0892a"],
  ["starting", "#2f6fab"],
  ["steady", "#2e8540"],
];

/** Adds to each node what other parts of the answer say about it. */
export function prepare(state) {
  const disrupting = new Map(state.fleet.disrupting.map((it) => [it.node, it]));
  const blocked = new Map();
  for (const { message, nodes } of state.fleet.blocked) {
    for (const node of nodes) blocked.set(node, message);
  }
  for (const node of state.nodes) {
    node.removal = disrupting.get(node.key) ?? null;
    node.blocked = blocked.get(node.key) ?? null;
    node.disruption = disruptionOf(node);
    node.text = [node.key, node.node, node.nodePool, node.instanceType, node.zone]
      .concat(node.capacityType, node.disruption)
      .filter(Boolean)
      .join(" ")
      .toLowerCase();
  }
  return state;
}

function disruptionOf(node) {
  if (node.removal) return "being removed";
  if (node.phase !== "Initialized") return "starting";
  return node.blocked ? "kept from disruption" : "steady";
}

/** How full a node is, from 0 to 1. */
export function use(node, by) {
  const share = ([requested, allocatable]) => (allocatable > 0 ? requested / allocatable : 0);
  const shares = { cpu: share(node.cpu), memory: share(node.memory) };
  const value = by === "most" ? Math.max(shares.cpu, shares.memory) : shares[by];
  return Math.min(1, Math.max(0, value));
}

/** The nodes by a property: name, color and nodes of each group, the largest first. */
export function groups(nodes, by) {
  const byName = new Map();
  for (const node of nodes) {
    const name = node[by] ?? "(none)";
    if (!byName.has(name)) byName.set(name, []);
    byName.get(name).push(node);
  }
  if (by === "disruption") {
    const present = STATES.filter(([name]) => byName.has(name));
    return present.map(([name, color]) => ({ name, color, nodes: byName.get(name) }));
  }
  const sorted = [...byName].sort(
    ([a, ofA], [b, ofB]) => ofB.length - ofA.length || (a < b ? -1 : 1),
  );
  return sorted.map(([name, members], at) => ({
    name,
    color: COLORS[Math.min(at, COLORS.length - 1)],
    nodes: members,
  }));
}

/** What is said of a node where there is one line for it. */
export function inOneLine(node) {
  const price = node.pricePerHour === null ? "price unknown" : `$${node.pricePerHour.toFixed(4)}/h`;
  const share = ([requested, allocatable]) =>
    allocatable > 0 ? `${Math.round((100 * requested) / allocatable)}%` : "-";
  const parts = [
    node.node ?? node.key,
    node.nodePool && `NodePool ${node.nodePool}`,
    node.instanceType,
    node.capacityType,
    node.zone,
    price,
    `CPU ${share(node.cpu)}`,
    `memory ${share(node.memory)}`,
    count(node.pods, "pod"),
    node.disruption,
  ];
  return parts.filter(Boolean).join(", ");
}
