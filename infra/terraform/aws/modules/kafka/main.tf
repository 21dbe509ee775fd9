# Brokers of Amazon MSK. Clients come over TLS and log in with SCRAM; every topic is kept three times, and a write is
# there once two brokers have it.

data "aws_caller_identity" "this" {}

resource "aws_security_group" "this" {
  name        = "${var.network.name}-kafka"
  description = "Kafka brokers"
  vpc_id      = var.network.vpc_id

  tags = { Name = "${var.network.name}-kafka" }
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = var.clients

  security_group_id            = aws_security_group.this.id
  description                  = "SASL over TLS from ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = 9096
  to_port                      = 9096
  referenced_security_group_id = each.value
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/lowtide/${var.network.name}/kafka"
  retention_in_days = var.log_days
  kms_key_id        = var.key_arn
}

resource "aws_msk_configuration" "this" {
  name              = var.network.name
  kafka_versions    = [var.kafka_version]
  server_properties = <<-EOT
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
  cluster_name           = var.network.name
  kafka_version          = var.kafka_version
  number_of_broker_nodes = var.brokers
  enhanced_monitoring    = "PER_TOPIC_PER_BROKER"

  broker_node_group_info {
    client_subnets  = [for subnet in var.network.subnets : subnet.id]
    instance_type   = var.instance_type
    security_groups = [aws_security_group.this.id]

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
    arn      = aws_msk_configuration.this.arn
    revision = aws_msk_configuration.this.latest_revision
  }

  logging_info {
    broker_logs {
      cloudwatch_logs {
        enabled   = true
        log_group = aws_cloudwatch_log_group.this.name
      }
    }
  }
}

# MSK takes users from secrets whose names begin so, under a key of one's own.
resource "aws_secretsmanager_secret" "this" {
  # checkov:skip=CKV2_AWS_57:The job reads the password when it starts; the README says how it is changed.
  name                    = "AmazonMSK_${var.network.name}_${var.user}"
  description             = "Kafka's user ${var.user}"
  kms_key_id              = var.key_arn
  recovery_window_in_days = 7
}

resource "aws_secretsmanager_secret_version" "this" {
  secret_id                = aws_secretsmanager_secret.this.id
  secret_string_wo         = jsonencode({ username = var.user, password = var.password })
  secret_string_wo_version = var.password_version
}

resource "aws_secretsmanager_secret_policy" "this" {
  secret_arn          = aws_secretsmanager_secret.this.arn
  block_public_policy = true
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "BrokersReadTheirUser"
      Effect    = "Allow"
      Principal = { Service = "kafka.amazonaws.com" }
      Action    = "secretsmanager:GetSecretValue"
      Resource  = aws_secretsmanager_secret.this.arn
      Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.this.account_id } }
    }]
  })
}

resource "aws_msk_scram_secret_association" "this" {
  cluster_arn     = aws_msk_cluster.this.arn
  secret_arn_list = [aws_secretsmanager_secret.this.arn]

  depends_on = [aws_secretsmanager_secret_version.this, aws_secretsmanager_secret_policy.this]
}
