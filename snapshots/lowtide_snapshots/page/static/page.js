// Lowtide's page: fetches a job's status from Airflow's API server every two seconds, and shows it.

import { h, put } from "./dom.js";
import { duration, rate, size, time } from "./format.js";
import { modelOf, Past } from "./past.js";
import { lifeTable, snapshotTable } from "./tables.js";
import { Timeline } from "./timeline.js";

const EVERY_MS = 2_000;
const AFTER_ERROR_MS = 5_000;
const LIMIT_MS = 20_000;
const STANDS_MS = 3_000;
const OLD_MS = 20_000;
const MINUTE = 60_000;
const RANGES = [["15 min", 15 * MINUTE], ["1 h", 60 * MINUTE], ["6 h", 360 * MINUTE], ["24 h", 1440 * MINUTE], ["7 d", 10_080 * MINUTE]];

const place = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search);
const timeline = new Timeline(place("timeline"));
const open = { snapshots: false, lives: false };
let sight = sightOf(null);
let elsewhere = [];
let problem = "";

// -- the theme that Airflow's UI has ---------------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");

function follow() {
  const chosen = localStorage.getItem("theme");
  const isDark = chosen === "dark" || (chosen !== "light" && dark.matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
}

follow();
addEventListener("storage", follow);
dark.addEventListener("change", follow);

// -- asking ----------------------------------------------------------------------------------------------------------

async function ask(path) {
  let response;
  try {
    response = await fetch(path, { signal: AbortSignal.timeout(LIMIT_MS), credentials: "same-origin" });
  } catch {
    throw new Error("Airflow's API server does not answer. Trying again.");
  }
  if (response.status === 401) throw new Error("You are signed out of Airflow. Reload the page to sign in.");
  if (response.status === 403) throw new Error("Your Airflow role may not see this page. It needs to read plugins.");
  if (!response.ok) throw new Error(`Airflow's API server answered ${response.status}: ${(await response.text()).slice(0, 300)}`);
  return response.json();
}

/** What is seen of one job; nothing of it is ever another's. */
function sightOf(job) {
  return { job, past: new Past(), range: null, shown: null, answer: null };
}

async function look() {
  const jobs = await ask("api/jobs");
  const job = chosenOf(jobs.jobs);
  showJobs(jobs, job);
  if (!job) return showNone(jobs);
  const next = isSame(job, sight.job) ? sight : sightOf(job);
  const query = new URLSearchParams({ job: job.job, connection: job.connection, since_ms: next.past.seenMs });
  const found = await ask(`api/job?${query}`);
  next.past.take(found.history);
  // A job whose services do not answer now keeps its last known status.
  const known = found.state === "unreachable" && next.answer;
  next.answer = known ? { ...known, live: null, state: found.state, troubles: found.troubles } : found;
  next.shown = { asked: found.asked_ms, at: performance.now() };
  sight = next;
  elsewhere = jobs.troubles.filter((each) => !found.troubles.some(({ what }) => what === each.what));
}

async function run() {
  for (;;) {
    if (!document.hidden) {
      try {
        await look();
        problem = "";
      } catch (error) {
        problem = error.message;
      }
      show();
    }
    await new Promise((go) => setTimeout(go, problem ? AFTER_ERROR_MS : EVERY_MS));
  }
}

/** The job shown before, as long as it is listed; else the one that the address names; else the first dead one, else the first. */
function chosenOf(jobs) {
  const named = asked.get("job");
  const at = asked.get("connection");
  const listed = named ? jobs.filter((each) => each.job === named && (!at || each.connection === at)) : jobs;
  const kept = listed.find((each) => isSame(each, sight.job));
  if (!named) return kept ?? listed.find(({ state }) => toneOf(state) === "bad") ?? listed[0];
  return kept ?? listed[0] ?? { job: named, connection: at ?? jobs[0]?.connection ?? "lowtide_default", state: "unknown" };
}

function isSame(one, other) {
  return one?.job === other?.job && one?.connection === other?.connection;
}

// -- showing ---------------------------------------------------------------------------------------------------------

const STATES = {
  running: ["good", "runs"], starting: ["warn", "is starting or ending"], stopped: ["quiet", "is stopped"],
  failed: ["bad", "is dead"], gone: ["bad", "is dead"], unknown: ["quiet", "was never started"],
  unreachable: ["warn", "cannot be read now"],
};
const toneOf = (state) => (STATES[state] ?? ["quiet"])[0];

function showJobs({ jobs }, chosen) {
  const twice = new Set(jobs.map(({ job }) => job)).size < jobs.length;
  put(place("jobs"), { jobs, chosen: chosen && [chosen.job, chosen.connection] }, () =>
    jobs.map(({ job, connection, state }) => {
      const [tone, word] = STATES[state] ?? ["quiet", state];
      const here = isSame({ job, connection }, chosen);
      return h("a", { href: `?${new URLSearchParams({ job, connection })}`, "aria-current": here && "page", title: `${job} ${word}` },
        h("span", { class: `light ${tone}`, role: "img", "aria-label": word }), twice ? `${job} (${connection})` : job);
    }));
}

function showNone({ troubles }) {
  sight = sightOf(null);
  elsewhere = troubles;
  put(place("verdict"), "none", () => h("div", { class: "quiet-edge" },
    h("p", { class: "state" }, h("strong", {}, "No jobs yet")),
    h("p", { class: "why" }, "Name a job in conf/airflow.toml, or start one under the ZooKeeper root of the connection lowtide_default. It will then be listed here.")));
}

function show() {
  const { answer, shown, past } = sight;
  const now = shown ? shown.asked + (performance.now() - shown.at) : 0;
  document.body.classList.toggle("stale", Boolean(problem) || answer?.state === "unreachable");
  put(place("asof"), problem || !shown ? "" : `${time(now, now)} UTC`, (text) => text);
  const troubles = [...(problem ? [{ what: problem, where: "", way_out: shown ? `The page shows the status of ${time(shown.asked, now)} UTC.` : "" }] : []), ...(answer ? answer.troubles : elsewhere)];
  put(place("trouble"), troubles, () => troubles.map(trouble));
  const nothing = !answer?.incarnation;
  for (const id of ["time", "snapshots", "lives"]) place(id).hidden = nothing;
  const tiles = nothing ? [] : tilesOf(answer, now);
  place("tiles").dataset.tiles = tiles.length;
  put(place("tiles"), tiles, () => tiles.map(tile));
  if (!answer) return;
  const verdict = verdictOf(answer, now);
  put(place("verdict"), verdict, showVerdict);
  put(place("spoken"), verdict.state, (text) => text);
  const chosen = asked.get("snapshot");
  put(place("elsewhere"), elsewhere, () => elsewhere.length ? [h("h2", {}, "Elsewhere"), ...elsewhere.map(trouble)] : null);
  if (nothing) return;
  showRanges(now);
  const to = now;
  timeline.draw(modelOf(answer, past, { from: to - sight.range, to, now, chosen }));
  const today = Math.floor(now / 86_400_000);
  put(place("snapshots"), { snapshots: answer.snapshots, chosen, today, all: open.snapshots }, (content) => snapshotTable({ ...content, now }, () => toggle("snapshots")));
  put(place("lives"), { lives: answer.lives, today, all: open.lives }, (content) => lifeTable({ ...content, now }, () => toggle("lives")));
  bringOut(chosen);
}

function trouble({ what, where, way_out }) {
  return h("p", {}, [what, where && `Where: ${where}`, way_out].filter(Boolean).map(sentence).join(" "));
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}`.replace(/\.?$/, ".");
}

function toggle(list) {
  open[list] = !open[list];
  show();
}

let brought = false;

/** Scroll once to the snapshot that the address names. */
function bringOut(chosen) {
  if (!chosen || brought || !place("chosen")) return;
  brought = true;
  place("chosen").scrollIntoView({ block: "center" });
}

function showRanges(now) {
  const range = (sight.range ??= firstRange(sight.answer, now));
  put(place("ranges"), range, () =>
    RANGES.map(([text, ms]) => h("button", { type: "button", "aria-pressed": String(ms === range), click: () => { sight.range = ms; show(); } }, text)));
}

/** An hour, or less for a younger job; back to the last life's end and commit for one that does not run; back to the snapshot in the address. */
function firstRange(answer, now) {
  const chosen = answer.snapshots.find(({ id }) => id === asked.get("snapshot"));
  const last = answer.lives.at(-1);
  const wanted = [chosen?.at_ms, answer.live ? null : last?.ended_ms, answer.live ? null : answer.snapshots.at(-1)?.at_ms];
  const age = now - (answer.lives[0]?.began_ms ?? 0);
  const back = Math.max(Math.min(50 * MINUTE, age), ...wanted.filter(Boolean).map((at) => now - at));
  return (RANGES.find(([, ms]) => ms > 1.15 * back) ?? RANGES.at(-1))[1];
}

// -- the verdict -----------------------------------------------------------------------------------------------------

function verdictOf({ state, live, lives, incarnation, why, to_do, job }, now) {
  const life = lives.findLast((each) => each.incarnation === incarnation);
  const lasted = life?.began_ms ? `life ${incarnation}, for ${duration(minute(now - life.began_ms))}` : incarnation ? `life ${incarnation}` : "";
  const ended = life?.ended_ms ? `for ${duration(minute(now - life.ended_ms))}, since ${life.about ? "about " : ""}${time(life.ended_ms, now)} UTC` : "";
  if (state === "running" && live) {
    const stands = live.lag_ms > STANDS_MS && live.held_s * 1000 > STANDS_MS;
    const old = now - live.seen_ms;
    const notes = [old > OLD_MS && `Its figures are ${duration(minute(old))} old: it computes no new ones, or its clock differs from the API server's.`, stands && `Min time stands. It is held by ${live.holder || "an unknown holder"}.`, ...live.troubles].filter(Boolean).map(sentence);
    const phase = live.phase === "running" ? "runs" : live.phase;
    return { tone: notes.length ? "warn" : "good", state: `${job} ${phase}`, note: lasted, why: notes.join("\n"), to_do: [] };
  }
  if (state === "running") return { tone: "warn", state: `${job} runs, but does not answer`, note: lasted, why: "", to_do: [] };
  const [tone, word] = STATES[state] ?? ["quiet", state];
  const dead = tone === "bad" || state === "stopped";
  return { tone, state: `${job} ${word}`, note: dead ? [ended, incarnation ? `life ${incarnation}` : ""].filter(Boolean).join(", ") : "", why, to_do };
}

/** A duration that does not tick each second once it is long, so that the text stays calm. */
function minute(ms) {
  return ms < 2 * MINUTE ? ms : Math.floor(ms / MINUTE) * MINUTE;
}

function showVerdict({ tone, state, note, why, to_do }) {
  return h("div", { class: `${tone}-edge` },
    h("p", { class: "state" }, h("strong", {}, h("span", { class: `light ${tone}`, "aria-hidden": "true" }), state), h("span", { class: "quiet" }, note)),
    why ? h("p", { class: "why" }, why) : null,
    to_do.length ? [h("h2", {}, "What to do"), h("ol", {}, ...to_do.map((each) => h("li", {}, each)))] : null);
}

// -- figures ---------------------------------------------------------------------------------------------------------

function tilesOf(found, now) {
  const { live, delivered_ms, snapshots, lives } = found;
  const commit = snapshots.findLast(({ last }) => last);
  const delivered = live?.delivered_time_ms ?? delivered_ms;
  const committed = commit
    ? ["Last commit", `${duration(minute(Math.max(0, now - commit.at_ms)))} ago`, `${commit.id}${commit.name ? ` “${commit.name}”` : ""}, ${size(commit.bytes)}`]
    : ["Last commit", "none", "a start would read everything again"];
  const day = lives.filter(({ ended_ms, phase }) => ended_ms > now - 1440 * MINUTE && (phase === "failed" || phase === "gone"));
  const died = ["Died in 24 h", day.length === 1 ? "once" : day.length ? `${day.length} times` : "never", `${found.incarnation === 1 ? "1 life" : `${found.incarnation} lives`} in all`];
  if (!live) {
    const again = commit && delivered_ms > commit.min_time_ms ? duration(delivered_ms - commit.min_time_ms) : "–";
    return [
      ["Delivered up to", time(delivered, now), "UTC; everything before is in the sinks"],
      committed,
      ["A start reads again", again, "of input: from the last commit up to the delivered time"],
      died,
    ];
  }
  const held = live.holder ? `held by ${live.holder}${live.held_s >= 1 ? ` for ${duration(live.held_s * 1000)}` : ""}` : "";
  return [
    ["Min time lag", duration(live.lag_ms), held],
    ["Delivery lag", delivered === null ? "–" : duration(Math.max(0, live.seen_ms - delivered)), delivered === null ? "nothing delivered yet" : `everything before ${time(delivered, now)} UTC is in the sinks`],
    ["Read", rate(live.rates.records_in), `${rate(live.rates.delivered)} delivered`],
    ["Latency p50", duration(live.latency_ms.p50), `p99 ${duration(live.latency_ms.p99)}`],
    committed,
    died,
  ];
}

function tile([name, value, sub]) {
  return h("dl", { class: "tile" }, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "sub" }, sub));
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) look().then(show, () => {}); });
run();
