"""Access to Kafka: one `[kafka]` table, in the two dialects that its clients speak.

librdkafka (sinks, probes, tools) and Kafka's Java client (Spark's source, embedded tools) name the same things
differently. Secrets are read here, at the moment of use, and are in no object that is printed.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from lowtide.conf import KafkaConf
from lowtide.conf.client_properties import java_names
from lowtide.conf.secret import read_secret, read_text
from lowtide.errors import ConfError
from lowtide_snapshots.redaction import is_secret, shown, without

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def librdkafka_settings(kafka: KafkaConf) -> dict[str, str]:
    """Return the settings of a confluent-kafka client that `[kafka]` makes; the caller's own go on top.

    Certificates and key are in the values themselves: executors need not have the files.

    Raises:
        ConfError: a secret or file is not there, the table contradicts itself, or librdkafka does not take a property.
    """
    _check_values(tuple(kafka.properties.items()))
    settings = {
        **kafka.properties,
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
    }
    if _uses_sasl(kafka):
        mechanism, username, password = _login(kafka)
        settings |= {"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password}
    if _uses_ssl(kafka):
        if kafka.ssl_ca_file:
            settings["ssl.ca.pem"] = _content(kafka.ssl_ca_file, "ssl_ca_file")
        if _has_certificate(kafka):
            settings["ssl.certificate.pem"] = _content(kafka.ssl_certificate_file, "ssl_certificate_file")
            settings["ssl.key.pem"] = _content(kafka.ssl_key_file, "ssl_key_file")
            if key_password := _key_password(kafka):
                settings["ssl.key.password"] = key_password
    return settings


def java_properties(kafka: KafkaConf) -> dict[str, str]:
    """Return the same as properties of Kafka's Java clients, 3.x and later.

    Raises:
        ConfError: as `librdkafka_settings`.
    """
    properties = {
        **java_names(kafka.properties),
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
    }
    if _uses_sasl(kafka):
        mechanism, username, password = _login(kafka)
        login = f'username="{_quoted(username)}" password="{_quoted(password)}"'
        properties |= {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{_LOGIN_MODULES[mechanism]} required {login};",
        }
    if _uses_ssl(kafka):
        if kafka.ssl_ca_file:
            properties["ssl.truststore.type"] = "PEM"
            properties["ssl.truststore.certificates"] = _content(kafka.ssl_ca_file, "ssl_ca_file")
        if _has_certificate(kafka):
            properties["ssl.keystore.type"] = "PEM"
            certificate = _content(kafka.ssl_certificate_file, "ssl_certificate_file")
            properties["ssl.keystore.certificate.chain"] = certificate
            properties["ssl.keystore.key"] = _content(kafka.ssl_key_file, "ssl_key_file")
            if key_password := _key_password(kafka):
                properties["ssl.key.password"] = key_password
    return properties


def spark_options(kafka: KafkaConf) -> dict[str, str]:
    """Return the same as options of Spark's Kafka source: `kafka.` before each Java property."""
    return {f"kafka.{name}": value for name, value in java_properties(kafka).items()}


@lru_cache(maxsize=1)
def _check_values(properties: tuple[tuple[str, str], ...]) -> None:
    """Let librdkafka check the values of properties; without an address it connects to nothing."""
    if not properties:
        return
    from confluent_kafka import KafkaException, Producer

    for name, value in properties:
        try:
            Producer({"log_level": 0, name: value})
        except KafkaException as caught:
            said = without(caught.args[0].str(), [value] if is_secret(name, value) else [])
            what = f"properties: librdkafka does not take {name} = {shown(name, value)!r}: {said}"
            raise _wrong(what, "correct the value, or leave it out") from caught


def _uses_sasl(kafka: KafkaConf) -> bool:
    return kafka.security_protocol.startswith("SASL_")


def _uses_ssl(kafka: KafkaConf) -> bool:
    return kafka.security_protocol.endswith("SSL")


def _has_certificate(kafka: KafkaConf) -> bool:
    if (kafka.ssl_certificate_file is None) != (kafka.ssl_key_file is None):
        given, missing = ("ssl_key_file", "ssl_certificate_file")
        if kafka.ssl_key_file is None:
            given, missing = missing, given
        raise _wrong(f"{given} is set, but {missing} is not", f"set both, or neither: {missing} = …")
    return kafka.ssl_key_file is not None


def _login(kafka: KafkaConf) -> tuple[str, str, str]:
    password = _secret("sasl_password", kafka.sasl_password_env, kafka.sasl_password_file)
    given = {"sasl_mechanism": kafka.sasl_mechanism, "sasl_username": kafka.sasl_username}
    given["sasl_password_env or sasl_password_file"] = password
    for key, value in given.items():
        if value is None:
            raise _wrong(f"security_protocol is {kafka.security_protocol}, but {key} is not set", f"set {key}")
    assert kafka.sasl_mechanism is not None
    assert kafka.sasl_username is not None
    assert password is not None
    return kafka.sasl_mechanism, kafka.sasl_username, password


def _key_password(kafka: KafkaConf) -> str | None:
    return _secret("ssl_key_password", kafka.ssl_key_password_env, kafka.ssl_key_password_file)


def _secret(name: str, variable: str | None, file: str | None) -> str | None:
    if variable is None and file is not None:
        _file(file, f"{name}_file")
    return read_secret("kafka", name, variable, file)


def _file(path: str | None, key: str) -> Path:
    assert path is not None
    file = Path(path).absolute()
    if not file.is_file():
        raise _wrong(f"{key} names {path}, which is not a file", "correct the path, or put the file there")
    return file


def _content(path: str | None, key: str) -> str:
    return read_text("kafka", key, str(_file(path, key)))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _wrong(what: str, way_out: str) -> ConfError:
    return ConfError(what, where="[kafka] of the conf", way_out=way_out)
