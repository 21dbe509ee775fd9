// A job's figures and events so far, kept while the page is open, and the timeline's model of them.

import { duration, rate, size, time } from "./format.js";

const FINE_MS = 1_000;
const COARSE_MS = 15_000;
const FINE_KEPT_MS = 20 * 60_000;
/** From here on it is shown who holds min time: below, it is whatever record is under way. */
const REMARKABLE_MS = 1_000;
const COARSE_KEPT_MS = 8 * 3_600_000;
const MARKS_KEPT = 600;

/** Figures and events as they came in; those of a dead life stay. */
export class Past {
  #fine = new Map();
  #coarse = new Map();
  #marks = new Map();
  seenMs = 0;
  incarnation = null;

  /** Add an answer of `GET /history`; entries up to `seenMs` may be left out. */
  take(history) {
    if (!history) return;
    const row = ([at, lag, delivered, read, written, p50, p99, held, holder]) => ({
      at, lag, delivered, read, written, p50, p99, held, holder: holder === null ? "" : history.holders[holder],
    });
    for (const each of history.fine) this.#fine.set(Math.floor(each[0] / FINE_MS), row(each));
    for (const each of history.coarse) this.#coarse.set(Math.floor(each[0] / COARSE_MS), row(each));
    for (const mark of history.marks) this.#marks.set(`${mark.at_ms} ${mark.event} ${mark.snapshot}`, mark);
    forget(this.#fine, ({ at }) => at < history.seen_ms - FINE_KEPT_MS);
    forget(this.#coarse, ({ at }) => at < history.seen_ms - COARSE_KEPT_MS);
    while (this.#marks.size > MARKS_KEPT) this.#marks.delete(this.#marks.keys().next().value);
    this.seenMs = history.seen_ms;
    this.incarnation = history.incarnation;
  }

  /** The first sample at or after a time, with its lag; null if there is none. */
  lagAt(from) {
    return sorted(this.#fine).find(({ at, lag }) => at >= from && lag !== null) ?? null;
  }

  /** The time of the oldest sample; null if there is none. */
  get firstMs() {
    return sorted(this.#coarse)[0]?.at ?? sorted(this.#fine)[0]?.at ?? null;
  }

  get marks() {
    return [...this.#marks.values()];
  }

  /** Samples of about one step each, in ascending time. */
  samples(from, step) {
    const fine = sorted(this.#fine);
    if (step === FINE_MS) return fine.filter(({ at }) => at >= from);
    const coarse = sorted(this.#coarse);
    const until = coarse.at(-1)?.at ?? 0;
    return [...coarse, ...summed(fine.filter(({ at }) => at > until))].filter(({ at }) => at >= from);
  }
}

/** Seconds as coarse samples, aggregated as the job does: the maximum of lags and latencies, the mean of the rest. */
function summed(fine) {
  const steps = Map.groupBy(fine, ({ at }) => Math.floor(at / COARSE_MS));
  return [...steps.values()].map((each) => {
    const known = (name) => each.map((one) => one[name]).filter((value) => value !== null);
    const most = (name) => (known(name).length ? Math.max(...known(name)) : null);
    const mean = (name) => (known(name).length ? known(name).reduce((sum, one) => sum + one, 0) / known(name).length : null);
    const worst = each.reduce((one, other) => ((other.lag ?? -1) > (one.lag ?? -1) ? other : one));
    return {
      at: each.at(-1).at, lag: most("lag"), delivered: most("delivered"), read: mean("read"), written: mean("written"),
      p50: mean("p50"), p99: most("p99"), held: most("held"), holder: worst.holder,
    };
  });
}

function sorted(samples) {
  return [...samples.values()].sort((one, other) => one.at - other.at);
}

function forget(kept, old) {
  for (const [key, each] of kept) if (old(each)) kept.delete(key);
}

/** The timeline's model of one range of time. */
export function modelOf(answer, past, { from, to, now, chosen }) {
  const step = to - from > FINE_KEPT_MS ? COARSE_MS : FINE_MS;
  const samples = past.samples(from - step, step);
  const series = (name, tone, value) => ({ name, tone, step, points: samples.map((each) => [each.at, each[value]]) });
  const panels = [
    { title: "Lag", log: true, format: duration, series: [series("min time", "one", "lag"), series("delivered", "two", "delivered")] },
    { title: "Records per second", log: false, format: rate, series: [series("read", "one", "read"), series("delivered", "two", "written")] },
    { title: "Latency", log: true, format: duration, series: [series("p50", "one", "p50"), series("p99", "two", "p99")] },
  ];
  return {
    from, to, now,
    hint: answer.live || samples.length
      ? "Point at the charts, or use the arrow keys, to see one moment."
      : "There are no charts of lag, records and latency: the job itself keeps those figures, as long as it runs.",
    panels: samples.length ? panels : [],
    lanes: [lives(answer, to, now), snapshots(answer, past.marks, chosen, now), holders(samples, step), troubles(past.marks, to, now)],
    ends: answer.lives.filter(({ phase, ended_ms }) => ended_ms && phase !== "stopped").map(({ ended_ms }) => ended_ms),
    tell: (at) => held(samples, at, step),
  };
}

function held(samples, at, step) {
  const near = samples.findLast((each) => each.at <= at + step / 2);
  if (!near || at - near.at > 3 * step || !near.holder) return [];
  return [`min time held by ${near.holder}` + (near.held === null ? "" : ` for ${duration(near.held * 1000)}`)];
}

/** The first line of a cause. */
export function firstLine(text) {
  return text.split("\n", 1)[0];
}

const ENDS = { stopped: "stopped", failed: "died", gone: "died without reporting it", running: "runs" };

/** How a life ended, in a word or two. */
export function endOf(life) {
  return ENDS[life.phase];
}

function lives(answer, to, now) {
  const died = ({ phase }) => phase === "failed" || phase === "gone";
  const bars = answer.lives
    .filter(({ began_ms }) => began_ms !== null)
    .map((life) => {
      const until = life.ended_ms ? `${life.about ? "about " : ""}${time(life.ended_ms, now)}` : "now";
      const cause = life.cause ? `: ${firstLine(life.cause)}` : "";
      return {
        from: life.began_ms, to: life.ended_ms ?? to, tone: life.phase === "running" ? "good" : "quiet", label: `life ${life.incarnation}`,
        text: `life ${life.incarnation}, ${time(life.began_ms, now)} to ${until}, begun by ${life.begun_by}, ${endOf(life)}${cause}`,
      };
    });
  const marks = answer.lives
    .filter((life) => died(life) && life.ended_ms !== null)
    .map((life) => ({ at: life.ended_ms, shape: "cross", tone: "bad", text: `life ${life.incarnation} ${endOf(life)}` }));
  return { title: "Lives", bars, marks };
}

function snapshots(answer, marks, chosen, now) {
  const called = ({ id, name }) => (name ? `${id} “${name}”` : id);
  const known = answer.snapshots
    .filter(({ at_ms, phase }) => at_ms !== null && phase !== "failed")
    .map((each) => ({
      at: each.at_ms, shape: "diamond", tone: each.phase === "committed" ? "one" : "quiet", big: each.id === chosen,
      text: `${each.phase === "committed" ? "commit" : `snapshot (${each.phase})`} ${called(each)}, ` +
        `everything before ${time(each.min_time_ms, now)}, ${size(each.bytes)}`,
    }));
  const failed = marks
    .filter(({ event }) => event === "snapshot_failed")
    .map((mark) => ({ at: mark.at_ms, shape: "cross", tone: "bad", text: `snapshot ${mark.snapshot} failed: ${mark.why}` }));
  const bars = marks
    .filter(({ took_s, event }) => took_s !== null && event !== "snapshot_committed")
    .map((mark) => ({
      from: mark.at_ms - mark.took_s * 1000, to: mark.at_ms, tone: mark.event === "snapshot_failed" ? "bad" : "one",
      text: `taking ${mark.snapshot} took ${duration(mark.took_s * 1000)}`,
    }));
  return { title: "Commits", bars, marks: [...known, ...failed] };
}

/** Who held min time while it was behind. */
function holders(samples, step) {
  const bars = [];
  for (const { at, lag, holder } of samples) {
    if (!holder || lag === null || lag < REMARKABLE_MS) continue;
    const last = bars.at(-1);
    if (last?.label === holder && at - last.to <= 2 * step) {
      last.to = at;
      last.most = Math.max(last.most, lag);
    } else bars.push({ from: at - step, to: at, tone: "two", label: holder, most: lag });
  }
  return { title: "Held by", bars: bars.map((each) => ({ ...each, text: `${each.label} held min time, ${duration(each.most)} behind` })), marks: [] };
}

function troubles(marks, to, now) {
  const spans = [["stalled", "resumed", "min time stood"], ["zookeeper_lost", "zookeeper_back", "ZooKeeper was away"]];
  const bars = spans.flatMap(([begin, end, text]) =>
    marks
      .filter(({ event }) => event === begin)
      .map((mark) => {
        const over = marks.find(({ event, at_ms }) => (event === end || event === "life_ended") && at_ms >= mark.at_ms);
        const until = over ? over.at_ms : to;
        const why = mark.why ? `: ${firstLine(mark.why)}` : "";
        return { from: mark.at_ms, to: until, tone: "warn", text: `${text} for ${duration(until - mark.at_ms)}${why}` };
      }),
  );
  const shapes = {
    tracker_restarted: ["triangle", "warn", "the tracker was restarted"],
    worker_lost: ["cross", "bad", "a worker died"],
    life_ended: ["cross", "bad", "the life ended"],
  };
  const events = marks
    .filter(({ event }) => event in shapes)
    .map(({ at_ms, event, why }) => {
      const [shape, tone, text] = shapes[event];
      return { at: at_ms, shape, tone, text: `${time(at_ms, now)} ${text}${why ? `: ${firstLine(why)}` : ""}` };
    });
  return { title: "Troubles", bars, marks: events };
}
