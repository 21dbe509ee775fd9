// Numbers with their units, and times, as text. Times are ms since 1970, and are shown in UTC, as in the job's log.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration: "12 ms", "1.2 s", "34 s", "3 min 20 s", "3 h 12 min", "2 d 4 h". */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 10) return `${trim(ms.toFixed(1))} ms`;
  if (Math.round(ms) < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${trim((ms / SECOND).toFixed(1))} s`;
  const s = Math.round(ms / SECOND);
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(s, 60, "min", "s");
  const minutes = Math.round(s / 60);
  if (minutes < 24 * 60) return two(minutes, 60, "h", "min");
  return two(Math.round(minutes / 60), 24, "d", "h");
}

function two(units, per, large, small) {
  const rest = units % per;
  return `${Math.floor(units / per)} ${large}` + (rest ? ` ${rest} ${small}` : "");
}

function trim(text) {
  return text.replace(/\.0$/, "");
}

/** Records per second: "1,203 /s", "0.4 /s". */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  return `${perSecond > 0 && perSecond < 10 ? trim(perSecond.toFixed(1)) : count(Math.round(perSecond))} /s`;
}

/** A count: "12,034". */
export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en-GB");
}

/** A holder of min time without the time at which it holds it: the lag says that. */
export function holderOf(text) {
  return text.split(" at ", 1)[0];
}

const MOST_CHARS = 36;

/** A name that is not longer than a line: the middle is left out, as the end of a partition's name is its number. */
export function shortened(name, most = MOST_CHARS) {
  const half = Math.floor(most / 2);
  return name.length <= most ? name : `${name.slice(0, half)}…${name.slice(1 - half)}`;
}

/** A size: "88.8 KiB". */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
}

/** A time of day, with the date if it is not that of `now`: "22:14:03", "21 Nov 22:14:03". */
export function time(ms, now, digits = 0) {
  if (ms === null || ms === undefined) return "–";
  const iso = new Date(ms).toISOString();
  const clock = iso.slice(11, digits ? 20 + digits : 19);
  return iso.slice(0, 10) === new Date(now).toISOString().slice(0, 10) ? clock : `${day(ms)} ${clock}`;
}

/** A date: "21 Nov". */
export function day(ms) {
  return new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
}

/** The ticks of a time axis, about `want` of them: [ms, text]. */
export function timeTicks(from, to, want) {
  const steps = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
  ].map((seconds) => seconds * SECOND);
  const step = steps.find((each) => (to - from) / each <= want) ?? steps.at(-1);
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const midnight = at % DAY === 0;
    const clock = new Date(at).toISOString().slice(11, step < MINUTE ? 19 : 16);
    ticks.push([at, midnight ? day(at) : clock]);
  }
  return ticks;
}

/** The ticks of an axis of durations, at familiar steps, from below `low` to above `high`: [ms, text]. */
export function decades(low, high) {
  const known = [
    [1, "1 ms"], [10, "10 ms"], [100, "100 ms"], [SECOND, "1 s"], [10 * SECOND, "10 s"], [MINUTE, "1 min"],
    [10 * MINUTE, "10 min"], [HOUR, "1 h"], [10 * HOUR, "10 h"], [DAY, "1 d"], [10 * DAY, "10 d"], [100 * DAY, "100 d"],
  ];
  let first = known.findLastIndex(([ms]) => ms <= low);
  let last = known.findIndex(([ms]) => ms >= high);
  first = Math.max(0, first);
  last = last < 0 ? known.length - 1 : last;
  while (last - first < 2) {
    if (last < known.length - 1) last += 1;
    else first -= 1;
  }
  return known.slice(first, last + 1);
}

/** The ticks of an axis of rates from 0, at most five: [number, text]. */
export function rateTicks(high) {
  const most = Math.max(high, 1);
  const power = 10 ** Math.floor(Math.log10(most / 4));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => most / each <= 4) ?? 10 * power;
  const ticks = [];
  for (let at = 0; at < most + step; at += step) ticks.push([at, short(at)]);
  return ticks;
}

function short(number) {
  if (number >= 1e6) return `${trim((number / 1e6).toFixed(1))} M`;
  if (number >= 1e4) return `${trim((number / 1e3).toFixed(1))} k`;
  return count(Math.round(number * 10) / 10);
}
