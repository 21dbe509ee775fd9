package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.HexFormat;
import java.util.Map;
import javax.net.ssl.SSLContext;
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
  private static final long STOP_GRACE_MS = 5_000;

  /** Names the JVMs' credentials; Spark keeps them in its settings, of which it hides those that have "secret" in them. */
  static final String CREDENTIALS = "secret_credentials";

  private static volatile ExecutorSide current;

  private String service;
  private byte[] secret;
  private SSLContext tls;
  private String executor;
  private PythonProcess forkServer;
  private String forkServerError;
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
    executor = plugin.executorID();
    SparkConf conf = plugin.conf();
    // The context's own hostname() needs an RPC server, which executors have none of.
    String host = executor.equals("driver") ? conf.get("spark.driver.host") : Utils.localHostName();
    place = "executor " + executor + " on " + host;
    startLimitMs = Interpreter.startLimitMs(conf);
    attachLimitMs = Interpreter.attachLimitMs(conf);
    ObjectNode first =
        Messages.startForkServer(
            service, fromDriver.get("secret"), executor, host, conf.get("spark.lowtide.store", ""));
    try {
      if (fromDriver.containsKey(CREDENTIALS)) {
        tls = TlsSocket.context(Messages.read(fromDriver.get(CREDENTIALS)));
      }
      if (!executor.equals("driver")) {
        ShuffleDoor.shut(host, secret); // In a driver that executes itself, its side has done that.
      }
      forkServer = PythonProcess.start(fromDriver.get("python"), "lowtide.worker.forkserver", first);
    } catch (IOException | IllegalStateException error) {
      // Thrown here it would make Spark start executor after executor; kept, it fails the first task that forks.
      forkServerError = place + ": " + error.getMessage();
    }
    Timestamps.letAllThrough(Thread.currentThread().getContextClassLoader());
    current = this;
  }

  /** Takes a task to the worker of this name: finds it, or has it made where the service allows that. */
  Channel attach(String worker, Attachment task) throws IOException {
    Messages.Whereabouts found = Messages.whereabouts(ask(Messages.find(task, worker, executor)));
    String address = found.at() == null ? fork(worker, Messages.makeWorker(task, worker, found)) : found.at();
    // A worker's process is busy while it loads the state of a snapshot; one that dies closes the connection.
    long limitMs = attachLimitMs + found.loadMs();
    Channel channel = Channel.open(address, secret, tls, "worker " + worker, limitMs);
    try {
      channel.write(Kind.ATTACH, Messages.attach(task, worker).toString());
      JsonNode welcome = Messages.read(channel.readText(limitMs));
      try {
        Messages.done(welcome);
      } catch (IOException refused) {
        throw new IOException(
            "worker " + worker + " refused the task of epoch " + task.epoch() + ": " + refused.getMessage());
      }
    } catch (IOException | RuntimeException error) {
      channel.close();
      throw error;
    }
    return channel;
  }

  /** The worker that a task of level 0 is for, as far as its index tells it, {@code topic-partition}; empty if not. */
  String seat(Attachment task) throws IOException {
    String worker = Messages.seated(ask(Messages.seat(task)));
    return worker.substring(worker.indexOf('/') + 1);
  }

  private JsonNode ask(JsonNode question) throws IOException {
    try (Channel channel = Channel.open(service, secret, tls, "Lowtide's service", startLimitMs)) {
      channel.write(Kind.ASK, question.toString());
      return Messages.read(channel.readText(startLimitMs));
    }
  }

  private synchronized String fork(String worker, ObjectNode order) throws IOException {
    if (forkServer == null) {
      throw new IOException(forkServerError);
    }
    if (!forkServerReady) {
      try {
        forkServer.hear(startLimitMs);
      } catch (IOException error) {
        String what = place + " cannot run Lowtide's workers: " + error.getMessage();
        throw new Failure(Failure.cause("interpreter", what).put("way_out", Interpreter.WAY_OUT), error);
      }
      forkServerReady = true;
    }
    JsonNode answer;
    try {
      forkServer.say(order);
      answer = forkServer.hear(startLimitMs);
    } catch (IOException gone) {
      throw new IOException(place + " lost its fork server: " + forkServer.lastWords(), gone);
    }
    try {
      return Messages.forked(answer);
    } catch (IOException failed) {
      throw Failure.of("worker " + worker + " could not be forked", failed);
    }
  }

  /** Tells the service that a task failed and so the life is over; the service keeps the first cause it hears. */
  void fail(Attachment task, JsonNode cause) {
    try {
      Messages.done(ask(Messages.end(task, cause)));
    } catch (IOException error) {
      LOG.error("{} (and the service could not be told: {})", Failure.text(cause), error.getMessage());
    }
  }

  @Override
  public void shutdown() {
    current = null;
    if (forkServer != null) {
      forkServer.stop(STOP_GRACE_MS);
    }
  }
}
