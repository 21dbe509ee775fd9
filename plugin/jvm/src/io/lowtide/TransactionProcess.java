package io.lowtide;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Kafka's own producer in a process of its own, because Spark's JVM has an older one. A host of workers hands it one
 * transaction after the other over a socket, which is its standard input, and hears of each how it ended.
 *
 * <p>A message is {@code u32 length | payload} (big-endian), its payload msgpack. The first one names the transactional
 * ids and the clients' properties; then come records, {@code [commits, [[topic, partition, key, value, timestamp,
 * headers], ...]]}, and what has {@code commits} ends the transaction. Answers are laid out in {@link Outcome}.
 *
 * <p>It keeps no time: the host does, and kills it. It ends when the socket closes.
 */
public final class TransactionProcess {
  /** The feature that every broker of a cluster has to have, at this level, for transactions with an epoch each. */
  private static final String FEATURE = "transaction.version";

  private static final int FEATURE_LEVEL = 2;
  private static final int LENGTH_BYTES = 4;

  private final SocketChannel host;
  private final MessagePack answer = new MessagePack();
  private ByteBuffer in = ByteBuffer.allocate(1 << 16);

  private TransactionProcess(SocketChannel host) {
    this.host = host;
  }

  public static void main(String[] none) throws IOException {
    int status = 0;
    try (SocketChannel host = (SocketChannel) System.inheritedChannel()) {
      new TransactionProcess(host).run();
    } catch (EOFException gone) {
      // The host closes the socket when it needs no more transactions, or has ended.
    } catch (IOException | RuntimeException error) {
      error.printStackTrace();
      status = 1;
    }
    // What is open is for the next life, or the broker, to abort; the clients' threads would go on trying.
    Runtime.getRuntime().halt(status);
  }

  private void run() throws IOException {
    Unpacker setup = next();
    setup.array();
    List<String> names = new ArrayList<>();
    for (int left = setup.array(); left > 0; left--) {
      names.add(setup.text());
    }
    Map<String, Object> properties = new LinkedHashMap<>();
    for (int left = setup.array(); left > 0; left--) {
      setup.array();
      properties.put(setup.text(), setup.text());
    }
    long maxRecordBytes = setup.number();
    Outcome opened;
    TransactionalIds ids = null;
    try {
      int level = level(properties);
      if (level < FEATURE_LEVEL) {
        opened = Outcome.of(Outcome.OLD, FEATURE + " is " + level + ", not " + FEATURE_LEVEL);
      } else {
        ids = new TransactionalIds(names, properties, maxRecordBytes, this::hostIsThere);
        opened = ids.claim();
      }
    } catch (KafkaException error) {
      opened = Outcome.fatal(error);
    }
    opened.say(answer);
    send(answer.take());
    while (ids != null) {
      Unpacker records = next();
      records.array();
      boolean commits = records.flag();
      ids.produce(records);
      if (commits) {
        ids.commit().say(answer);
        send(answer.take());
      }
    }
  }

  /** What the cluster has agreed on; 0 if it does not know of it. */
  private int level(Map<String, Object> properties) throws IOException {
    Map<String, Object> own = new LinkedHashMap<>(properties);
    own.keySet().retainAll(AdminClientConfig.configNames());
    own.put(AdminClientConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, own.get(AdminClientConfig.REQUEST_TIMEOUT_MS_CONFIG));
    try (Admin admin = Admin.create(own)) {
      while (true) {
        try {
          Map<String, FinalizedVersionRange> features =
              admin.describeFeatures().featureMetadata().get().finalizedFeatures();
          FinalizedVersionRange found = features.get(FEATURE);
          return found == null ? 0 : found.maxVersionLevel();
        } catch (ExecutionException error) {
          if (!(error.getCause() instanceof TimeoutException)) {
            throw new KafkaException(error.getCause().getMessage(), error.getCause());
          }
          hostIsThere();
        }
      }
    } catch (InterruptedException stop) {
      throw new IOException(stop);
    }
  }

  private Unpacker next() throws IOException {
    receive(LENGTH_BYTES);
    receive(in.getInt());
    return new Unpacker(in);
  }

  private void receive(int length) throws IOException {
    if (in.capacity() < length) {
      in = ByteBuffer.allocate(Math.max(2 * in.capacity(), length));
    }
    in.clear().limit(length);
    while (in.hasRemaining()) {
      if (host.read(in) < 0) {
        throw new EOFException();
      }
    }
    in.flip();
  }

  private void send(ByteBuffer payload) throws IOException {
    ByteBuffer message = ByteBuffer.allocate(LENGTH_BYTES + payload.remaining());
    message.putInt(payload.remaining()).put(payload).flip();
    while (message.hasRemaining()) {
      host.write(message);
    }
  }

  /** Ends this process if the host has gone; it says nothing while it waits for an answer. Both claims may ask. */
  private synchronized void hostIsThere() {
    try {
      host.configureBlocking(false);
      int count = host.read(ByteBuffer.allocate(1));
      host.configureBlocking(true);
      if (count < 0) {
        Runtime.getRuntime().halt(0);
      }
    } catch (IOException gone) {
      Runtime.getRuntime().halt(0);
    }
  }
}
