// Line charts and strips of events over one time axis, drawn as SVG at the size that the page has for them.
//
// model = {from, to, now, panels: [{title, log, format, series: [{name, tone, step, points: [[ms, value or null]]}]}],
//          lanes: [{title, bars: [{from, to, tone, label, text}], marks: [{at, shape, tone, text, big}]}], ends: [ms]}

import { day, decades, rateTicks, time, timeTicks } from "./format.js";
import { h, s } from "./dom.js";

const LEFT = 64;
const RIGHT = 12;
const PANEL = 116;
const LANE = 26;
const AXIS = 22;
const NEAR_PX = 7;
const MOST_LABELS = 6;
/** Points that are further apart than so many steps are not joined. */
const GAP_STEPS = 2.6;

export class Timeline {
  #place;
  #model = null;
  #at = null;
  #moved = [];
  #readout = h("p", { class: "readout", "aria-live": "polite" });
  #charts = h("div", {
    class: "charts", tabindex: "0", role: "group",
    "aria-label": "Figures and events over time. Left and right arrow keys move through time, Escape leaves.",
  });

  constructor(place) {
    this.#place = place;
    place.replaceChildren(this.#charts, this.#readout);
    new ResizeObserver(() => this.#draw()).observe(this.#charts);
    this.#charts.addEventListener("pointermove", (event) => this.#point(this.#timeAt(event)));
    this.#charts.addEventListener("pointerleave", () => this.#point(null));
    this.#charts.addEventListener("blur", () => this.#point(null));
    this.#charts.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Show a model. */
  draw(model) {
    this.#model = model;
    this.#draw();
  }

  #draw() {
    const model = this.#model;
    const width = Math.floor(this.#charts.clientWidth);
    if (!model || width < LEFT + 80) return;
    this.#moved = [];
    const figures = model.panels.map((panel) => this.#panel(panel, width));
    this.#charts.replaceChildren(...figures, this.#strip(model.lanes, width));
    this.#point(this.#at);
  }

  #x(ms, width) {
    const { from, to } = this.#model;
    return LEFT + ((ms - from) / (to - from)) * (width - LEFT - RIGHT);
  }

  #timeAt(event) {
    const box = this.#charts.getBoundingClientRect();
    const part = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    const { from, to } = this.#model;
    return part < 0 || part > 1 ? null : from + part * (to - from);
  }

  #key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.#point(null);
    if (!steps || !this.#model) return;
    event.preventDefault();
    const { from, to } = this.#model;
    const next = (this.#at ?? to) + steps * ((to - from) / 90);
    this.#point(Math.min(to, Math.max(from, next)));
  }

  // -- one panel ---------------------------------------------------------------------------------------------------

  #panel(panel, width) {
    const { from, to } = this.#model;
    const values = panel.series.flatMap(({ points }) => points.filter(([at]) => at >= from).map(([, value]) => value));
    const known = values.filter((value) => value !== null);
    const scale = known.length ? scaleOf(panel, Math.min(...known), Math.max(...known)) : null;
    const svg = s("svg", { width, height: PANEL, role: "img", "aria-label": summary(panel) });
    svg.append(...this.#grid(width, PANEL, false));
    if (scale) {
      const every = Math.ceil(scale.ticks.length / MOST_LABELS);
      for (const [i, [value, text]] of scale.ticks.entries()) {
        const y = scale.y(value);
        svg.append(s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
        svg.append(s("text", { class: "tick", x: LEFT - 8, y: y + 4, "text-anchor": "end" }, i % every ? "" : text));
      }
      for (const [i, series] of [...panel.series.entries()].toReversed()) svg.append(...this.#lines(series, scale, width, i === 0));
    } else {
      svg.append(s("text", { class: "none", x: (LEFT + width) / 2, y: PANEL / 2 + 4, "text-anchor": "middle" }, "no data"));
    }
    svg.append(...this.#cuts(width, PANEL));
    const legend = panel.series.map((series) => this.#key_of(series, panel, svg, scale, width));
    return h("figure", {}, h("figcaption", {}, h("strong", {}, panel.title), ...legend), svg);
  }

  /** A series in the legend, with its value at the pointer, else its last one. */
  #key_of(series, panel, svg, scale, width) {
    const value = h("span", { class: "value" });
    const dot = s("circle", { class: `dot ${series.tone}`, r: 3.5, visibility: "hidden" });
    svg.append(dot);
    this.#moved.push((at) => {
      const found = at === null ? series.points.at(-1) : nearest(series.points, at, GAP_STEPS * series.step);
      const there = found && found[1] !== null;
      value.textContent = there ? panel.format(found[1]) : "–";
      dot.setAttribute("visibility", there && at !== null && found[0] >= this.#model.from ? "visible" : "hidden");
      if (there && scale) {
        dot.setAttribute("cx", this.#x(found[0], width));
        dot.setAttribute("cy", scale.y(found[1]));
      }
    });
    return h("span", { class: `key ${series.tone}` }, series.name, value);
  }

  #lines(series, scale, width, area) {
    const { from } = this.#model;
    const runs = [];
    let before = null;
    for (const [at, value] of series.points) {
      if (value === null || at < from) continue;
      if (before === null || at - before > GAP_STEPS * series.step) runs.push([]);
      runs.at(-1).push(`${this.#x(at, width).toFixed(1)} ${scale.y(value).toFixed(1)}`);
      before = at;
    }
    const base = scale.y(scale.ticks[0][0]).toFixed(1);
    return runs.flatMap((run) => [
      area && run.length > 1 ? s("path", { class: `area ${series.tone}`, d: `M${run.join("L")}V${base}H${run[0].split(" ")[0]}Z` }) : null,
      s("path", { class: `line ${series.tone}`, d: run.length > 1 ? `M${run.join("L")}` : `M${run[0]}h0.1` }),
    ]).filter(Boolean);
  }

  #grid(width, height, axis) {
    const { from, to } = this.#model;
    const ticks = timeTicks(from, to, Math.max(2, (width - LEFT) / 90));
    return ticks.flatMap(([at, text]) => {
      const x = this.#x(at, width);
      const line = s("line", { class: "grid", x1: x, x2: x, y1: 0, y2: height });
      const near = x < LEFT + 20 ? "start" : x > width - RIGHT - 20 ? "end" : "middle";
      return axis ? [line, s("text", { class: "tick", x, y: height + 16, "text-anchor": near }, text)] : [line];
    });
  }

  /** The ends of lives and the pointer's time, through all charts. */
  #cuts(width, height) {
    const { from, to } = this.#model;
    const ends = this.#model.ends.filter((at) => at >= from && at <= to);
    const cursor = s("line", { class: "cursor", y1: 0, y2: height, visibility: "hidden" });
    this.#moved.push((at) => {
      cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
      if (at === null) return;
      cursor.setAttribute("x1", this.#x(at, width));
      cursor.setAttribute("x2", this.#x(at, width));
    });
    return [...ends.map((at) => s("line", { class: "end", x1: this.#x(at, width), x2: this.#x(at, width), y1: 0, y2: height })), cursor];
  }

  // -- events ------------------------------------------------------------------------------------------------------

  #strip(lanes, width) {
    const height = lanes.length * LANE;
    const said = lanes.map((lane) => `${lane.title}: ${lane.bars.length + lane.marks.length}`).join(", ");
    const svg = s("svg", { width, height: height + AXIS, role: "img", "aria-label": `Events. ${said}` });
    svg.append(...this.#grid(width, height, true));
    lanes.forEach((lane, row) => {
      const middle = row * LANE + LANE / 2;
      svg.append(s("text", { class: "tick", x: LEFT - 8, y: middle + 4, "text-anchor": "end" }, lane.title));
      svg.append(s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: middle, y2: middle }));
      svg.append(...lane.bars.flatMap((bar) => this.#bar(bar, middle, width)));
      svg.append(...lane.marks.flatMap((mark) => this.#mark(mark, middle, width)));
    });
    svg.append(...this.#cuts(width, height));
    const zone = `${day(this.#model.to)}, UTC`;
    return h("figure", {}, h("figcaption", {}, h("strong", {}, "What happened"), h("span", { class: "quiet" }, zone)), svg);
  }

  #bar(bar, middle, width) {
    const { from, to } = this.#model;
    if (bar.to < from || bar.from > to) return [];
    const x = this.#x(Math.max(bar.from, from), width);
    const wide = Math.max(2, this.#x(Math.min(bar.to, to), width) - x);
    const rect = s("rect", { class: `bar ${bar.tone}`, x, y: middle - 7, width: wide, height: 14, rx: 3 });
    const label = bar.label && wide > 8 * bar.label.length + 8;
    return label ? [rect, s("text", { class: "inbar", x: x + 6, y: middle + 4 }, bar.label)] : [rect];
  }

  #mark(mark, middle, width) {
    const { from, to } = this.#model;
    if (mark.at < from || mark.at > to) return [];
    const r = mark.big ? 7 : 4.5;
    const shape = {
      diamond: `M0 ${-r}L${r} 0L0 ${r}L${-r} 0Z`,
      cross: `M${-r + 1} ${-r + 1}L${r - 1} ${r - 1}M${r - 1} ${-r + 1}L${-r + 1} ${r - 1}`,
      triangle: `M0 ${-r}L${r} ${r - 1}H${-r}Z`,
    }[mark.shape];
    const place = `translate(${this.#x(mark.at, width).toFixed(1)} ${middle})`;
    return [s("path", { class: `mark ${mark.shape} ${mark.tone}`, d: shape, transform: place })];
  }

  // -- what is pointed at ------------------------------------------------------------------------------------------

  #point(at) {
    this.#at = at;
    if (!this.#model) return;
    for (const move of this.#moved) move(at);
    const texts = at === null ? [] : this.#near(at);
    this.#readout.textContent = at === null ? this.#model.hint : [time(at, this.#model.now), ...texts].join("  ·  ");
  }

  #near(at) {
    const { from, to, lanes, tell } = this.#model;
    const near = (NEAR_PX * (to - from)) / Math.max(1, this.#charts.clientWidth - LEFT - RIGHT);
    const marks = lanes.flatMap((lane) => lane.marks.filter((mark) => Math.abs(mark.at - at) <= near));
    marks.sort((one, other) => Math.abs(one.at - at) - Math.abs(other.at - at));
    const bars = lanes.flatMap((lane) => lane.bars.filter((bar) => bar.from - near <= at && at <= bar.to + near));
    return [...tell(at), ...marks.slice(0, 3), ...bars.slice(0, 3)].map((each) => each.text ?? each);
  }
}

function scaleOf(panel, low, high) {
  const top = 8;
  const bottom = PANEL - 6;
  if (panel.log) {
    const ticks = decades(Math.max(low, 1), Math.max(high, 1));
    const [first, last] = [Math.log10(ticks[0][0]), Math.log10(ticks.at(-1)[0])];
    return { ticks, y: (value) => bottom - ((Math.log10(Math.max(value, 10 ** first)) - first) / (last - first)) * (bottom - top) };
  }
  const ticks = rateTicks(high);
  return { ticks, y: (value) => bottom - (value / ticks.at(-1)[0]) * (bottom - top) };
}

function nearest(points, at, within) {
  let best = null;
  for (const point of points) if (!best || Math.abs(point[0] - at) <= Math.abs(best[0] - at)) best = point;
  return best && Math.abs(best[0] - at) <= within ? best : null;
}

function summary(panel) {
  const said = panel.series.map(({ name, points }) => {
    const last = points.findLast(([, value]) => value !== null);
    return `${name} ${last ? panel.format(last[1]) : "no data"}`;
  });
  return `${panel.title}: now ${said.join(", ")}`;
}
