package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A Python child of this JVM that talks in lines of JSON over its standard input and output and logs to its standard
 * error. It must end by itself when its standard input closes, which is what happens when this JVM is killed.
 */
final class PythonProcess {
  private static final Logger LOG = LoggerFactory.getLogger(PythonProcess.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int LAST_LINES = 30;

  /** An exit code above this is 128 and the signal's number. */
  private static final int SIGNALLED = 128;

  private final String python;
  private final String module;
  private final Process process;
  private final BufferedReader out;
  private final BufferedWriter in;
  private final Deque<String> lastLines = new ArrayDeque<>();
  private final Thread logger;
  private boolean silent;

  private PythonProcess(String python, String module, Process process) {
    this.python = python;
    this.module = module;
    this.process = process;
    this.out = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    this.in = new BufferedWriter(new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8));
    this.logger = new Thread(this::log, "lowtide-log-" + module);
    logger.setDaemon(true);
    logger.start();
  }

  /** Starts {@code python -m module} and hands it {@code first} as its first line. */
  static PythonProcess start(String python, String module, JsonNode first) throws IOException {
    ProcessBuilder builder = new ProcessBuilder(python, "-m", module);
    builder.environment().put("PYTHONHASHSEED", "0");
    builder.environment().put("PYTHONUNBUFFERED", "1");
    Process process;
    try {
      process = builder.start();
    } catch (IOException error) {
      throw new IOException(
          "cannot start the Python interpreter " + python + ": " + error.getMessage()
              + ". Set PYSPARK_PYTHON to the interpreter that Lowtide is installed in.", error);
    }
    PythonProcess child = new PythonProcess(python, module, process);
    try {
      child.say(first);
    } catch (IOException gone) {
      LOG.debug("{} ended before it read its first line; its own words follow", module);
    }
    return child;
  }

  synchronized void say(JsonNode line) throws IOException {
    in.write(line.toString());
    in.newLine();
    in.flush();
  }

  /** The child's next line, waited for; an exception with its last words when it has ended. */
  JsonNode hear() throws IOException {
    String line = out.readLine();
    if (line == null) {
      throw new IOException(lastWords());
    }
    return JSON.readTree(line);
  }

  /** The same, but the child is killed when it says nothing within the limit. */
  JsonNode hear(long limitMs) throws IOException {
    Deadline deadline = new Deadline(limitMs, process::destroyForcibly);
    try {
      return hear();
    } catch (IOException ended) {
      silent = deadline.passed();
      throw silent
          ? new IOException(python + " -m " + module + " did not answer within " + limitMs + " ms", ended)
          : ended;
    } finally {
      deadline.close();
    }
  }

  /** Whether a signal that was not ours ended the child. */
  boolean wasKilled() {
    return !silent && !process.isAlive() && process.exitValue() > SIGNALLED;
  }

  /** How the child ended, with the last lines of its log. */
  String lastWords() {
    String status = "";
    try {
      if (process.waitFor(2, TimeUnit.SECONDS)) {
        status = " with status " + process.exitValue();
      }
      logger.join(1000);
    } catch (InterruptedException stop) {
      Thread.currentThread().interrupt();
    }
    synchronized (lastLines) {
      return python + " -m " + module + " ended" + status
          + (lastLines.isEmpty() ? "" : ":\n" + String.join("\n", lastLines));
    }
  }

  private void log() {
    try (BufferedReader lines =
        new BufferedReader(new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        System.err.println(line);
        synchronized (lastLines) {
          lastLines.addLast(line);
          if (lastLines.size() > LAST_LINES) {
            lastLines.removeFirst();
          }
        }
      }
    } catch (IOException closed) {
      LOG.debug("{} closed its log", module);
    }
  }

  /** Closes the child's input, waits, and kills what is still there. */
  void stop(long graceMs) {
    try {
      in.close();
    } catch (IOException alreadyClosed) {
      LOG.debug("{} had closed its input", module);
    }
    try {
      if (!process.waitFor(graceMs, TimeUnit.MILLISECONDS)) {
        LOG.warn("{} (pid {}) did not end within {} ms; it is killed", module, process.pid(), graceMs);
        process.destroyForcibly();
      }
    } catch (InterruptedException stop) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
    }
  }
}
