// The words of the page, as docs/monitoring.md explains them.

import { h } from "./dom.js";

export const WORDS = [
  ["front", "One source partition, such as partition 0 of a Kafka topic. It gives each record its place in time."],
  ["min time", "Every record before it has left all segments, for ever: nothing before it can still come."],
  ["lag", "How far a time is behind the clock of the Kafka brokers."],
  ["holder", "What keeps min time from moving: a front, calls of a service, or another record under way in a segment (an open ack)."],
  ["segment", "A tracked part of the flow: the exchanges that feed the same steps of a level. Each branch has its own. With early keys it has a part for each worker."],
  ["level", "Steps that run one after the other in the same workers. Between two levels records go to the worker of their key."],
  ["delivered time", "Everything before it is durable in the sinks, also after the next recovery; and where a sink is staged, readers of its store see it."],
  ["latency", "From a record's timestamp until what came of it was durable."],
  ["snapshot", "All state as of one min time, in the store."],
  ["commit", "A snapshot that the job may be recovered from. A start begins from the last one."],
  ["life", "The job from one start to its end. A recovery is the next life, and has the next number."],
];

/** The list of words, closed until somebody wants it. */
export function wordList() {
  const rows = WORDS.flatMap(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)]);
  return h("details", {}, h("summary", {}, "Words on this page"), h("dl", {}, ...rows));
}
