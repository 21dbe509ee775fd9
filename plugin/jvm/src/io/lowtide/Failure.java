package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;

/** Why a life is to end: the fields of {@code lowtide_snapshots/cause.py}, and their text as the exception's message. */
final class Failure extends IOException {
  private static final long serialVersionUID = 1;
  private static final ObjectMapper JSON = new ObjectMapper();

  private final transient JsonNode cause;

  Failure(JsonNode cause) {
    super(text(cause));
    this.cause = cause;
  }

  Failure(ObjectNode cause, IOException reason) {
    super(text(cause), reason);
    this.cause = cause;
  }

  /** What a worker says in a message of kind {@link Kind#FAILED}. */
  static Failure read(String json) throws IOException {
    return new Failure(JSON.readTree(json));
  }

  /** A failure with what could not be done because of it. */
  static Failure of(String undone, IOException reason) {
    ObjectNode cause = causeOf(reason).deepCopy();
    return new Failure(cause.put("what", undone + ": " + cause.path("what").asText()), reason);
  }

  /** The cause of an exception: its own if it has one, else that something was lost. */
  static JsonNode causeOf(Throwable error) {
    if (error instanceof Failure failure) {
      return failure.cause;
    }
    String said = error instanceof IOException ? error.getMessage() : null;
    return cause("loss", said == null ? error.toString() : said);
  }

  static ObjectNode cause(String kind, String what) {
    return JSON.createObjectNode().put("kind", kind).put("what", what);
  }

  /** The text of a cause, as Python's {@code str(cause)} has it. */
  static String text(JsonNode cause) {
    return cause.path("what").asText()
        + headed("\n  where: ", cause.path("where").asText())
        + headed("\n  what to do: ", cause.path("way_out").asText())
        + headed("\n\n", cause.path("details").asText().stripTrailing());
  }

  private static String headed(String head, String text) {
    return text.isEmpty() ? "" : head + text;
  }
}
