// Amounts as people write them.

/** Number and noun: `1 node`, `2 nodes`. */
export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** USD per hour. */
export function perHour(usd) {
  return usd === null || usd === undefined ? "unknown" : `$${usd.toFixed(4)}/h`;
}

/** A difference in USD per hour, with its sign. */
export function difference(usd) {
  const sign = usd > 0 ? "+" : usd < 0 ? "−" : "±";
  return `${sign}$${Math.abs(usd).toFixed(4)}/h`;
}

/** Millicores as cores. */
export function cores(millis) {
  return `${+(millis / 1000).toFixed(2)} cpu`;
}

/** Bytes in GiB. */
export function gibibytes(bytes) {
  return `${+(bytes / 2 ** 30).toFixed(1)}Gi`;
}

/** A share of a whole, in percent; `-` of nothing. */
export function percent(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)}%` : "-";
}
