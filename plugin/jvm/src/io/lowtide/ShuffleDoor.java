package io.lowtide;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.shuffle.streaming.GuardedTransport;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps strangers out of Spark's streaming shuffle.
 *
 * <p>Each of its writers listens at a port of its own, at every address, whoever connects is taken for a reader, and any
 * error on a connection fails the task: 64 random bytes from anybody end the query. Spark's authentication does not
 * reach it, and nothing can be set. So its writer and reader are defined with one name in them replaced, that of the
 * context they connect with.
 */
final class ShuffleDoor {
  private static final Logger LOG = LoggerFactory.getLogger(ShuffleDoor.class);
  private static final String BESIDE = "org.apache.spark.shuffle.streaming.StreamingShuffleHandle";
  private static final String SPARKS = "org/apache/spark/network/TransportContext";
  private static final String OURS = "org/apache/spark/shuffle/streaming/GuardedTransport";
  private static final List<String> CLASSES = List.of("StreamingShuffleWriter", "StreamingShuffleReader");
  private static final long LIMIT_MS = 10_000;
  private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

  private ShuffleDoor() {}

  /**
   * Lets shuffles of this JVM connect only with who knows the secret, and listen at this address alone; to be called
   * before Spark makes its shuffle manager.
   */
  static void shut(String host, byte[] secret) {
    try {
      put();
      GuardedTransport.guard(
          host, (channel, handler) -> Stranger.at(channel, handler, secret), (client, channel) -> prove(client, secret));
    } catch (ReflectiveOperationException | IOException | LinkageError error) {
      throw new IllegalStateException(
          "Spark's streaming shuffle cannot be guarded from strangers: " + error
              + "\n  what to do: run the Spark that this version of Lowtide is made for, and start no shuffle before it",
          error);
    }
  }

  /** Puts our context under Spark's writer and reader; does nothing where that was done before. */
  private static synchronized void put() throws ReflectiveOperationException, IOException {
    Class<?> beside = Class.forName(BESIDE);
    try {
      Class.forName(OURS.replace('/', '.'), false, beside.getClassLoader());
    } catch (ClassNotFoundException missing) {
      try (InputStream ours = ShuffleDoor.class.getResourceAsStream("/" + OURS + ".class")) {
        Renamed.lookup(beside).defineClass(ours.readAllBytes());
      }
      for (String name : CLASSES) {
        Renamed.define(beside, name, SPARKS, OURS);
      }
      LOG.debug("Spark's streaming shuffle is guarded");
    }
  }

  /** A reader's half of the handshake, at the beginning of its connection; Spark closes that where it throws. */
  private static void prove(TransportClient client, byte[] secret) {
    try {
      Handshake shake = new Handshake(secret);
      byte[] hello = JavaUtils.bufferToArray(client.sendRpcSync(NOTHING.duplicate(), LIMIT_MS));
      ByteBuffer reply = ByteBuffer.wrap(shake.reply(hello));
      shake.check(hello, JavaUtils.bufferToArray(client.sendRpcSync(reply, LIMIT_MS)));
    } catch (IOException error) {
      throw new IllegalStateException(
          "the shuffle's writer at " + client.getSocketAddress() + " is a stranger: " + error.getMessage(), error);
    }
  }
}
