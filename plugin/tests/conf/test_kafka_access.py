import datetime
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide.conf import KafkaConf, client_properties
from lowtide.connectors.kafka_access import java_properties, librdkafka_settings, spark_options
from lowtide.errors import ConfError

SASL: dict[str, Any] = {
    "bootstrap_servers": "127.0.0.1:9",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "tide",
    "sasl_password_env": "TIDE_PASSWORD",
}
ENCRYPTED = {"ssl_key_file": "encrypted.key", "ssl_key_password_file": "key-password"}
JAVA = """
import java.io.FileReader;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Open {
  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    properties.load(new FileReader(arguments[0]));
    var bytes = new ByteArrayDeserializer();
    new KafkaConsumer<>(properties, bytes, bytes).close(java.time.Duration.ZERO);
    System.out.println("opened");
  }
}
"""


@pytest.fixture
def pem(tmp_path: Path) -> dict[str, Any]:
    """Files of a self-signed certificate and its key, as keys of the conf."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tide")])
    start = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start + datetime.timedelta(days=36500))
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (tmp_path / "client.pem").write_bytes(certificate)
    for file, encryption in (
        # Java before 19 reads no key that is encrypted the modern way (PBES2), so it gets this one in the clear.
        ("client.key", serialization.NoEncryption()),
        ("encrypted.key", serialization.BestAvailableEncryption(b"key password")),
    ):
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        (tmp_path / file).write_bytes(private)
    (tmp_path / "key-password").write_text("key password\n")
    return {
        "ssl_ca_file": str(tmp_path / "client.pem"),
        "ssl_certificate_file": str(tmp_path / "client.pem"),
        "ssl_key_file": str(tmp_path / "client.key"),
    }


def test_plaintext_is_only_an_address() -> None:
    kafka = KafkaConf(bootstrap_servers="a:1,b:2")
    assert librdkafka_settings(kafka) == {"bootstrap.servers": "a:1,b:2", "security.protocol": "PLAINTEXT"}
    assert spark_options(kafka) == {"kafka.bootstrap.servers": "a:1,b:2", "kafka.security.protocol": "PLAINTEXT"}


def test_one_table_speaks_both_dialects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDE_PASSWORD", 'with "quotes"')
    (tmp_path / "ca.pem").write_text("CA")
    kafka = KafkaConf(**SASL, ssl_ca_file=str(tmp_path / "ca.pem"))
    assert librdkafka_settings(kafka) == {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "tide",
        "sasl.password": 'with "quotes"',
        "ssl.ca.pem": "CA",
    }
    assert spark_options(kafka) == {
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="tide" password="with \\"quotes\\"";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "CA",
    }


def test_properties_reach_each_client_by_its_own_names() -> None:
    given = {"fetch.wait.max.ms": "50", "socket.send.buffer.bytes": "0", "linger.ms": "5", "client.id": "tide"}
    kafka = KafkaConf(properties=given)
    assert librdkafka_settings(kafka).items() >= given.items()
    plain = java_properties(KafkaConf())
    added = {"fetch.max.wait.ms": "50", "send.buffer.bytes": "-1", "client.id": "tide"}
    assert java_properties(kafka) == plain | added, "the source has no producer"


def test_every_property_that_is_taken_is_one_of_librdkafkas() -> None:
    from confluent_kafka import KafkaException, Producer

    for name in (*client_properties._JAVA, *client_properties._LIBRDKAFKA_ONLY):
        said = ""
        try:
            Producer({"log_level": 0, name: "no such value"})
        except KafkaException as caught:
            said = caught.args[0].str()
        assert "No such configuration property" not in said, name


def test_a_value_that_librdkafka_does_not_take_is_refused() -> None:
    with pytest.raises(ConfError, match=r"(?s)does not take linger\.ms = 'soon'.*\[kafka\] of the conf"):
        librdkafka_settings(KafkaConf(properties={"linger.ms": "soon"}))


def test_secrets_are_in_no_object_that_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDE_PASSWORD", "geheim")
    assert "geheim" not in repr(KafkaConf(**SASL))


@pytest.mark.slow
def test_librdkafka_opens_with_the_settings(
    pem: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Producer

    monkeypatch.setenv("TIDE_PASSWORD", "geheim")
    encrypted = {name: str(tmp_path / file) for name, file in ENCRYPTED.items()}
    # A name, file or password that librdkafka does not take raises.
    Producer(librdkafka_settings(KafkaConf(**{**SASL, **pem, **encrypted})))


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_javas_client_opens_with_the_properties(
    mechanism: str, pem: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide.jars.third_party import connector_jars, pyspark_folder

    monkeypatch.setenv("TIDE_PASSWORD", 'with "quotes"')
    known = [*client_properties._JAVA_VALUES, ("fetch.wait.max.ms", "7"), ("client.dns.lookup", "use_all_dns_ips")]
    access = {**SASL, **pem, "sasl_mechanism": mechanism, "properties": dict(known)}
    properties = java_properties(KafkaConf(**access))
    lines = [f"{name}={value}" for name, value in properties.items()]
    escaped = [line.replace("\\", "\\\\").replace("\n", "\\n") for line in lines]
    (tmp_path / "client.properties").write_text("\n".join(escaped))
    (tmp_path / "Open.java").write_text(JAVA)
    path = ":".join([*map(str, connector_jars()), f"{pyspark_folder() / 'jars'}/*"])
    command = ["java", "-cp", path, str(tmp_path / "Open.java"), str(tmp_path / "client.properties")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert answer.stdout.endswith("opened\n"), answer.stderr


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "sasl_password_env names the environment variable TIDE_PASSWORD, which is not set"),
        ({"sasl_password_env": None}, "sasl_password_env or sasl_password_file is not set"),
        ({"sasl_password_env": None, "sasl_password_file": "/no/file"}, "sasl_password_file names /no/file"),
        ({"sasl_password_file": "x"}, "both sasl_password_env and sasl_password_file are set"),
        ({"sasl_mechanism": None, "sasl_password_env": "HOME"}, "sasl_mechanism is not set"),
        ({"security_protocol": "SSL", "ssl_ca_file": "/no/ca"}, "ssl_ca_file names /no/ca, which is not a file"),
        ({"security_protocol": "SSL", "ssl_key_file": "k"}, "ssl_key_file is set, but ssl_certificate_file is not"),
        ({"security_protocol": "SSL", "ssl_certificate_file": "k"}, "ssl_certificate_file is set, but ssl_key_file"),
    ],
)
def test_what_is_missing_is_reported(changes: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDE_PASSWORD", raising=False)
    for mapped in (librdkafka_settings, spark_options):
        with pytest.raises(ConfError) as caught:
            mapped(KafkaConf(**{**SASL, **changes}))
        assert says in str(caught.value)
        assert "[kafka]" in caught.value.where


def test_a_secret_file_that_is_no_text_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"gehe\xffim")
    kafka = KafkaConf(**{**SASL, "sasl_password_env": None, "sasl_password_file": str(tmp_path / "secret")})
    with pytest.raises(ConfError) as caught:
        librdkafka_settings(kafka)
    assert "UnicodeDecodeError" in str(caught.value)
    assert "gehe" not in str(caught.value)
