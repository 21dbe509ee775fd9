# A cluster on AWS: MSK, ZooKeeper on EC2, YARN on EMR, a bucket, and Airflow. See README.md.

data "aws_caller_identity" "this" {}

data "aws_partition" "this" {}

locals {
  zookeepers = [for n in range(var.zookeeper_nodes) : "zookeeper-${n + 1}"]
  # What hosts call of AWS.
  services = concat(
    ["kms", "logs", "monitoring", "secretsmanager", "sts"],
    var.airflow.mwaa == null ? [] : ["airflow.api", "airflow.env", "airflow.ops", "ecr.api", "ecr.dkr", "sqs"],
  )
  account = "arn:${data.aws_partition.this.partition}:iam::${data.aws_caller_identity.this.account_id}:root"
}

resource "aws_kms_key" "this" {
  count = var.existing_kms_key_arn == null ? 1 : 0

  description             = "Everything of ${var.name}"
  enable_key_rotation     = true
  deletion_window_in_days = 30
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        # In a key's policy "*" is the key itself. Without this statement IAM could not give anybody the key.
        Sid       = "TheAccountDecides"
        Effect    = "Allow"
        Principal = { AWS = local.account }
        Action    = "kms:*"
        Resource  = "*"
      },
      {
        Sid       = "Logs"
        Effect    = "Allow"
        Principal = { Service = "logs.${var.region}.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo"]
        Resource  = "*"
        Condition = { ArnLike = { "kms:EncryptionContext:aws:logs:arn" = "arn:${data.aws_partition.this.partition}:logs:${var.region}:${data.aws_caller_identity.this.account_id}:log-group:*${var.name}*" } }
      },
    ]
  })

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_kms_alias" "this" {
  count = var.existing_kms_key_arn == null ? 1 : 0

  name          = "alias/${var.name}"
  target_key_id = aws_kms_key.this[0].key_id
}

module "network" {
  source = "./modules/network"
  count  = var.existing_vpc == null ? 1 : 0

  name     = var.name
  cidr     = var.cidr
  zones    = var.zones
  log_days = var.log_days
  key_arn  = local.key_arn
}

module "endpoints" {
  source = "./modules/endpoints"

  network         = local.network
  services        = try(var.existing_vpc.endpoints, "make") == "make" ? local.services : []
  route_table_ids = var.existing_vpc == null ? module.network[0].route_table_ids : var.existing_vpc.route_table_ids
}

module "zookeeper" {
  source = "./modules/zookeeper"

  network        = module.endpoints.network
  hosts          = local.zookeepers
  instance_type  = var.zookeeper_type
  disk_gb        = var.zookeeper_disk_gb
  clients        = local.clients
  bucket         = local.bucket
  software       = { object = local.software.zookeeper, sha256 = local.digests.zookeeper }
  s3_prefix_list = module.endpoints.s3_prefix_list
}

module "kafka" {
  source = "./modules/kafka"

  existing         = var.existing_kafka
  network          = local.network
  brokers          = var.kafka_brokers
  instance_type    = var.kafka_broker_type
  disk_gb          = var.kafka_disk_gb
  disk_max_gb      = var.kafka_disk_max_gb
  kafka_version    = var.kafka_version
  acls_required    = var.kafka_acls_required
  clients          = { spark = module.spark.security_group_id }
  key_arn          = local.key_arn
  log_days         = var.log_days
  users            = var.kafka_users
  passwords        = var.kafka_passwords
  password_version = var.secrets_version
}

module "object_store" {
  source = "./modules/object-store"
  count  = var.existing_bucket == null ? 1 : 0

  bucket          = var.bucket
  key_arn         = local.key_arn
  noncurrent_days = var.noncurrent_days
  log_days        = var.log_days
}

module "spark" {
  source = "./modules/spark"

  network        = module.endpoints.network
  master         = { instance_type = var.spark_master_type, count = var.spark_masters }
  workers        = { instance_type = var.spark_worker_type, count = var.spark_workers, disk_gb = var.spark_worker_disk_gb }
  release        = var.emr_release
  protected      = var.protected
  bucket         = local.bucket
  software       = { environment = local.software.environment, environment_sha256 = local.digests.environment, certificates = local.software.certificates }
  s3_prefix_list = module.endpoints.s3_prefix_list
  control_ports  = var.control_ports
  clients        = { airflow = module.airflow.security_group_id }
  servers = {
    kafka     = { security_group_id = module.kafka.security_group_id, port = 9096 }
    zookeeper = { security_group_id = module.zookeeper.security_group_id, port = 2181 }
  }
  secrets = {
    "kafka-password" = module.kafka.password
    "zookeeper-auth" = aws_secretsmanager_secret.this["zookeeper"].arn
    "control-token"  = aws_secretsmanager_secret.this["control"].arn
  }
}

module "airflow" {
  source = "./modules/airflow"

  network         = module.endpoints.network
  existing        = var.airflow.existing
  mwaa            = var.airflow.mwaa
  bucket          = local.bucket
  cluster         = module.spark.cluster
  zookeeper       = module.zookeeper.hosts
  zookeeper_auth  = local.secrets.zookeeper
  control_token   = local.secrets.control
  secrets_version = var.secrets_version
  s3_prefix_list  = module.endpoints.s3_prefix_list
}

module "alarms" {
  source = "./modules/alarms"
  count  = var.alarms == null ? 0 : 1

  name      = var.name
  topic_arn = var.alarms.topic_arn
  kafka     = module.kafka.cluster
  spark     = { id = module.spark.cluster.id, workers = var.spark_workers }
  zookeeper = module.zookeeper.instances
  rules     = var.alarms.prometheus_workspace_id == null ? null : { workspace_id = var.alarms.prometheus_workspace_id, text = file(var.alarms.rules) }
}

# Where jobs are started from: what they need to know. Their secrets lie in Secrets Manager; every host of Spark's cluster
# writes them into /etc/lowtide when it starts.

resource "aws_secretsmanager_secret" "this" {
  # checkov:skip=CKV2_AWS_57:Jobs read these when they start; the README says how they are changed.
  for_each = { zookeeper = "The jobs' nodes in ZooKeeper", control = "The jobs' control APIs" }

  name                    = "${var.name}/${each.key}"
  description             = each.value
  kms_key_id              = local.key_arn
  recovery_window_in_days = 7
}

resource "aws_secretsmanager_secret_version" "zookeeper" {
  secret_id                = aws_secretsmanager_secret.this["zookeeper"].id
  secret_string_wo         = local.secrets.zookeeper
  secret_string_wo_version = var.secrets_version
}

resource "aws_secretsmanager_secret_version" "control" {
  secret_id                = aws_secretsmanager_secret.this["control"].id
  secret_string_wo         = local.secrets.control
  secret_string_wo_version = var.secrets_version
}

locals {
  # Airflow reads the jobs' records in ZooKeeper, and nothing in Kafka.
  clients = { spark = module.spark.security_group_id, airflow = module.airflow.security_group_id }
  secrets = { zookeeper = "lowtide:${var.zookeeper_password}", control = var.control_token }
  conf = templatefile("${path.module}/cluster.toml.tftpl", {
    bootstrap_servers = module.kafka.bootstrap_servers
    security          = module.kafka.security
    zookeeper         = module.zookeeper.hosts
    master            = module.spark.master
    defaults          = module.spark.defaults
    url               = "s3://${local.bucket.name}/${local.bucket.prefix}jobs"
    region            = var.region
    workers           = var.spark_workers
    cores             = var.spark_worker_cores
    memory            = var.executor_memory
    control_port      = var.control_ports.first
  })
}
