package io.lowtide;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** What a task is to its worker: the job's life, the level, the epoch, and which of how many tasks of its level. */
record Attachment(long incarnation, int level, long epoch, int index, int count) {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** A question about the worker of this name, as the service and the worker understand it. */
  ObjectNode ask(String what, String worker) {
    return JSON.createObjectNode()
        .put("ask", what)
        .put("worker", worker)
        .put("incarnation", incarnation)
        .put("level", level)
        .put("epoch", epoch)
        .put("index", index)
        .put("count", count);
  }
}
