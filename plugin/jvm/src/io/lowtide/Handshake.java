package io.lowtide;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * One connection's mutual proof of the job's secret, without I/O: the server's {@link #hello}, the client's {@link
 * #reply}, the server's {@link #answer}, the client's {@link #check}. The Python side is `lowtide_tracker.handshake`.
 */
final class Handshake {
  /** Protocol name and, in the last byte, its version. */
  private static final byte[] MAGIC = "LOWTIDE\005".getBytes(StandardCharsets.ISO_8859_1);

  private static final int NONCE_BYTES = 32;
  static final int PROOF_BYTES = 32;
  static final int HELLO_BYTES = MAGIC.length + NONCE_BYTES;
  static final int REPLY_BYTES = HELLO_BYTES + PROOF_BYTES;
  private static final SecureRandom RANDOM = new SecureRandom();

  private final byte[] secret;
  private final byte[] nonce = new byte[NONCE_BYTES];

  Handshake(byte[] secret) {
    this.secret = secret;
    RANDOM.nextBytes(nonce);
  }

  /** What the server sends first. */
  byte[] hello() {
    return joined(MAGIC, nonce);
  }

  /** The client's reply to the server's first bytes. */
  byte[] reply(byte[] hello) throws IOException {
    return joined(MAGIC, nonce, proof("client", nonceOf(hello), nonce));
  }

  /** The server's answer to the client's reply; an IOException where that does not prove the secret. */
  byte[] answer(byte[] reply) throws IOException {
    if (reply.length != REPLY_BYTES) {
      throw new IOException("it replied with " + reply.length + " bytes");
    }
    byte[] theirs = nonceOf(Arrays.copyOf(reply, HELLO_BYTES));
    byte[] proof = Arrays.copyOfRange(reply, HELLO_BYTES, REPLY_BYTES);
    if (!MessageDigest.isEqual(proof, proof("client", nonce, theirs))) {
      throw new IOException("it does not know the job's secret");
    }
    return proof("server", theirs, nonce);
  }

  /** Throws unless the server's answer proves that it knows the secret too. */
  void check(byte[] hello, byte[] answer) throws IOException {
    if (!MessageDigest.isEqual(answer, proof("server", nonce, nonceOf(hello)))) {
      throw new IOException("it does not know the job's secret");
    }
  }

  private static byte[] nonceOf(byte[] hello) throws IOException {
    if (hello.length != HELLO_BYTES || !Arrays.equals(hello, 0, MAGIC.length, MAGIC, 0, MAGIC.length)) {
      throw new IOException("it does not speak this version of Lowtide's protocol");
    }
    return Arrays.copyOfRange(hello, MAGIC.length, HELLO_BYTES);
  }

  private byte[] proof(String role, byte[] first, byte[] second) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(secret, "HmacSHA256"));
      mac.update(role.getBytes(StandardCharsets.US_ASCII));
      mac.update(first);
      mac.update(second);
      return mac.doFinal();
    } catch (GeneralSecurityException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  private static byte[] joined(byte[]... parts) {
    int length = 0;
    for (byte[] part : parts) {
      length += part.length;
    }
    byte[] whole = new byte[length];
    int end = 0;
    for (byte[] part : parts) {
      System.arraycopy(part, 0, whole, end, part.length);
      end += part.length;
    }
    return whole;
  }
}
