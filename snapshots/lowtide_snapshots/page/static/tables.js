// The list of snapshots and the list of lives, newest first.

import { coded, h } from "./dom.js";
import { count, duration, size, time } from "./format.js";
import { endOf, firstLine } from "./past.js";

const SHOWN = 10;
const LINE_CHARS = 140;

/** The list of snapshots. */
export function snapshotTable({ snapshots, chosen, now, all }, more) {
  const title = h("h2", { id: "snapshots-title" }, "Snapshots");
  if (!snapshots.length) return [title, h("p", { class: "quiet" }, ...coded("None yet. `lowtide snapshot` takes and commits one, and so does the job itself after `snapshots.max_commit_age_s`."))];
  const newest = snapshots.toReversed();
  const rows = newest.map((each, i) =>
    all || i < SHOWN || each.id === chosen
      ? h("tr", { class: each.id === chosen && "chosen", id: each.id === chosen && "chosen" },
          h("td", { class: "id" }, each.id),
          h("td", { class: each.name && "text" }, each.name ?? ""),
          h("td", { class: each.why && "text" }, standing(each)),
          h("td", { class: "number" }, time(each.min_time_ms, now, 3)),
          h("td", { class: "number" }, time(each.at_ms, now)),
          h("td", { class: "number" }, count(each.rows)),
          h("td", { class: "number" }, count(each.parts)),
          h("td", { class: "number" }, size(each.bytes)),
          h("td", { class: "number" }, each.incarnation))
      : null,
  );
  const heads = ["Snapshot", "Name", "Phase", "#Before (UTC)", "#Made (UTC)", "#Rows", "#Parts", "#Size", "#Life"];
  return [title, table("snapshots-title", heads, rows), moreButton(newest.length, SHOWN, all, more)];
}

function standing({ phase, last, why }) {
  if (why) return h("span", { class: "bad" }, phase === "failed" ? `failed: ${why}` : why);
  if (last) return h("strong", {}, "the last commit");
  if (phase === "taking") return "is being taken";
  return phase === "over" ? h("span", { class: "quiet" }, "over, goes with the next prune") : phase;
}

/** The list of lives. */
export function lifeTable({ lives, now, all }, more) {
  const title = h("h2", { id: "lives-title" }, "Lives");
  if (!lives.length) return [title, h("p", { class: "quiet" }, "None yet.")];
  const newest = lives.toReversed();
  const rows = newest.map((life, i) => {
    if (!all && i >= SHOWN) return null;
    const about = life.about ? "about " : "";
    const lasted = life.ended_ms !== null && life.began_ms !== null ? about + duration(life.ended_ms - life.began_ms) : "–";
    return h("tr", {},
      h("td", { class: "number" }, life.incarnation),
      h("td", { class: "number" }, time(life.began_ms, now)),
      h("td", { class: "number" }, life.phase === "running" ? "" : about + time(life.ended_ms, now)),
      h("td", { class: "number" }, life.phase === "running" ? "" : lasted),
      h("td", { class: "text" }, life.begun_by),
      h("td", { class: "id" }, life.commit ?? "–"),
      h("td", { class: "text long" }, ...how(life)));
  });
  const heads = ["#Life", "#Began (UTC)", "#Ended (UTC)", "#Lasted", "Begun by", "Began from", "How it ended"];
  return [title, table("lives-title", heads, rows), moreButton(newest.length, SHOWN, all, more)];
}

function how(life) {
  const tone = { running: "good", stopped: "quiet", failed: "bad", gone: "bad" }[life.phase];
  const word = h("span", { class: tone }, endOf(life));
  if (!life.cause) return [word];
  const line = firstLine(life.cause);
  const first = line.length > LINE_CHARS ? `${line.slice(0, LINE_CHARS)}…` : line;
  if (first === life.cause && !life.way_out) return [word, `: ${first}`];
  const rest = [life.cause, life.way_out && `What to do: ${life.way_out}`].filter(Boolean).join("\n\n");
  return [h("details", {}, h("summary", {}, word, `: ${first}`), rest)];
}

/**
 * A table in a frame that scrolls where it is too wide; a head with # is one of numbers, one with :2 of two columns. Each
 * cell knows its head: on a narrow screen a row becomes a list.
 */
export function table(title, heads, rows) {
  const labels = heads.flatMap((head) => {
    const [text, span] = head.replace("#", "").split(":");
    return [text, ...Array((span ?? 1) - 1).fill("")];
  });
  for (const row of rows) row?.querySelectorAll("td").forEach((cell, i) => cell.setAttribute("data-head", labels[i] ?? ""));
  const named = heads.map((head) => {
    const [text, span] = head.replace("#", "").split(":");
    return h("th", { scope: span ? "colgroup" : "col", colspan: span, class: head.startsWith("#") && !span && "number" }, text);
  });
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-labelledby": title },
    h("table", { "aria-labelledby": title }, h("thead", {}, h("tr", {}, ...named)), h("tbody", {}, ...rows)));
}

/** The button below a list of which some are shown; null for one that is short. */
export function moreButton(of, some, all, more) {
  if (of <= some) return null;
  return h("button", { class: "more", type: "button", "aria-expanded": String(all), click: more }, all ? `Show ${some}` : `Show all ${of}`);
}
