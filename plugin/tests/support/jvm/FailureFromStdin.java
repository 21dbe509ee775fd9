package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** Reads a cause as JSON from each line; prints it as a task tells it to the service, and its text. */
public final class FailureFromStdin {
  private FailureFromStdin() {}

  public static void main(String[] arguments) throws Exception {
    ObjectMapper json = new ObjectMapper();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Failure failure = Failure.read(line);
      JsonNode told = Failure.causeOf(failure);
      System.out.println(json.createObjectNode().put("text", failure.getMessage()).set("cause", told).toString());
    }
    JsonNode lost = Failure.causeOf(new IllegalStateException("it broke"));
    System.out.println(json.createObjectNode().put("text", Failure.text(lost)).set("cause", lost).toString());
  }
}
