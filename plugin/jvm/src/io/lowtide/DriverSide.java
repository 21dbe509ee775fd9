package io.lowtide;

import com.codahale.metrics.Gauge;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.IOException;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Starts the job's service (Python) with the SparkContext, watches it, and stops it with the SparkContext. When the
 * service says that a life is over, or dies itself, the query's jobs are cancelled and {@link #cause} tells why.
 */
public final class DriverSide implements DriverPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(DriverSide.class);
  private static final int SECRET_BYTES = 32;
  private static final int SERVICE_TRIES = 3;
  private static final long STOP_GRACE_MS = 5_000;
  private static final String[] GAUGES = {"workers", "executors", "records_in", "records_out", "dead_letters"};

  private static volatile DriverSide current;

  private SparkContext spark;
  private PythonProcess service;
  private String address;
  private String secret;
  private volatile long endedIncarnation = -1;
  private volatile JsonNode cause = MissingNode.getInstance();
  private volatile boolean gone;
  private volatile String jobGroup = "";
  private volatile boolean stopping;
  private volatile JsonNode gauges = MissingNode.getInstance();

  /** The running job's driver side, for the Python driver; null when the plugin is not loaded. */
  public static DriverSide current() {
    return current;
  }

  /** Where the service listens, as {@link Channel#open} takes it. */
  public String address() {
    return address;
  }

  /** The job's secret in hexadecimal. */
  public String secret() {
    return secret;
  }

  /** Names the Spark jobs that are cancelled when a life ends: a query's jobs have its runId as their group. */
  public void watch(String group) {
    jobGroup = group;
  }

  /** Why the life of this number ended, as JSON; empty while it goes on. */
  public String cause(long incarnation) {
    return gone || incarnation == endedIncarnation ? cause.toString() : "";
  }

  @Override
  public Map<String, String> init(SparkContext context, PluginContext plugin) {
    spark = context;
    SparkConf conf = plugin.conf();
    byte[] random = new byte[SECRET_BYTES];
    new SecureRandom().nextBytes(random);
    secret = HexFormat.of().formatHex(random);
    String bind = conf.get("spark.driver.bindAddress", conf.get("spark.driver.host"));
    ShuffleDoor.shut(bind, random);
    JsonNode shown;
    try {
      JsonNode ready = start(conf, bind);
      address = Messages.serviceAddress(ready);
      shown = ready.path("shown");
    } catch (IOException error) {
      throw new IllegalStateException("Lowtide's service did not start. " + error.getMessage(), error);
    }
    Thread events = new Thread(this::listen, "lowtide-service");
    events.setDaemon(true);
    events.start();
    current = this;
    Map<String, String> forExecutors = new HashMap<>();
    forExecutors.put("service", address);
    forExecutors.put("secret", secret);
    forExecutors.put("python", Interpreter.executor(conf));
    if (shown.isObject()) {
      forExecutors.put(ExecutorSide.CREDENTIALS, shown.toString());
    }
    return forExecutors;
  }

  /** Starts the service, again if it is killed before it answers; returns its answer. */
  private JsonNode start(SparkConf conf, String bind) throws IOException {
    for (int tries = 1; ; tries++) {
      service =
          PythonProcess.start(
              Interpreter.driver(conf),
              "lowtide.service",
              Messages.startService(
                  secret, conf.get("spark.driver.host"), bind, conf.get("spark.lowtide.doors", "tcp")));
      try {
        return service.hear(Interpreter.startLimitMs(conf));
      } catch (IOException error) {
        if (tries == SERVICE_TRIES || !service.wasKilled()) {
          throw error;
        }
        LOG.warn("starting the service again: {}", error.getMessage());
      }
    }
  }

  @Override
  public void registerMetrics(String application, PluginContext plugin) {
    for (String name : GAUGES) {
      plugin.metricRegistry().register(name, (Gauge<Long>) () -> gauges.path(name).asLong());
    }
  }

  private void listen() {
    try {
      while (true) {
        JsonNode event = service.hear();
        switch (Messages.type(event)) {
          case "jobgauges" -> gauges = event.path("gauges");
          case "ended" -> end(event.path("incarnation").asLong(), Messages.cause(event));
          default -> LOG.warn("the service sent a message of unknown type: {}", Messages.type(event));
        }
      }
    } catch (IOException error) {
      end(-1, Failure.cause("loss", "Lowtide's service died: " + error.getMessage()));
      gone = !stopping;
    }
  }

  private void end(long incarnation, JsonNode reason) {
    if (stopping) {
      return;
    }
    cause = reason;
    endedIncarnation = incarnation;
    LOG.error("The life ends: {}", Failure.text(reason));
    try {
      spark.cancelJobGroup(jobGroup);
    } catch (RuntimeException stopped) {
      LOG.info("Spark had stopped before: {}", stopped.toString());
    }
  }

  @Override
  public void shutdown() {
    stopping = true;
    current = null;
    if (service != null) {
      service.stop(STOP_GRACE_MS);
    }
  }
}
