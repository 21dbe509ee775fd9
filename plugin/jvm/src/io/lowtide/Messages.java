package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;

/** The JSON that the JVM writes and reads; Python's half is {@code lowtide/assignment/messages.py}. */
final class Messages {
  private static final ObjectMapper JSON = new ObjectMapper();

  private Messages() {}

  /** Where a worker is: at an address, or, if that is null, to be made with a number in a host. */
  record Whereabouts(String at, int number, int host, long loadMs) {}

  /** The first line to the service. */
  static ObjectNode startService(String secret, String host, String bind, String doors) {
    return of("servicestart").put("secret", secret).put("host", host).put("bind", bind).put("doors", doors);
  }

  /** The first line to a fork server. */
  static ObjectNode startForkServer(String service, String secret, String executor, String host, String store) {
    return of("forkserverstart")
        .put("service", service)
        .put("secret", secret)
        .put("executor", executor)
        .put("host", host)
        .put("store", store);
  }

  /** Asks the service where a task's worker is. */
  static ObjectNode find(Attachment task, String worker, String executor) {
    return of("find")
        .put("worker", worker)
        .put("level", task.level())
        .put("epoch", task.epoch())
        .put("incarnation", task.incarnation())
        .put("index", task.index())
        .put("count", task.count())
        .put("executor", executor);
  }

  /** Asks the service which worker a task is probably for. */
  static ObjectNode seat(Attachment task) {
    return of("seat")
        .put("incarnation", task.incarnation())
        .put("index", task.index())
        .put("count", task.count());
  }

  /** Tells the service that a task has failed. */
  static ObjectNode end(Attachment task, JsonNode cause) {
    ObjectNode end = of("end").put("incarnation", task.incarnation());
    end.set("cause", cause);
    return end;
  }

  /** Orders a fork server to make a worker. */
  static ObjectNode makeWorker(Attachment task, String worker, Whereabouts place) {
    return of("makeworker")
        .put("worker", worker)
        .put("level", task.level())
        .put("number", place.number())
        .put("incarnation", task.incarnation())
        .put("host", place.host());
  }

  /** Asks a worker to take a task. */
  static ObjectNode attach(Attachment task, String worker) {
    return of("attach")
        .put("worker", worker)
        .put("incarnation", task.incarnation())
        .put("epoch", task.epoch());
  }

  /** The answer to {@link #find}. */
  static Whereabouts whereabouts(JsonNode answer) throws IOException {
    long loadMs = answer.path("load_ms").asLong();
    return switch (type(answer)) {
      case "found" -> new Whereabouts(text(answer, "at"), 0, 0, loadMs);
      case "fork" -> new Whereabouts(null, number(answer, "number"), number(answer, "host"), loadMs);
      default -> throw refused(answer);
    };
  }

  /** The answer to {@link #seat}; empty if it is not known. */
  static String seated(JsonNode answer) throws IOException {
    return text(expect("seated", answer), "worker");
  }

  /** The answer to {@link #makeWorker}: where its host listens. */
  static String forked(JsonNode answer) throws IOException {
    return text(expect("forked", answer), "at");
  }

  /** The answer where nothing is to be told: throws what it was refused for. */
  static void done(JsonNode answer) throws IOException {
    expect("done", answer);
  }

  /** The service's first line: where it listens. */
  static String serviceAddress(JsonNode line) throws IOException {
    return text(expect("serviceready", line), "address");
  }

  /** What kind of message it is. */
  static String type(JsonNode message) {
    return message.path("type").asText();
  }

  static JsonNode read(String text) throws IOException {
    return JSON.readTree(text);
  }

  /** A field that has to be there. */
  static String text(JsonNode message, String field) throws IOException {
    return required(message, field).asText();
  }

  /** Why something ended or failed, as {@link Failure} has it. */
  static JsonNode cause(JsonNode message) throws IOException {
    return required(message, "cause");
  }

  private static int number(JsonNode message, String field) throws IOException {
    return required(message, field).asInt();
  }

  private static JsonNode required(JsonNode message, String field) throws IOException {
    JsonNode value = message.get(field);
    if (value == null) {
      throw new IOException("a message of type " + type(message) + " has no field " + field);
    }
    return value;
  }

  private static JsonNode expect(String type, JsonNode answer) throws IOException {
    if (!type(answer).equals(type)) {
      throw refused(answer);
    }
    return answer;
  }

  private static IOException refused(JsonNode answer) throws IOException {
    return switch (type(answer)) {
      case "refused" -> new IOException(text(answer, "cause"));
      case "failed" -> new Failure(cause(answer));
      default -> new IOException("a message of type \"" + type(answer) + "\" is no answer to what was asked");
    };
  }

  private static ObjectNode of(String type) {
    return JSON.createObjectNode().put("type", type);
  }
}
