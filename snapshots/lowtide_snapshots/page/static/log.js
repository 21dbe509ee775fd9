// The end of the job's log, for those who want to see it.

import { coded, h } from "./dom.js";

/** The heading with a button, and below it the last lines once they are asked for. */
export function logPart({ job, server, holder, open, log }, toggle) {
  const title = h("h2", { id: "log-title" }, "Log");
  if (server !== "job") {
    const where = holder ? ` on the machine of ${holder}` : " on the job's machine";
    return [title, h("p", { class: "quiet" }, ...coded(`\`lowtide logs ${job}\`${where}`))];
  }
  const button = h("button", { class: "more", type: "button", "aria-expanded": String(open), click: toggle }, open ? "Hide" : "Show its last lines");
  return [title, open && shown(log, job), button];
}

function shown(log, job) {
  if (log === undefined) return h("p", { class: "quiet" }, "Loading …");
  if (log === null) return h("p", { class: "quiet" }, "The job writes no file: its lines are where its program prints.");
  return h("div", {},
    h("p", { class: "quiet" }, ...coded(`\`${log.file}\` on ${log.host}; all of it: \`lowtide logs ${job}\` there`)),
    h("pre", { tabindex: "0", "aria-labelledby": "log-title" }, log.lines.join("\n")));
}
