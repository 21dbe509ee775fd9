# Brokers of Amazon MSK, unless there are some. Clients come over TLS and log in with SCRAM, each user with a password of
# its own; every topic is kept three times, and a write is there once two brokers have it.

data "aws_caller_identity" "this" {}

data "aws_msk_cluster" "existing" {
  count = local.make ? 0 : 1

  cluster_name = split("/", var.existing.cluster_arn)[1]

  lifecycle {
    postcondition {
      condition     = self.arn == var.existing.cluster_arn && self.bootstrap_brokers_sasl_scram != ""
      error_message = "`existing_kafka` is not in this account and region, or its clients cannot log in with SASL/SCRAM: turn that on first."
    }
  }
}

locals {
  make    = var.existing == null
  cluster = local.make ? aws_msk_cluster.this[0] : data.aws_msk_cluster.existing[0]
  group   = local.make ? aws_security_group.this[0].id : var.existing.security_group_id
}

resource "aws_security_group" "this" {
  count = local.make ? 1 : 0

  name        = "${var.network.name}-kafka"
  description = "Kafka brokers"
  vpc_id      = var.network.vpc_id

  tags = { Name = "${var.network.name}-kafka" }
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = var.clients

  security_group_id            = local.group
  description                  = "SASL over TLS from ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = 9096
  to_port                      = 9096
  referenced_security_group_id = each.value
}

resource "aws_cloudwatch_log_group" "this" {
  count = local.make ? 1 : 0

  name              = "/lowtide/${var.network.name}/kafka"
  retention_in_days = var.log_days
  kms_key_id        = var.key_arn
}

resource "aws_msk_configuration" "this" {
  count = local.make ? 1 : 0

  name              = var.network.name
  kafka_versions    = [var.kafka_version]
  server_properties = <<-EOT
    allow.everyone.if.no.acl.found=${!var.acls_required}
    auto.create.topics.enable=false
    default.replication.factor=3
    min.insync.replicas=2
    offsets.topic.replication.factor=3
    transaction.state.log.replication.factor=3
    transaction.state.log.min.isr=2
    unclean.leader.election.enable=false
  EOT
}

resource "aws_msk_cluster" "this" {
  count = local.make ? 1 : 0

  cluster_name           = var.network.name
  kafka_version          = var.kafka_version
  number_of_broker_nodes = var.brokers
  enhanced_monitoring    = "PER_TOPIC_PER_BROKER"

  broker_node_group_info {
    client_subnets  = [for subnet in var.network.subnets : subnet.id]
    instance_type   = var.instance_type
    security_groups = [aws_security_group.this[0].id]

    storage_info {
      ebs_storage_info {
        volume_size = var.disk_gb
      }
    }
  }

  client_authentication {
    unauthenticated = false

    sasl {
      scram = true
      iam   = false
    }
  }

  encryption_info {
    encryption_at_rest_kms_key_arn = var.key_arn

    encryption_in_transit {
      client_broker = "TLS"
      in_cluster    = true
    }
  }

  configuration_info {
    arn      = aws_msk_configuration.this[0].arn
    revision = aws_msk_configuration.this[0].latest_revision
  }

  logging_info {
    broker_logs {
      cloudwatch_logs {
        enabled   = true
        log_group = aws_cloudwatch_log_group.this[0].name
      }
    }
  }

  lifecycle {
    prevent_destroy = true
    # The disks grow by themselves, and never shrink.
    ignore_changes = [broker_node_group_info[0].storage_info[0].ebs_storage_info[0].volume_size]
  }
}

# Disks that grow: MSK adds a tenth, at least 10 GB, not oftener than every six hours.

resource "aws_appautoscaling_target" "disks" {
  count = local.make ? 1 : 0

  service_namespace  = "kafka"
  scalable_dimension = "kafka:broker-storage:VolumeSize"
  resource_id        = aws_msk_cluster.this[0].arn
  min_capacity       = 1
  max_capacity       = var.disk_max_gb
}

resource "aws_appautoscaling_policy" "disks" {
  count = local.make ? 1 : 0

  name               = "${var.network.name}-kafka-disks"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.disks[0].service_namespace
  scalable_dimension = aws_appautoscaling_target.disks[0].scalable_dimension
  resource_id        = aws_appautoscaling_target.disks[0].resource_id

  target_tracking_scaling_policy_configuration {
    target_value     = 55
    disable_scale_in = true

    predefined_metric_specification {
      predefined_metric_type = "KafkaBrokerStorageUtilization"
    }
  }
}

# Users. MSK takes them from secrets whose names begin so, under a key of one's own.

resource "aws_secretsmanager_secret" "user" {
  # checkov:skip=CKV2_AWS_57:Jobs read the password when they start; the README says how it is changed.
  for_each = var.users

  name                    = "AmazonMSK_${var.network.name}_${each.key}"
  description             = "Kafka's user ${var.network.name}-${each.key}"
  kms_key_id              = var.key_arn
  recovery_window_in_days = 7
}

resource "aws_secretsmanager_secret_version" "user" {
  for_each = var.users

  secret_id                = aws_secretsmanager_secret.user[each.key].id
  secret_string_wo         = jsonencode({ username = "${var.network.name}-${each.key}", password = var.passwords[each.key] })
  secret_string_wo_version = var.password_version
}

resource "aws_secretsmanager_secret_policy" "user" {
  for_each = var.users

  secret_arn          = aws_secretsmanager_secret.user[each.key].arn
  block_public_policy = true
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "BrokersReadTheirUser"
      Effect    = "Allow"
      Principal = { Service = "kafka.amazonaws.com" }
      Action    = "secretsmanager:GetSecretValue"
      Resource  = aws_secretsmanager_secret.user[each.key].arn
      Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.this.account_id } }
    }]
  })
}

# One by one, so that users whom others have given the cluster stay.
resource "aws_msk_single_scram_secret_association" "user" {
  for_each = var.users

  cluster_arn = local.cluster.arn
  secret_arn  = aws_secretsmanager_secret.user[each.key].arn

  depends_on = [aws_secretsmanager_secret_version.user, aws_secretsmanager_secret_policy.user]
}
