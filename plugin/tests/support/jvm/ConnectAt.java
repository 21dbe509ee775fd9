package io.lowtide;

import java.io.IOException;
import java.util.HexFormat;

/** Connects to an address with a secret within so many ms, or until it is interrupted after so many; prints how it ended. */
public final class ConnectAt {
  private ConnectAt() {}

  public static void main(String[] arguments) throws InterruptedException {
    byte[] secret = HexFormat.of().parseHex(arguments[1]);
    Thread task =
        new Thread(
            () -> {
              try (Channel channel = Channel.open(arguments[0], secret, null, "the door", Long.parseLong(arguments[2]))) {
                System.out.println("connected");
              } catch (IOException error) {
                System.out.println(error.getMessage());
              }
            });
    task.start();
    task.join(Long.parseLong(arguments[3]));
    task.interrupt();
    task.join();
  }
}
