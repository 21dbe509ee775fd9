# What the modules make.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  network = {
    name          = "lowtide"
    vpc_id        = "vpc-1"
    cidr          = "10.78.0.0/16"
    services_cidr = "10.78.0.0/16"
    subnets = [
      { id = "subnet-a", cidr = "10.78.0.0/20", zone = "us-east-1a" },
      { id = "subnet-b", cidr = "10.78.16.0/20", zone = "us-east-1b" },
      { id = "subnet-c", cidr = "10.78.32.0/20", zone = "us-east-1c" },
    ]
  }
  bucket         = { name = "example", arn = "arn:aws:s3:::example", prefix = "", key_arn = "arn:aws:kms:us-east-1:123456789012:key/k", key_arns = ["arn:aws:kms:us-east-1:123456789012:key/k"] }
  key_arn        = "arn:aws:kms:us-east-1:123456789012:key/k"
  log_days       = 365
  s3_prefix_list = "pl-1"
}

run "network" {
  module {
    source = "./modules/network"
  }

  variables {
    name  = "lowtide"
    cidr  = "10.78.0.0/16"
    zones = ["us-east-1a", "us-east-1b", "us-east-1c"]
  }

  assert {
    condition     = length(aws_subnet.this) == 3 && alltrue([for subnet in aws_subnet.this : subnet.map_public_ip_on_launch == false])
    error_message = "There is a zone without a subnet, or a subnet that gives public addresses."
  }

  assert {
    condition     = aws_flow_log.this.traffic_type == "ALL" && aws_cloudwatch_log_group.flows.kms_key_id == var.key_arn
    error_message = "Connections are not logged, or not encrypted."
  }

}

run "endpoints" {
  module {
    source = "./modules/endpoints"
  }

  variables {
    services        = ["secretsmanager"]
    route_table_ids = ["rtb-1"]
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.this[0].cidr_ipv4 == "10.78.0.0/16"
    error_message = "Endpoints take calls from outside."
  }

  assert {
    condition     = aws_vpc_endpoint.s3[0].route_table_ids == toset(["rtb-1"]) && length(aws_vpc_endpoint.this["secretsmanager"].subnet_ids) == 3
    error_message = "An endpoint is not where hosts look for it."
  }
}

run "endpoints_that_are_there" {
  module {
    source = "./modules/endpoints"
  }

  variables {
    services        = []
    route_table_ids = []
  }

  assert {
    condition     = length(aws_vpc_endpoint.this) == 0 && length(aws_vpc_endpoint.s3) == 0 && length(aws_security_group.this) == 0
    error_message = "Endpoints are made although none is asked for."
  }
}

run "two_subnets_in_one_zone" {
  command = plan

  module {
    source = "./modules/endpoints"
  }

  variables {
    services        = []
    route_table_ids = []
    network = {
      name          = "lowtide"
      vpc_id        = "vpc-1"
      cidr          = "10.78.0.0/16"
      services_cidr = "10.78.0.0/16"
      subnets = [
        { id = "subnet-a", cidr = "10.78.0.0/20", zone = "us-east-1a" },
        { id = "subnet-b", cidr = "10.78.16.0/20", zone = "us-east-1a" },
      ]
    }
  }

  expect_failures = [output.network]
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
    existing         = null
    disk_max_gb      = 500
    acls_required    = true
    users            = ["jobs", "admin"]
    passwords        = { jobs = "k-0123456789012345678901234567", admin = "a-0123456789012345678901234567" }
    password_version = 1
  }

  assert {
    condition     = aws_msk_cluster.this[0].encryption_info[0].encryption_in_transit[0].client_broker == "TLS" && aws_msk_cluster.this[0].encryption_info[0].encryption_in_transit[0].in_cluster && aws_msk_cluster.this[0].encryption_info[0].encryption_at_rest_kms_key_arn == var.key_arn
    error_message = "Something is not encrypted."
  }

  assert {
    condition     = aws_msk_cluster.this[0].client_authentication[0].sasl[0].scram && !aws_msk_cluster.this[0].client_authentication[0].unauthenticated
    error_message = "Clients need not log in with SCRAM."
  }

  assert {
    condition = alltrue([
      for line in ["allow.everyone.if.no.acl.found=false", "default.replication.factor=3", "min.insync.replicas=2", "transaction.state.log.min.isr=2", "auto.create.topics.enable=false", "unclean.leader.election.enable=false"] :
      contains(split("\n", aws_msk_configuration.this[0].server_properties), line)
    ])
    error_message = "Records are not kept as Lowtide needs it."
  }

  assert {
    condition     = aws_msk_configuration.this[0].kafka_versions == toset(["4.0.x.kraft"]) && aws_msk_cluster.this[0].kafka_version == "4.0.x.kraft"
    error_message = "It is another version."
  }

  assert {
    condition     = keys(aws_vpc_security_group_ingress_rule.clients) == ["spark"] && aws_vpc_security_group_ingress_rule.clients["spark"].referenced_security_group_id == "sg-1" && aws_vpc_security_group_ingress_rule.clients["spark"].from_port == 9096 && aws_vpc_security_group_ingress_rule.clients["spark"].to_port == 9096
    error_message = "Others than Spark may connect, or to other ports."
  }

  assert {
    condition     = alltrue([for name, secret in aws_secretsmanager_secret.user : secret.name == "AmazonMSK_lowtide_${name}" && secret.kms_key_id == var.key_arn]) && length(aws_msk_single_scram_secret_association.user) == 2
    error_message = "MSK does not take a user's secret."
  }

  assert {
    condition     = alltrue([for version in aws_secretsmanager_secret_version.user : version.secret_string == null && version.secret_string_wo == null]) && output.security.username == "lowtide-jobs"
    error_message = "The state holds a password, or jobs log in as another user."
  }

  assert {
    condition     = aws_appautoscaling_target.disks[0].max_capacity == 500 && aws_appautoscaling_policy.disks[0].target_tracking_scaling_policy_configuration[0].disable_scale_in && aws_appautoscaling_policy.disks[0].target_tracking_scaling_policy_configuration[0].predefined_metric_specification[0].predefined_metric_type == "KafkaBrokerStorageUtilization"
    error_message = "Disks do not grow, or not as far as they should."
  }
}

run "kafka_that_is_there" {
  module {
    source = "./modules/kafka"
  }

  variables {
    brokers          = 3
    instance_type    = "kafka.m7g.large"
    disk_gb          = 100
    kafka_version    = "4.0.x.kraft"
    clients          = { spark = "sg-1" }
    existing         = { cluster_arn = "arn:aws:kafka:us-east-1:123456789012:cluster/theirs/0-1", security_group_id = "sg-2" }
    disk_max_gb      = 500
    acls_required    = true
    users            = ["jobs", "admin"]
    passwords        = { jobs = "k-0123456789012345678901234567", admin = "a-0123456789012345678901234567" }
    password_version = 1
  }

  override_data {
    target = data.aws_msk_cluster.existing[0]
    values = {
      arn                          = "arn:aws:kafka:us-east-1:123456789012:cluster/theirs/0-1"
      bootstrap_brokers_sasl_scram = "b-1.theirs:9096,b-2.theirs:9096"
      number_of_broker_nodes       = 2
    }
  }

  assert {
    condition     = length(aws_msk_cluster.this) == 0 && length(aws_msk_configuration.this) == 0 && length(aws_appautoscaling_policy.disks) == 0 && length(aws_security_group.this) == 0
    error_message = "A cluster is made beside the one that is there, or its settings are changed."
  }

  assert {
    condition     = data.aws_msk_cluster.existing[0].cluster_name == "theirs" && output.bootstrap_servers == "b-1.theirs:9096,b-2.theirs:9096" && output.cluster.brokers == 2
    error_message = "It is another cluster."
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.clients["spark"].security_group_id == "sg-2" && alltrue([for each in aws_msk_single_scram_secret_association.user : each.cluster_arn == var.existing.cluster_arn])
    error_message = "Spark may not connect, or users are given to another cluster."
  }
}

run "kafka_that_is_there_without_scram" {
  command = plan

  module {
    source = "./modules/kafka"
  }

  variables {
    brokers          = 3
    instance_type    = "kafka.m7g.large"
    disk_gb          = 100
    kafka_version    = "4.0.x.kraft"
    clients          = { spark = "sg-1" }
    existing         = { cluster_arn = "arn:aws:kafka:us-east-1:123456789012:cluster/theirs/0-1", security_group_id = "sg-2" }
    disk_max_gb      = 500
    acls_required    = true
    users            = ["jobs", "admin"]
    passwords        = { jobs = "k-0123456789012345678901234567", admin = "a-0123456789012345678901234567" }
    password_version = 1
  }

  override_data {
    target = data.aws_msk_cluster.existing[0]
    values = {
      arn                          = "arn:aws:kafka:us-east-1:123456789012:cluster/theirs/0-1"
      bootstrap_brokers_sasl_scram = ""
    }
  }

  expect_failures = [data.aws_msk_cluster.existing[0]]
}

run "zookeeper" {
  module {
    source = "./modules/zookeeper"
  }

  override_resource {
    target = aws_network_interface.this["zookeeper-1"]
    values = { private_ip = "10.78.0.4" }
  }

  override_resource {
    target = aws_network_interface.this["zookeeper-2"]
    values = { private_ip = "10.78.16.4" }
  }

  override_resource {
    target = aws_network_interface.this["zookeeper-3"]
    values = { private_ip = "10.78.32.4" }
  }

  variables {
    hosts         = ["zookeeper-1", "zookeeper-2", "zookeeper-3"]
    instance_type = "t4g.small"
    disk_gb       = 10
    clients       = { spark = "sg-1" }
    software      = { object = "software/zookeeper.tar.gz", sha256 = "00" }
  }

  assert {
    condition     = alltrue([for disk in aws_ebs_volume.this : disk.encrypted && disk.kms_key_id == var.bucket.key_arn]) && alltrue([for host in aws_instance.this : host.root_block_device[0].encrypted])
    error_message = "A disk is not encrypted."
  }

  assert {
    condition     = alltrue([for host in aws_instance.this : host.metadata_options[0].http_tokens == "required" && host.key_name == null])
    error_message = "A host gives its role to whatever can make it send a request, or has a login."
  }

  assert {
    condition     = [for each in aws_network_interface.this : each.subnet_id] == ["subnet-a", "subnet-b", "subnet-c"] && alltrue([for name, host in aws_instance.this : host.primary_network_interface[0].network_interface_id == aws_network_interface.this[name].id])
    error_message = "The servers are not in a zone each, or have not the addresses that are theirs."
  }

  assert {
    condition = alltrue([
      for name, host in aws_instance.this :
      strcontains(host.user_data, "server.1=10.78.0.4:2888:3888\nserver.2=10.78.16.4:2888:3888\nserver.3=10.78.32.4:2888:3888") && strcontains(host.user_data, "echo '${split("-", name)[1]}' > /var/lib/zookeeper/myid") && strcontains(host.user_data, "sha256sum --check")
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

run "zookeeper_in_two_zones" {
  command = plan

  module {
    source = "./modules/zookeeper"
  }

  variables {
    hosts         = ["zookeeper-1", "zookeeper-2", "zookeeper-3"]
    instance_type = "t4g.small"
    disk_gb       = 10
    clients       = { spark = "sg-1" }
    software      = { object = "software/zookeeper.tar.gz", sha256 = "00" }
    network = {
      name   = "lowtide"
      vpc_id = "vpc-1"
      cidr   = "10.78.0.0/16"
      subnets = [
        { id = "subnet-a", cidr = "10.78.0.0/20", zone = "us-east-1a" },
        { id = "subnet-b", cidr = "10.78.16.0/20", zone = "us-east-1b" },
      ]
    }
  }

  assert {
    condition     = [for each in aws_network_interface.this : each.subnet_id] == ["subnet-a", "subnet-b", "subnet-a"] && [for disk in aws_ebs_volume.this : disk.availability_zone] == ["us-east-1a", "us-east-1b", "us-east-1a"]
    error_message = "The servers are not spread over both zones, or a disk is in another zone than its server."
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
    servers  = { kafka = { security_group_id = "sg-2", port = 9096 }, zookeeper = { security_group_id = "sg-3", port = 2181 } }

    control_ports = { first = 9187, jobs = 20 }
    protected     = true
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
    condition     = toset([for rule in aws_vpc_security_group_ingress_rule.clients : "${rule.from_port}-${rule.to_port}"]) == toset(["8032-8032", "8020-8020", "9866-9866", "9187-9206"])
    error_message = "Submitters reach other ports than they need."
  }

  assert {
    condition     = { for name, rule in aws_vpc_security_group_egress_rule.servers : name => "${rule.referenced_security_group_id} ${rule.from_port}" } == { kafka = "sg-2 9096", zookeeper = "sg-3 2181" }
    error_message = "Hosts may connect to others than Kafka and ZooKeeper."
  }

  assert {
    condition     = !strcontains(aws_s3_object.bootstrap.content, "dnf")
    error_message = "A worker's start waits for a repository of packages."
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
    mwaa            = { version = "3.0.6", class = "mw1.small", max_workers = 2 }
    cluster         = { id = "j-1", arn = "arn:aws:elasticmapreduce:us-east-1:123456789012:cluster/j-1", host = "h" }
    zookeeper       = "10.78.0.11:2181"
    zookeeper_auth  = "lowtide:z-0123456789012345678901234567"
    control_token   = "c-0123456789012345678901234567"
    secrets_version = 1
  }

  assert {
    condition     = aws_mwaa_environment.this[0].webserver_access_mode == "PRIVATE_ONLY" && aws_mwaa_environment.this[0].kms_key == var.bucket.key_arn && aws_mwaa_environment.this[0].airflow_version == "3.0.6" && length(aws_mwaa_environment.this[0].network_configuration[0].subnet_ids) == 2
    error_message = "MWAA is public, not encrypted with our key, of another version, or not in two zones."
  }
}

run "alarms" {
  module {
    source = "./modules/alarms"
  }

  variables {
    name      = "lowtide"
    topic_arn = "arn:aws:sns:us-east-1:123456789012:pages"
    kafka     = { name = "lowtide", brokers = 2 }
    spark     = { id = "j-1", workers = 3 }
    zookeeper = { zookeeper-1 = "i-1" }
    rules     = { workspace_id = "ws-1", text = "groups: []" }
  }

  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.this : alarm.alarm_actions == toset([var.topic_arn]) && alarm.ok_actions == toset([var.topic_arn])])
    error_message = "An alarm wakes nobody, or does not say when it is over."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["kafka-2-disk"].dimensions == tomap({ "Cluster Name" = "lowtide", "Broker ID" = "2" }) && aws_cloudwatch_metric_alarm.this["zookeeper-1-status"].dimensions == tomap({ InstanceId = "i-1" }) && aws_cloudwatch_metric_alarm.this["spark-workers"].threshold == 3
    error_message = "An alarm looks at something else."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["spark-workers"].period == 300 && aws_cloudwatch_metric_alarm.this["spark-workers"].evaluation_periods == 2 && aws_cloudwatch_metric_alarm.this["kafka-1-behind"].period == 60 && aws_cloudwatch_metric_alarm.this["kafka-1-behind"].evaluation_periods == 15
    error_message = "An alarm asks oftener than its metric comes, or for another time."
  }

  assert {
    condition     = aws_prometheus_rule_group_namespace.this[0].data == "groups: []" && aws_prometheus_rule_group_namespace.this[0].workspace_id == "ws-1"
    error_message = "Prometheus does not get the rules."
  }
}
