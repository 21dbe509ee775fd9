// Lowtide's page: asks its server for the job each two seconds, and shows it. docs/monitoring.md says what it shows.

import { ask, takeToken, Unanswered } from "./asking.js";
import { h, put } from "./dom.js";
import { flowGraph } from "./flow.js";
import { time } from "./format.js";
import { logPart } from "./log.js";
import { loginForm } from "./login.js";
import { callTable, connectionTable, frontTable, hopTable, segmentTable, sinkTable, standbyTable } from "./parts.js";
import { modelOf, Past } from "./past.js";
import { lifeTable, snapshotTable } from "./tables.js";
import { Timeline } from "./timeline.js";
import { sentence, stateOf, tileCard, tilesOf, verdictCard, verdictOf } from "./verdict.js";
import { wordList } from "./words.js";

const EVERY_MS = 2_000;
const AFTER_ERROR_MS = 5_000;
const MINUTE = 60_000;
const RANGES = [["2 min", 2 * MINUTE], ["15 min", 15 * MINUTE], ["1 h", 60 * MINUTE], ["6 h", 360 * MINUTE], ["24 h", 1440 * MINUTE], ["7 d", 10_080 * MINUTE]];
const SECTIONS = ["time", "flow", "parts", "snapshots", "lives", "log", "words"];

const place = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search);
const timeline = new Timeline(place("timeline"));
const open = { snapshots: false, lives: false, fronts: false, log: false };
const LOG_LINES = 200;
let listed = null;
let sight = sightOf(null);
let elsewhere = [];
/** Why there is no answer now; null while there is one. */
let problem = null;
/** Ends the pause between two looks. */
let wake = () => {};

takeToken();

// -- the theme that Airflow's UI has, or else the browser's ----------------------------------------------------------

function follow() {
  const chosen = localStorage.getItem("theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
}

follow();
addEventListener("storage", follow);

// -- asking ----------------------------------------------------------------------------------------------------------

/** What is seen of one job; nothing of it is ever another's. Its range is null until somebody chooses one. */
function sightOf(job) {
  return { job, past: new Past(), range: null, shown: null, answer: null, log: undefined };
}

async function look() {
  if (!listed || performance.now() - listed.at > listed.answer.kept_ms) {
    listed = { answer: await ask("api/jobs", listed?.answer.server ?? null), at: performance.now() };
  }
  const { jobs, server, troubles } = listed.answer;
  const job = chosenOf(jobs);
  showJobs(jobs, job, server);
  if (!job) return showNone(troubles);
  const next = isSame(job, sight.job) ? sight : sightOf(job);
  const query = new URLSearchParams({ job: job.job, connection: job.connection, since_ms: next.past.seenMs });
  const found = await ask(`api/job?${query}`, server);
  next.past.take(found.history);
  if (open.log && server === "job") next.log = await ask(`api/log?lines=${LOG_LINES}`, server);
  // A job whose services do not answer now keeps its last known status.
  const known = found.state === "unreachable" && next.answer;
  next.answer = known ? { ...known, live: null, state: found.state, troubles: found.troubles } : found;
  next.shown = { asked: found.asked_ms, at: performance.now() };
  sight = next;
  elsewhere = troubles.filter((each) => !found.troubles.some(({ what }) => what === each.what));
}

async function run() {
  for (;;) {
    if (!document.hidden) {
      try {
        await look();
        problem = null;
      } catch (error) {
        problem = error instanceof Unanswered ? error : new Unanswered("refused", `This is a fault of the page: ${error}`);
      }
      show();
    }
    await new Promise((go) => {
      wake = go;
      if (problem?.kind !== "token") setTimeout(go, problem ? AFTER_ERROR_MS : EVERY_MS);
    });
  }
}

/** The job shown before, as long as it is listed; else the one that the address names; else the first dead one, else the first. */
function chosenOf(jobs) {
  const named = asked.get("job");
  const at = asked.get("connection");
  const found = named ? jobs.filter((each) => each.job === named && (!at || each.connection === at)) : jobs;
  const kept = found.find((each) => isSame(each, sight.job));
  if (!named) return kept ?? found.find(({ state }) => stateOf(state)[0] === "bad") ?? found[0];
  return kept ?? found[0] ?? { job: named, connection: at ?? jobs[0]?.connection ?? "lowtide_default", state: "unknown" };
}

function isSame(one, other) {
  return one?.job === other?.job && one?.connection === other?.connection;
}

// -- showing ---------------------------------------------------------------------------------------------------------

function showJobs(jobs, chosen, server) {
  const twice = new Set(jobs.map(({ job }) => job)).size < jobs.length;
  place("jobs").hidden = server === "job";
  put(place("jobs"), { jobs, chosen: chosen && [chosen.job, chosen.connection] }, () =>
    jobs.map(({ job, connection, state }) => {
      const [tone, word] = stateOf(state);
      const here = isSame({ job, connection }, chosen);
      return h("a", { href: `?${new URLSearchParams({ job, connection })}`, "aria-current": here && "page", title: `${job} ${word}` },
        h("span", { class: `light ${tone}`, role: "img", "aria-label": word }), h("span", { class: "name" }, twice ? `${job} (${connection})` : job));
    }));
}

function showNone(troubles) {
  sight = sightOf(null);
  elsewhere = troubles;
  put(place("verdict"), "none", () => h("div", { class: "quiet-edge" },
    h("p", { class: "state" }, h("strong", {}, "No jobs yet")),
    h("p", { class: "why" }, "Name a job in conf/airflow.toml, or start one under the ZooKeeper root of the connection lowtide_default. It will then be listed here.")));
}

function show() {
  if (problem?.kind === "token") return showLogin();
  const { answer, shown, past } = sight;
  const now = shown ? shown.asked + (performance.now() - shown.at) : 0;
  const silent = problem?.kind === "silent" && listed?.answer.server === "job" && answer ? shown.asked : null;
  document.body.classList.toggle("stale", Boolean(problem) || answer?.state === "unreachable");
  put(place("asof"), problem || !shown ? "" : `${time(now, now)} UTC`, (text) => text);
  const reported = problem && !silent;
  const troubles = [...(reported ? [{ what: problem.message, where: "", way_out: shown ? `The page shows the status of ${time(shown.asked, now)} UTC.` : "" }] : []), ...(answer ? answer.troubles : elsewhere)];
  put(place("trouble"), troubles, () => troubles.map(trouble));
  const nothing = !answer?.incarnation;
  for (const id of SECTIONS) place(id).hidden = nothing;
  const tiles = nothing ? [] : tilesOf(answer, now);
  place("tiles").dataset.tiles = tiles.length;
  put(place("tiles"), tiles, () => tiles.map(tileCard));
  if (!answer) return;
  const verdict = verdictOf(answer, past, now, silent);
  document.title = `${verdict.state} – Lowtide`;
  put(place("verdict"), verdict, verdictCard);
  put(place("spoken"), verdict.state, (text) => text);
  put(place("elsewhere"), elsewhere, () => elsewhere.length ? [h("h2", {}, "Elsewhere"), ...elsewhere.map(trouble)] : null);
  if (!nothing) showDetails(answer, past, now);
}

function showDetails(answer, past, now) {
  const chosen = asked.get("snapshot");
  const range = sight.range ?? fittingRange(sight, now);
  showRanges(range);
  timeline.draw(modelOf(answer, past, { from: now - range, to: now, now, chosen }));
  const { fronts = [], segments = [], hops = {}, sinks = [], calls = {}, holder = "", connections = {}, standbys = [] } = answer.live ?? {};
  const { steps = [], levels = [], kept = {} } = answer.live ?? {};
  put(place("flow"), { steps, levels, kept, sinks, room: place("time").clientWidth }, flowGraph);
  put(place("fronts"), { fronts, holder, all: open.fronts }, (content) => frontTable(content, () => toggle("fronts")));
  put(place("segments"), { segments }, (content) => segmentTable({ ...content, now }));
  put(place("calls"), { calls, holder }, callTable);
  put(place("hops"), { hops }, hopTable);
  put(place("sinks"), { sinks }, (content) => sinkTable({ ...content, now }));
  put(place("connections"), connections, connectionTable);
  put(place("standbys"), { standbys }, standbyTable);
  const today = Math.floor(now / 86_400_000);
  put(place("snapshots"), { snapshots: answer.snapshots, chosen, today, all: open.snapshots }, (content) => snapshotTable({ ...content, now }, () => toggle("snapshots")));
  put(place("lives"), { lives: answer.lives, today, all: open.lives }, (content) => lifeTable({ ...content, now }, () => toggle("lives")));
  const { server } = listed?.answer ?? {};
  put(place("log"), { job: answer.job, server, holder, open: open.log, log: sight.log }, (content) => logPart(content, toggleLog));
  put(place("words"), "words", wordList);
  bringOut(chosen);
}

function showLogin() {
  listed = null;
  for (const id of [...SECTIONS, "jobs"]) place(id).hidden = true;
  document.body.classList.remove("stale");
  for (const id of ["tiles", "trouble", "asof", "elsewhere"]) put(place(id), "", () => null);
  const why = sight.job && problem.message ? `${problem.message} It has begun another life, perhaps.` : problem.message;
  put(place("verdict"), { login: why, at: performance.now() }, () => loginForm(why, () => wake()));
  document.getElementById("token").focus();
}

function trouble({ what, where, way_out }) {
  return h("p", {}, [what, where && `Where: ${where}`, way_out].filter(Boolean).map(sentence).join(" "));
}

function toggle(list) {
  open[list] = !open[list];
  show();
}

/** Its lines are asked for as long as they are shown; the newest are in sight. */
async function toggleLog() {
  toggle("log");
  if (open.log) wake();
}

let brought = false;

/** Scroll once to the snapshot that the address names. */
function bringOut(chosen) {
  if (!chosen || brought || !place("chosen")) return;
  brought = true;
  place("chosen").scrollIntoView({ block: "center" });
}

function showRanges(range) {
  put(place("ranges"), range, () =>
    RANGES.map(([text, ms]) => h("button", { type: "button", "aria-pressed": String(ms === range), click: () => { sight.range = ms; show(); } }, text)));
}

/** An hour, or less for a younger history; back to the last life's end and commit for one that does not run; back to the snapshot in the address. */
function fittingRange({ answer, past }, now) {
  const chosen = answer.snapshots.find(({ id }) => id === asked.get("snapshot"));
  const last = answer.lives.at(-1);
  const wanted = [chosen?.at_ms, answer.live ? null : last?.ended_ms, answer.live ? null : answer.snapshots.at(-1)?.at_ms];
  const age = now - (past.firstMs ?? answer.lives[0]?.began_ms ?? 0);
  const back = Math.max(Math.min(60 * MINUTE, age), ...wanted.filter(Boolean).map((at) => 1.15 * (now - at)));
  return (RANGES.find(([, ms]) => ms >= 0.95 * back) ?? RANGES.at(-1))[1];
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && problem?.kind !== "token") wake(); });
run();
