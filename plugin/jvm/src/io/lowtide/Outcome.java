package io.lowtide;

import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnTimeoutException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/**
 * How a transaction ended, or a claim: {@code [kind, text, topic, partition, bytes]}, the last three of the record that
 * it ended by. {@code lowtide/sinks/kafka/java_producer.py} has the same kinds.
 */
record Outcome(int kind, String text, String topic, int partition, int bytes) {
  /** It is committed; of a claim, granted. */
  static final int DONE = 0;

  /** It is aborted, and may be tried again. */
  static final int ABORTED = 1;

  /** The broker would refuse this record again; the transaction is aborted. */
  static final int REFUSED = 2;

  /** This record is larger than the conf allows, or (with a text) its topic; the transaction is aborted. */
  static final int TOO_LARGE = 3;

  /** Another claim has ended this one, or the broker has, for taking too long. */
  static final int FENCED = 4;

  static final int DENIED = 5;

  /** The brokers do not know such transactions. */
  static final int OLD = 6;

  /** Nobody but the brokers knows whether it was committed. */
  static final int UNKNOWN = 7;

  static Outcome of(int kind, String text) {
    return new Outcome(kind, text, "", 0, 0);
  }

  /** What an error means after which a producer can do no more. */
  static Outcome fatal(Throwable error) {
    int kind = UNKNOWN;
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (isFence(cause)) {
        return of(FENCED, said(cause));
      }
      if (cause instanceof AuthorizationException
          || cause instanceof AuthenticationException
          || cause instanceof InvalidTxnTimeoutException
          || cause instanceof UnsupportedVersionException) {
        return of(DENIED, said(cause));
      }
    }
    return of(kind, said(error));
  }

  static boolean isFence(Throwable error) {
    return error instanceof ProducerFencedException || error instanceof InvalidProducerEpochException;
  }

  static String said(Throwable error) {
    Throwable last = error;
    while (last.getCause() != null && last.getCause().getMessage() != null) {
      last = last.getCause();
    }
    return last.getMessage() == null ? last.toString() : last.getMessage();
  }

  void say(MessagePack into) {
    into.array(5);
    into.integer(kind);
    into.text(text);
    into.text(topic);
    into.integer(partition);
    into.integer(bytes);
  }
}
