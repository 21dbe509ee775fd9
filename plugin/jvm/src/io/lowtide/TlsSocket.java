package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.GatheringByteChannel;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.TrustManagerFactory;

/**
 * TLS 1.3 on a blocking socket, the client's end: both ends show a certificate that the job's authority has signed. One
 * thread at a time may write while another reads. The Python side is {@code lowtide/process/credentials.py}.
 */
final class TlsSocket implements GatheringByteChannel, ReadableByteChannel {
  private static final String VERSION = "TLSv1.3";
  private static final char[] NO_PASSWORD = {};
  private static final ByteBuffer[] NOTHING = {ByteBuffer.allocate(0)};

  /** Records that are encrypted before the kernel is given them. */
  private static final int RECORDS_AT_ONCE = 8;

  private final SocketChannel socket;
  private final SSLEngine engine;
  private final ByteBuffer came;
  private final ByteBuffer clear;
  private final ByteBuffer goes;

  TlsSocket(SocketChannel socket, SSLContext tls) {
    this.socket = socket;
    engine = tls.createSSLEngine();
    engine.setUseClientMode(true);
    engine.setEnabledProtocols(new String[] {VERSION});
    int record = engine.getSession().getPacketBufferSize();
    came = ByteBuffer.allocateDirect(record * RECORDS_AT_ONCE).limit(0);
    goes = ByteBuffer.allocateDirect(record * RECORDS_AT_ONCE);
    clear = ByteBuffer.allocate(engine.getSession().getApplicationBufferSize()).limit(0);
  }

  /** What an executor shows and believes, as the service has made it: a key, its certificate and the authority, in PEM. */
  static SSLContext context(JsonNode shown) throws IOException {
    try {
      CertificateFactory certificates = CertificateFactory.getInstance("X.509");
      Certificate own = certificates.generateCertificate(pem(shown, "certificate"));
      KeyStore held = KeyStore.getInstance("PKCS12");
      held.load(null, null);
      held.setKeyEntry(
          "own",
          KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(der(shown.path("key").asText()))),
          NO_PASSWORD,
          new Certificate[] {own});
      KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      keys.init(held, NO_PASSWORD);
      KeyStore believed = KeyStore.getInstance("PKCS12");
      believed.load(null, null);
      believed.setCertificateEntry("job", certificates.generateCertificate(pem(shown, "authority")));
      TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(believed);
      SSLContext tls = SSLContext.getInstance(VERSION);
      tls.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
      return tls;
    } catch (GeneralSecurityException error) {
      throw new IOException("the job's certificate cannot be used: " + error.getMessage(), error);
    }
  }

  private static ByteArrayInputStream pem(JsonNode shown, String name) {
    return new ByteArrayInputStream(shown.path(name).asText().getBytes(StandardCharsets.US_ASCII));
  }

  private static byte[] der(String pem) {
    return Base64.getMimeDecoder().decode(pem.replaceAll("-----[A-Z ]+-----", ""));
  }

  /** Agrees on keys, each end with the other's certificate checked. */
  void shake() throws IOException {
    engine.beginHandshake();
    while (true) {
      switch (engine.getHandshakeStatus()) {
        case NEED_WRAP -> write(NOTHING);
        case NEED_TASK -> engine.getDelegatedTask().run();
        case NEED_UNWRAP, NEED_UNWRAP_AGAIN -> {
          if (!decrypt(clear.clear())) {
            throw new EOFException("it closed the connection instead of agreeing on TLS");
          }
          clear.flip();
        }
        default -> {
          return;
        }
      }
    }
  }

  @Override
  public int read(ByteBuffer into) throws IOException {
    int before = into.position();
    while (into.position() == before) {
      if (clear.hasRemaining()) {
        int count = Math.min(clear.remaining(), into.remaining());
        into.put(into.position(), clear, clear.position(), count).position(before + count);
        clear.position(clear.position() + count);
      } else if (into.remaining() >= clear.capacity()) {
        if (!decrypt(into)) {
          return -1;
        }
      } else {
        boolean more = decrypt(clear.clear());
        clear.flip();
        if (!more) {
          return -1;
        }
      }
    }
    return into.position() - before;
  }

  /** Decrypts one record, waited for; false at the end. A record that says nothing adds nothing. */
  private boolean decrypt(ByteBuffer into) throws IOException {
    while (true) {
      SSLEngineResult result = engine.unwrap(came, into);
      switch (result.getStatus()) {
        case BUFFER_UNDERFLOW -> {
          came.compact();
          int count;
          try {
            count = socket.read(came);
          } finally {
            came.flip();
          }
          if (count < 0) {
            return false;
          }
        }
        case OK -> {
          if (result.getHandshakeStatus() == SSLEngineResult.HandshakeStatus.NEED_TASK) {
            engine.getDelegatedTask().run();
          }
          return true;
        }
        case CLOSED -> {
          return false;
        }
        default -> throw new IOException("TLS: " + result);
      }
    }
  }

  @Override
  public long write(ByteBuffer[] from, int first, int count) throws IOException {
    long taken = 0;
    int record = engine.getSession().getPacketBufferSize();
    synchronized (goes) {
      boolean more = true;
      while (more) {
        goes.clear();
        do {
          SSLEngineResult result = engine.wrap(from, first, count, goes);
          if (result.getStatus() != SSLEngineResult.Status.OK) {
            throw new IOException("TLS: " + result);
          }
          taken += result.bytesConsumed();
          more = remains(from, first, count);
        } while (more && goes.remaining() >= record);
        goes.flip();
        while (goes.hasRemaining()) {
          socket.write(goes);
        }
      }
    }
    return taken;
  }

  private static boolean remains(ByteBuffer[] from, int first, int count) {
    for (int index = first; index < first + count; index++) {
      if (from[index].hasRemaining()) {
        return true;
      }
    }
    return false;
  }

  @Override
  public long write(ByteBuffer[] from) throws IOException {
    return write(from, 0, from.length);
  }

  @Override
  public int write(ByteBuffer from) throws IOException {
    return (int) write(new ByteBuffer[] {from});
  }

  @Override
  public boolean isOpen() {
    return socket.isOpen();
  }

  /** Closes the socket: messages say how long they are, so an end that was forged takes nothing away unnoticed. */
  @Override
  public void close() throws IOException {
    socket.close();
  }
}
