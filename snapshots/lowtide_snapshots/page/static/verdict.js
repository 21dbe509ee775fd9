// How a job stands, in one sentence and six figures.

import { coded, h } from "./dom.js";
import { count, duration, holderOf, rate, size, time } from "./format.js";

const BEHIND_MS = 3_000;
/** A delivered time is stored before it is published, which takes a moment. */
const DELIVERED_BEHIND_MS = 10_000;
const OLD_MS = 20_000;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** Over how long it is seen whether a lag shrinks. */
const TREND_MS = 15_000;
/** The troubles that may be why min time stands. */
const EXPLAINS = new Set(["slow step", "dry sink", "silent partition"]);

const STATES = {
  running: ["good", "runs"], starting: ["warn", "is starting or ending"], stopping: ["warn", "is stopping"],
  stopped: ["quiet", "is stopped"], failed: ["bad", "is dead"], gone: ["bad", "is dead"],
  unknown: ["quiet", "was never started"], unreachable: ["warn", "cannot be read now"],
};

/** The tone and the words of a state. */
export function stateOf(state) {
  return STATES[state] ?? ["quiet", state];
}

// -- the sentence ----------------------------------------------------------------------------------------------------

/** {tone, state, note, why, found, to_do}; `silent` is since when a job that serves its page itself has not answered. */
export function verdictOf(answer, past, now, silent) {
  const { state, live, lives, incarnation, why, to_do, job } = answer;
  const life = lives.findLast((each) => each.incarnation === incarnation);
  const lasted = life?.began_ms ? `life ${incarnation}, for ${duration(calm(now - life.began_ms))}` : incarnation ? `life ${incarnation}` : "";
  if (silent) return lost(job, silent, now);
  if (state === "running" && live) return running(job, live, past, now, lasted);
  if (state === "running") return { tone: "warn", state: `${job} runs, but does not answer`, note: lasted, why: "", to_do: [] };
  const [tone, word] = stateOf(state);
  const ended = life?.ended_ms ? `for ${duration(calm(now - life.ended_ms))}, since ${life.about ? "about " : ""}${time(life.ended_ms, now)} UTC` : "";
  const over = tone === "bad" || state === "stopped";
  return { tone, state: `${job} ${word}`, note: over ? [ended, incarnation ? `life ${incarnation}` : ""].filter(Boolean).join(", ") : "", why, to_do };
}

function running(job, live, past, now, lasted) {
  if (live.min_time_ms === null) {
    return { tone: "warn", state: `${job} is starting`, note: lasted, why: ["Min time is not known yet: not all of its workers are there.", ...live.troubles.map(sentence)].join("\n"), to_do: [] };
  }
  const old = now - live.seen_ms;
  const behind = live.lag_ms > BEHIND_MS;
  const stands = behind && live.held_s * 1000 > BEHIND_MS;
  const found = live.found ?? [];
  const named = new Set(found.map(({ says }) => says));
  const { word, note } = !behind ? { word: "runs", note: "" } : stands ? { word: "runs, but delivers nothing", note: "" } : direction(live, past);
  const notes = [
    old > OLD_MS && `Its figures are ${duration(calm(old))} old: it computes no new ones, or its clock differs from the page's server.`,
    stands && `Min time stands. It is held by ${live.holder || "an unknown holder"}.`,
    note, ...live.troubles.filter((each) => !named.has(each)),
  ].filter(Boolean).map(sentence);
  const tone = notes.length || found.length ? "warn" : "good";
  const state = `${job} ${found.length ? headline(found, behind ? word : "runs") : word}`;
  return { tone, state, note: lasted, why: notes.join("\n"), found, to_do: stands ? live.to_do ?? [] : [] };
}

/** What a job does, the first trouble in a few words, and how many more there are. */
function headline([first, ...others], word) {
  const joined = word === "runs" ? ", but" : EXPLAINS.has(first.kind) ? ":" : ", and";
  return `${word}${joined} ${first.headline}${others.length ? ` (and ${others.length} more)` : ""}`;
}

/** Whether a job whose min time is behind, and moves, comes closer. */
function direction(live, past) {
  const before = past.lagAt(live.seen_ms - TREND_MS);
  if (!before) return { word: "is behind", note: `Min time is ${duration(live.lag_ms)} behind` };
  const passed = live.seen_ms - before.at;
  const gained = before.lag - live.lag_ms;
  if (gained < 0.02 * passed) return { word: "is behind", note: `Min time is ${duration(live.lag_ms)} behind and does not catch up` };
  const left = (live.lag_ms / gained) * passed;
  return { word: "catches up", note: `Min time is ${duration(live.lag_ms)} behind and catches up; at this pace in about ${duration(calm(left))}` };
}

function lost(job, since, now) {
  return {
    tone: "bad", state: `${job} does not answer`, note: `for ${duration(calm(now - since))}, since ${time(since, now)} UTC`,
    why: `It has ended, it begins its next life, or its machine is not reached. The page shows how it stood at ${time(since, now)} UTC, and goes on asking.`,
    to_do: [
      `Run \`lowtide status ${job}\` where the job runs: it says whether it runs and, if it has ended, why.`,
      `If it runs, its new life listens elsewhere, unless the conf gives \`[control]\` a port: \`lowtide status ${job} --open\` opens its page. If it has the same address, this page goes on by itself; where the life has made its own certificate, reload the page to accept it.`,
    ],
  };
}

/** A duration that does not tick each second once it is long, so that the text stays calm. */
function calm(ms) {
  return ms < 2 * MINUTE ? ms : Math.floor(ms / MINUTE) * MINUTE;
}

/** A text as a sentence. */
export function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}`.replace(/(?<![.?])$/, ".");
}

/** A trouble's sentence, up to the end of its headline in bold. */
function headed({ says, headline: words }) {
  const whole = sentence(says);
  const end = whole.indexOf(words) + words.length;
  return whole.includes(words) ? [h("b", {}, whole.slice(0, end)), whole.slice(end)] : [whole];
}

/** The card with the sentence. */
export function verdictCard({ tone, state, note, why, found = [], to_do }) {
  return h("div", { class: `${tone}-edge` },
    h("p", { class: "state" }, h("strong", {}, h("span", { class: `light ${tone}`, "aria-hidden": "true" }), state), h("span", { class: "quiet" }, note)),
    ...found.map((each) => h("div", { class: "found" },
      h("p", {}, ...headed(each)),
      h("ul", { "aria-label": `What to do about ${each.name}` }, ...each.to_do.map((way) => h("li", {}, ...coded(way)))))),
    why ? h("p", { class: "why" }, why) : null,
    to_do.length ? [h("h2", {}, "What to do"), h("ol", {}, ...to_do.map((each) => h("li", {}, ...coded(each))))] : null);
}

// -- the figures -----------------------------------------------------------------------------------------------------

/** The tiles: {name, value, sub, tone}; a tone only where somebody should look. */
export function tilesOf(found, now) {
  const { live, delivered_ms, snapshots, lives } = found;
  const commit = snapshots.findLast(({ last }) => last);
  const delivered = live?.delivered_time_ms ?? delivered_ms;
  const died = deaths(lives, found.incarnation, now);
  if (!live) {
    const again = commit && delivered_ms > commit.min_time_ms ? duration(delivered_ms - commit.min_time_ms) : "–";
    return [
      { name: "Delivered up to", value: time(delivered, now), sub: "UTC; everything before is in the sinks" },
      committed(commit, null, now),
      { name: "A start reads again", value: again, sub: "of input: from the last commit up to the delivered time" },
      died,
    ];
  }
  const held = live.holder ? `held by ${holderOf(live.holder)}${live.held_s >= 1 ? ` for ${duration(live.held_s * 1000)}` : ""}` : "no holder is known yet";
  const late = delivered === null ? null : Math.max(0, live.seen_ms - delivered);
  return [
    { name: "Min time lag", value: duration(live.lag_ms), sub: held, tone: live.lag_ms > BEHIND_MS && "warn" },
    { name: "Delivery lag", value: duration(late), sub: late === null ? "nothing delivered yet" : `everything before ${time(delivered, now)} UTC is in the sinks`, tone: late > DELIVERED_BEHIND_MS && "warn" },
    { name: "Read", value: rate(live.rates.records_in), sub: live.rates.delivered === null ? "nothing counted yet" : `${rate(live.rates.delivered)} delivered` },
    { name: "Latency p50", value: duration(live.latency_ms.p50), sub: live.latency_ms.p99 === null ? "nothing delivered lately" : `p99 ${duration(live.latency_ms.p99)}` },
    committed(commit, live.snapshots, now),
    died,
    ...aside(live),
  ];
}

/** What did not go its usual way; no tile as long as there is none of it. */
function aside({ totals, refused = {} }) {
  const late = Object.values(totals.late).reduce((sum, { closed, ahead }) => sum + closed + ahead, 0);
  const rows = Object.values(refused).reduce((sum, each) => sum + each, 0);
  if (!totals.dead_letters && !rows && !late) return [];
  const rest = [rows && `${count(rows)} rows refused by tables`, late && `${count(late)} records too late`, `${count(totals.repairs)} repairs`];
  return [{ name: "Dead letters", value: count(totals.dead_letters), sub: rest.filter(Boolean).join(", "), tone: totals.dead_letters || rows ? "warn" : "" }];
}

function committed(commit, reported, now) {
  const taking = reported?.taking ? `; ${reported.taking} is being taken` : "";
  const failed = reported?.counts?.failed ?? 0;
  const tone = failed ? "warn" : "";
  const rest = taking + (failed ? `; ${failed} failed in this life` : "");
  if (!commit) return { name: "Last commit", value: "none", sub: `a start would read everything again${rest}`, tone };
  const bytes = commit.bytes === null ? "" : `, ${size(commit.bytes)}`;
  const called = commit.name ? ` “${commit.name}”` : "";
  return { name: "Last commit", value: `${duration(calm(Math.max(0, now - commit.at_ms)))} ago`, sub: `${commit.id}${called}${bytes}${rest}`, tone };
}

function deaths(lives, incarnation, now) {
  const ends = lives.filter(({ phase }) => phase === "failed" || phase === "gone").map(({ ended_ms }) => ended_ms);
  const count = ends.filter((at) => at > now - DAY).length;
  const value = count === 1 ? "once" : count ? `${count} times` : "never";
  return { name: "Died in 24 h", value, sub: `${incarnation === 1 ? "1 life" : `${incarnation} lives`} in all`, tone: ends.filter((at) => at > now - HOUR).length > 1 ? "warn" : "" };
}

export function tileCard({ name, value, sub, tone }) {
  return h("dl", { class: `tile ${tone || ""}` }, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "sub", title: sub.length > 60 && sub }, sub));
}
