import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.conf import Conf, parse_settings
from lowtide.conf.conf import NAMED
from lowtide.errors import ConfError

CONF = Path(__file__).parents[3] / "conf"


def load(tmp_path: Path, text: str) -> Conf:
    path = tmp_path / "conf.toml"
    path.write_text(text)
    return Conf.load(path)


def test_embedded_conf_is_what_no_file_means() -> None:
    assert Conf.load(CONF / "embedded.toml") == Conf.load() == Conf()


def test_embedded_conf_names_every_key() -> None:
    text = (CONF / "embedded.toml").read_text()
    for name, kind in NAMED.items():
        for key in dataclasses.fields(kind):
            assert f"\n# {name}.default.{key.name} = " in text
    for table in dataclasses.fields(Conf):
        if table.name in NAMED:
            continue
        assert f"[{table.name}]" in text
        for key in dataclasses.fields(getattr(Conf(), table.name)):
            assert f"\n{key.name} = " in text or f"\n# {key.name} = " in text or f"[{table.name}.{key.name}]" in text


def test_what_embedded_conf_leaves_out_could_be_put_in(tmp_path: Path) -> None:
    lines = (CONF / "embedded.toml").read_text().splitlines()
    keys = [line.removeprefix("# ") for line in lines if line.startswith("# ") and " = " in line]
    assert len(keys) > 8
    conf = load(tmp_path, "\n".join(line.removeprefix("# ") if " = " in line else line for line in lines))
    assert conf.kafka.sasl_password_env == "KAFKA_PASSWORD"
    assert conf.spark.properties == {"spark.executor.cores": "4"}


def test_cluster_conf_is_read() -> None:
    conf = Conf.load(CONF / "cluster.toml")
    assert conf.kafka.security_protocol == "SASL_SSL"
    assert not conf.embedded.enabled


def test_everything_embedded_is_on_loopback() -> None:
    assert Conf().kafka.bootstrap_servers == f"127.0.0.1:{Conf().embedded.kafka_port}"
    assert Conf().spark.master.startswith("local[")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[kafka]\nbootsrap = 'a:1'", "unknown key `bootsrap` in [kafka]|{file}|did you mean `bootstrap_servers`?"),
        (
            "[kafka]\nframe_bytes = 1",
            "unknown key `frame_bytes` in [kafka]|{file}|did you mean `frame_bytes` in [exchange]?",
        ),
        ("[kafk]", "unknown table [kafk]|{file}|did you mean [kafka]?"),
        ("[zzz]", "unknown table [zzz]|There are: job, kafka, zookeeper, spark"),
        ("kafka = 1", "`kafka` is a table, not a value|write [kafka]"),
        ("[exchange]\nunits = '128'", "[exchange] units: expected `int`, got `str`|{file}"),
        ("[exchange]\nunits = 0", "[exchange] units: expected `int` >= 1"),
        ("[epoch]\nduration_s = 4.9", "[epoch] duration_s: expected `float` >= 5.0"),
        ("[kafka]\nbootstrap_servers = 'localhost'", "[kafka] bootstrap_servers|host:port, several with commas"),
        ("[kafka]\nsecurity_protocol = 'tls'", "[kafka] security_protocol|one of PLAINTEXT, SSL, SASL_PLAINTEXT"),
        ("[kafka]\nsecurity_protocol = 'sasl_ssl'", "[kafka] security_protocol|{file}|give it SASL_SSL"),
        ("[kafka]\nbootstrap = 'a:1'", "unknown key `bootstrap` in [kafka]|{file}|did you mean `bootstrap_servers`?"),
        ("[kafka.properties]\n'linger.ms' = 5", "[kafka] properties|expected `str`, got `int`"),
        ("[kafka.properties]\nacks = '1'", "cannot set `acks`: Lowtide sets it, as its transactions|leave it out"),
        ("[kafka.properties]\n'isolation.level' = 'x'", "`isolation.level`|it reads what was committed|{file}"),
        ("[kafka.properties]\n'sasl.password' = 'x'", "`sasl.password`|set sasl_password_env or sasl_password_file"),
        ("[kafka.properties]\n'ssl.key.pem' = 'x'", "`ssl.key.pem`: it is a secret, and the conf holds none"),
        ("[kafka.properties]\n'lingr.ms' = '1'", "cannot set `lingr.ms`|did you mean `linger.ms`?"),
        ("[kafka]\nsasl_mechanism = 'X'", "[kafka] sasl_mechanism|one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("[spark]\ndriver_memory = '1 GB'", "[spark] driver_memory|512m"),
        ("[spark.properties]\n'spark.lowtide.job.lanes' = '1'", "is a key of this conf|set it in its own table"),
        ("[spark.properties]\na = 1", "[spark] properties|expected `str`, got `int`"),
        ("[job]\nparallelism = 3\nlanes = 2", "parallelism is 3, [job] lanes 2|parallelism <= lanes <= units"),
        ("[kafka", "is not TOML|{file}"),
    ],
)
def test_what_is_wrong_is_reported_with_the_way_out(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfError) as caught:
        load(tmp_path, text)
    for part in says.format(file=tmp_path / "conf.toml").split("|"):
        assert part in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_missing_or_unreadable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfError, match=r"(?s)No such file.*missing\.toml"):
        Conf.load(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe4")
    with pytest.raises(ConfError, match="not TOML"):
        Conf.load(tmp_path / "latin.toml")


def test_settings_are_read_as_what_their_keys_want() -> None:
    settings = ["exchange.units=64", "epoch.duration_s=9", "spark.web_ui=true", "job.lanes = 4"]
    settings += ["kafka.bootstrap_servers=a:1,b:2", "spark.properties.spark.sql.x=a=b"]
    conf = Conf.load(None, parse_settings(settings))
    assert (conf.exchange.units, conf.epoch.duration_s, conf.spark.web_ui, conf.job.lanes) == (64, 9.0, True, 4)
    assert conf.kafka.bootstrap_servers == "a:1,b:2"
    assert conf.spark.properties == {"spark.sql.x": "a=b"}


def test_a_parameter_of_a_flow_may_be_white_space() -> None:
    conf = Conf.load(None, parse_settings(["job.parameters.separator= ", " job.parameters.end =\t;"]))
    assert conf.job.parameters == {"separator": " ", "end": "\t;"}


def test_typed_overrides_beat_the_file(tmp_path: Path) -> None:
    (tmp_path / "conf.toml").write_text("[exchange]\nunits = 64\nnetwork_wait_ms = 7")
    conf = Conf.load(tmp_path / "conf.toml", {"exchange.units": 32})
    assert (conf.exchange.units, conf.exchange.network_wait_ms) == (32, 7)


def test_sparks_keys_beat_the_file_and_settings_beat_them(tmp_path: Path) -> None:
    (tmp_path / "conf.toml").write_text("[exchange]\nunits = 64\nnetwork_wait_ms = 7\nmax_frame_rows = 8")
    spark = {"exchange.units": "32", "exchange.network_wait_ms": "6", "kafka.properties.linger.ms": "5"}
    conf = Conf.load(tmp_path / "conf.toml", {"exchange.units": 16}, spark=spark)
    assert (conf.exchange.units, conf.exchange.network_wait_ms, conf.exchange.max_frame_rows) == (16, 6, 8)
    assert conf.kafka.properties == {"linger.ms": "5"}


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("exchange.unit", "unknown key `unit` in [exchange]|spark.lowtide.exchange.unit in Spark's conf|`units`?"),
        ("exchang.units", "unknown table [exchang]|did you mean [exchange]?"),
        ("units", "unknown table [units]|spark.lowtide.units in Spark's conf"),
    ],
)
def test_a_wrong_key_of_spark_is_reported(key: str, says: str) -> None:
    with pytest.raises(ConfError) as caught:
        Conf.load(spark={key: "1"})
    for part in says.split("|"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("exchange.unit=1", "unknown key `unit` in [exchange]|--set exchange.unit|did you mean `units`?"),
        ("exchang.units=1", "unknown table [exchang]|did you mean [exchange]?"),
        ("exchange.units.x=1", "unknown key `units.x` in [exchange]"),
        ("exchange.units=many", "[exchange] units: expected `int`, got `str`|--set exchange.units"),
        ("epoch.duration_s=1", "expected `float` >= 5.0"),
        ("epoch.=1", "`epoch` is a table"),
        ("kafka.properties.group.id=x", "cannot set `group.id`: Lowtide sets it|joins no group"),
        ("exchange.units", "cannot read the setting 'exchange.units'"),
        ("units=1", "cannot read the setting 'units=1'"),
    ],
)
def test_a_wrong_setting_is_reported(setting: str, says: str) -> None:
    with pytest.raises(ConfError) as caught:
        Conf.load(None, parse_settings([setting]))
    for part in says.split("|"):
        assert part in str(caught.value)


def test_an_override_of_the_wrong_type_is_reported() -> None:
    with pytest.raises(ConfError, match=r"\[spark\] web_ui: expected `bool`, got `int`"):
        Conf.load(None, {"spark.web_ui": 1})


def test_reading_conf_loads_nothing_heavy() -> None:
    heavy = {"pyspark", "pyarrow", "numpy", "confluent_kafka", "click"}
    code = f"import lowtide.conf, sys; print({heavy!r} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"


def test_threads_may_read_the_first_conf_together() -> None:
    code = """
import sys, threading
from lowtide.conf import Conf
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=Conf.load) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
