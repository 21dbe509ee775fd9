package io.lowtide;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.GatheringByteChannel;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import javax.net.ssl.SSLContext;
import jdk.net.ExtendedSocketOptions;

/**
 * A connection to one of Lowtide's Python processes: both ends prove that they know the job's secret, then messages
 * {@code u32 length | u8 kind | payload} (little-endian, length counts kind and payload) go both ways.
 *
 * <p>One thread at a time may write while another reads. A blocked read or write ends when its thread is interrupted.
 */
final class Channel implements AutoCloseable {
  /** Begins the address of a door under TLS. */
  private static final String TLS = "tls:";

  /** Begins the address of a Unix socket. */
  private static final String UNIX = "unix:";

  private static final int HEAD_BYTES = 5;
  private static final int CONNECT_TIMEOUT_MS = 10_000;
  private static final int SOCKET_BUFFER_BYTES = 1 << 20;
  private static final int READ_BUFFER_BYTES = 1 << 16;
  private static final int MAX_MESSAGE_BYTES = 1 << 28;

  /** The peer reads no more; what it said before may still be there to {@link #read}. */
  static final class Broken extends IOException {
    private static final long serialVersionUID = 1L;

    Broken(String message, IOException cause) {
      super(message, cause);
    }
  }

  private final SocketChannel socket;
  private final ReadableByteChannel from;
  private final GatheringByteChannel to;
  private final ByteBuffer in = ByteBuffer.allocateDirect(READ_BUFFER_BYTES).order(ByteOrder.LITTLE_ENDIAN).limit(0);
  private final ByteBuffer head = ByteBuffer.allocateDirect(HEAD_BYTES).order(ByteOrder.LITTLE_ENDIAN);
  private final String peer;
  private int left;

  private <T extends ReadableByteChannel & GatheringByteChannel> Channel(SocketChannel socket, T bytes, String peer) {
    this.socket = socket;
    this.from = bytes;
    this.to = bytes;
    this.peer = peer;
  }

  /**
   * Connects to {@code unix:/path}, to {@code host:port}, or under TLS to {@code tls:host:port}, and proves the secret;
   * the peer must prove it too, within the limit.
   */
  static Channel open(String address, byte[] secret, SSLContext tls, String peer, long limitMs) throws IOException {
    boolean secured = address.startsWith(TLS);
    SocketAddress target = target(secured ? address.substring(TLS.length()) : address);
    boolean near = target instanceof UnixDomainSocketAddress;
    SocketChannel socket = near ? SocketChannel.open(StandardProtocolFamily.UNIX) : SocketChannel.open();
    try {
      tune(socket, near);
      TlsSocket under = secured ? new TlsSocket(socket, tls) : null;
      Channel channel = secured ? new Channel(socket, under, peer) : new Channel(socket, socket, peer);
      // The kernel sets no limit to a Unix socket that waits in a full queue.
      channel.within(Math.min(limitMs, CONNECT_TIMEOUT_MS), () -> socket.connect(target));
      channel.within(
          limitMs,
          () -> {
            if (secured) {
              under.shake();
            }
            channel.handshake(secret);
          });
      return channel;
    } catch (IOException | RuntimeException error) {
      socket.close();
      throw new IOException("cannot talk to " + peer + " at " + address + ": " + error.getMessage(), error);
    }
  }

  private static SocketAddress target(String address) {
    if (address.startsWith(UNIX)) {
      return UnixDomainSocketAddress.of(address.substring(UNIX.length()));
    }
    int colon = address.lastIndexOf(':');
    return new InetSocketAddress(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)));
  }

  private static void tune(SocketChannel socket, boolean near) throws IOException {
    socket.setOption(StandardSocketOptions.SO_SNDBUF, SOCKET_BUFFER_BYTES);
    socket.setOption(StandardSocketOptions.SO_RCVBUF, SOCKET_BUFFER_BYTES);
    if (!near) {
      socket.setOption(StandardSocketOptions.TCP_NODELAY, true);
      socket.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
      socket.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, 5);
      socket.setOption(ExtendedSocketOptions.TCP_KEEPINTERVAL, 2);
      socket.setOption(ExtendedSocketOptions.TCP_KEEPCOUNT, 3);
    }
  }

  private void handshake(byte[] secret) throws IOException {
    Handshake shake = new Handshake(secret);
    byte[] hello = readExactly(Handshake.HELLO_BYTES);
    writeFully(ByteBuffer.wrap(shake.reply(hello)));
    byte[] answer;
    try {
      answer = readExactly(Handshake.PROOF_BYTES);
    } catch (EOFException refused) {
      throw new IOException("it refused this process's secret", refused);
    }
    shake.check(hello, answer);
  }

  /** Writes one message; {@code payload} is consumed. Blocks while the peer does not read. */
  void write(byte kind, ByteBuffer... payload) throws IOException {
    int length = 1;
    for (ByteBuffer part : payload) {
      length += part.remaining();
    }
    head.clear().putInt(length).put(kind).flip();
    ByteBuffer[] all = new ByteBuffer[payload.length + 1];
    all[0] = head;
    System.arraycopy(payload, 0, all, 1, payload.length);
    long left = length + 4L;
    try {
      while (left > 0) {
        left -= to.write(all);
      }
    } catch (IOException error) {
      throw new Broken(peer + " takes no more: " + error, error);
    }
  }

  /**
   * How many bytes {@link #write} takes without waiting while the peer has read all before. Linux says twice of what was
   * asked for, to have room for what it needs itself. A sixteenth is left for what TLS adds.
   */
  int takesAtOnce() throws IOException {
    int bytes = socket.getOption(StandardSocketOptions.SO_SNDBUF) / 2;
    return to == socket ? bytes : bytes - bytes / 16;
  }

  void write(byte kind, String text) throws IOException {
    write(kind, ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)));
  }

  /** The kind of the next message, waited for. Its payload must be read before the next. */
  byte next() throws IOException {
    fill(HEAD_BYTES);
    left = in.getInt() - 1;
    if (left < 0 || left >= MAX_MESSAGE_BYTES) {
      throw new IOException(peer + " sent a message of " + (left + 1L) + " bytes; at most " + MAX_MESSAGE_BYTES + " may be");
    }
    return in.get();
  }

  /** The payload's next 4 bytes as a number. */
  int readInt() throws IOException {
    fill(Integer.BYTES);
    left -= Integer.BYTES;
    return in.getInt();
  }

  /** The rest of the payload. */
  byte[] readRest() throws IOException {
    return readExactly(left);
  }

  /** The rest of the payload as text. */
  String readText() throws IOException {
    return new String(readRest(), StandardCharsets.UTF_8);
  }

  /** The text of the next message, whatever its kind; the connection is closed when it takes longer than the limit. */
  String readText(long limitMs) throws IOException {
    String[] text = new String[1];
    within(
        limitMs,
        () -> {
          next();
          text[0] = readText();
        });
    return text[0];
  }

  private interface Exchange {
    void run() throws IOException;
  }

  private void within(long limitMs, Exchange exchange) throws IOException {
    Deadline deadline = new Deadline(limitMs, this::close);
    try {
      exchange.run();
      if (deadline.passed()) {
        throw new IOException("just too late");
      }
    } catch (IOException error) {
      throw deadline.passed() ? new IOException(peer + " did not answer within " + limitMs + " ms", error) : error;
    } finally {
      deadline.close();
    }
  }

  private byte[] readExactly(int length) throws IOException {
    byte[] bytes = new byte[length];
    int have = Math.min(length, in.remaining());
    in.get(bytes, 0, have);
    if (length - have > in.capacity()) {
      ByteBuffer rest = ByteBuffer.wrap(bytes, have, length - have);
      while (rest.hasRemaining()) {
        receive(rest);
      }
    } else if (have < length) {
      fill(length - have);
      in.get(bytes, have, length - have);
    }
    return bytes;
  }

  private void fill(int needed) throws IOException {
    if (in.remaining() >= needed) {
      return;
    }
    in.compact();
    while (in.position() < needed) {
      receive(in);
    }
    in.flip();
  }

  private void receive(ByteBuffer into) throws IOException {
    int count;
    try {
      count = from.read(into);
    } catch (IOException error) {
      throw new IOException("the connection to " + peer + " broke: " + error, error);
    }
    if (count < 0) {
      throw new EOFException(peer + " closed the connection");
    }
  }

  private void writeFully(ByteBuffer bytes) throws IOException {
    while (bytes.hasRemaining()) {
      to.write(bytes);
    }
  }

  @Override
  public void close() {
    try {
      socket.close();
    } catch (IOException ignored) {
      // There is nothing left to do with a socket that cannot be closed.
    }
  }
}
