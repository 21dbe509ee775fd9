# Every validation of a variable refuses what it should. A variable with several, or whose
# validation looks at another variable, has runs of its own.

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

run "each_variable_alone" {
  command = plan

  variables {
    name                 = "Lowtide"
    region               = "Virginia"
    tags                 = { lowtide = "mine" }
    cidr                 = "10.78.0.0/24"
    kafka_broker_type    = "m7g.large"
    kafka_disk_gb        = 0
    kafka_version        = "3.9.x"
    zookeeper_nodes      = 2
    zookeeper_type       = "t3.small"
    zookeeper_disk_gb    = 0.5
    spark_masters        = 2
    spark_master_type    = "m7g.large"
    spark_workers        = 0
    spark_worker_type    = "m7g.large"
    spark_worker_cores   = 1
    spark_worker_disk_gb = 10
    executor_memory      = "8GB"
    emr_release          = "emr-6.15.0"
    bucket               = "Example_Bucket"
    noncurrent_days      = 0
    log_days             = 14
    kafka_users          = ["jobs"]
    existing_vpc         = { id = "vpc", subnet_ids = ["subnet-0a", "subnet-0b"] }
    existing_kafka       = { cluster_arn = "theirs", security_group_id = "sg-0a" }
    existing_kms_key_arn = "alias/theirs"
    control_ports        = { first = 80, jobs = 20 }
    alarms               = { topic_arn = "pages" }
    zookeeper_password   = "with spaces, which a file or a URL may spoil"
    control_token        = ""
    secrets_version      = 0
    airflow              = {}
  }

  expect_failures = [
    var.name, var.region, var.tags, var.cidr, var.kafka_broker_type, var.kafka_disk_gb,
    var.kafka_version, var.zookeeper_nodes, var.zookeeper_type, var.zookeeper_disk_gb, var.spark_masters,
    var.spark_master_type, var.spark_workers, var.spark_worker_type, var.spark_worker_cores, var.spark_worker_disk_gb,
    var.executor_memory, var.emr_release, var.bucket, var.noncurrent_days, var.log_days, var.kafka_users,
    var.existing_vpc, var.existing_kafka,
    var.existing_kms_key_arn, var.control_ports, var.alarms,
    var.zookeeper_password, var.control_token, var.secrets_version, var.airflow,
  ]
}

run "one_zone_alone" {
  command = plan

  variables {
    zones = ["us-east-1a"]
  }

  expect_failures = [var.zones]
}

run "zones_of_another_region_existing_airflow_by_arn_no_such_file_one_subnet" {
  command = plan

  variables {
    zones        = ["us-east-1a", "eu-west-1a"]
    airflow      = { existing = { role_name = "arn:aws:iam::123456789012:role/airflow", security_group_id = "sg-0a" } }
    existing_vpc = { id = "vpc-0a", subnet_ids = ["subnet-0a"] }
    software = {
      environment  = { file = "tests/software/environment.tgz" }
      zookeeper    = { file = "tests/software/zookeeper.tar.gz" }
      certificates = { file = "tests/software/certificates.zip" }
    }
  }

  expect_failures = [var.zones, var.airflow, var.software, var.existing_vpc]
}

run "what_looks_at_another_variable" {
  command = plan

  variables {
    existing_bucket   = { name = "theirs" }
    kafka_disk_gb     = 100
    kafka_disk_max_gb = 50
    kafka_passwords   = { jobs = "short", admin = "short" }
  }

  expect_failures = [var.existing_bucket, var.kafka_disk_max_gb, var.kafka_passwords]
}

run "route_tables_without_endpoints_a_prefix_that_is_no_folder_a_user_without_password" {
  command = plan

  variables {
    bucket          = null
    existing_bucket = { name = "theirs", prefix = "/lowtide" }
    existing_vpc    = { id = "vpc-0a", subnet_ids = ["subnet-0a", "subnet-0b"], route_table_ids = ["rtb-0a"] }
    kafka_passwords = { jobs = "k-0123456789012345678901234567" }
  }

  expect_failures = [var.existing_bucket, var.existing_vpc, var.kafka_passwords]
}

run "brokers_that_two_zones_do_not_divide_a_file_that_is_an_object_too" {
  command = plan

  variables {
    zones         = ["us-east-1a", "us-east-1b"]
    kafka_brokers = 3
    software = {
      environment  = { file = "tests/software/environment.tar.gz", object = "software/environment.tar.gz" }
      zookeeper    = { file = "tests/software/zookeeper.tar.gz" }
      certificates = { file = "tests/software/certificates.zip" }
    }
  }

  expect_failures = [var.kafka_brokers, var.software]
}

run "an_airflow_that_is_too_old_for_lowtide_an_object_elsewhere" {
  command = plan

  variables {
    airflow = { mwaa = { version = "2.10.3" } }
    software = {
      environment  = { object = "elsewhere/environment.tar.gz", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
      zookeeper    = { file = "tests/software/zookeeper.tar.gz" }
      certificates = { file = "tests/software/certificates.zip" }
    }
  }

  expect_failures = [var.airflow, var.software]
}

run "an_airflow_that_is_there_and_one_to_make" {
  command = plan

  variables {
    airflow = {
      existing = { role_name = "airflow", security_group_id = "sg-0a" }
      mwaa     = { version = "3.0.6" }
    }
  }

  expect_failures = [var.airflow]
}
