// The parts of a running job: its fronts, its segments, and the way of a record through both.

import { h, s } from "./dom.js";
import { count, duration, holderOf, rate, shortened, size, time } from "./format.js";
import { moreButton, table } from "./tables.js";

const SHOWN = 8;
/** A call that is open for longer is slow. */
const SLOW_S = 10;
/** After so long without a record a partition is quiet. */
const QUIET_S = 60;
/** A sink whose records have waited for longer takes nothing. */
const DRY_S = 5;
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

/** What a front does, and for how long it has had nothing to do. */
function doing(front, holder) {
  const held = holds(front, holder) ? [h("strong", {}, "holds min time"), " "] : [];
  const quiet = front.quiet_s >= QUIET_S ? [h("span", { class: "quiet under" }, `no record for ${duration(Math.floor(front.quiet_s / 60) * 60_000)}`)] : [];
  if (!front.pulling) return [...held, h("span", { class: "warn" }, `waits, as it is ahead of others; ${count(front.parked)} parked`)];
  if (!front.worker) return [...held, h("span", { class: "quiet" }, "idle: no record yet")];
  return [...held, front.parked ? `reads; ${count(front.parked)} parked` : "reads", ...quiet];
}

/** The segments, in the order of the flow. */
export function segmentTable({ segments, now }) {
  if (!segments.length) return null;
  const most = Math.max(...segments.map(({ lag_ms }) => lag_ms ?? 0));
  const rows = segments.map((each) =>
    h("tr", { class: each.holder && "holds" },
      h("td", { class: "number" }, each.segment),
      h("td", { class: "text name" }, each.name || "–", heldBy(each)),
      h("td", { class: "number" }, duration(each.lag_ms)),
      h("td", { class: "drawn" }, bar(each.lag_ms, most)),
      h("td", { class: "number" }, time(each.min_time_ms, now))));
  const title = h("h2", { id: "segments-title" }, "Segments");
  return [title, table("segments-title", ["#No.", "Steps", "#Lag:2", "#Min time (UTC)"], rows)];
}

/** What holds a segment up; of a part of one, whose lanes do not wait for the other parts, what each of them waits for. */
function heldBy({ holder, lanes = [], waits_for = "" }) {
  const said = waits_for ? `${lanes.length === 1 ? "lane" : "lanes"} ${lanes.join(", ")}: held by ${holderOf(waits_for)}` : holder && `held by ${holderOf(holder)}`;
  return said ? h("span", { class: "quiet under" }, said) : null;
}

/** The calls of outside services: how many are open, and how long the services take. */
export function callTable({ calls, holder }) {
  const steps = Object.entries(calls);
  if (!steps.length) return null;
  const rows = steps.map(([step, { open, waiting, oldest_s, per_s, took_ms, retries, failures }]) => {
    const held = holder.includes(`calls of "${step}"`);
    return h("tr", { class: held && "holds" },
      h("td", { class: "text name", title: step }, shortened(step), held ? h("span", { class: "quiet under" }, h("strong", {}, "holds min time")) : null),
      h("td", { class: "number" }, count(open), waiting ? h("span", { class: "quiet under" }, `${count(waiting)} wait`) : null),
      h("td", { class: `number ${oldest_s > SLOW_S ? "warn" : ""}` }, open ? duration(oldest_s * 1000) : "–"),
      h("td", { class: "number" }, rate(per_s)),
      h("td", { class: "number" }, duration(took_ms.p50)),
      h("td", { class: "number" }, duration(took_ms.p99)),
      h("td", { class: "number" }, count(retries), failures ? h("span", { class: "warn under" }, `${count(failures)} failed`) : null));
  });
  const title = h("h2", { id: "calls-title" }, "Calls of services");
  return [title, table("calls-title", ["Step", "#Open", "#Oldest", "#Answers", "#p50", "#p99", "#Retries"], rows)];
}

/** The sinks: what each has got, which one is dry, and of staged ones how far readers of the store see. */
export function sinkTable({ sinks, now }) {
  if (!sinks.length) return null;
  const staged = sinks.some((sink) => sink.staged);
  const rows = sinks.map(({ sink, delivered, bytes, newest_ms, lag_ms, staged: log, waiting = 0, waits_s = 0 }) =>
    h("tr", { class: waits_s >= DRY_S && "holds" },
      h("td", { class: "text name", title: sink }, shortened(sink),
        waits_s >= DRY_S ? h("span", { class: "warn under" }, `takes nothing: ${count(waiting)} records wait`) : null),
      h("td", { class: "number" }, count(delivered)),
      h("td", { class: "number" }, size(bytes)),
      h("td", { class: "number" }, delivered ? time(newest_ms, now) : "none yet"),
      h("td", { class: "number" }, duration(lag_ms)),
      ...(staged ? carried(log, now) : [])));
  const title = h("h2", { id: "sinks-title" }, "Sinks");
  const heads = ["Sink", "#Records", "#Size", "#Newest record (UTC)", "#Dry for"];
  if (staged) heads.push("#Visible to (UTC)", "#Lag", "#Waiting", "#Staged", "#Restarts");
  return [title, table("sinks-title", heads, rows)];
}

/** How far the carrier of a staged sink is; nothing for a sink that is not. */
function carried(log, now) {
  const values = log ? [time(log.visible_time_ms, now), duration(log.lag_ms), count(log.records), size(log.bytes), count(log.restarts)] : Array(5).fill("");
  return values.map((value) => h("td", { class: "number" }, value));
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

/** What protects each kind of connection on its way between machines. */
export function connectionTable(connections) {
  const rows = Object.entries(connections).map(([kind, protection]) =>
    h("tr", {}, h("td", { class: "text" }, kind), h("td", { class: protection.includes("in the clear") || protection.startsWith("without") ? "text warn" : "text" }, protection)));
  if (!rows.length) return null;
  return [h("h2", { id: "connections-title" }, "Connections"), table("connections-title", ["Connection", "Protected by"], rows)];
}

/** The programs that wait to take the job over. */
export function standbyTable({ standbys }) {
  const rows = standbys.map(({ holder, since, ready }) =>
    h("tr", {}, h("td", { class: "text" }, holder), h("td", { class: "text" }, since), h("td", { class: "text" }, ready ? "ready" : "starting")));
  if (!rows.length) return null;
  return [h("h2", { id: "standbys-title" }, "Standbys"), table("standbys-title", ["Program", "Waits since", "State"], rows)];
}
