package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A task of level 0 without Spark, for tests: rows come from stdin, one JSON array {@code [offset, timestamp, key, value,
 * headers]} a line, bytes in hexadecimal. Arguments: worker's address, secret, max rows, max bytes, epoch in ms.
 */
public final class RowsFromStdin implements Iterator<Row> {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
  private String line;

  public static void main(String[] args) throws Exception {
    Channel channel = Channel.open(args[0], HexFormat.of().parseHex(args[1]), null, "the test", 10_000);
    Feed.Opener opener =
        new Feed.Opener() {
          @Override
          public Channel open(String worker) {
            return channel;
          }

          @Override
          public String seat() {
            return "";
          }
        };
    Feed packer =
        new RowPacker(
            new RowsFromStdin(), Integer.parseInt(args[2]), Integer.parseInt(args[3]), Long.parseLong(args[4]));
    Thread feeder =
        new Thread(
            () -> {
              try {
                packer.run(opener);
                channel.write(Kind.END, "");
              } catch (IOException error) {
                throw new UncheckedIOException(error);
              }
            });
    feeder.setDaemon(true);
    feeder.start();
    for (byte kind = channel.next(); kind != Kind.ENDED; kind = channel.next()) {
      channel.readRest();
      if (kind == Kind.TAKEN) {
        packer.taken();
      }
    }
  }

  @Override
  public boolean hasNext() {
    try {
      line = line == null ? lines.readLine() : line;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return line != null;
  }

  @Override
  public Row next() {
    try {
      JsonNode row = JSON.readTree(line);
      line = null;
      List<Row> headers = new ArrayList<>();
      row.get(4).forEach(header -> headers.add(RowFactory.create(header.get(0).asText(), bytes(header.get(1)))));
      return RowFactory.create(
          "in", 4, row.get(0).asLong(), row.get(1).asLong(), bytes(row.get(2)), bytes(row.get(3)),
          CollectionConverters.asScala(headers).toSeq());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static byte[] bytes(JsonNode hex) {
    return hex.isNull() ? null : HexFormat.of().parseHex(hex.asText());
  }
}
