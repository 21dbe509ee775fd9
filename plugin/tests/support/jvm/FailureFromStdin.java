package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** Reads a cause as JSON from each line; prints it as a task tells it to the service, and its text, and so some of its own. */
public final class FailureFromStdin {
  private static final ObjectMapper JSON = new ObjectMapper();

  private FailureFromStdin() {}

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      print(Failure.read(line));
    }
    print(new Failure(Failure.causeOf(new IllegalStateException("it broke"))));
    IOException refused = new Failure(Failure.cause("flow", "no").put("way_out", "mend it"));
    print(Failure.of("worker 1/0 could not be forked", refused));
    print(Failure.of("worker 1/0 could not be forked", new IOException("it is gone")));
  }

  private static void print(Failure failure) {
    JsonNode cause = Failure.causeOf(failure);
    System.out.println(JSON.createObjectNode().put("text", failure.getMessage()).set("cause", cause).toString());
  }
}
