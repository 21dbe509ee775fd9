package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.util.Utils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps this executor's fork server and takes tasks to their workers. Which worker lives where, and whether one may be
 * forked, is known to the driver's service alone; a worker may live on another executor than its task.
 */
public final class ExecutorSide implements ExecutorPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(ExecutorSide.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long STOP_GRACE_MS = 5_000;

  private static volatile ExecutorSide current;

  private String service;
  private byte[] secret;
  private long incarnation;
  private String executor;
  private PythonProcess forkServer;
  private boolean forkServerReady;
  private String place;
  private long startLimitMs;
  private long attachLimitMs;

  static ExecutorSide current() {
    ExecutorSide side = current;
    if (side == null) {
      throw new IllegalStateException(
          "this executor runs without Lowtide's plugin; set spark.plugins=io.lowtide.LowtidePlugin before the"
              + " SparkSession is made");
    }
    return side;
  }

  @Override
  public void init(PluginContext plugin, Map<String, String> fromDriver) {
    service = fromDriver.get("service");
    secret = HexFormat.of().parseHex(fromDriver.get("secret"));
    incarnation = Long.parseLong(fromDriver.get("incarnation"));
    executor = plugin.executorID();
    SparkConf conf = plugin.conf();
    // The context's own hostname() needs an RPC server, which executors have none of.
    String host = executor.equals("driver") ? conf.get("spark.driver.host") : Utils.localHostName();
    place = "executor " + executor + " on " + host;
    startLimitMs = Interpreter.startLimitMs(conf);
    attachLimitMs = Interpreter.attachLimitMs(conf);
    ObjectNode first =
        JSON.createObjectNode()
            .put("service", service)
            .put("secret", fromDriver.get("secret"))
            .put("incarnation", incarnation)
            .put("executor", executor)
            .put("host", host);
    try {
      forkServer = PythonProcess.start(Interpreter.executor(conf), "lowtide.worker.forkserver", first);
    } catch (IOException error) {
      // Thrown here it would make Spark start executor after executor; told to the service it ends the life.
      fail(place + ": " + error.getMessage());
    }
    current = this;
  }

  long incarnation() {
    return incarnation;
  }

  /** Takes a task to the worker of this name: finds it, or forks it where the service allows that. */
  Channel attach(String worker, int level, long epoch, long attempt) throws IOException {
    ObjectNode ask = request("find", worker).put("level", level).put("epoch", epoch);
    JsonNode answer = ask(ask);
    String address;
    if (answer.has("fork")) {
      address = fork(worker, level, answer);
    } else if (answer.has("at")) {
      address = answer.get("at").asText();
    } else {
      throw new IOException(answer.path("refused").asText());
    }
    Channel channel = Channel.open(address, secret, "worker " + worker, attachLimitMs);
    try {
      channel.write(
          Kind.ATTACH, request("attach", worker).put("epoch", epoch).put("attempt", attempt).toString());
      JsonNode welcome = JSON.readTree(textOf(channel.read(attachLimitMs)));
      if (!welcome.has("attached")) {
        throw new IOException(
            "worker " + worker + " refused the task of epoch " + epoch + ": " + welcome.path("refused").asText());
      }
    } catch (IOException | RuntimeException error) {
      channel.close();
      throw error;
    }
    return channel;
  }

  private ObjectNode request(String what, String worker) {
    return JSON.createObjectNode()
        .put("ask", what)
        .put("worker", worker)
        .put("incarnation", incarnation)
        .put("executor", executor);
  }

  private JsonNode ask(ObjectNode question) throws IOException {
    try (Channel channel = Channel.open(service, secret, "Lowtide's service", startLimitMs)) {
      channel.write(Kind.ASK, question.toString());
      return JSON.readTree(textOf(channel.read(startLimitMs)));
    }
  }

  private synchronized String fork(String worker, int level, JsonNode order) throws IOException {
    if (!forkServerReady) {
      try {
        forkServer.hear(startLimitMs);
      } catch (IOException error) {
        throw new IOException(
            place + " cannot run Lowtide's workers: " + error.getMessage() + "\n  what to do: " + Interpreter.WAY_OUT,
            error);
      }
      forkServerReady = true;
    }
    ObjectNode line = JSON.createObjectNode().put("worker", worker).put("level", level);
    line.set("number", order.get("fork"));
    forkServer.say(line);
    JsonNode answer = forkServer.hear();
    if (!answer.has("at")) {
      throw new IOException("worker " + worker + " could not be forked: " + answer.path("failed").asText());
    }
    return answer.get("at").asText();
  }

  /** Tells the service that the life is over and why; the service keeps the first cause it hears. */
  void fail(String cause) {
    try {
      ask(JSON.createObjectNode().put("ask", "end").put("incarnation", incarnation).put("cause", cause));
    } catch (IOException error) {
      LOG.error("{} (and the service could not be told: {})", cause, error.getMessage());
    }
  }

  /** The text of a message without its kind byte. */
  static String textOf(byte[] message) {
    return new String(message, 1, message.length - 1, StandardCharsets.UTF_8);
  }

  @Override
  public void shutdown() {
    current = null;
    if (forkServer != null) {
      forkServer.stop(STOP_GRACE_MS);
    }
  }
}
