// The parts of a running job: its fronts, its segments, and the way of a record through both.

import { h, s } from "./dom.js";
import { count, duration, holderOf, shortened, time } from "./format.js";
import { moreButton, table } from "./tables.js";

const SHOWN = 8;
const BAR = 56;

/** The fronts, those that are furthest behind first. */
export function frontTable({ fronts, holder, all }, more) {
  if (!fronts.length) return null;
  const sorted = fronts.toSorted((one, other) => (other.lag_ms ?? -1) - (one.lag_ms ?? -1) || one.front - other.front);
  const most = Math.max(...fronts.map(({ lag_ms }) => lag_ms ?? 0));
  const rows = sorted.map((front, i) =>
    all || i < SHOWN
      ? h("tr", { class: holds(front, holder) && "holds" },
          h("td", { class: "text name", title: front.partition }, shortened(front.partition)),
          h("td", { class: "number" }, duration(front.lag_ms)),
          h("td", { class: "drawn" }, bar(front.lag_ms, most)),
          h("td", { class: "text" }, ...doing(front, holder)),
          h("td", { class: "number" }, count(front.next_offset)))
      : null);
  const title = h("h2", { id: "fronts-title" }, `Fronts (${fronts.length})`);
  return [title, table("fronts-title", ["Partition", "#Lag:2", "State", "#Next offset"], rows), moreButton(fronts.length, SHOWN, all, more)];
}

function holds({ front }, holder) {
  return holder.startsWith(`front ${front} (`);
}

function doing(front, holder) {
  const held = holds(front, holder) ? [h("strong", {}, "holds min time"), " "] : [];
  if (!front.pulling) return [...held, h("span", { class: "warn" }, `waits, as it is ahead of others; ${count(front.parked)} parked`)];
  if (!front.worker) return [...held, h("span", { class: "quiet" }, "idle")];
  return [...held, front.parked ? `reads; ${count(front.parked)} parked` : "reads"];
}

/** The segments, in the order of the flow. */
export function segmentTable({ segments, now }) {
  if (!segments.length) return null;
  const most = Math.max(...segments.map(({ lag_ms }) => lag_ms ?? 0));
  const rows = segments.map((each) =>
    h("tr", { class: each.holder && "holds" },
      h("td", { class: "number" }, each.segment),
      h("td", { class: "text name" }, each.name || "–", each.holder ? h("span", { class: "quiet under" }, `held by ${holderOf(each.holder)}`) : null),
      h("td", { class: "number" }, duration(each.lag_ms)),
      h("td", { class: "drawn" }, bar(each.lag_ms, most)),
      h("td", { class: "number" }, time(each.min_time_ms, now))));
  const title = h("h2", { id: "segments-title" }, "Segments");
  return [title, table("segments-title", ["#No.", "Steps", "#Lag:2", "#Min time (UTC)"], rows)];
}

const HOPS = {
  pack: "packed by Spark", exchange: "between levels, by Spark's shuffle", wait: "waiting for min time", sink: "waiting for the sink",
  commit: "the sink's transaction",
};

/** Where a record's time goes, hop by hop. */
export function hopTable({ hops }) {
  const known = Object.entries(hops).filter(([, { p50 }]) => p50 !== null);
  if (!known.length) return null;
  const most = Math.max(...known.map(([, { p99 }]) => p99));
  const rows = known.map(([hop, { p50, p99 }]) =>
    h("tr", {},
      h("td", {}, hop),
      h("td", { class: "text quiet" }, HOPS[hop] ?? (hop.startsWith("python") ? `steps of level ${hop.slice(7)}` : "")),
      h("td", { class: "number" }, duration(p50)),
      h("td", { class: "drawn" }, bar(p50, most)),
      h("td", { class: "number" }, duration(p99))));
  const title = h("h2", { id: "hops-title" }, "Where a record's time goes");
  return [title, table("hops-title", ["Hop:2", "#p50:2", "#p99"], rows)];
}

/** A bar on a logarithmic scale from 1 ms, so that milliseconds and hours have their place. */
function bar(ms, most) {
  const part = ms === null || ms === undefined ? 0 : Math.log1p(Math.max(0, ms)) / Math.log1p(Math.max(1, most));
  return s("svg", { class: "lagbar", width: BAR, height: 8, "aria-hidden": "true" },
    s("rect", { class: "track", width: BAR, height: 8, rx: 2 }), s("rect", { class: "fill", width: Math.max(1, BAR * part), height: 8, rx: 2 }));
}
