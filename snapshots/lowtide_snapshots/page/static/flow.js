// The flow as a graph: its steps level by level, what they keep, and which of them holds min time.

import { h, s } from "./dom.js";
import { count, rate, shortened, size } from "./format.js";

const BOX = { width: 178, height: 58 };
const GAP = { along: 34, across: 14 };
/** Room for what is said of a level. */
const HEAD = 24;
const EDGE = 10;
/** A step that takes so much of the time of a process is shown as busy. */
const BUSY = 0.6;
/** A sink whose records have waited for so many seconds takes nothing. */
const DRY_S = 5;

/** The graph, from left to right if there is room for it, else from top to bottom. */
export function flowGraph({ steps, levels, kept, sinks, room }) {
  if (!steps.length) return null;
  const placed = ranked(steps);
  const last = Math.max(...placed.map(({ rank }) => rank));
  const upright = (last + 1) * (BOX.width + GAP.along) > room;
  const boxes = placed.map((each) => boxOf(each, upright));
  const size = { width: Math.max(...boxes.map(({ x }) => x)) + BOX.width + EDGE, height: Math.max(...boxes.map(({ y }) => y)) + BOX.height + EDGE };
  const delivered = Object.fromEntries(sinks.map((sink) => [sink.sink, sink]));
  const title = h("h2", { id: "flow-title" }, "Flow");
  const drawing = s("svg", { class: "flow", ...size, role: "img", "aria-label": told(steps) },
    ...levels.map((level) => band(level, boxes.filter((box) => box.step.level === level.level), size, upright)),
    ...boxes.flatMap((box) => box.step.after.map((before) => edge(boxes[before], box, upright))),
    ...boxes.map((box) => stepBox(box, detail(box.step, kept, delivered))));
  return [title, h("div", { class: "wide", tabindex: "0", role: "region", "aria-labelledby": "flow-title" }, drawing)];
}

/** Each step with its place: the rank along the flow, where levels follow each other, and the row across it. */
function ranked(steps) {
  const placed = steps.map((step) => ({ step, rank: 0, row: 0 }));
  const byLevel = placed.toSorted((one, other) => one.step.level - other.step.level);
  let level = -1, first = 0, end = 0;
  for (const each of byLevel) {
    if (each.step.level !== level) [level, first] = [each.step.level, end];
    each.rank = Math.max(first, ...each.step.after.map((before) => placed[before].rank + 1));
    end = Math.max(end, each.rank + 1);
  }
  for (let rank = 0; rank < end; rank += 1) {
    const here = placed.filter((each) => each.rank === rank).map((each) => ({ each, wanted: wanted(each, placed) }));
    let next = 0;
    for (const { each, wanted: row } of here.toSorted((one, other) => one.wanted - other.wanted)) {
      each.row = Math.max(next, row);
      next = each.row + 1;
    }
  }
  return placed;
}

/** The row of a step that lies straight behind those before it. */
function wanted({ step }, placed) {
  const before = step.after.map((each) => placed[each].row);
  return before.length ? before.reduce((sum, row) => sum + row, 0) / before.length : 0;
}

function boxOf({ step, rank, row }, upright) {
  const across = row * ((upright ? BOX.width : BOX.height) + GAP.across);
  const along = rank * ((upright ? BOX.height : BOX.width) + GAP.along);
  return upright ? { step, x: EDGE + across, y: HEAD + along } : { step, x: EDGE + along, y: HEAD + across };
}

/** What lies behind the steps of one level, and what passes through it. */
function band({ level, workers, records_in, in_per_s }, boxes, size, upright) {
  if (!boxes.length) return null;
  const low = Math.min(...boxes.map((box) => (upright ? box.y : box.x))) - (upright ? HEAD - 4 : 6);
  const high = Math.max(...boxes.map((box) => (upright ? box.y + BOX.height : box.x + BOX.width))) + 6;
  const place = upright ? { x: 4, y: low, width: size.width - 8, height: high - low } : { x: low, y: 2, width: high - low, height: size.height - 4 };
  const text = in_per_s === null ? `${count(records_in)} in` : `${rate(in_per_s)} in`;
  return s("g", { class: "band" },
    s("rect", { ...place, rx: 6 }),
    s("text", { x: place.x + 6, y: place.y + 14 }, `level ${level}: ${text}`, s("title", {}, `${count(workers)} workers have received ${count(records_in)} records`)));
}

function edge(from, to, upright) {
  const [x, y] = upright ? [from.x + BOX.width / 2, from.y + BOX.height] : [from.x + BOX.width, from.y + BOX.height / 2];
  const [toX, toY] = upright ? [to.x + BOX.width / 2, to.y] : [to.x, to.y + BOX.height / 2];
  const bend = upright ? `${x} ${(y + toY) / 2} ${toX} ${(y + toY) / 2}` : `${(x + toX) / 2} ${y} ${(x + toX) / 2} ${toY}`;
  return s("path", { class: from.step.level === to.step.level ? "way" : "way exchange", d: `M${x} ${y} C${bend} ${toX} ${toY}` });
}

function stepBox({ step, x, y }, lines) {
  const first = y + BOX.height / 2 + 4 - 8 * lines.length;
  return s("g", { class: `step ${step.holds ? "holds" : ""}` },
    s("rect", { x, y, ...BOX, rx: 6 }),
    s("text", { class: "name", x: x + 10, y: first }, shortened(step.step, 25)),
    ...lines.map(([text, tone], i) => s("text", { class: tone, x: x + 10, y: first + 16 * (i + 1) }, text)),
    s("title", {}, [`${step.step}: ${step.does}`, ...lines.slice(1).map(([text]) => text), step.holds && "holds min time"].filter(Boolean).join("; ")));
}

/** What is said of a step below its name: [text, tone]. */
function detail({ step, does, late, holds, busy = 0, letters = 0 }, kept, delivered) {
  const parts = Object.entries(kept).filter(([name]) => name === step || name.startsWith(`${step}/`)).map(([, each]) => each);
  const lines = [[holds ? `${does}, holds min time` : does, holds ? "two" : ""]];
  const dry = does === "write" && delivered[step]?.waits_s >= DRY_S;
  if (dry) lines.push([`${count(delivered[step].waiting)} records wait`, "warn"]);
  else if (letters && does !== "write") lines.push([`${count(letters)} dead letters`, "warn"]);
  else if (busy >= BUSY) lines.push([`busy ${Math.round(100 * busy)} % of a process`, "warn"]);
  else if (does === "write" && delivered[step]) lines.push([`${count(delivered[step].delivered)} records`, ""]);
  else if (late) lines.push([`${count(late)} too late`, "warn"]);
  else if (parts.length) lines.push([`${count(parts[0].count)} ${parts[0].what}, ${size(parts.reduce((sum, { bytes }) => sum + bytes, 0))}`, ""]);
  return lines;
}

/** The graph for those who do not see it. */
function told(steps) {
  return steps.map(({ step, does, after, holds }) => {
    const from = after.length ? ` of ${after.map((each) => steps[each].step).join(" and ")}` : "";
    return `${step}, ${does}${from}${holds ? ", holds min time" : ""}`;
  }).join("; ");
}
