// One object: what is known of it, its pods, and the explanation of `tenon explain`.

import * as api from "./api.js";
import { byId, element, facts, failure, link } from "./dom.js";
import { cores, count, gibibytes, percent, perHour } from "./words.js";

const panel = () => byId("details");

// Answers of requests that were overtaken by a later choice are dropped.
let latest = 0;

/** Says what can be chosen. */
export function empty() {
  panel().replaceChildren(
    element("p", { className: "help" }, "Choose a node, a pod or a NodePool to see its details."),
  );
}

/** Shows a node with its pods and its explanation. */
export async function node(chosen) {
  const call = (latest += 1);
  const name = chosen.node ?? chosen.key;
  const of = (title, [requested, allocatable], amount) => [
    title,
    `${amount(requested)} of ${amount(allocatable)} (${percent(requested, allocatable)})`,
  ];
  const pods = element("div", { "aria-busy": "true" }, element("p", {}, "Loading…"));
  const why = element("div", { "aria-busy": "true" }, element("p", {}, "Loading…"));
  panel().replaceChildren(
    element("h3", {}, name),
    facts([
      ["NodeClaim", chosen.claimed ? chosen.key : null],
      ["NodePool", chosen.nodePool],
      ["Instance type", chosen.instanceType],
      ["Capacity type", chosen.capacityType],
      ["Zone", chosen.zone],
      ["Price", perHour(chosen.pricePerHour)],
      of("CPU requested", chosen.cpu, cores),
      of("Memory requested", chosen.memory, gibibytes),
      ["Phase", chosen.phase],
      ["Created", chosen.createdAt],
      ["Being removed", chosen.removal && removal(chosen.removal)],
      ["Kept from disruption", chosen.blocked],
    ]),
    element("h4", {}, "Why"),
    why,
    element("h4", {}, "Pods"),
    pods,
  );
  const kind = chosen.node === null ? "nodeclaim" : "node";
  await Promise.all([
    into(why, call, async () => explanation(await api.explain(kind, null, name))),
    into(pods, call, async () => list(await api.pods(chosen.key))),
  ]);
}

/** Explains a pod or a NodePool. */
export async function explain(kind, namespace, name) {
  const call = (latest += 1);
  const why = element("div", { "aria-busy": "true" }, element("p", {}, "Loading…"));
  panel().replaceChildren(element("h3", {}, namespace ? `${namespace}/${name}` : name), why);
  await into(why, call, async () => explanation(await api.explain(kind, namespace, name)));
}

async function into(place, call, make) {
  let made;
  try {
    made = await make();
  } catch (error) {
    made = failure(error);
  }
  if (call !== latest) return;
  place.replaceChildren(made);
  place.removeAttribute("aria-busy");
}

function removal({ reason, since, step }) {
  return [reason ?? "deleted by another program", step, since && `since ${since}`]
    .filter(Boolean)
    .join(", ");
}

/** The answer in words, with its commands to copy. */
function explanation({ text, answer }) {
  const copied = answer.advice.map((it) => it.command ?? it.yaml).filter(Boolean);
  return element(
    "div",
    {},
    element("pre", { tabIndex: 0 }, text),
    copied.length > 0 && element("h5", {}, "Copy"),
    copied.map((it) => copyable(it)),
  );
}

function copyable(text) {
  const button = element("button", { type: "button" }, "Copy");
  button.setAttribute("aria-label", `Copy ${text}`);
  button.onclick = async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  };
  return element("div", { className: "copy" }, element("code", {}, text), button);
}

function list({ count: all, pods }) {
  const rows = pods.map((pod) =>
    element(
      "li",
      {},
      link(`${pod.namespace}/${pod.name}`, () => explain("pod", pod.namespace, pod.name)),
      element(
        "span",
        { className: "amount" },
        ` ${cores(pod.cpu)}, ${gibibytes(pod.memory)}${pod.daemon ? ", DaemonSet" : ""}`,
      ),
    ),
  );
  const more = all - pods.length;
  return element(
    "div",
    {},
    all === 0 && element("p", {}, "None."),
    element("ul", { className: "plain" }, rows),
    more > 0 && element("p", {}, `and ${count(more, "more pod")}`),
  );
}
