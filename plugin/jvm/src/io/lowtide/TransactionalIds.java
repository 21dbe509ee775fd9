package io.lowtide;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.errors.RecordBatchTooLargeException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TransactionAbortableException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The producers of a host, which take turns: a broker has an id wait until the markers of its last transaction are
 * written, and under another id the next transaction begins at once.
 *
 * <p>Of a transaction that failed before its commit was asked for, all is aborted, and the host may give it again. A
 * commit that was asked for is asked for until it is answered.
 */
final class TransactionalIds {
  private static final String PARTITION_MISSING = "Partition ";

  private final List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
  private final long maxRecordBytes;
  private final Runnable hostIsThere;
  private int turn;
  private boolean begun;
  private KafkaProducer<byte[], byte[]> producer;

  /** What the first record met that was not taken; written by a producer's thread. */
  private volatile Failed failed;

  private byte[] topicBytes = {};
  private String topic = "";

  private record Failed(Throwable error, String topic, int partition, int bytes) {}

  TransactionalIds(List<String> names, Map<String, Object> properties, long maxRecordBytes, Runnable hostIsThere) {
    this.maxRecordBytes = maxRecordBytes;
    this.hostIsThere = hostIsThere;
    for (String name : names) {
      Map<String, Object> own = new HashMap<>(properties);
      own.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, name);
      producers.add(new KafkaProducer<>(own, new ByteArraySerializer(), new ByteArraySerializer()));
    }
  }

  /** Claims all ids at the same time. */
  Outcome claim() {
    List<CompletableFuture<Void>> claims =
        producers.stream().map(each -> CompletableFuture.runAsync(() -> patiently(each::initTransactions))).toList();
    try {
      claims.forEach(CompletableFuture::join);
    } catch (CompletionException error) {
      return Outcome.fatal(error.getCause());
    }
    return Outcome.of(Outcome.DONE, "");
  }

  /** Produces the records of one message; those that come after one that was not taken are passed over. */
  void produce(Unpacker records) {
    if (!begun) {
      producer = producers.get(turn);
      turn = (turn + 1) % producers.size();
      failed = null;
      begun = true;
      try {
        producer.beginTransaction();
      } catch (KafkaException error) {
        failed = new Failed(error, "", 0, 0);
      }
    }
    for (int left = records.array(); left > 0 && failed == null; left--) {
      produceOne(records);
    }
  }

  private void produceOne(Unpacker records) {
    records.array();
    String to = topic(records.bytes());
    int partition = (int) records.number();
    byte[] key = records.bytes();
    byte[] value = records.bytes();
    long timestamp = records.number();
    int count = records.array();
    List<Header> headers = count == 0 ? null : new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      records.array();
      headers.add(new RecordHeader(records.text(), records.bytes()));
    }
    int bytes = (key == null ? 0 : key.length) + (value == null ? 0 : value.length);
    if (bytes > maxRecordBytes) {
      failed = new Failed(null, to, partition, bytes);
      return;
    }
    try {
      // As librdkafka does, 0 stands for now.
      Long at = timestamp == 0 ? null : timestamp;
      producer.send(
          new ProducerRecord<>(to, partition, at, key, value, headers),
          (taken, error) -> {
            if (error != null && failed == null) {
              failed = new Failed(error, to, partition, bytes);
            }
          });
    } catch (KafkaException error) {
      if (failed == null) {
        failed = new Failed(error, to, partition, bytes);
      }
    }
  }

  /** The same topic follows itself many times. */
  private String topic(byte[] bytes) {
    if (!Arrays.equals(bytes, topicBytes)) {
      topicBytes = bytes;
      topic = new String(bytes, StandardCharsets.UTF_8);
    }
    return topic;
  }

  /** Commits what was produced, or aborts it if that cannot be done. */
  Outcome commit() {
    begun = false;
    try {
      if (failed == null) {
        patiently(this::commitUnlessFailed);
        return Outcome.of(Outcome.DONE, "");
      }
    } catch (KafkaException error) {
      if (failed == null) {
        if (!(error instanceof TransactionAbortableException)
            && !(error.getCause() instanceof TransactionAbortableException)) {
          return Outcome.fatal(error);
        }
        failed = new Failed(error, "", 0, 0);
      }
    }
    Failed first = failed;
    if (first.error() != null && Outcome.isFence(first.error())) {
      return Outcome.fatal(first.error());
    }
    try {
      patiently(producer::abortTransaction);
    } catch (KafkaException error) {
      return Outcome.fatal(error);
    }
    return outcome(first);
  }

  private static Outcome outcome(Failed first) {
    int kind = Outcome.ABORTED;
    String text = "";
    if (first.error() == null) {
      kind = Outcome.TOO_LARGE;
    } else {
      text = (isUnknown(first.error()) ? "unknown topic or partition: " : "") + Outcome.said(first.error());
      if (first.error() instanceof RecordTooLargeException || first.error() instanceof RecordBatchTooLargeException) {
        kind = Outcome.TOO_LARGE;
      } else if (isPermanent(first.error())) {
        kind = Outcome.REFUSED;
      }
    }
    return new Outcome(kind, text, first.topic(), first.partition(), first.bytes());
  }

  private static boolean isPermanent(Throwable error) {
    return error instanceof AuthorizationException
        || error instanceof InvalidTopicException
        || error instanceof InvalidTimestampException
        || error instanceof InvalidRecordException
        || error instanceof PolicyViolationException
        || error.getCause() instanceof InvalidTopicException
        || isUnknown(error);
  }

  private static boolean isUnknown(Throwable error) {
    return error instanceof UnknownTopicOrPartitionException
        || error.getCause() instanceof UnknownTopicOrPartitionException
        || error instanceof TimeoutException && error.getMessage().startsWith(PARTITION_MISSING);
  }

  /** A record that Kafka did not take in time fails the commit with the same error as an answer that did not come. */
  private void commitUnlessFailed() {
    try {
      producer.commitTransaction();
    } catch (TimeoutException error) {
      if (failed != null) {
        throw new KafkaException(error);
      }
      throw error;
    }
  }

  /** Calls, and calls again where the answer did not come in time; the calls allow that. */
  private void patiently(Runnable call) {
    while (true) {
      try {
        call.run();
        return;
      } catch (TimeoutException error) {
        hostIsThere.run();
      }
    }
  }
}
