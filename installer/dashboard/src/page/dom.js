// Elements from data. Whatever is shown goes through text nodes: names of pods, labels and messages
// come from other people and are never read as markup.

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * An element with properties and children. Properties of `attributes` whose name has a dash are
 * attributes; children are nodes or texts, and what is null or false is left out.
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.includes("-") || key === "role" || key === "scope") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...present(children));
  return made;
}

function present(children) {
  return children.flat().filter((child) => child !== null && child !== undefined && child !== false);
}

/** Replaces what is in an element; children as in `element`. */
export function fill(place, ...children) {
  place.replaceChildren(...present(children));
}

/** A button that looks like what it names. */
export function link(text, onclick) {
  return element("button", { type: "button", className: "link", onclick }, text);
}

/** A list of terms and values; pairs without a value are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element(
    "dl",
    { className: "facts" },
    known.map(([term, value]) =>
      element("div", {}, element("dt", {}, term), element("dd", {}, value)),
    ),
  );
}

/** An error of the server, with what can be done about it. */
export function failure(error) {
  return element(
    "div",
    { className: "failure" },
    element("p", {}, error.message),
    (error.details ?? []).map((detail) => element("p", { className: "detail" }, detail)),
    (error.hints ?? []).map((hint) => element("p", { className: "hint" }, `Hint: ${hint}`)),
  );
}
