package io.lowtide;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodHandles.Lookup;

/**
 * Defines a class of Spark's from its own bytes, with the name of one class that it uses replaced by another's.
 *
 * <p>For what Spark neither lets be set nor replaced. It works once in a JVM, before the class is first used.
 */
final class Renamed {
  private static final int MAGIC_AND_VERSION = 8;

  private Renamed() {}

  /**
   * Defines a class with a name replaced.
   *
   * @param beside a class of the same package and loader, itself left as it is
   * @param name the class, without its package
   * @param from the name that is replaced, with slashes
   * @param to what stands there instead, with slashes; its loader must find it
   * @throws LinkageError the class is there already
   * @throws IOException the class is not found, or does not use that name
   */
  static void define(Class<?> beside, String name, String from, String to) throws IOException, IllegalAccessException {
    lookup(beside).defineClass(replaced(name, bytes(beside, name), from, to));
  }

  /** A class's bytes, found where its package's other class is. */
  private static byte[] bytes(Class<?> beside, String name) throws IOException {
    try (InputStream found = beside.getResourceAsStream(name + ".class")) {
      if (found == null) {
        throw new IOException("there is no " + beside.getPackageName() + "." + name);
      }
      return found.readAllBytes();
    }
  }

  /** What may define classes in the package and loader of that one. */
  static Lookup lookup(Class<?> beside) throws IllegalAccessException {
    return MethodHandles.privateLookupIn(beside, MethodHandles.lookup());
  }

  private static byte[] replaced(String name, byte[] bytes, String from, String to) throws IOException {
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
        found |= text.equals(from);
        out.writeUTF(text.equals(from) ? to : text.replace("L" + from + ";", "L" + to + ";"));
      } else {
        out.write(in.readNBytes(bytesOf(tag)));
        index += tag == 5 || tag == 6 ? 1 : 0; // A long or double takes two places.
      }
    }
    if (!found) {
      throw new IOException(name + " does not use " + from);
    }
    in.transferTo(out);
    return made.toByteArray();
  }

  /** How long a constant of a class file is, after its tag. */
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
