# What the modules make.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  network = {
    name   = "lowtide"
    vpc_id = "vpc-1"
    cidr   = "10.78.0.0/16"
    subnets = [
      { id = "subnet-a", cidr = "10.78.0.0/20", zone = "us-east-1a" },
      { id = "subnet-b", cidr = "10.78.16.0/20", zone = "us-east-1b" },
      { id = "subnet-c", cidr = "10.78.32.0/20", zone = "us-east-1c" },
    ]
  }
  bucket         = { name = "example", arn = "arn:aws:s3:::example", key_arn = "arn:aws:kms:us-east-1:123456789012:key/k" }
  key_arn        = "arn:aws:kms:us-east-1:123456789012:key/k"
  log_days       = 365
  s3_prefix_list = "pl-1"
}

run "network" {
  module {
    source = "./modules/network"
  }

  variables {
    name     = "lowtide"
    cidr     = "10.78.0.0/16"
    zones    = ["us-east-1a", "us-east-1b", "us-east-1c"]
    services = ["secretsmanager"]
  }

  assert {
    condition     = length(aws_subnet.this) == 3 && alltrue([for subnet in aws_subnet.this : subnet.map_public_ip_on_launch == false])
    error_message = "There is a zone without a subnet, or a subnet that gives public addresses."
  }

  assert {
    condition     = aws_flow_log.this.traffic_type == "ALL" && aws_cloudwatch_log_group.flows.kms_key_id == var.key_arn
    error_message = "Connections are not logged, or not encrypted."
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.endpoints.cidr_ipv4 == "10.78.0.0/16"
    error_message = "Endpoints take calls from outside."
  }
}

run "kafka" {
  module {
    source = "./modules/kafka"
  }

  variables {
    brokers          = 3
    instance_type    = "kafka.m7g.large"
    disk_gb          = 100
    kafka_version    = "4.0.x.kraft"
    clients          = { spark = "sg-1" }
    password         = "k-0123456789012345678901234567"
    password_version = 1
  }

  assert {
    condition     = aws_msk_cluster.this.encryption_info[0].encryption_in_transit[0].client_broker == "TLS" && aws_msk_cluster.this.encryption_info[0].encryption_in_transit[0].in_cluster && aws_msk_cluster.this.encryption_info[0].encryption_at_rest_kms_key_arn == var.key_arn
    error_message = "Something is not encrypted."
  }

  assert {
    condition     = aws_msk_cluster.this.client_authentication[0].sasl[0].scram && !aws_msk_cluster.this.client_authentication[0].unauthenticated
    error_message = "Clients need not log in with SCRAM."
  }

  assert {
    condition = alltrue([
      for line in ["default.replication.factor=3", "min.insync.replicas=2", "transaction.state.log.min.isr=2", "auto.create.topics.enable=false", "unclean.leader.election.enable=false"] :
      contains(split("\n", aws_msk_configuration.this.server_properties), line)
    ])
    error_message = "Records are not kept as Lowtide needs it."
  }

  assert {
    condition     = aws_msk_configuration.this.kafka_versions == toset(["4.0.x.kraft"]) && aws_msk_cluster.this.kafka_version == "4.0.x.kraft"
    error_message = "It is another version."
  }

  assert {
    condition     = keys(aws_vpc_security_group_ingress_rule.clients) == ["spark"] && aws_vpc_security_group_ingress_rule.clients["spark"].referenced_security_group_id == "sg-1" && aws_vpc_security_group_ingress_rule.clients["spark"].from_port == 9096 && aws_vpc_security_group_ingress_rule.clients["spark"].to_port == 9096
    error_message = "Others than Spark may connect, or to other ports."
  }

  assert {
    condition     = startswith(aws_secretsmanager_secret.this.name, "AmazonMSK_") && aws_secretsmanager_secret.this.kms_key_id == var.key_arn && aws_secretsmanager_secret_version.this.secret_string == null
    error_message = "MSK does not take this secret, or the state holds it."
  }
}

run "zookeeper" {
  module {
    source = "./modules/zookeeper"
  }

  variables {
    hosts         = ["zookeeper-1", "zookeeper-2", "zookeeper-3"]
    instance_type = "t4g.small"
    disk_gb       = 10
    clients       = { spark = "sg-1" }
    software      = { object = "software/zookeeper.tar.gz", sha512 = "00" }
  }

  assert {
    condition     = alltrue([for disk in aws_ebs_volume.this : disk.encrypted && disk.kms_key_id == var.bucket.key_arn]) && alltrue([for host in aws_instance.this : host.root_block_device[0].encrypted])
    error_message = "A disk is not encrypted."
  }

  assert {
    condition     = alltrue([for host in aws_instance.this : host.metadata_options[0].http_tokens == "required" && host.associate_public_ip_address == false && host.key_name == null])
    error_message = "A host gives its role to whatever can make it send a request, or has a public address, or a login."
  }

  assert {
    condition     = [for host in aws_instance.this : host.private_ip] == ["10.78.0.11", "10.78.16.12", "10.78.32.13"] && length(distinct([for host in aws_instance.this : host.subnet_id])) == 3
    error_message = "The servers are not in a zone each."
  }

  assert {
    condition = alltrue([
      for name, host in aws_instance.this :
      strcontains(host.user_data, "server.1=10.78.0.11:2888:3888\nserver.2=10.78.16.12:2888:3888\nserver.3=10.78.32.13:2888:3888") && strcontains(host.user_data, "echo '${split("-", name)[1]}' > /var/lib/zookeeper/myid") && strcontains(host.user_data, "sha512sum --check")
    ])
    error_message = "A server does not know the ensemble or its own number, or takes any archive."
  }

  assert {
    condition     = keys(aws_vpc_security_group_ingress_rule.clients) == ["spark"] && aws_vpc_security_group_ingress_rule.clients["spark"].from_port == 2181 && alltrue([for rule in aws_vpc_security_group_ingress_rule.quorum : rule.referenced_security_group_id == aws_security_group.this.id])
    error_message = "Others than Spark and the servers themselves may connect."
  }

  assert {
    condition     = jsondecode(aws_iam_role_policy.this.policy).Statement[0].Resource == ["arn:aws:s3:::example/software/zookeeper.tar.gz"] && length(jsondecode(aws_iam_role_policy.this.policy).Statement) == 2
    error_message = "A server may do more than read its archive."
  }
}

run "object_store" {
  module {
    source = "./modules/object-store"
  }

  variables {
    bucket          = "example"
    noncurrent_days = 7
  }

  assert {
    condition     = aws_s3_bucket_public_access_block.this.block_public_acls && aws_s3_bucket_public_access_block.this.block_public_policy && aws_s3_bucket_public_access_block.this.ignore_public_acls && aws_s3_bucket_public_access_block.this.restrict_public_buckets
    error_message = "The bucket can become public."
  }

  assert {
    condition     = [for rule in aws_s3_bucket_server_side_encryption_configuration.this.rule : rule.apply_server_side_encryption_by_default[0].kms_master_key_id] == [var.key_arn]
    error_message = "The bucket is not encrypted with our key."
  }

  assert {
    condition     = aws_s3_bucket_versioning.this.versioning_configuration[0].status == "Enabled" && !aws_s3_bucket.this.force_destroy
    error_message = "What is overwritten is lost, or the bucket goes with all it holds."
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this.rule : rule.noncurrent_version_expiration[0].noncurrent_days if rule.id == "noncurrent" && rule.status == "Enabled"] == [7]
    error_message = "Old versions stay for ever."
  }

  assert {
    condition     = jsondecode(aws_s3_bucket_policy.this.policy).Statement == [{ Sid = "OnlyTLS", Effect = "Deny", Principal = "*", Action = "s3:*", Resource = ["arn:aws:s3:::example", "arn:aws:s3:::example/*"], Condition = { Bool = { "aws:SecureTransport" = "false" } } }]
    error_message = "The bucket takes calls without TLS, or allows something by itself."
  }
}

run "spark" {
  module {
    source = "./modules/spark"
  }

  variables {
    master   = { instance_type = "m7g.xlarge", count = 1 }
    workers  = { instance_type = "m7g.2xlarge", count = 2, disk_gb = 64 }
    release  = "emr-7.13.0"
    software = { environment = "software/environment.tar.gz", environment_sha256 = "00", certificates = "software/certificates.zip" }
    secrets  = { "kafka-password" = "arn:aws:secretsmanager:us-east-1:123456789012:secret:kafka" }
    clients  = { airflow = "sg-1" }
  }

  assert {
    condition = alltrue([
      for encryption in [jsondecode(aws_emr_security_configuration.this.configuration).EncryptionConfiguration] :
      encryption.EnableInTransitEncryption && encryption.EnableAtRestEncryption && encryption.AtRestEncryptionConfiguration.LocalDiskEncryptionConfiguration.EnableEbsEncryption && encryption.AtRestEncryptionConfiguration.S3EncryptionConfiguration.AwsKmsKey == var.bucket.key_arn && encryption.InTransitEncryptionConfiguration.TLSCertificateConfiguration.S3Object == "s3://example/software/certificates.zip"
    ])
    error_message = "Something is not encrypted."
  }

  assert {
    condition     = jsondecode(aws_emr_security_configuration.this.configuration).InstanceMetadataServiceConfiguration.MinimumInstanceMetadataServiceVersion == 2
    error_message = "A host gives its role to whatever can make it send a request."
  }

  assert {
    condition     = aws_emr_cluster.this.security_configuration == "lowtide" && aws_emr_cluster.this.release_label == "emr-7.13.0" && aws_emr_cluster.this.termination_protection && aws_emr_cluster.this.ec2_attributes[0].key_name == null
    error_message = "The cluster lacks its security configuration, is of another release, unprotected, or has a login."
  }

  assert {
    condition     = strcontains(aws_s3_object.bootstrap.content, "s3://example/software/environment.tar.gz") && strcontains(aws_s3_object.bootstrap.content, "sha256sum --check") && strcontains(aws_s3_object.bootstrap.content, "secret 'arn:aws:secretsmanager:us-east-1:123456789012:secret:kafka' 'kafka-password'") && aws_emr_cluster.this.bootstrap_action[0].path == "s3://example/${aws_s3_object.bootstrap.key}"
    error_message = "Hosts start without Lowtide's environment or without its secrets."
  }

  assert {
    condition     = toset([for rule in aws_vpc_security_group_ingress_rule.clients : "${rule.from_port}-${rule.to_port}"]) == toset(["8032-8032", "8020-8020", "9866-9866", "32768-60999"])
    error_message = "Submitters reach other ports than they need."
  }

  assert {
    condition     = { for statement in jsondecode(aws_iam_role_policy.job.policy).Statement : statement.Sid => statement.Resource } == { Snapshots = ["arn:aws:s3:::example/jobs/*"], Software = ["arn:aws:s3:::example/software/*"], Logs = ["arn:aws:s3:::example/logs/*"], Names = ["arn:aws:s3:::example"], Secrets = ["arn:aws:secretsmanager:us-east-1:123456789012:secret:kafka"], Key = [var.bucket.key_arn] }
    error_message = "Jobs may do more than they need."
  }
}

run "airflow_that_is_there" {
  module {
    source = "./modules/airflow"
  }

  variables {
    existing        = { role_name = "airflow", security_group_id = "sg-1" }
    mwaa            = null
    cluster         = { id = "j-1", arn = "arn:aws:elasticmapreduce:us-east-1:123456789012:cluster/j-1", host = "h" }
    zookeeper       = "10.78.0.11:2181"
    zookeeper_auth  = "lowtide:z-0123456789012345678901234567"
    control_token   = "c-0123456789012345678901234567"
    secrets_version = 1
  }

  assert {
    condition     = length(aws_mwaa_environment.this) == 0 && length(aws_iam_role.mwaa) == 0 && length(aws_security_group.mwaa) == 0 && aws_iam_role_policy.jobs.role == "airflow" && output.security_group_id == "sg-1"
    error_message = "An Airflow is made beside the one that is there, or that one gets no rights."
  }

  assert {
    condition     = { for statement in jsondecode(aws_iam_role_policy.jobs.policy).Statement : statement.Sid => statement.Resource } == { Snapshots = ["arn:aws:s3:::example/jobs/*"], Names = ["arn:aws:s3:::example"], Connection = [aws_secretsmanager_secret.connection.arn], Key = [var.bucket.key_arn], Cluster = [var.cluster.arn] }
    error_message = "Airflow may do more than it needs."
  }
}

run "airflow_as_mwaa" {
  module {
    source = "./modules/airflow"
  }

  variables {
    existing        = null
    mwaa            = { version = "3.3.0", class = "mw1.small", max_workers = 2 }
    cluster         = { id = "j-1", arn = "arn:aws:elasticmapreduce:us-east-1:123456789012:cluster/j-1", host = "h" }
    zookeeper       = "10.78.0.11:2181"
    zookeeper_auth  = "lowtide:z-0123456789012345678901234567"
    control_token   = "c-0123456789012345678901234567"
    secrets_version = 1
  }

  assert {
    condition     = aws_mwaa_environment.this[0].webserver_access_mode == "PRIVATE_ONLY" && aws_mwaa_environment.this[0].kms_key == var.bucket.key_arn && aws_mwaa_environment.this[0].airflow_version == "3.3.0" && length(aws_mwaa_environment.this[0].network_configuration[0].subnet_ids) == 2
    error_message = "MWAA is public, not encrypted with our key, of another version, or not in two zones."
  }
}
