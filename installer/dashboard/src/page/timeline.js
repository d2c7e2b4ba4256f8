// The operator's decisions, the newest first: when, what, why, what it saved, what became of it.

import * as api from "./api.js";
import { byId, element, failure, fill, link } from "./dom.js";
import { KINDS, strip } from "./strip.js";
import { count, difference } from "./words.js";

/** As many as the operator's ledger keeps. */
const MOST = 2000;

/** As many as are shown; the filter reaches the others. */
const SHOWN = 200;

let known = { leader: null, since: null, revision: null };
let bySeq = new Map();
let kind = "";
let choose = { node: () => {}, pod: () => {} };
let trouble = null;
let drawn = false;
let list;
let sums;
let place;

/** Calls `node(name)` and `pod(namespace, name)` for what is clicked. */
export function start(chosen) {
  choose = chosen;
  const select = element("select", { id: "kind" }, element("option", { value: "" }, "all"));
  select.append(...KINDS.map(([it]) => element("option", { value: it }, it)));
  select.onchange = () => {
    kind = select.value;
    draw();
  };
  place = element("div", {});
  sums = element("p", { className: "sums" });
  list = element("ol", { className: "timeline", reversed: true });
  byId("decisions").append(element("label", {}, "Kind ", select), sums, place, list);
}

/** Asks for what is new; says in how many milliseconds to ask again. */
export async function update() {
  try {
    let answer = await api.decisions(known.revision);
    const is = ({ leader, since }) => leader === known.leader && since === known.since;
    if (known.revision !== null && !is(answer)) {
      drawn = false;
      // Another leader has another ledger, with numbers of its own.
      bySeq = new Map();
      answer = await api.decisions(null);
    }
    known = { leader: answer.leader, since: answer.since, revision: answer.revision };
    for (const decision of answer.decisions) bySeq.set(decision.seq, decision);
    for (const seq of [...bySeq.keys()].sort((a, b) => a - b).slice(0, -MOST)) bySeq.delete(seq);
    if (answer.decisions.length > 0 || trouble !== null || !drawn) {
      trouble = null;
      draw();
    }
    return answer.more ? 0 : 3000;
  } catch (error) {
    if (trouble !== error.message) {
      trouble = error.message;
      draw();
      place.replaceChildren(failure(error));
    }
    return 15000;
  }
}

function draw() {
  drawn = true;
  const all = [...bySeq.values()].filter((it) => kind === "" || it.kind === kind);
  all.sort((a, b) => b.seq - a.seq);
  sums.textContent = summary(all);
  const since = known.since ? ` since ${known.since}` : "";
  fill(place, all.length === 0 ? element("p", {}, `No decisions${since}.`) : strip(all));
  list.replaceChildren(...all.slice(0, SHOWN).map(item));
}

/** What the decisions that were carried out add and save, per hour. */
function summary(all) {
  const done = all.filter((it) => it.price && it.result.state === "done");
  const sum = (of) => of.reduce((usd, { price }) => usd + price.after - price.before, 0);
  const launched = done.filter((it) => it.kind === "launch");
  const others = done.filter((it) => it.kind !== "launch");
  const parts = [
    launched.length > 0 && `launches ${difference(sum(launched))}`,
    others.length > 0 && `disruptions ${difference(sum(others))}`,
  ].filter(Boolean);
  const most = all.length > SHOWN ? `, the newest ${SHOWN} are shown` : "";
  const completed = parts.length > 0 ? `; completed: ${parts.join(", ")}` : "";
  return `${count(all.length, "decision")}${most}${completed}`;
}

function item(decision) {
  const { time, price, reason, result } = decision;
  const saved = price ? difference(price.after - price.before) : null;
  const names = (of) => (of?.names ?? []).slice(0, 5);
  const nodes = names(decision.nodes).length > 0 ? decision.nodes : decision.nodeClaims;
  return element(
    "li",
    { className: `decision ${result.state}` },
    element(
      "p",
      { className: "what" },
      element("time", { dateTime: time }, time.slice(0, 19).replace("T", " ")),
      element("strong", {}, ` ${decision.what}`),
      saved && element("span", { className: "price" }, ` ${saved}`),
    ),
    reason && element("p", {}, `Why: ${reason}`),
    (decision.alternatives ?? []).map((it) => element("p", {}, `Instead: ${it}`)),
    element("p", { className: "result" }, decision.outcome),
    names(nodes).length > 0 &&
      element("p", {}, names(nodes).flatMap((name) => [link(name, () => choose.node(name)), " "])),
    names(decision.pods).length > 0 &&
      element(
        "p",
        {},
        names(decision.pods).flatMap((name) => {
          const [namespace, pod] = name.split("/");
          return [link(name, () => choose.pod(namespace, pod)), " "];
        }),
      ),
  );
}
