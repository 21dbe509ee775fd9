# The cluster as a whole: what its outputs say, and that they say no secret. infra/check.py reads the policies of these runs.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  bucket             = "example-lowtide"
  kafka_password     = "k-0123456789012345678901234567"
  zookeeper_password = "z-0123456789012345678901234567"
  control_token      = "c-0123456789012345678901234567"
  airflow            = { existing = { role_name = "airflow", security_group_id = "sg-0a" } }
  software = {
    environment        = "software/environment.tar.gz"
    environment_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
    zookeeper          = "software/apache-zookeeper-3.9.4-bin.tar.gz"
    zookeeper_sha512   = "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
  }
}

run "with_an_airflow_that_is_there" {
  assert {
    condition = alltrue([
      for line in [
        "bootstrap_servers = \"b-1.example:9096,b-2.example:9096,b-3.example:9096\"",
        "security_protocol = \"SASL_SSL\"",
        "sasl_mechanism = \"SCRAM-SHA-512\"",
        "sasl_password_file = \"/etc/lowtide/kafka-password\"",
        "hosts = \"10.78.0.11:2181,10.78.16.12:2181,10.78.32.13:2181\"",
        "auth_file = \"/etc/lowtide/zookeeper-auth\"",
        "master = \"yarn\"",
        "\"spark.authenticate\" = \"true\"",
        "\"spark.network.crypto.enabled\" = \"true\"",
        "\"spark.io.encryption.enabled\" = \"true\"",
        "url = \"s3://example-lowtide/jobs\"",
        "token_file = \"/etc/lowtide/control-token\"",
      ] : contains(split("\n", output.conf), line)
    ])
    error_message = "The conf does not say where everything is: ${output.conf}"
  }

  assert {
    condition     = !strcontains(jsonencode([output.conf, output.submitter, output.airflow]), "0123456789012345678901234567")
    error_message = "An output holds a secret."
  }

  assert {
    condition     = output.airflow.connection.host == output.hosts.zookeeper && output.airflow.connection.extra.snapshots_url == "s3://example-lowtide/jobs" && output.airflow.url == null
    error_message = "Airflow's connection leads elsewhere."
  }

  assert {
    condition     = aws_kms_key.this.enable_key_rotation && aws_secretsmanager_secret.this["zookeeper"].kms_key_id == aws_kms_key.this.arn && aws_secretsmanager_secret.this["control"].kms_key_id == aws_kms_key.this.arn
    error_message = "The key is not rotated, or a secret lies under another one."
  }

  assert {
    condition     = aws_secretsmanager_secret_version.zookeeper.secret_string_wo == null && aws_secretsmanager_secret_version.zookeeper.secret_string == null && aws_secretsmanager_secret_version.control.secret_string == null
    error_message = "The state holds a secret."
  }
}

run "with_mwaa_in_two_zones" {
  variables {
    zones         = ["us-east-1a", "us-east-1b"]
    kafka_brokers = 4
    airflow       = { mwaa = { version = "3.3.0" } }
  }

  assert {
    condition     = output.airflow.url != null && output.hosts.zookeeper == "10.78.0.11:2181,10.78.16.12:2181,10.78.0.13:2181"
    error_message = "MWAA is missing, or ZooKeeper's servers are not spread over both zones."
  }
}
