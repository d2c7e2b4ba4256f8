// Requests to the server that this page comes from. The token came in the URL's fragment, which no
// browser sends anywhere. It is kept for this tab and removed from the address bar.

const KEPT = "tenon-token";

function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    sessionStorage.setItem(KEPT, token);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEPT) ?? "";
}

let token = takeToken();

/** Uses another token from now on. */
export function useToken(text) {
  token = text.trim();
  sessionStorage.setItem(KEPT, token);
}

/** What the server refuses or can't do: `message`, `details`, `hints`, and the `status`. */
export class Failure extends Error {
  constructor(status, { message, details, hints }) {
    super(message);
    Object.assign(this, { status, details, hints });
  }
}

async function ask(path, options = {}) {
  const headers = { authorization: `Bearer ${token}`, ...options.headers };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch {
    throw new Failure(0, {
      message: "the dashboard does not answer",
      hints: [
        "its command has ended, if it is not running in its terminal: start tenon dashboard, or " +
          "kubectl port-forward, again",
      ],
    });
  }
  if (answer.status === 304) return answer;
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Failure(answer.status, body.error ?? { message: `status ${answer.status}` });
  }
  return answer;
}

let etag = null;

/** The fleet, or null if it has not changed since it was asked for last. */
export async function state() {
  const answer = await ask("/api/state", { headers: etag ? { "if-none-match": etag } : {} });
  if (answer.status === 304) return null;
  const read = await answer.json();
  etag = answer.headers.get("etag");
  return read;
}

/** Decisions, all or those after a revision. */
export async function decisions(after) {
  const query = after === null ? "" : `?after=${after}`;
  return (await ask(`/api/decisions${query}`)).json();
}

/** Why an object is as it is. */
export async function explain(kind, namespace, name) {
  const query = new URLSearchParams({ kind, name, ...(namespace ? { namespace } : {}) });
  return (await ask(`/api/explain?${query}`)).json();
}

/** The pods of a node, by its key. */
export async function pods(node) {
  return (await ask(`/api/pods?${new URLSearchParams({ node })}`)).json();
}

/** The manifest of a NodePool. */
export async function nodePool(name) {
  return (await ask(`/api/nodepool?${new URLSearchParams({ name })}`)).json();
}

/** What the operator would do with this NodePool. */
export async function whatIf(yaml) {
  const headers = { "content-type": "application/yaml" };
  return (await ask("/api/what-if", { method: "POST", body: yaml, headers })).json();
}
