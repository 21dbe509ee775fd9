package io.lowtide;

import java.io.IOException;
import java.sql.Timestamp;
import java.time.DateTimeException;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lets a record with any timestamp through Spark's Kafka source.
 *
 * <p>The source turns each record's timestamp from ms into Spark's microseconds, and fails where that overflows: the task,
 * the query, and each life after it at the same record. Nothing that may be set keeps it from converting, and a record
 * cannot be skipped. So the one class of the connector that converts is defined with one name in it replaced: it calls
 * this class where it calls Spark's. A timestamp that overflows becomes the largest or smallest there is, far beyond what
 * R1 believes, so that its record is capped like any other that nobody believes.
 */
public final class Timestamps {
  /** What the connector's class takes this class to be: a Scala object. */
  public static final Timestamps MODULE$ = new Timestamps();

  private static final Logger LOG = LoggerFactory.getLogger(Timestamps.class);
  private static final String CONVERTER = "KafkaRecordToRowConverter";
  private static final String SPARKS = "org/apache/spark/sql/catalyst/util/DateTimeUtils$";
  private static final String OURS = "io/lowtide/Timestamps";

  private Timestamps() {}

  /** Spark's conversion of ms to microseconds since 1970; of what overflows the nearest there is. */
  public long fromJavaTimestamp(Timestamp time) {
    try {
      return DateTimeUtils.fromJavaTimestamp(time);
    } catch (ArithmeticException | DateTimeException beyond) {
      return time.getTime() < 0 ? Long.MIN_VALUE : Long.MAX_VALUE;
    }
  }

  /** Sees that the Kafka source of this loader converts any timestamp; to be called before it reads. */
  static void letAllThrough(ClassLoader loader) {
    try {
      Class<?> beside = Class.forName("org.apache.spark.sql.kafka010." + CONVERTER, false, loader);
      Renamed.define(beside, CONVERTER + "$", SPARKS, OURS);
    } catch (LinkageError there) {
      LOG.debug("{} is there already", CONVERTER, there);
    } catch (ReflectiveOperationException | IOException error) {
      LOG.warn("a record whose timestamp is beyond what Spark holds will end the life: {}", error.toString());
    }
  }
}
