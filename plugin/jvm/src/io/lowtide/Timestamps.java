package io.lowtide;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandles;
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
 * cannot be skipped. So the one class of the connector that converts is defined from its own bytes with one name in them
 * replaced: it calls this class where it calls Spark's. A timestamp that overflows becomes the largest or smallest there
 * is, far beyond what R1 believes, so that its record is capped like any other that nobody believes.
 */
public final class Timestamps {
  /** What the connector's class takes this class to be: a Scala object. */
  public static final Timestamps MODULE$ = new Timestamps();

  private static final Logger LOG = LoggerFactory.getLogger(Timestamps.class);
  private static final String CONVERTER = "org.apache.spark.sql.kafka010.KafkaRecordToRowConverter";
  private static final String CONVERTS = CONVERTER.replace('.', '/') + "$.class";
  private static final String SPARKS = "org/apache/spark/sql/catalyst/util/DateTimeUtils$";
  private static final String OURS = "io/lowtide/Timestamps";
  private static final int MAGIC_AND_VERSION = 8;

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
      Class<?> beside = Class.forName(CONVERTER, false, loader);
      try (InputStream bytes = beside.getClassLoader().getResourceAsStream(CONVERTS)) {
        if (bytes == null) {
          throw new IOException("the connector has no " + CONVERTS);
        }
        MethodHandles.privateLookupIn(beside, MethodHandles.lookup()).defineClass(replaced(bytes.readAllBytes()));
      }
    } catch (LinkageError there) {
      LOG.debug("{} is there already", CONVERTS, there);
    } catch (ReflectiveOperationException | IOException error) {
      LOG.warn("a record whose timestamp is beyond what Spark holds will end the life: {}", error.toString());
    }
  }

  /** The class with one name in its constants replaced. */
  static byte[] replaced(byte[] bytes) throws IOException {
    DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
    ByteArrayOutputStream made = new ByteArrayOutputStream(bytes.length);
    DataOutputStream out = new DataOutputStream(made);
    out.write(in.readNBytes(MAGIC_AND_VERSION));
    int constants = in.readUnsignedShort();
    out.writeShort(constants);
    boolean found = false;
    for (int index = 1; index < constants; index++) {
      int tag = in.readUnsignedByte();
      out.writeByte(tag);
      if (tag == 1) {
        String text = in.readUTF();
        found |= text.equals(SPARKS);
        out.writeUTF(text.equals(SPARKS) ? OURS : text.replace("L" + SPARKS + ";", "L" + OURS + ";"));
      } else {
        out.write(in.readNBytes(bytesOf(tag)));
        index += tag == 5 || tag == 6 ? 1 : 0; // A long or double takes two places.
      }
    }
    if (!found) {
      throw new IOException("the connector's " + CONVERTS + " does not convert by " + SPARKS);
    }
    in.transferTo(out);
    return made.toByteArray();
  }

  /** How long a constant of a class file is, behind its tag. */
  private static int bytesOf(int tag) throws IOException {
    return switch (tag) {
      case 7, 8, 16, 19, 20 -> 2;
      case 15 -> 3;
      case 3, 4, 9, 10, 11, 12, 17, 18 -> 4;
      case 5, 6 -> 8;
      default -> throw new IOException("a class file has no constant of tag " + tag);
    };
  }
}
