package org.apache.spark.shuffle.streaming;

import java.util.List;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.client.TransportClientBootstrap;
import org.apache.spark.network.client.TransportClientFactory;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.TransportServer;
import org.apache.spark.network.server.TransportServerBootstrap;
import org.apache.spark.network.util.TransportConf;

/**
 * What the streaming shuffle makes its connections with, in place of Spark's own context: it listens at one address
 * instead of all, and both ends of a connection prove the job's secret. `io.lowtide.ShuffleDoor` puts it there.
 */
public final class GuardedTransport extends TransportContext {
  private static volatile String host;
  private static volatile TransportServerBootstrap atServer;
  private static volatile TransportClientBootstrap atClient;

  /** Makes a context, as Spark does. */
  public GuardedTransport(TransportConf conf, RpcHandler handler) {
    super(conf, handler);
  }

  /** Sets what all connections of this JVM's shuffles are made with from now on. */
  public static void guard(String address, TransportServerBootstrap server, TransportClientBootstrap client) {
    host = address;
    atServer = server;
    atClient = client;
  }

  @Override
  public TransportServer createServer() {
    return createServer(host, 0, List.of(atServer));
  }

  @Override
  public TransportClientFactory createClientFactory() {
    return createClientFactory(List.of(atClient));
  }
}
