package io.lowtide;

import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.util.ReferenceCountUtil;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.util.JavaUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Stands before a shuffle writer's handler on one connection: the handler hears nothing of it, errors and end included,
 * before the peer has proved the job's secret; messages that want no answer wait for that. Until then a connection may say
 * a few hundred bytes, lives for some seconds, and is one of a limited number: one more takes the place of the one that is
 * there longest.
 */
final class Stranger extends RpcHandler {
  private static final Logger LOG = LoggerFactory.getLogger(Stranger.class);
  private static final int MAX_BYTES = 1 << 10;
  private static final int MAX_STRANGERS = 256;
  private static final long PATIENCE_S = 10;
  private static final long LOG_PAUSE_NS = TimeUnit.SECONDS.toNanos(1);

  /** The channels of all strangers in this JVM, oldest first. */
  private static final ArrayDeque<Channel> STRANGERS = new ArrayDeque<>();

  /** When a refusal was logged last: a flood of strangers must not fill the log. */
  private static final AtomicLong LOGGED_NS = new AtomicLong(System.nanoTime() - LOG_PAUSE_NS);

  private final RpcHandler handler;
  private final Handshake shake;
  private final Channel channel;

  /** What came before the proof: a reader says who it is as soon as it is connected. */
  private final List<byte[]> early = new ArrayList<>();

  private boolean proven;

  private Stranger(Channel channel, RpcHandler handler, byte[] secret) {
    this.channel = channel;
    this.handler = handler;
    this.shake = new Handshake(secret);
  }

  /** What hears a connection that has just begun. */
  static RpcHandler at(Channel channel, RpcHandler handler, byte[] secret) {
    Stranger stranger = new Stranger(channel, handler, secret);
    channel.pipeline().addFirst("stranger", stranger.new Limit());
    channel.eventLoop().schedule(stranger::tooLate, PATIENCE_S, TimeUnit.SECONDS);
    channel.closeFuture().addListener(closed -> forget(channel));
    Channel longest;
    synchronized (STRANGERS) {
      STRANGERS.addLast(channel);
      longest = STRANGERS.size() > MAX_STRANGERS ? STRANGERS.pollFirst() : null;
    }
    if (longest != null) {
      longest.close();
    }
    return stranger;
  }

  private static void forget(Channel channel) {
    synchronized (STRANGERS) {
      STRANGERS.remove(channel);
    }
  }

  private void tooLate() {
    if (!proven && channel.isActive()) {
      refuse("it proved nothing within " + PATIENCE_S + " s");
    }
  }

  private void refuse(String why) {
    long now = System.nanoTime();
    long before = LOGGED_NS.get();
    if (now - before >= LOG_PAUSE_NS && LOGGED_NS.compareAndSet(before, now)) {
      LOG.warn("a connection of {} to a shuffle was refused: {}", channel.remoteAddress(), why);
    }
    channel.close();
  }

  @Override
  public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
    if (proven) {
      handler.receive(client, message, callback);
      return;
    }
    try {
      if (!message.hasRemaining()) {
        callback.onSuccess(ByteBuffer.wrap(shake.hello()));
        return;
      }
      byte[] answer = shake.answer(JavaUtils.bufferToArray(message));
      proven = true;
      forget(channel);
      channel.pipeline().remove("stranger");
      callback.onSuccess(ByteBuffer.wrap(answer));
      early.forEach(said -> handler.receive(client, ByteBuffer.wrap(said)));
      early.clear();
    } catch (IOException error) {
      refuse(error.getMessage());
    }
  }

  @Override
  public void receive(TransportClient client, ByteBuffer message) {
    if (proven) {
      handler.receive(client, message);
    } else {
      early.add(JavaUtils.bufferToArray(message).clone()); // Its bytes are netty's, and go back when this returns.
    }
  }

  @Override
  public StreamManager getStreamManager() {
    return handler.getStreamManager();
  }

  @Override
  public void channelInactive(TransportClient client) {
    if (proven) {
      handler.channelInactive(client);
    }
  }

  @Override
  public void exceptionCaught(Throwable cause, TransportClient client) {
    if (proven) {
      handler.exceptionCaught(cause, client);
    } else {
      refuse(cause.toString());
    }
  }

  /** Bounds what a stranger may say. */
  private final class Limit extends ChannelInboundHandlerAdapter {
    private int bytes;

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
      if (message instanceof ByteBuf said) {
        bytes += said.readableBytes();
      }
      if (bytes <= MAX_BYTES) {
        super.channelRead(context, message);
      } else {
        ReferenceCountUtil.release(message);
        if (channel.isActive()) {
          refuse("it sent " + bytes + " bytes and no proof");
        }
      }
    }
  }
}
