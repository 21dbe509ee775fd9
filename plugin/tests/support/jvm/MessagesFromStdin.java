package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * The JVM's half of the messages, for tests: prints one of each that it writes, a line each, and then for each line from
 * stdin what it reads there, or why it cannot.
 */
public final class MessagesFromStdin {
  private static final JsonNode CAUSE =
      Failure.cause("flow", "it \"failed\"\nhere: é")
          .put("where", "flow.py:3, record at in-0")
          .put("way_out", "correct it")
          .put("details", "Traceback\n  …\n");

  private MessagesFromStdin() {}

  public static void main(String[] args) throws IOException {
    Attachment task = new Attachment(1L << 40, 2, 9, 3, 4);
    Messages.Whereabouts place = new Messages.Whereabouts(null, 11, 5, 0);
    System.out.println(Messages.startService("ab", "driver", "127.0.0.1", "tls"));
    System.out.println(Messages.startForkServer("127.0.0.1:1", "ab", "7", "there", "file:///store"));
    System.out.println(Messages.find(task, "2/3", "7"));
    System.out.println(Messages.seat(task));
    System.out.println(Messages.end(task, CAUSE));
    System.out.println(Messages.makeWorker(task, "2/3", place));
    System.out.println(Messages.attach(task, "2/3"));
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      System.out.println(read(Messages.read(line)).replace("\n", "\\n"));
    }
  }

  private static String read(JsonNode message) {
    try {
      return switch (Messages.type(message)) {
        case "serviceready" -> Messages.serviceAddress(message);
        case "forked", "failed" -> Messages.forked(message);
        case "seated" -> Messages.seated(message);
        case "done" -> done(message);
        case "jobgauges" -> String.valueOf(message.path("gauges").path("records_in").asLong());
        case "ended" -> message.path("incarnation").asLong() + " " + Failure.text(Messages.cause(message));
        default -> Messages.whereabouts(message).toString();
      };
    } catch (IOException error) {
      return "refused: " + error.getMessage();
    }
  }

  private static String done(JsonNode message) throws IOException {
    Messages.done(message);
    return "done";
  }
}
