# The cluster as a whole: what its outputs say, and that they say no secret. infra/check.py reads the policies of these runs.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  bucket             = "example-lowtide"
  kafka_passwords    = { jobs = "k-0123456789012345678901234567", admin = "a-0123456789012345678901234567" }
  zookeeper_password = "z-0123456789012345678901234567"
  control_token      = "c-0123456789012345678901234567"
  airflow            = { existing = { role_name = "airflow", security_group_id = "sg-0a" } }
  software = {
    environment  = { file = "tests/software/environment.tar.gz" }
    zookeeper    = { file = "tests/software/zookeeper.tar.gz" }
    certificates = { file = "tests/software/certificates.zip" }
  }
}

override_resource {
  target = module.zookeeper.aws_network_interface.this["zookeeper-1"]
  values = { private_ip = "10.78.0.4" }
}

override_resource {
  target = module.zookeeper.aws_network_interface.this["zookeeper-2"]
  values = { private_ip = "10.78.16.4" }
}

override_resource {
  target = module.zookeeper.aws_network_interface.this["zookeeper-3"]
  values = { private_ip = "10.78.32.4" }
}

run "with_an_airflow_that_is_there" {
  assert {
    condition = alltrue([
      for line in [
        "bootstrap_servers = \"b-1.example:9096,b-2.example:9096,b-3.example:9096\"",
        "security_protocol = \"SASL_SSL\"",
        "sasl_mechanism = \"SCRAM-SHA-512\"",
        "sasl_password_file = \"/etc/lowtide/kafka-password\"",
        "hosts = \"10.78.0.4:2181,10.78.16.4:2181,10.78.32.4:2181\"",
        "sasl_username = \"lowtide-jobs\"",
        "port = 9187                 # of one job on a host; another one takes the next",
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
    condition     = aws_kms_key.this[0].enable_key_rotation && aws_secretsmanager_secret.this["zookeeper"].kms_key_id == aws_kms_key.this[0].arn && aws_secretsmanager_secret.this["control"].kms_key_id == aws_kms_key.this[0].arn
    error_message = "The key is not rotated, or a secret lies under another one."
  }

  assert {
    condition     = aws_secretsmanager_secret_version.zookeeper.secret_string_wo == null && aws_secretsmanager_secret_version.zookeeper.secret_string == null && aws_secretsmanager_secret_version.control.secret_string == null
    error_message = "The state holds a secret."
  }
}

run "software_comes_from_files_of_this_machine" {
  assert {
    condition     = { for name, object in aws_s3_object.software : name => object.source_hash } == { for name, item in var.software : name => filesha256(item.file) }
    error_message = "Something is not put into the bucket, or with another hash than the file's."
  }

  assert {
    condition     = output.submitter.environment == "s3://example-lowtide/software/${substr(filesha256("tests/software/environment.tar.gz"), 0, 12)}/environment.tar.gz"
    error_message = "The environment's name does not tell its content."
  }
}

run "software_that_is_in_the_bucket_needs_no_files" {
  variables {
    software = {
      environment  = { object = "software/environment.tar.gz", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
      zookeeper    = { object = "software/zookeeper.tar.gz", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
      certificates = { object = "software/certificates.zip", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
    }
  }

  assert {
    condition     = length(aws_s3_object.software) == 0 && output.submitter.environment == "s3://example-lowtide/software/environment.tar.gz"
    error_message = "A file is put there, or hosts look elsewhere."
  }
}

run "alarms_go_where_they_should" {
  variables {
    alarms = {
      topic_arn               = "arn:aws:sns:us-east-1:123456789012:pages"
      prometheus_workspace_id = "ws-01234567-89ab-cdef-0123-456789abcdef"
    }
  }

  assert {
    condition     = length(module.alarms) == 1 && contains(module.alarms[0].names, "lowtide-kafka-3-disk") && contains(module.alarms[0].names, "lowtide-zookeeper-3-status") && length(module.alarms[0].names) == 15
    error_message = "There are not two alarms for each broker, one for each ZooKeeper, two of Kafka and four of EMR: ${jsonencode(module.alarms[0].names)}"
  }
}

run "with_mwaa_in_two_zones" {
  variables {
    zones         = ["us-east-1a", "us-east-1b"]
    kafka_brokers = 4
    airflow       = { mwaa = { version = "3.0.6" } }
  }

  assert {
    condition     = output.airflow.url != null && length(split(",", output.hosts.zookeeper)) == 3
    error_message = "MWAA is missing, or one of ZooKeeper's servers."
  }
}
