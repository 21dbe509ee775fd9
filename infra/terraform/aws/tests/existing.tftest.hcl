# A VPC, an MSK cluster, a bucket and a key that are there: nothing of the kind is made, and everything else uses them.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  kafka_passwords    = { jobs = "k-0123456789012345678901234567", admin = "a-0123456789012345678901234567" }
  zookeeper_password = "z-0123456789012345678901234567"
  control_token      = "c-0123456789012345678901234567"
  airflow            = { existing = { role_name = "airflow", security_group_id = "sg-0a" } }
  software = {
    environment  = { file = "tests/software/environment.tar.gz" }
    zookeeper    = { file = "tests/software/zookeeper.tar.gz" }
    certificates = { file = "tests/software/certificates.zip" }
  }

  existing_vpc         = { id = "vpc-0a", subnet_ids = ["subnet-0b", "subnet-0a", "subnet-0c"] }
  existing_kafka       = { cluster_arn = "arn:aws:kafka:us-east-1:123456789012:cluster/theirs/0-1", security_group_id = "sg-0b" }
  existing_bucket      = { name = "theirs", prefix = "lowtide/", kms_key_arn = "arn:aws:kms:us-east-1:123456789012:key/theirs" }
  existing_kms_key_arn = "arn:aws:kms:us-east-1:123456789012:key/ours"
}

override_data {
  target = data.aws_vpc.existing[0]
  values = { cidr_block = "172.20.0.0/16" }
}

override_data {
  target = data.aws_subnet.existing["subnet-0a"]
  values = { vpc_id = "vpc-0a", cidr_block = "172.20.1.0/24", availability_zone = "us-east-1a" }
}

override_data {
  target = data.aws_subnet.existing["subnet-0b"]
  values = { vpc_id = "vpc-0a", cidr_block = "172.20.2.0/24", availability_zone = "us-east-1b" }
}

override_data {
  target = data.aws_subnet.existing["subnet-0c"]
  values = { vpc_id = "vpc-0a", cidr_block = "172.20.3.0/24", availability_zone = "us-east-1c" }
}

override_data {
  target = data.aws_s3_bucket.existing[0]
  values = { bucket_region = "us-east-1", arn = "arn:aws:s3:::theirs" }
}

override_data {
  target = module.kafka.data.aws_msk_cluster.existing[0]
  values = {
    arn                          = "arn:aws:kafka:us-east-1:123456789012:cluster/theirs/0-1"
    bootstrap_brokers_sasl_scram = "b-1.theirs:9096,b-2.theirs:9096"
    number_of_broker_nodes       = 2
  }
}

run "nothing_is_made_twice" {
  assert {
    condition     = length(module.network) == 0 && length(module.object_store) == 0 && length(aws_kms_key.this) == 0 && length(aws_kms_alias.this) == 0
    error_message = "A network, a bucket or a key is made beside the one that is there."
  }

  assert {
    condition     = module.endpoints.network.subnets[*].id == tolist(["subnet-0b", "subnet-0a", "subnet-0c"]) && module.endpoints.network.services_cidr == "172.20.0.0/16"
    error_message = "The subnets are others, or in another order, or hosts look for AWS elsewhere."
  }

  assert {
    condition     = strcontains(output.conf, "bootstrap_servers = \"b-1.theirs:9096,b-2.theirs:9096\"") && strcontains(output.conf, "url = \"s3://theirs/lowtide/jobs\"")
    error_message = "Jobs do not use the cluster or the bucket that is there: ${output.conf}"
  }

  assert {
    condition     = output.airflow.connection.extra.snapshots_url == "s3://theirs/lowtide/jobs" && startswith(output.submitter.environment, "s3://theirs/lowtide/software/")
    error_message = "Airflow or a submitter looks elsewhere than jobs."
  }

  assert {
    condition     = aws_secretsmanager_secret.this["control"].kms_key_id == var.existing_kms_key_arn && alltrue([for object in aws_s3_object.software : object.kms_key_id == var.existing_kms_key_arn])
    error_message = "Something is under another key."
  }
}

run "hosts_behind_a_nat_gateway" {
  variables {
    existing_vpc = { id = "vpc-0a", subnet_ids = ["subnet-0b", "subnet-0a", "subnet-0c"], endpoints = "none" }
  }

  assert {
    condition     = module.endpoints.network.services_cidr == "0.0.0.0/0" && length(module.endpoints.services) == 0
    error_message = "Hosts may not go out to AWS's services, or endpoints are made."
  }
}

run "endpoints_in_a_network_that_is_there" {
  variables {
    existing_vpc = { id = "vpc-0a", subnet_ids = ["subnet-0b", "subnet-0a", "subnet-0c"], endpoints = "make", route_table_ids = ["rtb-0a"] }
  }

  assert {
    condition     = contains(module.endpoints.services, "secretsmanager") && contains(module.endpoints.services, "s3")
    error_message = "An endpoint is missing: ${jsonencode(module.endpoints.services)}"
  }
}

run "a_subnet_of_another_vpc" {
  command = plan

  override_data {
    target = data.aws_subnet.existing["subnet-0c"]
    values = { vpc_id = "vpc-0f", cidr_block = "172.20.3.0/24", availability_zone = "us-east-1c" }
  }

  expect_failures = [data.aws_subnet.existing["subnet-0c"]]
}

run "a_bucket_of_another_region" {
  command = plan

  override_data {
    target = data.aws_s3_bucket.existing[0]
    values = { bucket_region = "eu-west-1", arn = "arn:aws:s3:::theirs" }
  }

  expect_failures = [data.aws_s3_bucket.existing[0]]
}
